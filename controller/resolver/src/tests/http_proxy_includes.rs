//! Includes in HTTPProxies: included routes match only below the include's prefix, and the include
//! tree's size is limited.

use std::collections::BTreeSet;

use super::http_proxies::{NONE, ask, errors, messages, proxy, root, send, warnings, with};
use super::router::{GET, Request, answer};

#[test]
fn includes_join_prefixes_and_add_conditions() {
    let parent = "
includes:
- {name: child, conditions: [{prefix: /a}, {header: {name: x-team, exact: one}}]}
- {name: child, conditions: [{prefix: /b/}]}
- {name: child, conditions: [{prefix: /v1.0}]}
- {name: slash, conditions: [{prefix: /s}]}
routes: [{services: [{name: a, port: 80}]}]
";
    let child = "
routes:
- {conditions: [{prefix: /c}], services: [{name: b, port: 80}]}
- {conditions: [{exact: /e}], services: [{name: b, port: 80}]}
- {conditions: [{regex: '/r|/admin'}], services: [{name: c, port: 80}]}
- {conditions: [{regex: '/q//z'}], services: [{name: c, port: 80}]}
";
    let slash = "routes: [{conditions: [{prefix: /}], services: [{name: c, port: 80}]}]";
    let resolution = with(&[
        root("r", parent),
        proxy("child", child),
        proxy("slash", slash),
    ]);
    let team = [("x-team", "one")];
    for (path, headers, expected) in [
        ("/a/c/x", &team[..], "web/b/80"),
        ("/a/c/x", &[], "web/a/80"),
        ("/b/c", &[], "web/b/80"),
        ("/b/r", &[], "web/c/80"),
        ("/admin", &[], "web/a/80"),
        ("/b/admin", &[], "web/c/80"),
        ("/c", &[], "web/a/80"),
        ("/b/e", &[], "web/b/80"),
        ("/b/e/x", &[], "web/a/80"),
        // The include's prefix is literal, and the expression stays as it is.
        ("/v1.0/r", &[], "web/c/80"),
        ("/v1x0/r", &[], "web/a/80"),
        ("/b/q//z", &[], "web/c/80"),
        ("/b/q/z", &[], "web/a/80"),
        // As in Contour, the joined prefix is `/s/`.
        ("/s", &[], "web/a/80"),
        ("/s/", &[], "web/c/80"),
        ("/s/x", &[], "web/c/80"),
        ("/sx", &[], "web/a/80"),
    ] {
        assert_eq!(send(&resolution, 80, path, headers), expected, "{path}");
    }
    assert_eq!(errors(&resolution, "child"), NONE);
}

#[test]
fn unbalanced_regex_stays_below_its_include() {
    let parent = "
includes: [{name: child, conditions: [{prefix: /team}]}]
routes: [{services: [{name: a, port: 80}]}]
";
    let child =
        "routes: [{conditions: [{regex: '/x)|(?:/admin'}], services: [{name: b, port: 80}]}]";
    let resolution = with(&[root("r", parent), proxy("child", child)]);
    for (path, expected) in [("/admin", "web/a/80"), ("/team/x", "500")] {
        assert_eq!(ask(&resolution, path), expected, "{path}");
    }
    let invalid = ["RouteError/PathMatchConditionsNotValid"];
    assert_eq!(errors(&resolution, "child"), invalid);
}

#[test]
fn conditions_of_include_and_route_apply_together() {
    let parent = "
includes: [{name: child, conditions: [{prefix: /a}, {header: {name: x-team, exact: one}}]}]
routes: [{services: [{name: a, port: 80}]}]
";
    let child = "
routes:
- {conditions: [{header: {name: x-own, exact: two}}], services: [{name: b, port: 80}]}
- {conditions: [{prefix: /t}, {header: {name: x-team, exact: two}}], services: [{name: b, port: 80}]}
";
    let resolution = with(&[root("r", parent), proxy("child", child)]);
    let (team, own) = (("x-team", "one"), ("x-own", "two"));
    for (path, headers, expected) in [
        ("/a", &[team, own][..], "web/b/80"),
        ("/a", &[team], "web/a/80"),
        ("/a", &[own], "web/a/80"),
        // The route contradicts the include.
        ("/a/t", &[team], "500"),
        ("/a/t", &[("x-team", "two")], "web/a/80"),
    ] {
        let found = send(&resolution, 80, path, headers);
        assert_eq!(found, expected, "{path} {headers:?}");
    }
    let invalid = ["RouteError/HeaderMatchConditionsNotValid"];
    assert_eq!(errors(&resolution, "child"), invalid);
    assert_eq!(errors(&resolution, "r"), NONE);
}

