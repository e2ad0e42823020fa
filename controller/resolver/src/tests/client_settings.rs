//! `spec.edge.proxyProtocol`, `http3` and `forwardClientCertificate` of SesameConfigurations.

use std::sync::Arc;

use sesame_proto::schema::edge::{ForwardedClientCertificate, RequestId, ServerHeader};
use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{Port, Transport};

use super::gateways_of_a_class::{accepted, answer_of, conditions, created, http, message, two};
use super::tls::{certificate, https, secret};
use super::{ConditionState, gateway, world};
use crate::{Options, Resolution, resolve};
use sesame_kinds::api::{NamespacedName, SesameConfiguration};
use sesame_kinds::status::{ConditionType, Reason};

const LISTENERS: &str = "- {name: http, port: 80, protocol: HTTP}\n\
                         - {name: tcp, port: 5001, protocol: TCP}\n\
                         - {name: udp, port: 53, protocol: UDP}";

fn with(spec: &str, yaml: &str) -> Resolution {
    let text = format!("spec: {spec}");
    let configuration: SesameConfiguration = serde_saphyr::from_str(&text).expect("settings");
    let options = Options {
        configuration: Some(Arc::new(configuration)),
        ..Options::default()
    };
    resolve(&world(yaml), &options)
}

fn modes(resolution: &Resolution) -> Vec<(u32, ProxyProtocol)> {
    let ports = &resolution.gateways[0].snapshot.ports;
    let mut modes: Vec<_> = ports
        .iter()
        .map(|port| (port.port, port.proxy_protocol()))
        .collect();
    modes.sort();
    modes
}

#[test]
fn proxy_protocol_reaches_tcp_ports_of_snapshot() {
    use ProxyProtocol::{None as Never, Optional, Required};
    let yaml = gateway(LISTENERS);
    for (settings, expected) in [
        ("{}", [(53, Never), (80, Never), (5001, Never)]),
        (
            "{edge: {proxyProtocol: {}}}",
            [(53, Never), (80, Required), (5001, Required)],
        ),
        (
            "{edge: {proxyProtocol: {}}, edgePorts: [{port: 80, edge: {proxyProtocol: {mode: \
             Disabled}}}, {port: 5001, edge: {proxyProtocol: {mode: Optional}}}]}",
            [(53, Never), (80, Never), (5001, Optional)],
        ),
    ] {
        assert_eq!(modes(&with(settings, &yaml)), expected, "{settings}");
    }
}

#[test]
fn last_configuration_replaces_client_settings() {
    let own = "---\nkind: SesameConfiguration\nmetadata: {name: own, namespace: web}\nspec: {edge: \
               {proxyProtocol: {mode: Disabled}, forwardClientCertificate: {mode: ForwardOnly}}}\n";
    let parameters = "spec:\n  infrastructure: {parametersRef: {group: projectsesame.io, kind: \
                      SesameConfiguration, name: own}}\n";
    let yaml = gateway(LISTENERS).replacen("spec:\n", parameters, 1) + own;
    let settings = "{edge: {proxyProtocol: {}, forwardClientCertificate: {mode: SanitizeSet, details: [URI]}}}";
    let resolution = with(settings, &yaml);
    let all = [53, 80, 5001].map(|port| (port, ProxyProtocol::None));
    assert_eq!(modes(&resolution), all);
    let edge = resolution.gateways[0].snapshot.edge.unwrap_or_default();
    assert_eq!(
        edge.forwarded_client_certificate(),
        ForwardedClientCertificate::Forward
    );
    assert_eq!(edge.client_certificate_parts, None);
}

