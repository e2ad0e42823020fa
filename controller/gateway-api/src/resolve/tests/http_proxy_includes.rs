//! Includes in HTTPProxies: included routes match only below the include's prefix, and the include
//! tree's size is limited.

use super::http_proxies::{NONE, ask, errors, proxy, root, send, with};
use super::router::{GET, Request, answer};

#[test]
fn includes_join_prefixes_and_add_conditions() {
    let parent = "
includes:
- {name: child, conditions: [{prefix: /a}, {header: {name: x-team, exact: one}}]}
- {name: child, conditions: [{prefix: /b/}]}
routes: [{services: [{name: a, port: 80}]}]
";
    let child = "
routes:
- {conditions: [{prefix: /c}], services: [{name: b, port: 80}]}
- {conditions: [{regex: '/r|/admin'}], services: [{name: c, port: 80}]}
";
    let resolution = with(&[root("r", parent), proxy("child", child)]);
    let team = [("x-team", "one")];
    for (path, headers, expected) in [
        ("/a/c/x", &team[..], "web/b/80"),
        ("/a/c/x", &[], "web/a/80"),
        ("/b/c", &[], "web/b/80"),
        ("/b/r", &[], "web/c/80"),
        ("/admin", &[], "web/a/80"),
        ("/b/admin", &[], "web/c/80"),
        ("/c", &[], "web/a/80"),
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
fn includes_that_lead_nowhere_answer_502() {
    let parent = "
includes:
- {name: gone, conditions: [{prefix: /gone}]}
- {name: r, conditions: [{prefix: /self}]}
- {name: other, conditions: [{prefix: /root}]}
- {name: child, conditions: [{exact: /exact}]}
- {name: child, conditions: [{prefix: /twice}]}
- {name: child, conditions: [{prefix: /twice}]}
routes: [{services: [{name: a, port: 80}]}]
";
    let other = "virtualhost: {fqdn: other.test}\nroutes: [{services: [{name: a, port: 80}]}]";
    let child = "routes: [{services: [{name: b, port: 80}]}]";
    let resolution = with(&[
        root("r", parent),
        proxy("other", other),
        proxy("child", child),
        proxy("orphan", child),
    ]);
    for (path, expected) in [
        ("/gone/x", "502"),
        ("/self", "502"),
        ("/root", "502"),
        ("/exact", "502"),
        ("/twice/x", "web/b/80"),
        ("/x", "web/a/80"),
    ] {
        assert_eq!(ask(&resolution, path), expected, "{path}");
    }
    let expected = [
        "IncludeError/IncludeNotFound",
        "IncludeError/IncludeCreatesCycle",
        "IncludeError/RootIncludesRoot",
        "IncludeError/PathMatchConditionsNotValid",
        "IncludeError/DuplicateMatchConditions",
    ];
    assert_eq!(errors(&resolution, "r"), expected);
    assert_eq!(errors(&resolution, "child"), NONE);
    assert_eq!(errors(&resolution, "orphan"), ["Orphaned/Orphaned"]);
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
