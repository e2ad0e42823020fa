//! `spec.ingress`: Gateways for classes, restrictions on root HTTPProxies, and invalid HTTPProxies.

use std::sync::Arc;

use super::http_proxies::{NONE, ask, errors, proxy, root, warnings};
use super::ingresses::{CLASS, ingress, path, rule};
use super::{HTTP, gateway, world};
use crate::api::SesameConfiguration;
use crate::resolve::{Options, Resolution, resolve};

fn with(settings: &str, yaml: &str) -> Resolution {
    let text = format!("spec: {{ingress: {settings}}}");
    let configuration: SesameConfiguration = serde_saphyr::from_str(&text).expect("settings");
    let options = Options {
        configuration: Some(Arc::new(configuration)),
        ..Options::default()
    };
    resolve(&world(&format!("{}{yaml}", gateway(HTTP))), &options)
}

fn to(service: &str) -> String {
    format!("routes: [{{services: [{{name: {service}, port: 80}}]}}]")
}

fn of_contour(class: &str) -> String {
    root("r", &to("a")).replace("ingressClassName: edge", class)
}

#[test]
fn classes_without_object_name_a_gateway() {
    let listed =
        "{classes: [{name: contour, gatewayRef: {namespace: web, name: gw}, default: true}]}";
    let by_default = "{gatewayRef: {namespace: web, name: gw}, classes: [{name: contour}]}";
    for (settings, class, expected) in [
        (listed, "ingressClassName: contour", "web/a/80"),
        // Without a class, the default class in the settings applies.
        (listed, "ingressClassName: ''", "web/a/80"),
        (listed, "ingressClassName: other", "404"),
        (by_default, "ingressClassName: contour", "web/a/80"),
        (by_default, "ingressClassName: ''", "404"),
        // The settings do not name a Gateway for the class.
        (
            "{classes: [{name: contour}]}",
            "ingressClassName: contour",
            "404",
        ),
        ("{}", "ingressClassName: contour", "404"),
    ] {
        let resolution = with(settings, &of_contour(class));
        assert_eq!(ask(&resolution, "/"), expected, "{settings} {class}");
    }
}

#[test]
fn class_without_parameters_names_default_gateway() {
    let class = "---\nkind: IngressClass\nmetadata: {name: edge}\nspec: {controller: \
                 projectsesame.io/ingress-controller}\n";
    let all = path("/", "Prefix", "b");
    let objects = format!("{class}{}", ingress("i", &rule("h.test", &[all])));
    assert_eq!(ask(&with("{}", &objects), "/"), "404");
    let named = with("{gatewayRef: {namespace: web, name: gw}}", &objects);
    assert_eq!(ask(&named, "/"), "web/b/80");
}

#[test]
fn root_needs_one_of_the_root_namespaces() {
    let objects = format!("{CLASS}{}", root("r", &to("a")));
    let refused = with("{rootNamespaces: [ops]}", &objects);
    assert_eq!(ask(&refused, "/"), "404");
    assert_eq!(
        errors(&refused, "r"),
        ["RootNamespaceError/RootProxyNotAllowedInNamespace"]
    );
    let allowed = with("{rootNamespaces: [ops, web]}", &objects);
    assert_eq!(ask(&allowed, "/"), "web/a/80");
}

#[test]
fn duplicate_roots_are_all_invalid_if_asked() {
    let all = path("/", "Prefix", "c");
    let ingress_yaml = ingress("i", &rule("h.test", &[all]));
    let roots = format!("{}{}", root("r", &to("a")), root("s", &to("b")));
    let objects = format!("{CLASS}{roots}{ingress_yaml}");
    let resolution = with("{duplicates: AllInvalid}", &objects);
    // Neither root is served, so the Ingress receives the requests.
    assert_eq!(ask(&resolution, "/"), "web/c/80");
    for name in ["r", "s"] {
        assert_eq!(
            errors(&resolution, name),
            ["VirtualHostError/DuplicateVhost"]
        );
    }
    let oldest = with("{duplicates: Oldest}", &objects);
    assert_eq!(ask(&oldest, "/"), "web/a/80");
    assert_eq!(errors(&oldest, "r"), NONE);
}

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
fn missing_share_goes_to_others_if_asked() {
    let spec = "
routes:
- services: [{name: a, port: 80, weight: 1}, {name: absent, port: 80, weight: 9}]
- {conditions: [{prefix: /none}], services: [{name: absent, port: 80}]}
";
    let objects = format!("{CLASS}{}", root("r", spec));
    let reweighted = with("{missingBackend: Reweight}", &objects);
    assert_eq!(ask(&reweighted, "/"), "web/a/80");
    assert_eq!(ask(&reweighted, "/none"), "503");
    assert_eq!(warnings(&reweighted, "r"), ["ServiceError/Reweighted"]);
    assert_ne!(ask(&with("{}", &objects), "/"), "web/a/80");
    let invalid = with("{missingBackend: Reweight, invalid: Withdraw}", &objects);
    assert_eq!(ask(&invalid, "/"), "web/a/80");
}

#[test]
fn class_parameters_have_settings_too() {
    let class = r"---
kind: GatewayClass
metadata: {name: sesame}
spec:
  controllerName: projectsesame.io/gateway-controller
  parametersRef: {group: projectsesame.io, kind: SesameConfiguration, namespace: ops, name: edge}
---
kind: SesameConfiguration
metadata: {name: edge, namespace: ops}
spec:
  ingress:
    gatewayRef: {namespace: web, name: gw}
    classes: [{name: contour}]
    rootNamespaces: [web]
";
    let yaml = format!(
        "{}{class}{}",
        gateway(HTTP),
        of_contour("ingressClassName: contour")
    );
    let resolution = resolve(&world(&yaml), &Options::default());
    assert_eq!(ask(&resolution, "/"), "web/a/80");
    // An invalid configuration is not applied, not even in part.
    let broken = yaml.replace("[web]", "[web]\n    duplicates: Newest");
    let resolution = resolve(&world(&broken), &Options::default());
    assert!(resolution.gateways.is_empty() || ask(&resolution, "/") == "404");
}