#[test]
fn merged_gateway_cannot_set_proxy_protocol() {
    let own = "---\nkind: SesameConfiguration\nmetadata: {name: own, namespace: web}\nspec: {edge: \
               {proxyProtocol: {mode: Optional}}}\n";
    let parameters = "spec:\n  infrastructure: {parametersRef: {group: projectsesame.io, kind: \
                      SesameConfiguration, name: own}}\n";
    let new = created("new", 2, &http("new.example.com"));
    let yaml = two("Merged").replace(&new, &new.replacen("spec:\n", parameters, 1)) + own;
    let resolution = resolve(&world(&yaml), &Options::default());
    assert_eq!(
        accepted(&resolution, "new"),
        ConditionState::False(Reason::InvalidParameters)
    );
    let why = message(conditions(&resolution, "new"), ConditionType::Accepted);
    let words = "spec.edge.proxyProtocol (SesameConfiguration web/own)";
    assert!(why.contains(words), "{why}");
    assert!(answer_of(&resolution, "old.example.com").starts_with("web/a"));
    assert_eq!(modes(&resolution), [(80, ProxyProtocol::None)]);
}

#[test]
fn http3_adds_udp_port_to_snapshot_and_service() {
    let pem = certificate(&["h.test"]);
    let own = https("own", "h.test", "{name: s}");
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    let udp = "- {name: udp, port: 443, protocol: UDP}";
    let of_port = |port| format!("{{edgePorts: [{{port: {port}, edge: {{http3: {{}}}}}}]}}");
    let settings = of_port(443);
    for (edge, listeners, expected) in [
        ("{}".to_owned(), own.clone(), None),
        (of_port(444), own.clone(), None),
        (settings.clone(), own.clone(), Some(true)),
        (settings, own.clone() + udp, Some(false)),
    ] {
        let resolution = with(&edge, &(gateway(&listeners) + &pair));
        let ports = &resolution.gateways[0].snapshot.ports;
        let mut over_http3 = ports.iter().filter(|port| port.http3);
        let added = over_http3.next();
        let is_udp = |it: &Port| it.port == 443 && it.transport() == Transport::Udp;
        assert_eq!(added.is_some_and(is_udp), expected == Some(true), "{edge}");
        assert_eq!(over_http3.next(), None);
        let key = NamespacedName::new("web", "gw");
        let published = &resolution.services[&key].ports;
        let is_published = published.contains(&(Transport::Udp, 443));
        assert_eq!(is_published, expected.is_some(), "{edge}");
        let why = message(resolution.gateway_conditions(), ConditionType::Accepted);
        let words = "spec.edge.http3: port 443 is served only over TCP, because a UDP listener";
        assert_eq!(why.contains(words), expected == Some(false), "{why}");
    }
}

#[test]
fn settings_of_port_override_gateway_and_annotations() {
    let own = "---\nkind: SesameConfiguration\nmetadata: {name: own, namespace: web}\nspec: {edge: \
               {viaHeader: Append}, edgePorts: [{port: 80, edge: {requestId: 'Off'}}]}\n";
    let parameters = "spec:\n  infrastructure: {parametersRef: {group: projectsesame.io, kind: \
                      SesameConfiguration, name: own}}\n";
    let yaml = gateway(LISTENERS).replacen("spec:\n", parameters, 1) + own;
    let yaml = yaml.replacen(
        "metadata: {",
        "metadata: {annotations: {projectsesame.io/http10: reject}, ",
        1,
    );
    let settings = "{edge: {http10: Accept, streamIdleTimeout: 5s}, edgePorts: [{port: 80, edge: \
                    {http10: Accept, serverHeader: Add}}, {port: 9, edge: {http10: Accept}}]}";
    let resolution = with(settings, &yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    let all = snapshot.edge.expect("settings");
    assert!(all.reject_http10 && all.append_via);
    let http = snapshot.edge_on(80);
    assert!(!http.reject_http10 && http.append_via);
    assert_eq!(http.stream_idle_timeout_ms, Some(5000));
    assert_eq!(http.request_id(), RequestId::Leave);
    assert_eq!(http.server_header(), ServerHeader::AddIfMissing);
    assert_eq!(snapshot.edge_on(5001), all);
    let own: Vec<bool> = snapshot.ports.iter().map(|it| it.edge.is_some()).collect();
    assert_eq!(own.iter().filter(|is_own| **is_own).count(), 1, "{own:?}");
}
