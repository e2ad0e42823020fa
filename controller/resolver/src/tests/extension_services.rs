//! ExtensionServices: their Services' weights, and their statuses.

use std::collections::BTreeSet;

use sesame_proto::schema::EndpointSet;

use super::http_proxies::{errors, proxy, send, with};
use super::tls::{certificate, secret};
use super::world;
use crate::incremental::{SliceIndex, add_partners};
use crate::{Options, Resolution};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ConditionStatus, RouteStatus};
use sesame_kinds::world::Kind;

const SET: &str = "ExtensionService/web/x";

fn extension(spec: &str) -> String {
    format!(
        "---\nkind: ExtensionService\nmetadata: {{name: x, namespace: web, generation: 5}}\nspec: {{{spec}}}\n"
    )
}

fn slice(service: &str, addresses: &[&str]) -> String {
    let addresses: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{addresses: [{address}]}}"))
        .collect();
    format!(
        "---\nkind: EndpointSlice\nmetadata: {{name: {service}-1, namespace: web, labels: \
         {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nendpoints: [{}]\nports: \
         [{{port: 8080}}]\n",
        addresses.join(", ")
    )
}

fn objects(spec: &str) -> Vec<String> {
    let pem = certificate(&["h.test"]);
    let host = "virtualhost: {fqdn: h.test, tls: {secretName: s}, authorization: {extensionRef: \
                {name: x}}}\nroutes: [{services: [{name: a, port: 80}]}]";
    vec![
        secret("web", "s", &pem.certificate, &pem.key),
        extension(spec),
        slice("b", &["192.0.2.1", "192.0.2.2"]),
        slice("c", &["192.0.2.2", "192.0.2.3"]),
        proxy("r", host),
    ]
}

fn status(resolution: &Resolution) -> &RouteStatus {
    let key = Kind::ExtensionService.named(NamespacedName::new("web", "x"));
    &resolution.statuses.routes[&key]
}

fn set(resolution: &Resolution) -> Option<&EndpointSet> {
    let mut sets = resolution.gateways[0].snapshot.endpoints.iter();
    sets.find(|set| set.name == SET)
}

/// Address and group of each endpoint.
fn groups(set: &EndpointSet) -> Vec<(&str, u32)> {
    let endpoints = set.endpoints.iter();
    endpoints
        .map(|it| (it.address.as_str(), it.group))
        .collect()
}

#[test]
fn services_share_one_set_by_weight() {
    for (weights, expected) in [
        (["", ""], [1, 1]),
        ([", weight: 3", ", weight: 1"], [3, 1]),
        ([", weight: 1000000", ", weight: 7"], [1_000_000, 7]),
    ] {
        let [b, c] = weights;
        let spec = format!(
            "protocol: h2c, services: [{{name: b, port: 80{b}}}, {{name: c, port: 80{c}}}]"
        );
        let resolution = with(&objects(&spec));
        let none: [&str; 0] = [];
        assert_eq!(errors(&resolution, "r"), none);
        let set = set(&resolution).expect("a set");
        assert_eq!(set.weights, expected);
        // The first Service keeps a common endpoint.
        let expected = [("192.0.2.1", 1), ("192.0.2.2", 1), ("192.0.2.3", 2)];
        assert_eq!(groups(set), expected);
        let backends = resolution.gateways[0].snapshot.backends.iter();
        let weighted: Vec<_> = backends.filter(|it| it.weighted).collect();
        assert_eq!(weighted.len(), 1);
        assert_eq!(weighted[0].endpoints, SET);
        let condition = &status(&resolution).parents[0].conditions[0];
        assert_eq!(condition.status, ConditionStatus::True);
        assert_eq!(condition.observed_generation, 5);
    }
    // A Service without a weight gets no requests.
    let one = "protocol: h2c, services: [{name: b, port: 80}, {name: c, port: 80, weight: 1}]";
    let resolution = with(&objects(one));
    assert_eq!(set(&resolution), None);
    assert!(
        resolution.gateways[0]
            .snapshot
            .endpoints
            .iter()
            .any(|it| it.name == "Service/web/c/80")
    );
}

