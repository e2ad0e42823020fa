//! Annotations of ingress-nginx that require credentials or client certificates.

use sesame_kit::certs::Authority;
use sesame_proto::schema::tls_termination::ClientMode;
use sesame_proto::schema::{AddressFilter, AddressRange, TlsTermination, shared_filter};

use super::ingress_nginx::{USERS, assert_refused, messages, served, with};
use super::ingresses::{CLASS, annotated, conditions, path, rule};
use super::router::{GET, Request, answer};
use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, indent, resolved};
use crate::Resolution;

#[test]
fn satisfy_any_exempts_source_ranges_from_one_check() {
    const ANY: (&str, &str) = ("satisfy", "any");
    const RANGE: (&str, &str) = ("whitelist-source-range", "10.0.0.0/8");
    const DENIED: (&str, &str) = ("denylist-source-range", "10.1.0.0/16");
    const URL: (&str, &str) = ("auth-url", "http://b.web/check");
    const BASIC: [(&str, &str); 2] = [("auth-type", "basic"), ("auth-secret", "users")];
    let expected = AddressFilter {
        name: "Ingress/web/i/source-range".to_owned(),
        allow: vec![range("10.0.0.0/8")],
        deny: vec![range("10.1.0.0/16")],
    };
    let resolution = with(&[ANY, RANGE, DENIED, URL], "");
    let route = served(&resolution);
    assert_eq!(
        route.external_auth[0].exempt_clients.as_ref(),
        Some(&expected)
    );
    assert_eq!(route.filters, None, "the ranges alone reject no client");

    let resolution = with(&[ANY, RANGE, DENIED, BASIC[0], BASIC[1]], USERS);
    let [shared] = resolution.gateways[0].snapshot.shared_filters.as_slice() else {
        panic!("{resolution:?}");
    };
    let Some(shared_filter::Kind::Credentials(set)) = &shared.kind else {
        panic!("{shared:?}");
    };
    assert_eq!(set.checks[0].exempt_clients.as_ref(), Some(&expected));
    let filters = served(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.address_filters, []);

    // Without another check, clients outside of the ranges are rejected.
    let resolution = with(&[ANY, RANGE, DENIED], "");
    let filters = served(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.address_filters, [expected]);

    // Without an allowlist, all clients need credentials.
    let resolution = with(&[ANY, DENIED, URL], "");
    assert_eq!(served(&resolution).external_auth[0].exempt_clients, None);
    let said = messages(&resolution);
    assert!(
        said.contains("denylist-source-range has no effect"),
        "{said}"
    );

    assert_refused(&[ANY, RANGE, URL, BASIC[0], BASIC[1]], USERS, "both");
    assert_refused(
        &[ANY, URL, ("whitelist-source-range", "office")],
        "",
        "office",
    );
}

fn range(network: &str) -> AddressRange {
    AddressRange {
        network: network.to_owned(),
        peer: false,
    }
}

fn objects() -> String {
    let pem = certificate(&["h.test"]);
    let class = CLASS.replace(
        "{name: edge}",
        "{name: edge, annotations: {projectsesame.io/annotations: Nginx}}",
    );
    let authority = |name: &str| {
        let pem = indent(Authority::new(name).pem(), 4);
        format!(
            "---\nkind: Secret\ntype: Opaque\nmetadata: {{name: {name}, namespace: web}}\n\
             stringData:\n  ca.crt: |\n{pem}\n"
        )
    };
    let pair = secret("web", "s", &pem.certificate, &pem.key);
    class + &pair + &authority("ours") + &authority("theirs")
}

/// Annotation names omit the common prefix.
fn with_clients(name: &str, at: &str, annotations: &str) -> String {
    let annotations = annotations.replace("auth-", "nginx.ingress.kubernetes.io/auth-");
    let spec = rule("h.test", &[path(at, "Prefix", "a")]);
    let spec = format!("tls: [{{hosts: [h.test], secretName: s}}]\n{spec}");
    annotated(name, &format!("{{{annotations}}}"), &spec)
}

fn asked(resolution: &Resolution, port: u32, path: &str) -> String {
    let request = Request {
        port,
        sni: "h.test",
        host: "h.test",
        path,
        headers: &[("host", "h.test")],
        ..GET
    };
    answer(&resolution.gateways[0].snapshot, &request)
}

