//! Root HTTPProxies: hostnames, classes, duplicates, and what roots that are not served leave
//! behind.

use std::sync::Arc;

use super::http_proxies::{NONE, ask, errors, proxy, root, with};
use super::ingresses::{CLASS, conditions, ingress, path, rule};
use super::tls::{certificate, secret};
use super::{ConditionState, HTTP, gateway, holds, resolved, world};
use crate::{Options, Resolution, resolve};
use sesame_kinds::api::{NamespacedName, SesameConfiguration};
use sesame_kinds::status::{ConditionType, Reason};
use sesame_kinds::world::Kind;

const DUPLICATE: &str = "VirtualHostError/DuplicateVhost";

fn to(service: &str) -> String {
    format!("routes: [{{services: [{{name: {service}, port: 80}}]}}]")
}

fn of_host(name: &str, fqdn: &str, service: &str) -> String {
    let host = format!("virtualhost: {{fqdn: \"{fqdn}\"}}");
    proxy(name, &format!("{host}\n{}", to(service)))
}

pub(super) fn configured(settings: &str, yaml: &str) -> Resolution {
    let text = format!("spec: {{ingress: {settings}}}");
    let configuration: SesameConfiguration = serde_saphyr::from_str(&text).expect("settings");
    let options = Options {
        configuration: Some(Arc::new(configuration)),
        ..Options::default()
    };
    resolve(&world(&format!("{}{yaml}", gateway(HTTP))), &options)
}

#[test]
fn root_needs_a_hostname() {
    for fqdn in ["", "*", "a.*.test", "192.0.2.1", "a_b.test", "h.test."] {
        let resolution = with(&[of_host("r", fqdn, "a")]);
        let expected = ["VirtualHostError/FQDNNotSpecified"];
        assert_eq!(errors(&resolution, "r"), expected, "{fqdn:?}");
        let tables = &resolution.gateways[0].snapshot.route_tables;
        let hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
        assert_eq!(hosts.count(), 1, "{fqdn:?}");
    }
}

#[test]
fn hostnames_in_any_case_are_duplicates() {
    let resolution = with(&[of_host("a", "h.test", "a"), of_host("b", "H.Test", "b")]);
    assert_eq!(ask(&resolution, "/"), "web/a/80");
    assert_eq!(errors(&resolution, "a"), NONE);
    assert_eq!(errors(&resolution, "b"), [DUPLICATE]);
    assert_eq!(ask(&with(&[of_host("b", "H.Test", "b")]), "/"), "web/b/80");
}

#[test]
fn root_in_wrong_namespace_affects_only_itself() {
    let foreign = of_host("f", "f.test", "a").replace("namespace: web", "namespace: far");
    let objects = format!("{CLASS}{}{foreign}", root("r", &to("a")));
    let resolution = configured("{rootNamespaces: [web]}", &objects);
    assert_eq!(ask(&resolution, "/"), "web/a/80");
    assert_eq!(errors(&resolution, "r"), NONE);
    let key = Kind::HttpProxy.named(NamespacedName::new("far", "f"));
    let details = &resolution.statuses.routes[&key].details;
    assert_eq!(details[0].reason, "RootProxyNotAllowedInNamespace");
}

#[test]
fn annotations_precede_class_of_specification() {
    let settings = "{gatewayRef: {namespace: web, name: gw}, classes: [{name: one}, {name: two}]}";
    let (contour, common) = (
        "projectcontour.io/ingress.class",
        "kubernetes.io/ingress.class",
    );
    for (annotations, class, expected) in [
        (String::new(), "one", "web/a/80"),
        (String::new(), "two", "web/a/80"),
        (String::new(), "three", "404"),
        (format!("{contour}: two"), "three", "web/a/80"),
        (format!("{common}: two"), "three", "web/a/80"),
        (format!("{common}: three"), "one", "404"),
        (
            format!("{contour}: one, {common}: three"),
            "three",
            "web/a/80",
        ),
        (format!("{contour}: three, {common}: one"), "one", "404"),
    ] {
        let annotated = format!("namespace: web, annotations: {{{annotations}}}}}");
        let objects = root("r", &to("a")).replace("namespace: web}", &annotated);
        let objects = objects.replace("ClassName: edge", &format!("ClassName: {class}"));
        let resolution = configured(settings, &objects);
        assert_eq!(ask(&resolution, "/"), expected, "{annotations} {class}");
    }
}