#[test]
fn changed_endpoints_update_the_common_set() {
    let spec = "protocol: h2c, services: [{name: b, port: 80}, {name: c, port: 80, weight: 0}]";
    let objects = objects(spec);
    let whole = with(&objects);
    let world = world(&objects.concat());
    let mut services = BTreeSet::from([NamespacedName::new("web", "c")]);
    add_partners(&world, &mut services);
    assert_eq!(services.len(), 2);
    let index = SliceIndex::of(&world, &services);
    let (sets, problems) = index.endpoint_sets(&services, &world, &Options::default());
    assert!(problems.is_empty());
    let found = sets.iter().find(|it| it.name == SET);
    assert_eq!(found, set(&whole));
    assert!(found.is_some());
    let alone = BTreeSet::from([NamespacedName::new("web", "c")]);
    let (sets, _) = index.endpoint_sets(&alone, &world, &Options::default());
    assert!(sets.iter().all(|it| it.name != SET), "{sets:?}");
}

#[test]
fn invalid_extension_is_not_valid_and_withholds_routes() {
    let services = |list: &str| format!("protocol: h2c, services: [{list}]");
    let many = vec!["{name: b, port: 80}"; 17].join(", ");
    let limited = "---\nkind: Service\nmetadata: {name: l, namespace: web, annotations: \
                   {projectcontour.io/max-requests: '7'}}\nspec: {ports: [{port: 80}]}\n";
    for (spec, code, message) in [
        (services(""), "SpecError/ServicesNotValid", "services has 0 entries"),
        (services(&many), "SpecError/ServicesNotValid", "services has 17 entries"),
        (
            services("{name: b, port: 80, weight: -1}"),
            "SpecError/ServicesNotValid",
            "services[0].weight -1: expected 0 to 1000000",
        ),
        (
            services("{name: b, port: 80}, {name: none, port: 80}"),
            "ServiceError/ServiceUnresolvedReference",
            "services[1]: Service web/none does not exist",
        ),
        (
            services("{name: b, port: 80}, {name: l, port: 80}"),
            "SpecError/ServicesNotValid",
            "services[1]: protocol, TLS settings and policies must be the same",
        ),
        (
            "services: [{name: b, port: 80}]".to_owned(),
            "ServiceError/TLSUpstreamValidation",
            "could not be verified",
        ),
        (
            "protocol: h2c, services: [{name: b, port: 80}], validation: {caSecret: ca, subjectName: a.test}".to_owned(),
            "SpecError/InconsistentProtocol",
            "validation has no effect",
        ),
        (
            "services: [{name: b, port: 80}], validation: {caSecret: other/ca, subjectName: a.test}".to_owned(),
            "TLSError/CACertificateNotDelegated",
            "other",
        ),
        (
            "protocol: h2c, services: [{name: b, port: 80}], timeoutPolicy: {response: soon}".to_owned(),
            "SpecError/TimeoutPolicyNotValid",
            "timeoutPolicy.response",
        ),
    ] {
        let mut all = objects(&spec);
        all.push(limited.to_owned());
        let resolution = with(&all);
        let RouteStatus { parents, details } = status(&resolution);
        assert_eq!(parents[0].conditions[0].status, ConditionStatus::False, "{spec}");
        let found = format!("{}/{}", details[0].type_, details[0].reason);
        assert_eq!(found, code, "{details:?}");
        assert!(details[0].message.contains(message), "{details:?}");
        assert_eq!(send(&resolution, 443, "/", &[]), "500", "{spec}");
    }
}

#[test]
fn unused_extension_has_no_status() {
    let spec = "protocol: h2c, services: [{name: b, port: 80}]";
    let objects = [extension(spec)];
    let resolution = with(&objects);
    assert!(resolution.statuses.routes.is_empty());
}
