//! `invalid: Withdraw` in `spec.ingress`: an invalid HTTPProxy and its includes are not served.

use super::http_proxies::{ask, errors, proxy, root, send, warnings};
use super::ingress_settings::{to, with};
use super::ingresses::CLASS;

#[test]
fn invalid_proxy_and_its_includes_are_withdrawn() {
    let invalid = "
routes:
- {conditions: [{prefix: /bad}, {exact: /bad}], services: [{name: b, port: 80}]}
- {conditions: [{prefix: /x}], services: [{name: b, port: 80}]}
includes: [{name: grandchild, conditions: [{prefix: /deep}]}]
";
    let parent = format!(
        "includes: [{{name: child, conditions: [{{prefix: /child}}]}}]\n{}",
        to("a")
    );
    let objects = format!(
        "{CLASS}{}{}{}",
        root("r", &parent),
        proxy("child", invalid),
        proxy("grandchild", &to("c")),
    );
    let withdrawn = with("{invalid: Withdraw}", &objects);
    let contained = with("{}", &objects);
    for (path, in_contour, ours) in [
        ("/", "web/a/80", "web/a/80"),
        ("/child/x", "web/a/80", "web/b/80"),
        ("/child/bad", "web/a/80", "500"),
        ("/child/deep", "web/a/80", "web/c/80"),
    ] {
        assert_eq!(ask(&withdrawn, path), in_contour, "{path}");
        assert_eq!(ask(&contained, path), ours, "{path}");
    }
    assert_eq!(
        errors(&withdrawn, "child"),
        ["RouteError/PathMatchConditionsNotValid"]
    );
}

#[test]
fn errors_of_one_root_spare_other_roots() {
    let child = "
routes:
- conditions: [{prefix: /new}, {header: {name: v, exact: new}}]
  services: [{name: b, port: 80}]
";
    let including =
        |conditions: &str| format!("includes: [{{name: child, conditions: [{conditions}]}}]");
    let other = |age: &str| {
        let conflicting = including("{header: {name: v, exact: old}}");
        let other = proxy(
            "other",
            &format!("virtualhost: {{fqdn: i.test}}\n{conflicting}"),
        );
        let metadata = format!("namespace: web, creationTimestamp: \"{age}\"");
        other.replacen("namespace: web", &metadata, 1)
    };
    let objects = |other: &str| {
        let root = root("r", &including("{prefix: /child}"));
        let root = root.replace(
            "namespace: web",
            "namespace: web, creationTimestamp: \"2026-01-02T00:00:00Z\"",
        );
        format!("{CLASS}{root}{other}{}", proxy("child", child))
    };
    let new = [("v", "new")];
    // The order of the roots makes no difference.
    for age in ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"] {
        let resolution = with("{invalid: Withdraw}", &objects(&other(age)));
        assert_eq!(
            send(&resolution, 80, "/child/new", &new),
            "web/b/80",
            "{age}"
        );
        assert_eq!(
            errors(&resolution, "child"),
            ["RouteError/HeaderMatchConditionsNotValid"],
            "{age}"
        );
        assert_eq!(warnings(&resolution, "child"), ["SpecError/Withdrawn"]);
    }
}
