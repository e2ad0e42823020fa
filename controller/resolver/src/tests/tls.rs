//! HTTPS listeners: certificates, misdirected requests, overlaps, and client validation.

use std::fmt::Write as _;

use sesame_proto::schema::tls_termination::ClientMode;

use super::router::{GET, Request, answer};
use super::{ConditionState, gateway, holds, indent, resolved, route};
use crate::{Options, Resolver};
use sesame_kinds::status::{ConditionType, Reason};

pub(super) struct Pem {
    pub(super) certificate: String,
    pub(super) key: String,
}

pub(super) fn certificate(names: &[&str]) -> Pem {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    Pem {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}

pub(super) fn secret(namespace: &str, name: &str, certificate: &str, key: &str) -> String {
    format!(
        "---\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: {name}, namespace: {namespace}}}\nstringData:\n  \
         tls.crt: |\n{}\n  tls.key: |\n{}\n",
        indent(certificate, 4),
        indent(key, 4)
    )
}

fn good_secret(name: &str) -> String {
    let pem = certificate(&["*.example.org", "example.org"]);
    secret("web", name, &pem.certificate, &pem.key)
}

pub(super) fn https(name: &str, hostname: &str, secrets: &str) -> String {
    format!(
        "- {{name: {name}, port: 443, protocol: HTTPS, hostname: '{hostname}', tls: {{certificateRefs: [{secrets}]}}}}\n"
    )
}

#[test]
fn passthrough_host_is_excluded_from_https_listener() {
    let listeners = https("wild", "*.example.org", "{name: s}")
        + "- {name: pass, port: 443, protocol: TLS, hostname: pass.example.org, tls: {mode: Passthrough}}\n";
    let on_wild = "parentRefs: [{name: gw, sectionName: wild}]\nhostnames: ['*.example.org', pass.example.org]\n\
                   rules: [{backendRefs: [{name: a, port: 80}]}]";
    let resolution = resolved(&(gateway(&listeners) + &good_secret("s") + &route("r", on_wild)));
    for (host, expected) in [("a.example.org", "web/a/80"), ("pass.example.org", "421")] {
        let request = Request {
            port: 443,
            sni: "a.example.org",
            host,
            ..GET
        };
        let answered = answer(&resolution.gateways[0].snapshot, &request);
        assert_eq!(answered, expected, "{host}");
    }
}

#[test]
fn misdirected_requests_get_421_and_unknown_hosts_404() {
    let on = |name: &str, to: &str, hosts: &str| {
        route(
            name,
            &format!(
                "parentRefs: [{{name: gw, sectionName: {name}}}]\n{hosts}rules: [{{backendRefs: [{{name: {to}, port: 80}}]}}]"
            ),
        )
    };
    let yaml = gateway(
        &(https("any", "", "{name: s}")
            + &https("second", "second-example.org", "{name: s}")
            + &https("wild", "*.wildcard.org", "{name: s}")
            + &https("fourth", "fourth-example.wildcard.org", "{name: s}")),
    ) + &good_secret("s")
        + &on("any", "a", "hostnames: [example.org]\n")
        + &on("second", "b", "")
        + &on("wild", "c", "")
        + &on("fourth", "a", "");
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    for (sni, host, expected) in [
        ("example.org", "example.org", "web/a/80"),
        ("example.org", "second-example.org", "421"),
        ("example.org", "unknown-example.org", "404"),
        ("second-example.org", "second-example.org", "web/b/80"),
        ("second-example.org", "example.org", "421"),
        ("second-example.org", "unknown-example.org", "421"),
        (
            "third-example.wildcard.org",
            "third-example.wildcard.org",
            "web/c/80",
        ),
        (
            "third-example.wildcard.org",
            "fifth-example.wildcard.org",
            "web/c/80",
        ),
        (
            "third-example.wildcard.org",
            "fourth-example.wildcard.org",
            "421",
        ),
        ("third-example.wildcard.org", "second-example.org", "421"),
        ("third-example.wildcard.org", "unknown-example.org", "421"),
        (
            "fourth-example.wildcard.org",
            "fourth-example.wildcard.org",
            "web/a/80",
        ),
        (
            "fourth-example.wildcard.org",
            "fifth-example.wildcard.org",
            "421",
        ),
        ("unknown-example.org", "example.org", "web/a/80"),
        ("unknown-example.org", "unknown-example.org", "404"),
    ] {
        let request = Request {
            port: 443,
            sni,
            host,
            ..GET
        };
        assert_eq!(
            answer(snapshot, &request),
            expected,
            "SNI {sni}, host {host}"
        );
    }
    // In `second`'s route table, a single virtual host covers the other listeners' hostnames.
    let table = snapshot
        .route_tables
        .iter()
        .find(|table| table.name.ends_with("/second"))
        .expect("a table");
    assert_eq!(table.name, "https/443/Gateway/web/gw/listeners/second");
    assert_eq!(table.virtual_hosts.len(), 2);
}

#[test]
fn hosts_without_listener_answer_404_without_catch_all() {
    let yaml = gateway(
        &(https("x", "x.example.org", "{name: s}") + &https("w", "w.example.org", "{name: s}")),
    ) + &good_secret("s");
    let resolution = resolved(&yaml);
    let snapshot = &resolution.gateways[0].snapshot;
    let at = |host| {
        answer(
            snapshot,
            &Request {
                port: 443,
                sni: "x.example.org",
                host,
                ..GET
            },
        )
    };
    assert_eq!(at("w.example.org"), "421");
    assert_eq!(at("z.example.org"), "404");
    assert_eq!(at("x.example.org"), "404");
}

#[test]
fn keys_are_named_by_digest_without_extra_content() {
    let pem = certificate(&["example.org"]);
    let noisy = format!("# comment\n{}\n# more", pem.certificate.trim());
    let yaml = gateway(
        &(https("x", "example.org", "{name: s}") + &https("w", "*.example.org", "{name: s}")),
    ) + &secret("web", "s", &noisy, &pem.key);
    let resolution = resolved(&yaml);
    let gateway = &resolution.gateways[0];
    let [key] = gateway.keys.as_slice() else {
        panic!("one key")
    };
    let [reference] = gateway.snapshot.keys.as_slice() else {
        panic!("one reference")
    };
    assert_eq!(
        (key.name.as_str(), key.digest()),
        ("Secret/web/s", reference.digest.clone())
    );
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let chain = String::from_utf8(key.certificate_chain.clone()).expect("text");
    assert_eq!(lines(&chain), lines(&pem.certificate));
    let private = String::from_utf8(key.private_key.clone()).expect("text");
    assert_eq!(lines(&private), lines(&pem.key));
    assert!(reference.not_after > 0 && !reference.serial.is_empty());
    assert!(!format!("{resolution:?}").contains("PRIVATE"));
}

#[test]
fn chain_joined_without_line_break_is_whole() {
    let (leaf, issuer) = (certificate(&["example.org"]), certificate(&["issuer"]));
    let joined = format!("{}{}", leaf.certificate.trim_end(), issuer.certificate);
    let yaml =
        gateway(&https("x", "example.org", "{name: s}")) + &secret("web", "s", &joined, &leaf.key);
    let resolution = resolved(&yaml);
    let chain = &resolution.gateways[0].keys[0].certificate_chain;
    let chain = String::from_utf8_lossy(chain);
    let both = format!("{}{}", leaf.certificate, issuer.certificate);
    assert!(chain.lines().eq(both.lines()), "{chain}");
}

#[test]
fn unused_certificate_states_reason() {
    let pem = certificate(&["example.org"]);
    let other = certificate(&["example.org"]);
    let typed = secret("web", "s", &pem.certificate, &pem.key)
        .replace("type: kubernetes.io/tls", "type: Opaque");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let invalid = Reason::InvalidCertificateRef;
    for (why, reference, objects, reason) in [
        ("missing", "{name: none}", String::new(), invalid),
        ("kind", "{name: s, kind: ConfigMap}", String::new(), invalid),
        ("group", "{name: s, group: x.com}", String::new(), invalid),
        ("type", "{name: s}", typed, invalid),
        (
            "no PEM",
            "{name: s}",
            secret("web", "s", "nonsense", &pem.key),
            invalid,
        ),
        (
            "not a certificate",
            "{name: s}",
            secret("web", "s", broken, &pem.key),
            invalid,
        ),
        (
            "no key",
            "{name: s}",
            secret("web", "s", &pem.certificate, "nonsense"),
            invalid,
        ),
        (
            "another's key",
            "{name: s}",
            secret("web", "s", &pem.certificate, &other.key),
            invalid,
        ),
        (
            "not granted",
            "{name: s, namespace: far}",
            secret("far", "s", &pem.certificate, &pem.key),
            Reason::RefNotPermitted,
        ),
        (
            "neither granted nor present",
            "{name: s, namespace: far}",
            String::new(),
            Reason::RefNotPermitted,
        ),
    ] {
        let yaml = gateway(&https("x", "example.org", reference))
            + &objects
            + &route("r", "hostnames: [example.org]");
        let resolution = resolved(&yaml);
        let conditions = resolution.listener_conditions("x");
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            ConditionState::False(reason),
            "{why}"
        );
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            ConditionState::True,
            "{why}"
        );
        assert_eq!(
            holds(conditions, ConditionType::Programmed),
            ConditionState::False(Reason::Invalid),
            "{why}"
        );
        assert_eq!(resolution.attached("x"), 1, "{why}");
        let gateway = resolution.gateway_conditions();
        assert_eq!(
            holds(gateway, ConditionType::Accepted),
            ConditionState::True,
            "{why}"
        );
        assert_eq!(
            holds(gateway, ConditionType::Programmed),
            ConditionState::False(Reason::Invalid),
            "{why}"
        );
        assert_eq!(
            holds(gateway, ConditionType::ResolvedRefs),
            ConditionState::False(Reason::ListenersNotResolved),
            "{why}"
        );
        assert!(resolution.gateways[0].snapshot.ports.is_empty(), "{why}");
    }
    let yaml = gateway(&https("x", "", "{name: none}, {name: s}")) + &good_secret("s");
    let resolution = resolved(&yaml);
    let conditions = resolution.listener_conditions("x");
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::False(invalid)
    );
    assert_eq!(
        holds(conditions, ConditionType::Programmed),
        ConditionState::Unknown
    );
    assert_eq!(resolution.gateways[0].keys.len(), 1);
}

