//! Services in HTTPProxies and Ingresses: protocols, TLS validation, and the effects of errors.

use sesame_proto::schema::route::Action;
use sesame_proto::schema::session_persistence::Kind;
use sesame_proto::schema::{AppProtocol, Backend, BackendTls, SessionPersistence};

use super::http_proxies::{NONE, ask, errors, root, warnings, with};
use super::indent;
use super::ingresses::{ingress, path, rule};
use super::tls::certificate;
use crate::Resolution;
use sesame_kinds::status::RouteStatus;

const CA: &str = "{caSecret: ca, subjectName: good.test}";

pub(super) fn authorities(namespace: &str, name: &str, type_: &str) -> String {
    let pem = certificate(&["authority.test"]).certificate;
    format!(
        "---\nkind: Secret\ntype: {type_}\nmetadata: {{name: {name}, namespace: {namespace}}}\nstringData:\n  ca.crt: \
         |\n{}\n",
        indent(&pem, 4)
    )
}

fn to(service: &str) -> String {
    root("r", &format!("routes: [{{services: [{{{service}}}]}}]"))
}

fn policy(service: &str, hostname: &str) -> String {
    format!(
        "---\nkind: BackendTLSPolicy\nmetadata: {{name: p, namespace: web}}\nspec: {{targetRefs: [{{group: '', kind: \
         Service, name: {service}}}], validation: {{hostname: {hostname}, wellKnownCACertificates: System}}}}\n"
    )
}

fn backends(resolution: &Resolution) -> &[Backend] {
    &resolution.gateways[0].snapshot.backends
}

fn only(resolution: &Resolution) -> (AppProtocol, Option<&BackendTls>) {
    let [backend] = backends(resolution) else {
        panic!("expected one Backend: {:?}", errors(resolution, "r"));
    };
    (backend.protocol(), backend.tls.as_deref())
}

fn messages(resolution: &Resolution) -> String {
    let all: Vec<&RouteStatus> = resolution.statuses.routes.values().collect();
    format!("{all:?}")
}

#[test]
fn verified_protocols_become_tls_to_backend() {
    let ca = authorities("web", "ca", "Opaque");
    for (protocol, spoken) in [("tls", AppProtocol::Http1), ("h2", AppProtocol::Http2)] {
        let service = format!("name: a, port: 80, protocol: {protocol}, validation: {CA}");
        let resolution = with(&[ca.clone(), to(&service)]);
        assert_eq!(errors(&resolution, "r"), NONE);
        let expected = BackendTls {
            sni: "good.test".to_owned(),
            trust_bundle: "Secret/web/ca/ca.crt".to_owned(),
            dns_names: vec!["good.test".to_owned()],
            ..BackendTls::default()
        };
        assert_eq!(only(&resolution), (spoken, Some(&expected)));
        let bundles = &resolution.gateways[0].snapshot.trust_bundles;
        assert_eq!(bundles[0].name, "Secret/web/ca/ca.crt");
        assert!(bundles[0].pem.contains("BEGIN CERTIFICATE"));
    }
    let resolution = with(&[to("name: a, port: 80, protocol: h2c")]);
    assert_eq!(only(&resolution), (AppProtocol::Http2, None));
    assert_ne!(backends(&resolution)[0].name, "Service/web/a/80");
}

#[test]
fn policy_verifies_unless_entry_has_validation() {
    let policy = policy("a", "policy.test");
    let sni = |service: &str| {
        let ca = authorities("web", "ca", "kubernetes.io/tls");
        let resolution = with(&[ca, policy.clone(), to(service)]);
        assert_eq!(errors(&resolution, "r"), NONE, "{service}");
        let (protocol, tls) = only(&resolution);
        (protocol, tls.expect("TLS").sni.clone())
    };
    let of = |name: &str| name.to_owned();
    let http1 = AppProtocol::Http1;
    let tls = "name: a, port: 80, protocol: tls";
    assert_eq!(sni(tls), (http1, of("policy.test")));
    let h2c = "name: a, port: 80, protocol: h2c";
    assert_eq!(sni(h2c), (AppProtocol::Http2, of("policy.test")));
    let validated = format!("{tls}, validation: {CA}");
    assert_eq!(sni(&validated), (http1, of("good.test")));
}