/// Returns whether each TLS listener requires a valid client certificate.
fn validated(resolution: &Resolution) -> Vec<bool> {
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let listeners = ports.flat_map(|port| &port.listeners);
    let tls = listeners.filter_map(|listener| listener.tls.as_ref());
    let is_required = |tls: &TlsTermination| {
        !tls.client_trust_bundle.is_empty() && tls.client_mode() == ClientMode::Required
    };
    tls.map(is_required).collect()
}

#[test]
fn equal_client_validation_serves_all_ingresses_of_host() {
    let first = with_clients("i", "/", "auth-tls-secret: web/ours");
    let more = "auth-tls-secret: ours, auth-tls-verify-client: 'on', \
                auth-tls-pass-certificate-to-upstream: 'true', auth-tls-verify-depth: '1'";
    let second = with_clients("j", "/b", more);
    let resolution = resolved(&(gateway(HTTP) + &objects() + &first + &second));
    assert_eq!(validated(&resolution), [true]);
    for path in ["/", "/b"] {
        assert_eq!(asked(&resolution, 443, path), "web/a/80");
        let plain = asked(&resolution, 80, path);
        assert!(plain.contains("308"), "{plain}");
    }
    let said = messages(&resolution);
    assert!(
        said.contains("auth-tls-verify-depth has no effect"),
        "{said}"
    );
    let off = with_clients(
        "i",
        "/",
        "auth-tls-secret: ours, auth-tls-verify-client: 'off'",
    );
    let resolution = resolved(&(gateway(HTTP) + &objects() + &off));
    assert_eq!(validated(&resolution), [false]);
    assert_eq!(asked(&resolution, 443, "/"), "web/a/80");
}

#[test]
fn other_client_validation_of_same_host_gets_errors() {
    let first = with_clients("i", "/", "auth-tls-secret: ours");
    for (first, other) in [
        (first.as_str(), "auth-tls-secret: theirs"),
        (&with_clients("i", "/", ""), "auth-tls-secret: ours"),
        (first.as_str(), ""),
        (
            first.as_str(),
            "auth-tls-secret: ours, auth-tls-verify-client: 'off'",
        ),
    ] {
        let second = with_clients("j", "/b", other);
        let resolution = resolved(&(gateway(HTTP) + &objects() + first + &second));
        assert_eq!(asked(&resolution, 443, "/"), "web/a/80");
        assert_eq!(asked(&resolution, 443, "/b"), "500", "{other}");
        let all = format!("{:?}", conditions(&resolution, "j"));
        assert!(
            all.contains("does not validate clients like this Ingress"),
            "{all}"
        );
    }
    // The Gateway's own listener does not validate clients.
    let only = with_clients("i", "/", "auth-tls-secret: ours");
    let listeners = format!("{HTTP}\n{}", https("https", "h.test", "{name: s}"));
    let resolution = resolved(&(gateway(&listeners) + &objects() + &only));
    assert_eq!(asked(&resolution, 443, "/"), "500");
}

#[test]
fn invalid_client_validation_refuses_all_requests() {
    for (annotations, why) in [
        ("auth-tls-secret: other/ours", "own namespace"),
        (
            "auth-tls-secret: ours, auth-tls-verify-client: optional",
            "backends could not tell",
        ),
        (
            "auth-tls-secret: ours, auth-tls-verify-client: optional_no_ca",
            "backends could not tell",
        ),
        (
            "auth-tls-secret: ours, auth-tls-pass-certificate-to-upstream: x",
            "pass-certificate",
        ),
        (
            "auth-tls-secret: ours, auth-tls-match-cn: CN=a",
            "auth-tls-match-cn",
        ),
    ] {
        let ingress = with_clients("i", "/", annotations);
        let resolution = resolved(&(gateway(HTTP) + &objects() + &ingress));
        for port in [80, 443] {
            let found = asked(&resolution, port, "/");
            assert!(
                found == "500" || found.contains("308"),
                "{annotations}: {found}"
            );
        }
        assert_eq!(asked(&resolution, 443, "/"), "500", "{annotations}");
        let all = format!("{:?}", conditions(&resolution, "i"));
        assert!(all.contains(why), "{all}");
    }
    let missing = with_clients("i", "/", "auth-tls-secret: gone");
    let resolution = resolved(&(gateway(HTTP) + &objects() + &missing));
    assert_ne!(asked(&resolution, 443, "/"), "web/a/80");
    let resolution = with(&[("auth-tls-verify-client", "on")], "");
    assert!(messages(&resolution).contains("auth-tls-secret is not set"));
}