#[test]
fn includes_that_lead_nowhere_answer_502() {
    let parent = "
includes:
- {name: gone, conditions: [{prefix: /gone}]}
- {name: r, conditions: [{prefix: /self}]}
- {name: other, conditions: [{prefix: /root}]}
- {name: misused, conditions: [{exact: /exact}]}
- {name: misused, conditions: [{regex: '/re(x)?'}]}
- {name: misused, conditions: [{prefix: slash}]}
- {name: child, conditions: [{prefix: /twice}]}
- {name: loop, conditions: [{prefix: /loop}]}
- {name: twice, conditions: [{prefix: /twice}]}
- {name: foreign, conditions: [{prefix: /class}]}
routes: [{services: [{name: a, port: 80}]}]
";
    let other = "virtualhost: {fqdn: other.test}\nroutes: [{services: [{name: a, port: 80}]}]";
    let child = "routes: [{services: [{name: b, port: 80}]}]";
    let own = format!("includes: [{{name: loop, conditions: [{{prefix: /again}}]}}]\n{child}");
    let resolution = with(&[
        root("r", parent),
        proxy("other", other),
        proxy("child", child),
        proxy("misused", child),
        proxy("loop", &own),
        proxy("twice", child),
        proxy("foreign", child).replace("edge", "elsewhere"),
        proxy("orphan", child),
    ]);
    for (path, expected) in [
        ("/gone/x", "502"),
        ("/self", "502"),
        ("/root", "502"),
        ("/exact/x", "502"),
        ("/re/x", "502"),
        ("/rex", "502"),
        ("/slash", "502"),
        ("/twice/x", "web/b/80"),
        ("/loop/x", "web/b/80"),
        ("/loop/again", "502"),
        ("/class", "502"),
        ("/x", "web/a/80"),
    ] {
        assert_eq!(ask(&resolution, path), expected, "{path}");
    }
    let expected = [
        "IncludeError/IncludeNotFound",
        "IncludeError/IncludeCreatesCycle",
        "IncludeError/RootIncludesRoot",
        // Equal messages are listed once.
        "IncludeError/PathMatchConditionsNotValid",
        "IncludeError/PathMatchConditionsNotValid",
        "IncludeError/DuplicateMatchConditions",
        "IncludeError/IncludeNotFound",
    ];
    assert_eq!(errors(&resolution, "r"), expected);
    let own_messages = messages(&resolution, "r").concat();
    assert!(own_messages.contains("web/r -> web/r;"), "{own_messages}");
    assert!(
        own_messages.contains("of class \"elsewhere\""),
        "{own_messages}"
    );
    assert_eq!(
        errors(&resolution, "loop"),
        ["IncludeError/IncludeCreatesCycle"]
    );
    // Only an HTTPProxy that no include names is orphaned.
    for name in ["child", "misused", "twice"] {
        assert_eq!(errors(&resolution, name), NONE, "{name}");
    }
    let noted = ["IncludeError/PathMatchConditionsNotValid"];
    assert_eq!(warnings(&resolution, "misused"), noted);
    assert_eq!(errors(&resolution, "orphan"), ["Orphaned/Orphaned"]);
}

#[test]
fn invalid_includes_leave_equal_matches_to_valid_ones() {
    let child = "routes: [{services: [{name: b, port: 80}]}]";
    for (includes, requests) in [
        ("{name: gone}", &[("/", "502")][..]),
        ("{name: gone}, {name: child}", &[("/", "web/b/80")]),
        (
            "{name: child}, {name: child, conditions: [{prefix: x}]}, {name: gone}",
            &[("/", "web/b/80"), ("/x", "502")],
        ),
        (
            "{name: gone, conditions: [{prefix: /x}]}, {name: child, conditions: [{prefix: /x}]}",
            &[("/x/y", "web/b/80"), ("/", "404")],
        ),
        (
            "{name: child, conditions: [{prefix: /x}]}, {name: gone, conditions: [{prefix: /x}]}",
            &[("/x/y", "web/b/80"), ("/", "404")],
        ),
        (
            "{name: gone, conditions: [{prefix: /x}]}, {name: lost, conditions: [{prefix: /y}]}, \
             {name: child, conditions: [{prefix: /z}, {header: {name: x}}]}",
            &[("/x", "502"), ("/y", "502"), ("/z", "502")],
        ),
    ] {
        let parent = root("r", &format!("includes: [{includes}]"));
        let resolution = with(&[parent, proxy("child", child)]);
        for (path, expected) in requests {
            assert_eq!(ask(&resolution, path), *expected, "{includes}: {path}");
        }
        assert_eq!(warnings(&resolution, "r"), NONE, "{includes}");
        let tables = &resolution.gateways[0].snapshot.route_tables;
        let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
        let routes: Vec<&str> = hosts
            .flat_map(|host| &host.routes)
            .map(|route| route.name.as_str())
            .collect();
        let names: BTreeSet<&str> = routes.iter().copied().collect();
        assert_eq!(names.len(), routes.len(), "{routes:?}");
    }
}