#[test]
fn literal_host_of_route_is_server_name() {
    let service = format!("name: a, port: 80, protocol: tls, validation: {CA}");
    let policy = "requestHeadersPolicy: {set: [{name: Host, value: other.test}]}";
    let spec = format!("routes: [{{services: [{{{service}}}], {policy}}}]");
    let resolution = with(&[authorities("web", "ca", "Opaque"), root("r", &spec)]);
    let tls = only(&resolution).1.expect("TLS");
    assert_eq!(tls.sni, "other.test");
    assert_eq!(tls.dns_names, ["good.test"]);
}

fn annotated(annotations: &str, port: &str) -> String {
    let annotations = annotations.replace("of.", "projectcontour.io/upstream-protocol.");
    format!(
        "---\nkind: Service\nmetadata: {{name: d, namespace: web, annotations: {{{annotations}}}}}\nspec: {{ports: \
         [{{name: web, port: 80{port}}}]}}\n"
    )
}

#[test]
fn annotations_apply_unless_entry_or_port_decides() {
    let policy = policy("d", "policy.test");
    let (http1, http2) = (AppProtocol::Http1, AppProtocol::Http2);
    let long = format!("of.tls: '{}'", "1,".repeat(512));
    for (annotations, port, entry, expected) in [
        ("of.h2c: '80'", "", "", http2),
        ("of.h2c: 'api, web'", "", "", http2),
        ("of.h2c: 'api, 8080, 080'", "", "", http1),
        ("of.h2: web", "", "", http2),
        ("of.tls: web, of.h2c: '80'", "", "", http1),
        (&long, "", "", http1),
        ("of.h2c: web", ", appProtocol: http", "", http1),
        ("of.tls: web", "", ", protocol: h2", http2),
    ] {
        let service = annotated(annotations, port);
        let proxy = to(&format!("name: d, port: 80{entry}"));
        let proxy_resolution = with(&[service.clone(), policy.clone(), proxy]);
        assert_eq!(errors(&proxy_resolution, "r"), NONE, "{annotations}");
        let (protocol, tls) = only(&proxy_resolution);
        assert_eq!((protocol, tls.is_some()), (expected, true), "{annotations}");
        if entry.is_empty() {
            let rules = rule("h.test", &[path("/", "Prefix", "d")]);
            let ingress_resolution = with(&[service, policy.clone(), ingress("i", &rules)]);
            assert_eq!(
                backends(&ingress_resolution),
                backends(&proxy_resolution),
                "{annotations}"
            );
        }
    }
}

#[test]
fn annotated_tls_is_never_unverified() {
    let rules = rule("h.test", &[path("/", "Prefix", "d")]);
    for annotations in ["of.tls: web", "of.h2: '80'"] {
        let service = annotated(annotations, "");
        let proxy_resolution = with(&[service.clone(), to("name: d, port: 80")]);
        assert_eq!(ask(&proxy_resolution, "/"), "503");
        let error = "ServiceError/TLSUpstreamValidation";
        assert_eq!(errors(&proxy_resolution, "r"), [error]);
        let ingress_resolution = with(&[service.clone(), ingress("i", &rules)]);
        assert_eq!(ask(&ingress_resolution, "/"), "503");
        assert!(messages(&ingress_resolution).contains("set a BackendTLSPolicy"));

        let ca = authorities("web", "ca", "Opaque");
        let entry = format!("name: d, port: 80, validation: {CA}");
        let verified = with(&[ca, service, to(&entry)]);
        assert_eq!(errors(&verified, "r"), NONE);
        assert!(only(&verified).1.is_some());
    }
}

