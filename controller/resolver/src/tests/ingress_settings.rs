//! `spec.ingress`: whether and on which ports objects are served, Gateways for classes,
//! restrictions on root HTTPProxies, and invalid HTTPProxies.

use std::sync::Arc;

use sesame_proto::schema::tls_termination::Version;

use super::http_proxies::{NONE, ask, errors, proxy, root, send, warnings};
use super::ingresses::{CLASS, annotated, ingress, path, rule};
use super::tls::{certificate, secret};
use super::{HTTP, gateway, world};
use crate::settings::check::faults;
use crate::{Options, Resolution, layered_references, report_only, resolve};
use sesame_kinds::api::{IngressSettings, NamespacedName, SesameConfiguration};
use sesame_kinds::world::Kind;

fn options(settings: &str) -> Options {
    let text = format!("spec: {{ingress: {settings}}}");
    let configuration: SesameConfiguration = serde_saphyr::from_str(&text).expect("settings");
    Options {
        configuration: Some(Arc::new(configuration)),
        ..Options::default()
    }
}

pub(super) fn with(settings: &str, yaml: &str) -> Resolution {
    let world = world(&format!("{}{yaml}", gateway(HTTP)));
    resolve(&world, &options(settings))
}

pub(super) fn to(service: &str) -> String {
    format!("routes: [{{services: [{{name: {service}, port: 80}}]}}]")
}

fn of_contour(class: &str) -> String {
    root("r", &to("a")).replace("ingressClassName: edge", class)
}

