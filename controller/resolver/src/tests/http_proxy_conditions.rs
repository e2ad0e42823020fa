//! Conditions of HTTPProxy routes: operators, precedence, and invalid conditions.

use super::http_proxies::{NONE, ask, errors, proxy, root, send, warnings, with};
use super::router::{GET, Request, answer};

#[test]
fn headers_compare_with_every_operator() {
    let cases = [
        ("present: true", Some("x"), None),
        ("notpresent: true", None, Some("x")),
        ("exact: Abc", Some("Abc"), Some("abc")),
        ("exact: Abc, ignoreCase: true", Some("aBC"), Some("b")),
        ("notexact: a", Some("b"), Some("a")),
        ("contains: b", Some("abc"), Some("ac")),
        ("notcontains: b", Some("ac"), Some("abc")),
        ("notexact: Abc, ignoreCase: true", Some("b"), Some("aBC")),
        ("contains: B, ignoreCase: true", Some("abc"), Some("ac")),
        ("notcontains: B, ignoreCase: true", Some("ac"), Some("abc")),
        (
            "notcontains: b, treatMissingAsEmpty: true",
            None,
            Some("abc"),
        ),
        ("regex: 'a+'", Some("aa"), Some("ab")),
        ("notexact: a, treatMissingAsEmpty: true", None, Some("a")),
        // A negated operator requires the header to be present.
        ("notexact: a", Some("b"), None),
        ("notcontains: a", Some("b"), None),
    ];
    for (operator, yes, no) in cases {
        let spec = format!(
            "routes:\n- {{conditions: [{{header: {{name: X-Test, {operator}}}}}], services: \
             [{{name: b, port: 80}}]}}\n- {{services: [{{name: a, port: 80}}]}}"
        );
        let resolution = with(&[root("r", &spec)]);
        let sent = |value: Option<&str>| {
            let header = value.map(|value| ("x-test", value));
            send(&resolution, 80, "/", header.as_slice())
        };
        assert_eq!(sent(yes), "web/b/80", "{operator}: {yes:?}");
        assert_eq!(sent(no), "web/a/80", "{operator}: {no:?}");
    }
}

#[test]
fn invalid_conditions_withhold_only_their_route() {
    for (condition, error) in [
        (
            "{header: {name: x}}",
            "RouteError/HeaderMatchConditionsNotValid",
        ),
        (
            "{header: {name: x, exact: a, contains: a}}",
            "RouteError/HeaderMatchConditionsNotValid",
        ),
        (
            "{header: {name: x, present: true}}, {header: {name: x, notpresent: true}}",
            "RouteError/HeaderMatchConditionsNotValid",
        ),
        (
            "{header: {name: x, exact: a}}, {header: {name: x, exact: b}}",
            "RouteError/HeaderMatchConditionsNotValid",
        ),
        (
            "{header: {name: x, exact: a}}, {header: {name: x, notexact: a}}",
            "RouteError/HeaderMatchConditionsNotValid",
        ),
        (
            "{header: {name: x, contains: a}}, {header: {name: x, notcontains: a}}",
            "RouteError/HeaderMatchConditionsNotValid",
        ),
        (
            "{queryParameter: {name: q}}",
            "RouteError/QueryParameterMatchConditionsNotValid",
        ),
        (
            "{queryParameter: {name: q, exact: a, prefix: a}}",
            "RouteError/QueryParameterMatchConditionsNotValid",
        ),
        (
            "{queryParameter: {name: q, exact: a}}, {queryParameter: {name: q, exact: b}}",
            "RouteError/QueryParameterMatchConditionsNotValid",
        ),
        ("{prefix: /bad/x}", "RouteError/PathMatchConditionsNotValid"),
    ] {
        let spec = format!(
            "routes:\n- {{services: [{{name: a, port: 80}}]}}\n- {{conditions: [{{prefix: /bad}}, {condition}], \
             services: [{{name: b, port: 80}}]}}"
        );
        let resolution = with(&[root("r", &spec)]);
        assert_eq!(ask(&resolution, "/bad/x"), "500", "{condition}");
        assert_eq!(ask(&resolution, "/"), "web/a/80", "{condition}");
        assert_eq!(errors(&resolution, "r"), [error], "{condition}");
    }
}

