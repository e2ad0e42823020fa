//! `spec.tls` in Ingresses: each entry adds HTTPS listeners to the Gateway of the Ingress.

use sesame_proto::schema::tls_termination::Version;

use super::ingresses::{CLASS, annotated, conditions, ingress, path, rule, with};
use super::router::{GET, Request, answer};
use super::tls::{certificate, https, secret};
use super::{ConditionState, HTTP, gateway, holds, resolved};
use crate::Resolution;
use sesame_kinds::status::{ConditionType, Reason};

fn certificate_for(name: &str, hosts: &[&str]) -> String {
    let pem = certificate(hosts);
    secret("web", name, &pem.certificate, &pem.key)
}

fn with_tls(name: &str, host: &str, service: &str, tls: &str) -> String {
    let spec = rule(host, &[path("/", "Prefix", service)]);
    ingress(name, &format!("tls: [{tls}]\n{spec}"))
}

fn ask(resolution: &Resolution, port: u32, host: &str, path: &str) -> String {
    let request = Request {
        port,
        sni: host,
        host,
        path,
        headers: &[("host", host)],
        ..GET
    };
    answer(&resolution.gateways[0].snapshot, &request)
}

fn keys(resolution: &Resolution, listener: &str) -> Vec<String> {
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let mut listeners = ports.flat_map(|port| &port.listeners);
    let found = listeners.find(|it| it.name == listener);
    let tls = found.and_then(|it| it.tls.as_ref());
    let keys = tls.map(|tls| tls.keys.clone()).unwrap_or_default();
    keys.iter()
        .map(|key| {
            key.rsplit_once('/')
                .map_or(key.clone(), |(name, _)| name.to_owned())
        })
        .collect()
}

fn problems(resolution: &Resolution) -> Vec<&str> {
    resolution.problems.iter().map(|it| &*it.message).collect()
}

#[test]
fn host_with_secret_is_served_over_https() {
    let resolution = with(&[
        certificate_for("s", &["h.test"]),
        with_tls("i", "h.test", "a", "{hosts: [h.test], secretName: s}"),
    ]);
    for port in [80, 443] {
        assert_eq!(ask(&resolution, port, "h.test", "/x"), "web/a/80");
        assert_eq!(ask(&resolution, port, "other.test", "/x"), "404");
    }
    let keys = keys(&resolution, "TLSHost/web/gw/listeners/h.test");
    assert_eq!(keys.len(), 1, "{keys:?}");
    let conditions = conditions(&resolution, "i");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::True
    );
    assert_eq!(problems(&resolution), [""; 0]);
    let status = resolution
        .statuses
        .gateways
        .values()
        .next()
        .expect("a status");
    assert_eq!(
        (status.listeners.len(), status.attached_listener_sets),
        (1, 0)
    );
    assert!(resolution.statuses.listener_sets.is_empty());
}

#[test]
fn missing_secret_is_reported_and_http_continues() {
    let resolution = with(&[with_tls(
        "i",
        "h.test",
        "a",
        "{hosts: [h.test], secretName: gone}",
    )]);
    assert_eq!(ask(&resolution, 80, "h.test", "/"), "web/a/80");
    assert_eq!(ask(&resolution, 443, "h.test", "/"), "404");
    let conditions = conditions(&resolution, "i");
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::False(Reason::InvalidCertificateRef)
    );
    let partly = ConditionType::PartiallyInvalid;
    assert_eq!(holds(conditions, partly), ConditionState::True);
    let messages: Vec<&str> = conditions.iter().map(|it| it.message.as_str()).collect();
    assert!(
        messages
            .iter()
            .any(|it| it.contains("tls.secretName \"gone\"")),
        "{messages:?}"
    );
}

#[test]
fn entry_without_hosts_covers_hosts_of_all_rules() {
    let rules = "rules: [{host: h.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, \
                 port: {number: 80}}}}]}}, {host: \"*.h.test\", http: {paths: [{path: /, pathType: Prefix, \
                 backend: {service: {name: b, port: {number: 80}}}}]}}]";
    let resolution = with(&[
        certificate_for("s", &["h.test", "*.h.test"]),
        ingress("i", &format!("tls: [{{secretName: s}}]\n{rules}")),
    ]);
    assert_eq!(ask(&resolution, 443, "h.test", "/"), "web/a/80");
    assert_eq!(ask(&resolution, 443, "x.h.test", "/"), "web/b/80");
    // In an Ingress, a wildcard host covers exactly one label.
    assert_eq!(ask(&resolution, 443, "y.x.h.test", "/"), "404");
}