#[test]
fn unverified_backend_answers_503_for_its_share() {
    let opaque = authorities("web", "ca", "Opaque");
    let docker = authorities("web", "ca", "kubernetes.io/dockerconfigjson");
    let broken =
        "---\nkind: Secret\nmetadata: {name: ca, namespace: web}\nstringData: {ca.crt: x}\n";
    let unverified = "ServiceError/TLSUpstreamValidation";
    let valid = format!("protocol: tls, validation: {CA}");
    let with_names = |names: &str| format!("protocol: tls, validation: {{caSecret: ca, {names}}}");
    let many = ["a.test"; 9].join(", ");
    for (secret, service, error) in [
        ("", "protocol: tls".to_owned(), unverified),
        ("", "protocol: h2".to_owned(), unverified),
        (
            "",
            "protocol: h3".to_owned(),
            "ServiceError/UnsupportedProtocol",
        ),
        // Validation requires TLS. Without TLS, requests would be sent in plaintext.
        (&opaque, format!("validation: {CA}"), unverified),
        (
            &opaque,
            format!("protocol: h2c, validation: {CA}"),
            unverified,
        ),
        ("", valid.clone(), unverified),
        (&docker, valid.clone(), unverified),
        (broken, valid, unverified),
        (&opaque, with_names("subjectName: ''"), unverified),
        (
            &opaque,
            with_names("subjectName: 'spiffe://a/b'"),
            unverified,
        ),
        (&opaque, with_names("subjectName: '*.test'"), unverified),
        (
            &opaque,
            with_names("subjectName: a.test, subjectNames: [b.test]"),
            unverified,
        ),
        (
            &opaque,
            with_names(&format!("subjectNames: [{many}]")),
            unverified,
        ),
    ] {
        let spec = format!(
            "routes: [{{services: [{{name: a, port: 80, weight: 1, {service}}}, {{name: b, port: 80, weight: 3}}]}}]"
        );
        let resolution = with(&[secret.to_owned(), root("r", &spec)]);
        assert_eq!(ask(&resolution, "/"), "1x500 3xweb/b/80", "{service}");
        assert_eq!(errors(&resolution, "r"), [error], "{service}");
    }
    let problems = messages(&with(&[to("name: a, port: 80, protocol: tls")]));
    assert!(
        problems.contains("set a BackendTLSPolicy for the Service, or validation of its entry")
    );
}

#[test]
fn foreign_authority_needs_delegation() {
    let ca = authorities("certs", "ca", "Opaque");
    let proxy = to(
        "name: a, port: 80, protocol: tls, validation: {caSecret: certs/ca, subjectName: good.test}",
    );
    let delegation = "---\nkind: TLSCertificateDelegation\nmetadata: {name: d, namespace: certs}\nspec: {delegations: \
                      [{secretName: ca, targetNamespaces: [web]}]}\n";
    let grant = "---\nkind: ReferenceGrant\nmetadata: {name: g, namespace: certs}\nspec: {from: [{group: \
                 projectcontour.io, kind: HTTPProxy, namespace: web}], to: [{group: '', kind: Secret}]}\n";
    for (permission, permitted) in [("", false), (delegation, true), (grant, true)] {
        let resolution = with(&[ca.clone(), permission.to_owned(), proxy.clone()]);
        let expected: &[&str] = if permitted {
            &[]
        } else {
            &["TLSError/CACertificateNotDelegated"]
        };
        assert_eq!(errors(&resolution, "r"), expected, "{permission}");
        let answer = ask(&resolution, "/");
        assert_eq!(answer != "503", permitted, "{permission}: {answer}");
    }
}