#[test]
fn invalid_conditions_leave_equal_matches_to_valid_routes() {
    type Requests<'a> = &'a [(&'a str, &'a [(&'a str, &'a str)], &'a str)];
    let header = "{header: {name: x}}";
    let (none, x, w) = (&[][..], &[("x", "1")][..], &[("w", "1")][..]);
    let rows: [(String, &str, Requests<'_>); 9] = [
        (
            "{prefix: foo}".to_owned(),
            "",
            &[("/", none, "web/a/80"), ("/foo/x", none, "500")],
        ),
        (
            "{regex: 'v[0-9]|w'}".to_owned(),
            "",
            &[
                ("/v1", none, "500"),
                ("/w", none, "500"),
                ("/v", none, "web/a/80"),
            ],
        ),
        // Its requests most likely have the header.
        (
            header.to_owned(),
            "",
            &[("/", none, "web/a/80"), ("/", x, "500")],
        ),
        (
            format!("{{prefix: /}}, {header}"),
            "",
            &[("/z", none, "web/a/80"), ("/z", x, "500")],
        ),
        (
            format!("{{exact: /e}}, {header}"),
            "",
            &[
                ("/e", x, "500"),
                ("/e", none, "500"),
                ("/e/z", x, "web/a/80"),
            ],
        ),
        (
            format!("{{header: {{name: w, exact: '1'}}}}, {header}"),
            "",
            &[("/", x, "web/a/80"), ("/", w, "500")],
        ),
        (
            "{queryParameter: {name: q}}".to_owned(),
            "",
            &[("/", none, "web/a/80")],
        ),
        // Its requests may lack the header.
        (
            "{header: {name: x, notpresent: true, exact: a}}".to_owned(),
            "",
            &[("/", none, "web/a/80"), ("/", x, "web/a/80")],
        ),
        (
            "{header: {name: x, notpresent: true, exact: a}}".to_owned(),
            "ipDenyPolicy: [{source: Peer, cidr: 192.0.2.0/24}], ",
            &[("/", none, "500"), ("/", x, "500")],
        ),
    ];
    let valid = "- {services: [{name: a, port: 80}]}";
    for (conditions, fields, requests) in rows {
        let invalid =
            format!("- {{conditions: [{conditions}], {fields}services: [{{name: b, port: 80}}]}}");
        for spec in [[valid, &invalid], [&invalid, valid]] {
            let resolution = with(&[root("r", &format!("routes:\n{}", spec.join("\n")))]);
            for (path, headers, expected) in requests {
                let found = send(&resolution, 80, path, headers);
                assert_eq!(found, *expected, "{spec:?}: {path} {headers:?}");
            }
            assert_eq!(errors(&resolution, "r").len(), 1, "{spec:?}");
            let hides_valid = !fields.is_empty();
            assert_eq!(
                !warnings(&resolution, "r").is_empty(),
                hides_valid,
                "{spec:?}"
            );
        }
    }
}

#[test]
fn invalid_protecting_conditions_hide_all_possible_paths() {
    const DENY: &str = "ipDenyPolicy: [{source: Peer, cidr: 192.0.2.0/24}], ";
    let answers = |condition: &str, fields: &str, path: &str| {
        let invalid =
            format!("- {{conditions: [{condition}], {fields}services: [{{name: b, port: 80}}]}}");
        let valid = "- {services: [{name: a, port: 80}]}\n- {conditions: [{regex: '/.*'}], \
                     services: [{name: a, port: 80}]}";
        let resolution = with(&[root("r", &format!("routes:\n{valid}\n{invalid}"))]);
        send(&resolution, 80, path, &[])
    };
    for (condition, path, expected) in [
        ("{prefix: /admin}, {prefix: /b}", "/z", "web/a/80"),
        ("{regex: '/%7Eadmin/.*'}", "/~admin/x", "500"),
        ("{regex: '/api/[a-z]{1001}/admin'}", "/api/x/admin", "500"),
        ("{regex: '/api/[a-z]{1001}/admin'}", "/z", "web/a/80"),
    ] {
        assert_eq!(answers(condition, DENY, path), expected, "{condition}");
        assert_eq!(answers(condition, "", path), "web/a/80", "{condition}");
    }
    // Prefixes rank below the valid expression, so look at them alone.
    let two_paths = |condition: &str, path: &str| {
        let spec = format!(
            "routes:\n- {{services: [{{name: a, port: 80}}]}}\n- {{conditions: [{condition}], \
             {DENY}services: [{{name: b, port: 80}}]}}"
        );
        send(&with(&[root("r", &spec)]), 80, path, &[])
    };
    for (condition, path) in [
        ("{exact: /admin}, {prefix: /admin/}", "/admin/users"),
        ("{prefix: /a}, {prefix: /admin}", "/admin"),
        ("{prefix: /b}, {prefix: /admin}", "/admin"),
    ] {
        assert_eq!(two_paths(condition, path), "500", "{condition}");
    }
}

#[test]
fn checks_of_host_and_denials_protect_invalid_routes() {
    let invalid = "{queryParameter: {name: 'user[id]', present: true}}";
    let spec = format!(
        "routes:\n- {{services: [{{name: a, port: 80}}]}}\n- {{conditions: [{invalid}], \
         directResponsePolicy: {{statusCode: 403}}}}"
    );
    assert_ne!(ask(&with(&[root("r", &spec)]), "/"), "web/a/80");
    let spec = format!(
        "virtualhost: {{fqdn: h.test, ipDenyPolicy: [{{source: Peer, cidr: 192.0.2.0/24}}]}}\n\
         routes:\n- {{services: [{{name: a, port: 80}}]}}\n- {{conditions: [{invalid}], \
         services: [{{name: b, port: 80}}]}}"
    );
    assert_ne!(ask(&with(&[proxy("r", &spec)]), "/"), "web/a/80");
}

#[test]
fn invalid_include_of_protected_routes_hides_siblings() {
    let child = |fields: &str| {
        proxy(
            "admin",
            &format!("routes: [{{{fields}services: [{{name: b, port: 80}}]}}]"),
        )
    };
    let open = proxy("open", "routes: [{services: [{name: a, port: 80}]}]");
    let spec = "includes: [{name: open}, {name: admin, conditions: [{regex: '/admin(?=/).*'}]}]";
    for (fields, expected) in [
        (
            "ipDenyPolicy: [{source: Peer, cidr: 192.0.2.0/24}], ",
            "502",
        ),
        ("", "web/a/80"),
    ] {
        let resolution = with(&[root("r", spec), open.clone(), child(fields)]);
        assert_eq!(ask(&resolution, "/admin/x"), expected, "{fields}");
    }
}

#[test]
fn path_condition_keeps_its_type_beside_others() {
    let header = "{header: {name: x, present: true}}";
    for conditions in [
        format!("{{exact: /e}}, {header}"),
        format!("{header}, {{exact: /e}}"),
    ] {
        let spec = format!(
            "routes:\n- {{services: [{{name: a, port: 80}}]}}\n- {{conditions: [{conditions}], \
             services: [{{name: b, port: 80}}]}}"
        );
        let resolution = with(&[root("r", &spec)]);
        let x = [("x", "1")];
        for (path, headers, expected) in [
            ("/e", &x[..], "web/b/80"),
            ("/e", &[], "web/a/80"),
            ("/e/f", &x, "web/a/80"),
        ] {
            let found = send(&resolution, 80, path, headers);
            assert_eq!(found, expected, "{conditions}: {path}");
        }
    }
}

#[test]
fn query_parameters_compare_with_every_operator() {
    for (operator, yes, no) in [
        ("exact: Abc", "Abc", "abc"),
        ("exact: Abc, ignoreCase: true", "aBC", "b"),
        ("prefix: ab", "abc", "cab"),
        ("suffix: bc", "abc", "bcd"),
        ("contains: B, ignoreCase: true", "abc", "ac"),
        ("regex: 'a+'", "aa", "ab"),
        ("present: true", "x", ""),
    ] {
        let spec = format!(
            "routes:\n- {{conditions: [{{queryParameter: {{name: Key, {operator}}}}}], services: \
             [{{name: b, port: 80}}]}}\n- {{services: [{{name: a, port: 80}}]}}"
        );
        let resolution = with(&[root("r", &spec)]);
        let sent = |name: &str, value: &str| {
            let query = [(name, value)];
            let request = Request {
                host: "h.test",
                query: &query[..usize::from(!value.is_empty())],
                ..GET
            };
            answer(&resolution.gateways[0].snapshot, &request)
        };
        assert_eq!(sent("Key", yes), "web/b/80", "{operator}: {yes}");
        assert_eq!(sent("Key", no), "web/a/80", "{operator}: {no}");
        // Unlike names of headers, names of parameters are case-sensitive.
        assert_eq!(sent("key", yes), "web/a/80", "{operator}: {yes}");
    }
}

#[test]
fn equally_many_conditions_are_tried_by_operator() {
    let operators = [
        "present: true",
        "contains: b",
        "regex: '.*b.*'",
        "exact: abc",
    ];
    for kind in ["header", "queryParameter"] {
        for tried in (1..=operators.len()).rev() {
            let route = |at: usize| {
                let operator = operators[at];
                format!(
                    "- {{conditions: [{{{kind}: {{name: x, {operator}}}}}], \
                     directResponsePolicy: {{statusCode: 20{at}}}}}\n"
                )
            };
            let best = format!("20{}", tried - 1);
            for order in [(0..tried).collect::<Vec<_>>(), (0..tried).rev().collect()] {
                let routes: String = order.into_iter().map(route).collect();
                let resolution = with(&[root("r", &format!("routes:\n{routes}"))]);
                let x = [("x", "abc")];
                let (headers, query) = match kind {
                    "header" => (&x[..], &[][..]),
                    _ => (&[][..], &x[..]),
                };
                let request = Request {
                    host: "h.test",
                    headers,
                    query,
                    ..GET
                };
                let found = answer(&resolution.gateways[0].snapshot, &request);
                assert_eq!(found, best, "{kind}: {routes}");
            }
        }
    }
}

#[test]
fn routes_may_differ_only_in_operators() {
    let spec = "
routes:
- {conditions: [{header: {name: x, contains: b}}], services: [{name: b, port: 80}]}
- {conditions: [{header: {name: x, notcontains: b}}], services: [{name: c, port: 80}]}
- {services: [{name: a, port: 80}]}
";
    let resolution = with(&[root("r", spec)]);
    for (headers, expected) in [
        (&[("x", "abc")][..], "web/b/80"),
        (&[("x", "ac")], "web/c/80"),
        (&[], "web/a/80"),
    ] {
        assert_eq!(send(&resolution, 80, "/", headers), expected, "{headers:?}");
    }
    assert_eq!(errors(&resolution, "r"), NONE);
    assert_eq!(warnings(&resolution, "r"), NONE);
}