#[test]
fn wildcard_entry_covers_hosts_of_all_ingresses() {
    let resolution = with(&[
        certificate_for("s", &["*.h.test"]),
        with_tls(
            "wild",
            "*.h.test",
            "a",
            "{hosts: [\"*.h.test\"], secretName: s}",
        ),
        with_tls("exact", "x.h.test", "b", "{hosts: [x.h.test]}"),
    ]);
    assert_eq!(ask(&resolution, 443, "x.h.test", "/"), "web/b/80");
    assert_eq!(ask(&resolution, 443, "y.h.test", "/"), "web/a/80");
    let exact = conditions(&resolution, "exact");
    assert_eq!(
        holds(exact, ConditionType::PartiallyInvalid),
        ConditionState::Absent
    );
}

#[test]
fn wider_host_rules_stay_out_of_other_listeners() {
    let all = "defaultBackend: {service: {name: b, port: {number: 80}}}";
    let own = format!(
        "{all}\ntls: [{{hosts: [own.test], secretName: s}}]\n{}",
        rule("own.test", &[path("/a", "Prefix", "a")])
    );
    let narrow = with_tls("i", "h.test", "a", "{hosts: [h.test], secretName: s}");
    let resolution = with(&[
        certificate_for("s", &["h.test", "own.test"]),
        ingress("all", all),
        narrow.replace("path: \"/\"", "path: \"/a\""),
        ingress("own", &own),
    ]);
    assert_eq!(ask(&resolution, 80, "h.test", "/x"), "web/b/80");
    assert_eq!(ask(&resolution, 443, "h.test", "/a"), "web/a/80");
    assert_eq!(ask(&resolution, 443, "h.test", "/x"), "404");
    assert_eq!(ask(&resolution, 443, "own.test", "/a"), "web/a/80");
    // The default backend of the same Ingress receives the host's other requests.
    assert_eq!(ask(&resolution, 443, "own.test", "/x"), "web/b/80");
}

#[test]
fn gateway_and_older_ingress_decide_on_the_certificate() {
    let aged = |created: &str, ingress: String| {
        let created = format!("metadata: {{creationTimestamp: \"{created}\", ");
        ingress.replacen("metadata: {", &created, 1)
    };
    let entry = |secret: &str| format!("{{hosts: [h.test], secretName: {secret}}}");
    let new =
        with_tls("new", "h.test", "b", &entry("two")).replace("path: \"/\"", "path: \"/new\"");
    let objects = [
        certificate_for("one", &["h.test"]),
        certificate_for("two", &["h.test"]),
        certificate_for("of-gateway", &["*.test", "h.test"]),
        aged(
            "2026-01-01T00:00:00Z",
            with_tls("old", "h.test", "a", &entry("one")),
        ),
        aged("2026-02-01T00:00:00Z", new),
    ];
    let with_listener = |listener: &str| {
        let listeners = format!("{HTTP}\n{listener}");
        resolved(&format!(
            "{}{CLASS}{}",
            gateway(&listeners),
            objects.concat()
        ))
    };
    let check = |resolution: &Resolution| {
        assert_eq!(ask(resolution, 443, "h.test", "/"), "web/a/80");
        assert_eq!(ask(resolution, 443, "h.test", "/new"), "web/b/80");
    };
    let unused = |resolution: &Resolution| {
        let problems = resolution.problems.iter();
        let unused = problems.filter(|it| it.message.contains("its Secret is not used"));
        unused.map(|it| it.object.to_string()).collect::<Vec<_>>()
    };
    let alone = with_listener("");
    check(&alone);
    assert_eq!(unused(&alone), ["Ingress/web/new"]);
    assert_eq!(keys(&alone, "TLSHost/web/gw/listeners/h.test").len(), 1);

    // The Gateway's own listener has the same hostname.
    let same = with_listener(&https("own", "h.test", "{name: of-gateway}"));
    check(&same);
    assert_eq!(unused(&same), ["Ingress/web/new", "Ingress/web/old"]);
    assert_eq!(keys(&same, "TLSHost/web/gw/listeners/h.test"), [""; 0]);

    // A less specific listener does not take the hostname from the Ingress.
    let wider = with_listener(&https("own", "*.test", "{name: of-gateway}"));
    check(&wider);
    assert_eq!(keys(&wider, "TLSHost/web/gw/listeners/h.test").len(), 1);
}

