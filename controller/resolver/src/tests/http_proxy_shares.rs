//! Services in HTTPProxies: shares of requests, and mirrors.

use super::http_proxies::{NONE, ask, errors, root, with};
use super::http_proxy_routes::forward;

fn to(services: &str) -> String {
    root("r", &format!("routes: [{{services: [{services}]}}]"))
}

#[test]
fn shares_follow_weights_of_all_entries() {
    for (services, expected) in [
        (
            "{name: a, port: 80}, {name: b, port: 80}",
            "1xweb/a/80 1xweb/b/80",
        ),
        (
            "{name: a, port: 80, weight: 3}, {name: b, port: 80}",
            "3xweb/a/80 0xweb/b/80",
        ),
        (
            "{name: a, port: 80, weight: 1}, {name: a, port: 80, weight: 2}",
            "1xweb/a/80 2xweb/a/80",
        ),
        // A mirror has no share.
        (
            "{name: a, port: 80}, {name: b, port: 80, mirror: true, weight: 9}",
            "web/a/80",
        ),
    ] {
        let resolution = with(&[to(services)]);
        assert_eq!(ask(&resolution, "/"), expected, "{services}");
        assert_eq!(errors(&resolution, "r"), NONE, "{services}");
    }
}

#[test]
fn weight_of_mirror_is_a_percentage() {
    let one = |weight: &str| {
        to(&format!(
            "{{name: a, port: 80}}, {{name: b, port: 80, mirror: true{weight}}}"
        ))
    };
    for (weight, percent) in [
        ("", 100),
        (", weight: 0", 100),
        (", weight: 50", 50),
        (", weight: 101", 100),
    ] {
        let resolution = with(&[one(weight)]);
        let mirrors = forward(&resolution).mirrors.iter();
        let mirrors = mirrors.map(|it| (it.backend.as_str(), it.numerator, it.denominator));
        let expected = [("Service/web/b/80", percent, 100)];
        assert_eq!(mirrors.collect::<Vec<_>>(), expected, "{weight}");
    }
    let mirror = "{name: b, port: 80, mirror: true}";
    for (services, error) in [
        (
            format!("{{name: a, port: 80}}, {mirror}, {mirror}"),
            "ServiceError/OnlyOneMirror",
        ),
        (mirror.to_owned(), "ServiceError/ServicesNotValid"),
    ] {
        let resolution = with(&[to(&services)]);
        assert_eq!(ask(&resolution, "/"), "500", "{services}");
        assert_eq!(errors(&resolution, "r"), [error], "{services}");
    }
}

#[test]
fn backends_of_long_names_stay_distinct() {
    let names = ["x", "y"].map(|end| "s".repeat(62) + end);
    let service = |name: &String| {
        format!(
            "---\nkind: Service\nmetadata: {{name: {name}, namespace: web}}\nspec: {{ports: [{{port: 80}}]}}\n"
        )
    };
    let entry = |name: &String| format!("{{name: {name}, port: 80, protocol: h2c}}");
    let services = names.each_ref().map(entry).join(", ");
    let all = names.each_ref().map(service).concat();
    let resolution = with(&[all, to(&services)]);
    let backends = &resolution.gateways[0].snapshot.backends;
    let found: Vec<bool> = (backends.iter().zip(&names))
        .map(|(backend, name)| backend.name.contains(name.as_str()))
        .collect();
    assert_eq!(found, [true, true], "{backends:?}");
}