#[test]
fn includes_of_unserved_roots_are_orphans() {
    let including = |name: &str, host: &str| {
        let host = format!("virtualhost: {{fqdn: {host}}}");
        proxy(name, &format!("{host}\nincludes: [{{name: child}}]"))
    };
    let (r, s) = (including("r", "h.test"), including("s", "h.test"));
    let child = proxy("child", &to("a"));
    let orphaned = ["Orphaned/Orphaned"];
    for (settings, roots, other) in [
        ("{duplicates: AllInvalid}", format!("{r}{s}"), "t.test"),
        ("{rootNamespaces: [ops]}", r.clone(), ""),
        ("{}", including("r", "a_b.test"), "t.test"),
    ] {
        let objects = format!("{CLASS}{roots}{child}");
        let resolution = configured(settings, &objects);
        assert_eq!(ask(&resolution, "/"), "404", "{settings}");
        assert_eq!(errors(&resolution, "child"), orphaned, "{settings}");
        if !other.is_empty() {
            let objects = format!("{objects}{}", including("t", other));
            let resolution = configured(settings, &objects);
            assert_eq!(errors(&resolution, "child"), NONE, "{settings}");
        }
    }
}

#[test]
fn invalid_duplicates_leave_no_certificate() {
    let pem = certificate(&["h.test"]);
    let pairs = ["one", "two"].map(|name| secret("web", name, &pem.certificate, &pem.key));
    let host = "virtualhost: {fqdn: h.test, tls: {secretName: two, clientValidation: {caSecret: \
                gone}}}";
    let [r, s] = ["r", "s"].map(|name| proxy(name, &format!("{host}\n{}", to("a"))));
    let rules = rule("h.test", &[path("/", "Prefix", "c")]);
    let tls = "tls: [{hosts: [h.test], secretName: one}]";
    let ingress_yaml = ingress("i", &format!("{tls}\n{rules}"));
    let objects = format!("{CLASS}{}{r}{s}{ingress_yaml}", pairs.concat());
    let resolution = configured("{duplicates: AllInvalid}", &objects);
    assert_eq!(ask(&resolution, "/"), "web/c/80");
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let mut tls = ports.flat_map(|port| &port.listeners);
    let tls = tls.find_map(|it| it.tls.as_ref()).expect("TLS");
    assert_eq!(tls.keys, ["Secret/web/one"]);
    assert_eq!(tls.client_trust_bundle, "");
}

#[test]
fn refused_gateway_is_reported_by_its_objects() {
    let address = "spec:\n  addresses: [{type: example.com/Odd, value: x}]\n";
    let refused = gateway(HTTP).replacen("spec:\n", address, 1);
    let parent = "routes: [{services: [{name: a, port: 80}]}]\nincludes: [{name: child}]";
    let rules = rule("i.test", &[path("/", "Prefix", "c")]);
    let objects = [
        root("r", parent),
        proxy(
            "child",
            "routes: [{conditions: [{prefix: /c}], services: [{name: b, port: 80}]}]",
        ),
        ingress("i", &rules),
    ];
    let resolution = resolved(&format!("{refused}{CLASS}{}", objects.concat()));
    assert!(resolution.gateways.is_empty());
    for name in ["r", "child"] {
        let expected = ["ListenerError/ErrorIdentifyingListener"];
        assert_eq!(errors(&resolution, name), expected, "{name}");
    }
    let state = |resolution: &Resolution, type_| holds(conditions(resolution, "i"), type_);
    let programmed = state(&resolution, ConditionType::Programmed);
    assert_eq!(programmed, ConditionState::False(Reason::ParentNotAccepted));
    let accepted = state(&resolution, ConditionType::Accepted);
    assert_eq!(accepted, ConditionState::True);
    let served = resolved(&format!("{}{CLASS}{}", gateway(HTTP), objects.concat()));
    let programmed = state(&served, ConditionType::Programmed);
    assert_eq!(programmed, ConditionState::Absent);
}

#[test]
fn root_needs_gateway_with_http_listener() {
    let code = ["ListenerError/ErrorIdentifyingListener"];
    let absent = CLASS.replace("name: gw}", "name: gone}");
    let (http, tcp) = (
        gateway(HTTP),
        gateway("- {name: tcp, port: 9, protocol: TCP}"),
    );
    for (gateway, class) in [(&http, absent.as_str()), (&tcp, CLASS)] {
        let resolution = resolved(&format!("{gateway}{class}{}", root("r", &to("a"))));
        assert_eq!(ask(&resolution, "/"), "404", "{class}");
        assert_eq!(errors(&resolution, "r"), code, "{class}");
    }
}