#[test]
fn listener_of_gateway_precedes_entry_of_any_host() {
    let spec = "tls: [{secretName: s}]\ndefaultBackend: {service: {name: a, port: {number: 80}}}";
    let objects = [
        certificate_for("s", &["h.test"]),
        certificate_for("of-gateway", &["h.test"]),
        ingress("i", spec),
    ];
    let alone = with(&objects);
    assert_eq!(keys(&alone, "TLSHost/web/gw/listeners/any").len(), 1);
    let listeners = format!("{HTTP}\n{}", https("own", "", "{name: of-gateway}"));
    let all = format!("{}{CLASS}{}", gateway(&listeners), objects.concat());
    let resolution = resolved(&all);
    assert_eq!(keys(&resolution, "TLSHost/web/gw/listeners/any"), [""; 0]);
    for resolution in [alone, resolution] {
        assert_eq!(ask(&resolution, 443, "h.test", "/"), "web/a/80");
    }
}

#[test]
fn all_secrets_of_a_host_are_offered() {
    let tls = "{hosts: [h.test], secretName: one}, {hosts: [h.test], secretName: two}";
    let resolution = with(&[
        certificate_for("one", &["h.test"]),
        certificate_for("two", &["h.test", "x.test"]),
        with_tls("i", "h.test", "a", tls),
    ]);
    assert_eq!(
        keys(&resolution, "TLSHost/web/gw/listeners/h.test").len(),
        2
    );
}

#[test]
fn plain_http_redirects_to_the_hosts_listener() {
    let spec = format!(
        "tls: [{{hosts: [h.test], secretName: s}}]\n{}",
        rule("h.test", &[path("/", "Prefix", "a")])
    );
    let force = "{ingress.kubernetes.io/force-ssl-redirect: \"true\"}";
    let resolution = with(&[
        certificate_for("s", &["h.test"]),
        annotated("i", force, &spec),
    ]);
    assert_eq!(ask(&resolution, 80, "h.test", "/"), "301 https:0");
    assert_eq!(ask(&resolution, 443, "h.test", "/"), "web/a/80");

    // Without a certificate, plaintext requests are still redirected instead of served.
    let resolution = with(&[annotated("i", force, &spec)]);
    assert_eq!(ask(&resolution, 80, "h.test", "/"), "301 https:0");
    let accepted = holds(conditions(&resolution, "i"), ConditionType::Accepted);
    assert_eq!(
        accepted,
        ConditionState::False(Reason::InvalidCertificateRef)
    );
}

#[test]
fn host_without_secret_needs_a_listener() {
    let resolution = with(&[with_tls("i", "h.test", "a", "{hosts: [h.test]}")]);
    let conditions = conditions(&resolution, "i");
    let partly = conditions
        .iter()
        .find(|condition| condition.type_ == ConditionType::PartiallyInvalid)
        .expect("a condition");
    let expected = "tls[0]: host \"h.test\" is not served over HTTPS: secretName is missing";
    assert!(partly.message.contains(expected), "{}", partly.message);
}

#[test]
fn too_many_hosts_refuse_the_ingress() {
    let hosts: Vec<String> = (0..=512).map(|i| format!("h{i}.test")).collect();
    let tls = format!("{{hosts: [{}], secretName: s}}", hosts.join(", "));
    let resolution = with(&[with_tls("i", "h.test", "a", &tls)]);
    let accepted = holds(conditions(&resolution, "i"), ConditionType::Accepted);
    assert_eq!(accepted, ConditionState::False(Reason::UnsupportedValue));
}