#[test]
fn includes_with_equal_conditions_are_duplicates() {
    let [w, z] = ["w", "z"].map(|name| format!("{{header: {{name: {name}, exact: a}}}}"));
    let query = "{queryParameter: {name: q, exact: a}}";
    for (first, second, is_duplicate) in [
        (format!("{w}, {z}"), format!("{z}, {w}"), true),
        (query.to_owned(), query.to_owned(), true),
        (
            format!("{{prefix: /}}, {w}"),
            format!("{{prefix: /}}, {w}"),
            true,
        ),
        (format!("{w}, {query}"), w.clone(), false),
        (w, z, false),
        // As in Contour, conditions that take all requests are no duplicates.
        ("{prefix: /}".to_owned(), "{prefix: /}".to_owned(), false),
        (String::new(), String::new(), false),
    ] {
        let parent = format!(
            "includes:\n- {{name: one, conditions: [{first}]}}\n- {{name: two, conditions: \
             [{second}]}}"
        );
        let child = |service: &str| {
            format!(
                "routes: [{{conditions: [{{prefix: /{service}}}], services: [{{name: {service}, \
                 port: 80}}]}}]"
            )
        };
        let resolution = with(&[
            root("r", &parent),
            proxy("one", &child("b")),
            proxy("two", &child("c")),
        ]);
        let duplicates = errors(&resolution, "r");
        let expected = ["IncludeError/DuplicateMatchConditions"];
        let expected = &expected[..usize::from(is_duplicate)];
        assert_eq!(duplicates, expected, "{first} {second}");
        let request = Request {
            host: "h.test",
            path: "/c",
            headers: &[("w", "a"), ("z", "a")],
            query: &[("q", "a")],
            ..GET
        };
        let found = answer(&resolution.gateways[0].snapshot, &request);
        let served = if is_duplicate { "404" } else { "web/c/80" };
        assert_eq!(found, served, "{first} {second}");
        assert_eq!(errors(&resolution, "two"), NONE, "{first} {second}");
    }
}

#[test]
fn tree_of_includes_is_bounded() {
    let mut objects = vec![root(
        "r",
        "includes: [{name: p0}, {name: p0, conditions: [{prefix: /b}]}]",
    )];
    for level in 0..20 {
        let next = level + 1;
        let spec = format!(
            "includes: [{{name: p{next}}}, {{name: p{next}, conditions: [{{prefix: /b}}]}}]\n\
             routes: [{{services: [{{name: a, port: 80}}]}}]"
        );
        objects.push(proxy(&format!("p{level}"), &spec));
    }
    objects.push(proxy("p20", "routes: [{services: [{name: a, port: 80}]}]"));
    let other = "virtualhost: {fqdn: other.test}\nroutes: [{services: [{name: b, port: 80}]}]";
    objects.push(proxy("other", other));
    let resolution = with(&objects);
    let too_many = "SpecError/TooManyRoutes".to_owned();
    assert!(errors(&resolution, "r").contains(&too_many));
    let request = Request {
        host: "other.test",
        ..GET
    };
    let snapshot = &resolution.gateways[0].snapshot;
    assert_eq!(answer(snapshot, &request), "web/b/80");
}

#[test]
fn routes_beyond_limit_are_withheld_from_one_namespace() {
    let route = |at: usize| {
        format!("- {{conditions: [{{prefix: /{at}}}], services: [{{name: b, port: 80}}]}}\n")
    };
    let child = format!("routes:\n{}", (0..1000).map(route).collect::<String>());
    let include = |at: usize| {
        format!("- {{name: child, namespace: web, conditions: [{{prefix: /p{at}}}]}}\n")
    };
    let spec = |host: &str, number: usize| {
        let includes: String = (0..number).map(include).collect();
        format!("virtualhost: {{fqdn: {host}.test}}\nincludes:\n{includes}")
    };
    // Both roots have the same age, so the root in namespace `app` takes precedence.
    let many =
        proxy("many", &spec("many", 5)).replace("namespace: web}\nspec", "namespace: app}\nspec");
    let resolution = with(&[many, proxy("child", &child), proxy("r", &spec("h", 1))]);
    let ask_many = |path: &str| {
        let request = Request {
            host: "many.test",
            path,
            ..GET
        };
        answer(&resolution.gateways[0].snapshot, &request)
    };
    assert_eq!(ask_many("/p4/999"), "web/b/80");
    assert_eq!(ask_many("/p0/999"), "502");
    assert_eq!(ask(&resolution, "/p0/999"), "web/b/80");
    for name in ["child", "r"] {
        assert_eq!(errors(&resolution, name), NONE, "{name}");
    }
}