#[test]
fn certificate_for_other_name_warns_but_serves() {
    let yaml = gateway(&https("x", "example.com", "{name: s}")) + &good_secret("s");
    let resolution = resolved(&yaml);
    assert_eq!(resolution.problems.len(), 1);
    assert!(resolution.problems[0].message.contains("example.com"));
    assert_eq!(
        holds(
            resolution.listener_conditions("x"),
            ConditionType::ResolvedRefs
        ),
        ConditionState::True
    );
}

#[test]
fn overlapping_hostnames_are_reported_on_both_sides() {
    let listeners = https("a", "foo.example.com", "{name: s}")
        + &https("b", "foo.example.org", "{name: s}")
        + &https("c", "*.example.com", "{name: s}");
    let resolution = resolved(&(gateway(&listeners) + &good_secret("s")));
    for (name, expected) in [
        ("a", ConditionState::True),
        ("b", ConditionState::Absent),
        ("c", ConditionState::True),
    ] {
        assert_eq!(
            holds(
                resolution.listener_conditions(name),
                ConditionType::OverlappingTlsConfig
            ),
            expected
        );
    }
}

#[test]
fn shared_certificate_is_an_overlap_on_both_sides() {
    let apex = certificate(&["example.org", "*.example.org"]);
    let [one, deep] = ["one.example.net", "a.b.example.org"].map(|name| certificate(&[name]));
    let listeners = https("apex", "example.org", "{name: s}")
        + &https("wild", "*.example.org", "{name: s}")
        + &https("deep", "a.b.example.org", "{name: u}")
        + &https("one", "one.example.net", "{name: t}")
        + &https("two", "two.example.net", "{name: t}");
    let yaml = gateway(&listeners)
        + &secret("web", "s", &apex.certificate, &apex.key)
        + &secret("web", "t", &one.certificate, &one.key)
        + &secret("web", "u", &deep.certificate, &deep.key);
    let resolution = resolved(&yaml);
    let condition = |name: &str| {
        let conditions = resolution.listener_conditions(name);
        let mut conditions = conditions.iter();
        conditions.find(|it| it.type_ == ConditionType::OverlappingTlsConfig)
    };
    for (name, other) in [("apex", "wild"), ("wild", "apex")] {
        let found = condition(name).expect("a condition");
        assert_eq!(found.reason, Reason::OverlappingCertificates, "{found:?}");
        assert!(
            found.message.contains(&format!("listeners {other},")),
            "{found:?}"
        );
    }
    assert!(condition("one").is_none() && condition("two").is_none());
    // A wildcard in a certificate covers exactly one label.
    let deep = condition("deep").expect("a condition");
    assert_eq!(deep.reason, Reason::OverlappingHostnames, "{deep:?}");
}