/// An HTTPProxy and an Ingress with TLS.
fn of_both_kinds() -> String {
    let pem = certificate(&["h.test", "i.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let host = "virtualhost: {fqdn: h.test, tls: {secretName: s}}";
    let https_proxy = proxy("r", &format!("{host}\n{}", to("a")));
    let rules = rule("i.test", &[path("/", "Prefix", "b")]);
    let spec = format!("tls: [{{hosts: [i.test], secretName: s}}]\n{rules}");
    format!("{CLASS}{pair}{https_proxy}{}", ingress("i", &spec))
}

#[test]
fn unusable_class_parameters_serve_no_layers() {
    let class = "---\nkind: GatewayClass\nmetadata: {name: old, creationTimestamp: \
        \"2020-01-01T00:00:00Z\"}\nspec: {controllerName: projectsesame.io/gateway-controller, \
        parametersRef: {group: projectsesame.io, kind: SesameConfiguration, name: old, namespace: \
        web}}\n";
    let parameters = |spec: &str| {
        format!(
            "---\nkind: SesameConfiguration\nmetadata: {{name: old, namespace: web}}\nspec: {spec}\n"
        )
    };
    let objects = format!("{}{class}{}", gateway(HTTP), of_both_kinds());
    let options = Options::default();
    for (parameters, is_known) in [
        (parameters("{}"), true),
        (parameters("{ingress: {watch: Serve}}"), true),
        (String::new(), false),
        (parameters("{ingress: {watch: Serv}}"), false),
        (parameters("{ports: {offset: -1}}"), false),
    ] {
        let world = world(&format!("{objects}{parameters}"));
        let resolution = resolve(&world, &options);
        assert_eq!(resolution.layers_unknown, !is_known, "{parameters}");
        assert_eq!(resolution.statuses.routes.is_empty(), !is_known);
        assert_eq!(ask(&resolution, "/") != "404", is_known, "{parameters}");
        let class = &resolution.statuses.gateway_classes[&NamespacedName::new("", "old")];
        let message = &class.conditions[0].message;
        assert_eq!(message.contains("statuses stay"), !is_known, "{message}");
        // The controller's own configuration comes first.
        let own = self::options("{watch: Serve}");
        assert!(!resolve(&world, &own).layers_unknown);
    }
}

#[test]
fn watch_decides_whether_objects_are_served() {
    let world = world(&format!("{}{}", gateway(HTTP), of_both_kinds()));
    for (watch, preview, is_served) in [
        ("Serve", false, true),
        ("Report", false, false),
        ("Report", true, true),
        ("Off", false, false),
        ("Off", true, false),
    ] {
        let options = Options {
            preview,
            ..options(&format!("{{watch: {watch}}}"))
        };
        let resolution = resolve(&world, &options);
        let expected = if is_served { "301 https:0" } else { "404" };
        assert_eq!(ask(&resolution, "/"), expected, "{watch} {preview}");
        let statuses = resolution.statuses.routes.len();
        assert_eq!(statuses, if is_served { 2 } else { 0 }, "{watch} {preview}");
        let references = layered_references(&world, &options).listeners.len();
        assert_eq!(references, statuses, "{watch} {preview}");
        let is_report = report_only(&world, &options).is_some();
        assert_eq!(is_report, watch == "Report");
    }
}

#[test]
fn ports_select_listeners_tls_hosts_and_redirects() {
    let listeners = format!("{HTTP}\n- {{name: alt, port: 8080, protocol: HTTP}}");
    let world = world(&format!("{}{}", gateway(&listeners), of_both_kinds()));
    for (settings, tls, on_80, on_8080, ports) in [
        ("{}", 443, "301 https:0", "301 https:0", vec![80, 443, 8080]),
        ("{http: 8080}", 443, "404", "301 https:0", vec![443, 8080]),
        (
            "{http: 80, https: 8443}",
            8443,
            "301 https:8443",
            "404",
            vec![80, 8443],
        ),
        ("{http: 8081}", 443, "404", "404", vec![443]),
    ] {
        let resolution = resolve(&world, &options(settings));
        assert_eq!(send(&resolution, 80, "/", &[]), on_80, "{settings}");
        assert_eq!(send(&resolution, 8080, "/", &[]), on_8080, "{settings}");
        assert_eq!(send(&resolution, tls, "/", &[]), "web/a/80", "{settings}");
        let key = Kind::Ingress.named(NamespacedName::new("web", "i"));
        let status = &resolution.statuses.routes[&key].parents[0];
        assert_eq!(status.ports, ports, "{settings}");
    }
}

#[test]
fn ports_of_http_and_https_must_differ() {
    for (http, https, is_valid) in [
        (None, None, true),
        (Some(8080), Some(8443), true),
        (None, Some(80), false),
        (Some(443), None, false),
        (Some(443), Some(80), true),
    ] {
        let mut configuration = SesameConfiguration::default();
        configuration.spec.ingress = Some(IngressSettings {
            http,
            https,
            ..IngressSettings::default()
        });
        assert_eq!(
            faults(&configuration).is_empty(),
            is_valid,
            "{http:?} {https:?}"
        );
    }
}

#[test]
fn missing_listener_message_names_its_port() {
    let plain = format!("{CLASS}{}", root("r", &to("a")));
    let resolution = with("{http: 8080, https: 8443}", &plain);
    assert_eq!(
        errors(&resolution, "r"),
        ["ListenerError/ErrorIdentifyingListener"]
    );
    let key = Kind::HttpProxy.named(NamespacedName::new("web", "r"));
    let message = &resolution.statuses.routes[&key].details[0].message;
    let words = "on port 8080 (spec.ingress.http) or 8443 (spec.ingress.https)";
    assert!(message.contains(words), "{message}");
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
fn insecure_routes_redirect_if_forbidden() {
    let pem = certificate(&["h.test"]);
    let spec = "virtualhost: {fqdn: h.test, tls: {secretName: s}}\nroutes: [{permitInsecure: true, services: [{name: a, \
                port: 80}]}]";
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let objects = format!("{CLASS}{pair}{}", proxy("r", spec));
    for (settings, expected) in [
        ("{}", "web/a/80"),
        ("{disablePermitInsecure: false}", "web/a/80"),
        ("{disablePermitInsecure: true}", "301 https:0"),
    ] {
        let resolution = with(settings, &objects);
        assert_eq!(ask(&resolution, "/"), expected, "{settings}");
        assert_eq!(send(&resolution, 443, "/", &[]), "web/a/80", "{settings}");
    }
}

fn of_hosts(resolution: &Resolution) -> Vec<(Version, Version, String)> {
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let listeners = ports.flat_map(|port| &port.listeners);
    let tls = listeners.filter_map(|it| it.tls.as_ref());
    tls.map(|tls| {
        (
            tls.min_version(),
            tls.max_version(),
            tls.cipher_suites.join(","),
        )
    })
    .collect()
}

#[test]
fn stricter_tls_settings_apply_to_each_host() {
    use Version::{Tls12, Tls13, Unset};
    let pem = certificate(&["h.test", "i.test"]);
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let suite = "ECDHE-ECDSA-AES128-GCM-SHA256";
    let suites = format!("cipherSuites: [{suite}]");
    for (settings, min, max, expected) in [
        ("", "", "", (Unset, Unset, "")),
        ("minVersion: '1.3'", "", "", (Tls13, Unset, "")),
        ("minVersion: '1.3'", "1.2", "", (Tls13, Unset, "")),
        ("minVersion: '1.2'", "1.3", "", (Tls13, Unset, "")),
        ("maxVersion: '1.2'", "", "1.3", (Unset, Tls12, "")),
        ("maxVersion: '1.3'", "", "1.2", (Unset, Tls12, "")),
        (&suites, "1.2", "", (Tls12, Unset, suite)),
        // TLS 1.3 has fixed cipher suites.
        (&suites, "1.3", "", (Tls13, Unset, "")),
    ] {
        let spec = format!(
            "virtualhost: {{fqdn: h.test, tls: {{secretName: s, minimumProtocolVersion: '{min}', \
             maximumProtocolVersion: '{max}'}}}}\n{}",
            to("a")
        );
        let annotations = [("minimum", min), ("maximum", max)];
        let annotations = annotations
            .iter()
            .filter(|(_, version)| !version.is_empty());
        let annotations = annotations.map(|(which, version)| {
            format!("projectcontour.io/tls-{which}-protocol-version: '{version}'")
        });
        let annotations = annotations.collect::<Vec<_>>().join(", ");
        let rules = rule("i.test", &[path("/", "Prefix", "a")]);
        let ingress_spec = format!("tls: [{{hosts: [i.test], secretName: s}}]\n{rules}");
        let objects = [
            CLASS.to_owned(),
            pair.clone(),
            proxy("r", &spec),
            annotated("i", &format!("{{{annotations}}}"), &ingress_spec),
        ];
        let resolution = with(&format!("{{tls: {{{settings}}}}}"), &objects.concat());
        let (oldest, newest, suites) = expected;
        let expected = (oldest, newest, suites.to_owned());
        let found = of_hosts(&resolution);
        assert_eq!(
            found,
            [expected.clone(), expected],
            "{settings} {min} {max}"
        );
        assert_eq!(errors(&resolution, "r"), NONE, "{settings} {min} {max}");
    }
    let spec = format!(
        "virtualhost: {{fqdn: h.test, tls: {{secretName: s, minimumProtocolVersion: '1.3'}}}}\n{}",
        to("a")
    );
    let objects = format!("{CLASS}{pair}{}", proxy("r", &spec));
    let resolution = with("{tls: {maxVersion: '1.2'}}", &objects);
    assert_eq!(send(&resolution, 443, "/", &[]), "404");
    assert_eq!(errors(&resolution, "r"), ["TLSError/TLSConfigNotValid"]);
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
