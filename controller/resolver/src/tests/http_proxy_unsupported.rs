//! Fields of HTTPProxies that are checked but not supported.

use super::http_proxies::{NONE, ask, errors, root, warnings, with};
use super::ingresses::{ingress, path, rule};

fn of_route(fields: &str) -> String {
    format!("routes: [{{services: [{{name: a, port: 80}}], {fields}}}]")
}

fn of_service(fields: &str) -> String {
    format!("routes: [{{services: [{{name: a, port: 80, {fields}}}]}}]")
}

#[test]
fn cookie_policies_are_checked_and_ignored() {
    for policy in [
        "{name: c, secure: false}",
        "{name: c, sameSite: None}",
        "{name: c, pathRewrite: {value: '/a b'}, domainRewrite: {value: a.test}}, {name: d, secure: true}",
    ] {
        let policies = format!("cookieRewritePolicies: [{policy}]");
        for spec in [of_route(&policies), of_service(&policies)] {
            let resolution = with(&[root("r", &spec)]);
            assert_eq!(ask(&resolution, "/"), "web/a/80", "{spec}");
            assert_eq!(errors(&resolution, "r"), NONE, "{spec}");
            assert_eq!(warnings(&resolution, "r"), ["SpecError/IgnoredField"]);
        }
    }
    let many = (0..65).map(|number| format!("{{name: c{number}, secure: true}}"));
    let many = many.collect::<Vec<_>>().join(", ");
    for policy in [
        "{name: c}",
        "{name: '', secure: true}",
        "{name: 'a;b', secure: true}",
        "{name: c, secure: true}, {name: c, sameSite: Lax}",
        "{name: c, sameSite: lax}",
        "{name: c, pathRewrite: {value: ''}}",
        "{name: c, pathRewrite: {value: '/; Secure'}}",
        "{name: c, pathRewrite: {value: \"/\\n\"}}",
        "{name: c, domainRewrite: {value: A.test}}",
        "{name: c, domainRewrite: {value: 'a.test; Secure'}}",
        &many,
    ] {
        let policies = format!("cookieRewritePolicies: [{policy}]");
        for spec in [of_route(&policies), of_service(&policies)] {
            let resolution = with(&[root("r", &spec)]);
            assert_eq!(ask(&resolution, "/"), "500", "{spec}");
            let expected = ["RouteError/CookieRewritePoliciesInvalid"];
            assert_eq!(errors(&resolution, "r"), expected, "{spec}");
        }
    }
}

#[test]
fn health_port_must_be_port_of_service() {
    let service = "---\nkind: Service\nmetadata: {name: a, namespace: web}\nspec:\n  ports: \
                   [{name: http, port: 80, targetPort: 8080}, {name: live, port: 82, targetPort: \
                   live}]\n";
    for (port, answer, error, warning) in [
        (0, "web/a/80", "", ""),
        (80, "web/a/80", "", ""),
        (81, "503", "ServiceError/ServiceUnresolvedReference", ""),
        (82, "web/a/80", "", "SpecError/IgnoredField"),
    ] {
        let spec = of_service(&format!("healthPort: {port}"));
        let resolution = with(&[service.to_owned(), root("r", &spec)]);
        assert_eq!(ask(&resolution, "/"), answer, "{port}");
        assert_eq!(errors(&resolution, "r").concat(), error, "{port}");
        assert_eq!(warnings(&resolution, "r").concat(), warning, "{port}");
    }
}

#[test]
fn descriptors_are_checked_but_never_served() {
    let not_valid = "RouteError/RateLimitPolicyNotValid";
    let not_supported = "RouteError/NotSupported";
    for (entries, error) in [
        ("{genericKey: {value: v}}", not_supported),
        (
            "{requestHeader: {headerName: x, descriptorKey: k}}, {remoteAddress: {}}",
            not_supported,
        ),
        (
            "{requestHeaderValueMatch: {headers: [{name: x, exact: one}], expectMatch: false, value: v}}",
            not_supported,
        ),
        ("", not_valid),
        ("{}", not_valid),
        ("{genericKey: {key: k}}", not_valid),
        ("{genericKey: {value: v}, remoteAddress: {}}", not_valid),
        (
            "{requestHeader: {headerName: 'a b', descriptorKey: k}}",
            not_valid,
        ),
        ("{requestHeader: {headerName: x}}", not_valid),
        ("{requestHeaderValueMatch: {value: v}}", not_valid),
        (
            "{requestHeaderValueMatch: {headers: [{name: x}]}}",
            not_valid,
        ),
    ] {
        let policy =
            format!("rateLimitPolicy: {{global: {{descriptors: [{{entries: [{entries}]}}]}}}}");
        let resolution = with(&[root("r", &of_route(&policy))]);
        assert_eq!(ask(&resolution, "/"), "500", "{entries}");
        assert_eq!(errors(&resolution, "r"), [error], "{entries}");
    }
}

#[test]
fn external_names_get_no_requests() {
    let service = "---\nkind: Service\nmetadata: {name: x, namespace: web}\nspec: {type: ExternalName, externalName: \
                   o.test, ports: [{port: 80}]}\n";
    let of_proxy = root("r", "routes: [{services: [{name: x, port: 80}]}]");
    let resolution = with(&[service.to_owned(), of_proxy]);
    assert_eq!(ask(&resolution, "/"), "503");
    assert_eq!(errors(&resolution, "r"), ["ServiceError/ServiceNotValid"]);
    let of_ingress = ingress("i", &rule("h.test", &[path("/", "Prefix", "x")]));
    assert_eq!(ask(&with(&[service.to_owned(), of_ingress]), "/"), "503");
}