#[test]
fn clients_are_validated_by_default_or_by_port() {
    let ca = certificate(&["ca"]);
    let map = |name: &str, namespace: &str| {
        format!(
            "---\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata:\n  ca.crt: |\n{}\n",
            indent(&ca.certificate, 4)
        )
    };
    let validation =
        |reference: &str| format!("{{validation: {{caCertificateRefs: [{reference}]}}}}");
    let mut listeners = String::new();
    for (name, port) in [
        ("ok", 443),
        ("none", 7443),
        ("kind", 8443),
        ("grant", 6443),
        ("loose", 9443),
    ] {
        let _ = writeln!(
            listeners,
            "- {{name: {name}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{{name: s}}]}}}}"
        );
    }
    let frontend = format!(
        "  tls:\n    frontend:\n      default: {}\n      perPort:\n      - {{port: 7443, tls: {}}}\n      - {{port: 8443, \
         tls: {}}}\n      - {{port: 6443, tls: {}}}\n      - {{port: 9443, tls: {}}}\n",
        validation("{kind: ConfigMap, group: '', name: ca}"),
        validation("{kind: ConfigMap, group: '', name: none}"),
        validation("{kind: Service, group: '', name: ca}"),
        validation("{kind: ConfigMap, group: '', name: ca, namespace: far}"),
        validation(
            "{kind: ConfigMap, group: '', name: ca}, {kind: ConfigMap, group: '', name: none}"
        )
        .replace("{caCert", "{mode: AllowInsecureFallback, caCert"),
    );
    let yaml =
        gateway(&listeners) + &frontend + &map("ca", "web") + &map("ca", "far") + &good_secret("s");
    let resolution = resolved(&yaml);
    for (name, resolved_refs, accepted) in [
        ("ok", ConditionState::True, ConditionState::True),
        (
            "none",
            ConditionState::False(Reason::InvalidCaCertificateRef),
            ConditionState::False(Reason::NoValidCaCertificate),
        ),
        (
            "kind",
            ConditionState::False(Reason::InvalidCaCertificateKind),
            ConditionState::False(Reason::NoValidCaCertificate),
        ),
        (
            "grant",
            ConditionState::False(Reason::RefNotPermitted),
            ConditionState::False(Reason::NoValidCaCertificate),
        ),
        (
            "loose",
            ConditionState::False(Reason::InvalidCaCertificateRef),
            ConditionState::True,
        ),
    ] {
        let conditions = resolution.listener_conditions(name);
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            resolved_refs,
            "{name}"
        );
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            accepted,
            "{name}"
        );
    }
    let insecure = ConditionType::InsecureFrontendValidationMode;
    assert_eq!(
        holds(resolution.gateway_conditions(), insecure),
        ConditionState::True
    );
    let snapshot = &resolution.gateways[0].snapshot;
    let validated: Vec<(u32, &str, bool)> = snapshot
        .ports
        .iter()
        .filter_map(|port| Some((port.port, port.listeners.first()?.tls.as_ref()?)))
        .map(|(port, tls)| {
            (
                port,
                tls.client_trust_bundle.as_str(),
                tls.client_mode() == ClientMode::OptionalUnverified,
            )
        })
        .collect();
    assert_eq!(
        validated,
        [
            (443, "ConfigMap/web/ca", false),
            (9443, "ConfigMap/web/ca", true)
        ]
    );
    assert_eq!(snapshot.trust_bundles.len(), 1);
    assert!(
        snapshot.trust_bundles[0]
            .pem
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
}

#[test]
fn reused_resolver_gives_same_result() {
    let mut resolver = Resolver::default();
    let options = Options::default();
    let first = super::world(&(gateway(&https("x", "", "{name: s}")) + &good_secret("s")));
    let second = super::world(&(gateway(&https("x", "", "{name: s}")) + &good_secret("s")));
    for world in [&first, &first, &second, &first] {
        assert_eq!(
            resolver.resolve(world, &options),
            super::resolve(world, &options)
        );
    }
}