#[test]
fn authorities_of_one_service_are_separate_backends() {
    let spec = "
routes:
- {services: [{name: a, port: 80, protocol: tls, validation: {caSecret: one, subjectName: good.test}}]}
- {conditions: [{prefix: /two}], services: [{name: a, port: 80, protocol: tls, validation: {caSecret: two, subjectName: good.test}}]}
- {conditions: [{prefix: /bad}], services: [{name: a, port: 80, protocol: tls, validation: {caSecret: bad, subjectName: good.test}}]}
- {conditions: [{prefix: /plain}], services: [{name: a, port: 80}]}
";
    let secrets = [
        authorities("web", "one", "Opaque"),
        authorities("web", "two", "Opaque"),
    ];
    let resolution = with(&[secrets.concat(), root("r", spec)]);
    let answers = ["/", "/two", "/plain"].map(|path| ask(&resolution, path));
    assert_ne!(answers[0], answers[1]);
    assert_eq!(answers[2], "web/a/80");
    assert_eq!(ask(&resolution, "/bad"), "503");
    assert_eq!(backends(&resolution).len(), 3);
    // All Backends for the Service port share one endpoint set.
    assert_eq!(resolution.gateways[0].snapshot.endpoints.len(), 1);
}

#[test]
fn idle_timeout_distinguishes_backends_of_service() {
    let of = |value: &str| {
        let policy = format!("timeoutPolicy: {{idleConnection: '{value}'}}");
        with(&[root(
            "r",
            &format!("routes: [{{services: [{{name: a, port: 80}}], {policy}}}]"),
        )])
    };
    for (value, expected) in [
        ("", None),
        ("0s", None),
        ("0", None),
        ("90s", Some(90_000)),
        // These are durations in Go, but not in the Gateway API.
        ("1.5h", Some(5_400_000)),
        ("500us", Some(1)),
        ("100000s", Some(100_000_000)),
        ("infinity", Some(0)),
    ] {
        let resolution = of(value);
        assert_eq!(errors(&resolution, "r"), NONE, "{value}");
        let [backend] = backends(&resolution) else {
            panic!("expected one Backend for {value}");
        };
        assert_eq!(backend.idle_timeout_ms, expected, "{value}");
        let is_plain = backend.name == "Service/web/a/80";
        assert_eq!(is_plain, expected.is_none(), "{value}");
    }
    let bad = of("soon");
    assert_eq!(ask(&bad, "/"), "500");
    assert_eq!(errors(&bad, "r"), ["RouteError/TimeoutPolicyNotValid"]);
}

fn session(resolution: &Resolution) -> Option<SessionPersistence> {
    let host = &resolution.gateways[0].snapshot.route_tables[0].virtual_hosts[0];
    match &host.routes[0].action {
        Some(Action::Forward(forward)) => forward.session.as_deref().cloned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cookie_strategy_keeps_sessions_and_others_warn() {
    let one = "{name: a, port: 80}";
    let two = "{name: a, port: 80}, {name: b, port: 80}";
    for (strategy, services, keeps, warning) in [
        ("Cookie", one, true, ""),
        ("RoundRobin", one, false, ""),
        ("''", one, false, ""),
        ("Cookie", two, true, "weights choose the service"),
        (
            "RequestHash",
            one,
            false,
            "has no valid requestHashPolicies",
        ),
        ("Maglev", one, false, "is unknown"),
    ] {
        let spec = format!(
            "routes: [{{services: [{services}], loadBalancerPolicy: {{strategy: {strategy}}}}}]"
        );
        let resolution = with(&[root("r", &spec)]);
        let expected = keeps.then(|| SessionPersistence {
            kind: Some(Kind::Cookie("X-Contour-Session-Affinity".to_owned())),
            cookie_max_age_seconds: 0,
            cookie_path: String::new(),
        });
        assert_eq!(session(&resolution), expected, "{strategy}");
        let has_key = backends(&resolution)
            .iter()
            .all(|it| !it.session_key.is_empty());
        assert_eq!(has_key, keeps, "{strategy}");
        assert_eq!(errors(&resolution, "r"), NONE, "{strategy}");
        let reported = warnings(&resolution, "r");
        assert_eq!(
            reported.is_empty(),
            warning.is_empty(),
            "{strategy}: {reported:?}"
        );
        assert!(messages(&resolution).contains(warning), "{strategy}");
    }
}