#[test]
fn annotations_set_versions_and_namespace_of_secrets() {
    let spec = format!(
        "tls: [{{hosts: [h.test], secretName: s}}]\n{}",
        rule("h.test", &[path("/", "Prefix", "a")])
    );
    let annotations = "{projectcontour.io/tls-minimum-protocol-version: \"1.3\", \
                       projectcontour.io/tls-cert-namespace: certs}";
    let elsewhere = certificate_for("s", &["h.test"]).replace("namespace: web", "namespace: certs");
    let objects = [elsewhere, annotated("i", annotations, &spec)];
    let refused = with(&objects);
    let resolved = holds(conditions(&refused, "i"), ConditionType::ResolvedRefs);
    assert_eq!(resolved, ConditionState::False(Reason::RefNotPermitted));

    let grant = "---\nkind: ReferenceGrant\nmetadata: {name: g, namespace: certs}\nspec: {from: [{group: \
                 networking.k8s.io, kind: Ingress, namespace: web}], to: [{group: \"\", kind: Secret}]}\n";
    let [secret, ingress] = objects;
    let granted = with(&[secret, ingress, grant.to_owned()]);
    assert_eq!(ask(&granted, 443, "h.test", "/"), "web/a/80");
    let ports = granted.gateways[0].snapshot.ports.iter();
    let mut listeners = ports.flat_map(|port| &port.listeners);
    let tls = listeners.find_map(|it| it.tls.as_ref()).expect("TLS");
    assert_eq!(tls.min_version(), Version::Tls13);
}

#[test]
fn delegation_permits_annotated_namespace_only() {
    let spec = format!(
        "tls: [{{hosts: [h.test], secretName: s}}]\n{}",
        rule("h.test", &[path("/", "Prefix", "a")])
    );
    let elsewhere = certificate_for("s", &["h.test"]).replace("namespace: web", "namespace: certs");
    let delegation = "---\nkind: TLSCertificateDelegation\nmetadata: {name: d, namespace: certs}\nspec: \
                      {delegations: [{secretName: s, targetNamespaces: [web]}]}\n";
    let named = "{projectcontour.io/tls-cert-namespace: certs}";
    for (annotations, delegation, expected) in [
        (named, delegation, ConditionState::True),
        (named, "", ConditionState::False(Reason::RefNotPermitted)),
        // Without the annotation, the Secret must be in the Ingress's namespace.
        (
            "{}",
            delegation,
            ConditionState::False(Reason::InvalidCertificateRef),
        ),
    ] {
        let objects = [
            elsewhere.clone(),
            delegation.to_owned(),
            annotated("i", annotations, &spec),
        ];
        let resolution = with(&objects);
        let resolved = holds(conditions(&resolution, "i"), ConditionType::ResolvedRefs);
        let served = ask(&resolution, 443, "h.test", "/") == "web/a/80";
        assert_eq!(served, resolved == ConditionState::True, "{annotations}");
        assert_eq!(resolved, expected, "{annotations}");
    }
}

#[test]
fn invalid_versions_affect_only_their_ingress() {
    let of = |name: &str, min: &str, max: &str| {
        let annotations = format!(
            "{{projectcontour.io/tls-minimum-protocol-version: \"{min}\", \
             projectcontour.io/tls-maximum-protocol-version: \"{max}\"}}"
        );
        let host = format!("{name}.test");
        let tls = format!("tls: [{{hosts: [{host}], secretName: s}}]");
        let rules = rule(&host, &[path("/", "Prefix", "a")]);
        annotated(name, &annotations, &format!("{tls}\n{rules}"))
    };
    let resolution = with(&[
        certificate_for("s", &["a.test", "b.test", "c.test"]),
        of("a", "1.3", "1.2"),
        of("b", "1.1", "1.3"),
        of("c", "1.2", "1.2"),
    ]);
    // Unlike in Contour, an unknown version withholds the Ingress.
    for (host, plain, tls) in [
        ("a.test", "web/a/80", "404"),
        ("b.test", "500", "404"),
        ("c.test", "web/a/80", "web/a/80"),
    ] {
        assert_eq!(ask(&resolution, 80, host, "/"), plain, "{host}");
        assert_eq!(ask(&resolution, 443, host, "/"), tls, "{host}");
    }
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let mut listeners = ports.flat_map(|port| &port.listeners);
    let tls = listeners
        .find(|it| it.hostname == "c.test")
        .expect("a listener");
    let tls = tls.tls.as_ref().expect("TLS");
    assert_eq!(tls.max_version(), Version::Tls12);
}
