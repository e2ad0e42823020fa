//! Which certificates annotated Gateways request.

use super::{gateway, objects, world};
use crate::context::ResolvedFor;
use crate::{Options, Resolution, resolve};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::ConditionType;
use sesame_kinds::world::{AnyObject, Kind};

pub(super) const LISTENERS: &str = "
- {name: http, port: 80, protocol: HTTP}
- {name: other, port: 8080, protocol: HTTP}
- {name: a, port: 443, protocol: HTTPS, hostname: a.test, tls: {certificateRefs: [{name: pair}]}}
- {name: b, port: 443, protocol: HTTPS, hostname: b.test, tls: {certificateRefs: [{name: pair}]}}
";

pub(super) fn options(acme: &str) -> Options {
    let text = format!(
        "kind: SesameConfiguration\nmetadata: {{name: own, namespace: web}}\nspec: {{acme: {{{acme}}}}}"
    );
    let configuration = match objects(&text).remove(0) {
        AnyObject::SesameConfiguration(found) => found,
        other => panic!("{other:?}"),
    };
    Options {
        configuration: Some(configuration),
        ..Options::default()
    }
}

pub(super) fn annotated(listeners: &str, value: &str, more: &str) -> String {
    let annotation = format!("metadata: {{annotations: {{projectsesame.io/acme: '{value}'}}, ");
    gateway(listeners).replacen("metadata: {", &annotation, 1) + more
}

pub(super) fn found(yaml: &str, options: &Options) -> Resolution {
    resolve(&world(yaml), options)
}

pub(super) fn message(resolution: &Resolution) -> &str {
    let conditions = resolution.gateway_conditions();
    let accepted = conditions
        .iter()
        .find(|it| it.type_ == ConditionType::Accepted);
    &accepted.expect("Accepted").message
}

#[test]
fn stages_of_cluster_prevent_orders() {
    let staged = options("termsAgreed: true}, rollout: {stages: [{hosts: 1}]");
    let on = |resolved_for| Options {
        resolved_for,
        ..staged.clone()
    };
    let yaml = annotated(LISTENERS, "true", "");
    let refused = found(&yaml, &on(ResolvedFor::Cluster));
    assert!(refused.certificate_requests.is_empty());
    assert!(message(&refused).contains("spec.rollout.stages"));
    let on_host = found(&yaml, &on(ResolvedFor::Host));
    assert_eq!(on_host.certificate_requests.len(), 1);
}

#[test]
fn listeners_of_a_secret_share_one_request() {
    let agreed = options("termsAgreed: true");
    let resolution = found(&annotated(LISTENERS, "true", ""), &agreed);
    let requests = &resolution.certificate_requests;
    let request = &requests[&NamespacedName::new("web", "pair")];
    assert_eq!(requests.len(), 1);
    assert_eq!(
        request.hostnames,
        ["a.test".to_owned(), "b.test".to_owned()].into()
    );
    let parents: Vec<_> = request
        .parents
        .iter()
        .map(|it| (&*it.listener, it.port))
        .collect();
    assert_eq!(parents, [("http", 80)]);
    for (annotation, settings) in [("false", "termsAgreed: true"), ("true", "")] {
        let yaml = annotated(LISTENERS, annotation, "");
        assert!(
            found(&yaml, &options(settings))
                .certificate_requests
                .is_empty()
        );
    }
}

#[test]
fn own_secrets_are_not_requested() {
    let agreed = options("termsAgreed: true");
    let secret = |labels: &str| {
        let secret = "---\nkind: Secret\nmetadata: {name: pair, namespace: web, labels: ";
        annotated(LISTENERS, "true", &format!("{secret}{{{labels}}}}}\n"))
    };
    assert!(found(&secret(""), &agreed).certificate_requests.is_empty());
    let ours = found(&secret("projectsesame.io/acme: certificate"), &agreed);
    assert!(
        ours.certificate_requests
            .values()
            .all(|request| request.exists)
    );
    assert_eq!(ours.certificate_requests.len(), 1);
}

#[test]
fn obstacles_are_in_accepted_condition() {
    let https = |rest: &str| format!("- {{name: s, port: 443, protocol: HTTPS, {rest}}}\n");
    let http = "- {name: http, port: 80, protocol: HTTP, hostname: b.test}\n";
    let pair = "tls: {certificateRefs: [{name: pair}]}";
    let named = https(&format!("hostname: a.test, {pair}"));
    let elsewhere = "hostname: a.test, tls: {certificateRefs: [{name: pair, namespace: x}]}";
    let (yes, dns) = ("termsAgreed: true", "termsAgreed: true, challenge: DNS01");
    let path = "hostname: a.test, tls: {certificateRefs: [{name: ../pair}]}";
    for (listeners, annotation, acme, words) in [
        (
            https(path),
            "true",
            yes,
            "because its name \"../pair\" is not",
        ),
        (
            named.clone(),
            "yes",
            yes,
            "\"yes\": expected \"true\" or \"false\"",
        ),
        (
            named.clone(),
            "true",
            "",
            "spec.acme.termsAgreed is not true",
        ),
        (https(pair), "true", yes, "has no valid hostname"),
        (
            https(&format!("hostname: '*.a.test', {pair}")),
            "true",
            yes,
            "only with spec.acme.challenge DNS01",
        ),
        (
            named.clone() + http,
            "true",
            yes,
            "no HTTP listener for \"a.test\"",
        ),
        (https(elsewhere), "true", yes, "in another namespace"),
        (
            named,
            "true",
            dns,
            "start the controller with --acme-dns-hook",
        ),
    ] {
        let mut options = options(acme);
        options.resolved_for = ResolvedFor::Cluster;
        let resolution = found(&annotated(&listeners, annotation, ""), &options);
        let message = message(&resolution);
        assert!(message.contains(words), "{words}: {message}");
        assert!(resolution.certificate_requests.is_empty(), "{words}");
    }
}

#[test]
fn rejected_listeners_request_no_certificates() {
    let agreed = options("termsAgreed: true");
    // The second listener conflicts with the first.
    let conflict = "
- {name: http, port: 80, protocol: HTTP}
- {name: a, port: 443, protocol: HTTPS, hostname: a.test, tls: {certificateRefs: [{name: a}]}}
- {name: b, port: 443, protocol: HTTPS, hostname: a.test, tls: {certificateRefs: [{name: b}]}}
- {name: c, port: 443, protocol: HTTPS, hostname: c.test, tls: {certificateRefs: [{name: c}]}}
";
    let resolution = found(&annotated(conflict, "true", ""), &agreed);
    let requests = resolution.certificate_requests.keys();
    let names: Vec<&str> = requests.map(|secret| &*secret.name).collect();
    assert!(names.contains(&"c") && !names.contains(&"b"), "{names:?}");
}

#[test]
fn listeners_without_use_for_secrets_request_none() {
    let agreed = options("termsAgreed: true");
    let unused = "
- {name: http, port: 80, protocol: HTTP}
- name: through
  port: 443
  protocol: TLS
  hostname: a.test
  tls: {mode: Passthrough, certificateRefs: [{name: through}]}
- name: on-hosts
  port: 8443
  protocol: HTTPS
  hostname: b.test
  tls: {certificateRefs: [{name: on-hosts}], options: {projectsesame.io/certificate-source: host}}
- name: terminated
  port: 9443
  protocol: TLS
  hostname: c.test
  tls: {mode: Terminate, certificateRefs: [{name: terminated}]}
";
    let resolution = found(&annotated(unused, "true", ""), &agreed);
    let requests = resolution.certificate_requests.keys();
    let names: Vec<&str> = requests.map(|secret| &*secret.name).collect();
    assert_eq!(names, ["terminated"]);
    assert_eq!(message(&resolution), "the Gateway is valid");
}

pub(super) const SHARED: &str = "
- {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
";
pub(super) const PRIVATE: &str = "
- {name: http, port: 80, protocol: HTTP}
";
pub(super) const OF_SET: &str =
    "{name: s, port: 443, protocol: HTTPS, hostname: s.test, tls: {certificateRefs: [{name: s}]}}";

pub(super) fn with_set(listeners: &str, value: &str, set_value: &str, of_set: &str) -> String {
    let allowed = "spec:\n  allowedListeners: {namespaces: {from: All}}\n";
    annotated(listeners, value, "").replace("spec:\n", allowed)
        + &format!(
            "---\nkind: ListenerSet\nmetadata: {{name: set, namespace: shop, annotations: \
             {{projectsesame.io/acme: '{set_value}'}}}}\nspec:\n  parentRef: {{name: gw, \
             namespace: web}}\n  listeners: [{of_set}]\n"
        )
}

pub(super) fn set_message(resolution: &Resolution) -> &str {
    let set = &resolution.statuses.listener_sets[&NamespacedName::new("shop", "set")];
    let mut conditions = set.conditions.iter();
    let accepted = conditions.find(|it| it.type_ == ConditionType::Accepted);
    &accepted.expect("Accepted").message
}

#[test]
fn listener_sets_request_with_both_annotations() {
    let agreed = options("termsAgreed: true");
    let own = "{name: own, port: 80, protocol: HTTP, hostname: s.test}";
    for (listeners, of_set, expected) in [
        (SHARED, OF_SET.to_owned(), vec!["Gateway/web/gw http"]),
        (
            PRIVATE,
            format!("{OF_SET}, {own}"),
            vec!["ListenerSet/shop/set own"],
        ),
        (
            SHARED,
            format!("{OF_SET}, {own}"),
            vec!["ListenerSet/shop/set own"],
        ),
    ] {
        let resolution = found(&with_set(listeners, "true", "true", &of_set), &agreed);
        let requests = &resolution.certificate_requests;
        assert_eq!(requests.len(), 1, "{}", set_message(&resolution));
        let request = &requests[&NamespacedName::new("shop", "s")];
        let set = Kind::ListenerSet.named(NamespacedName::new("shop", "set"));
        assert_eq!(request.requesters, [set].into());
        let parents = request.parents.iter();
        let parents: Vec<String> = parents
            .map(|it| format!("{} {}", it.object, it.listener))
            .collect();
        assert_eq!(parents, expected);
        let gateways = request.parents.iter().map(|it| it.gateway.to_string());
        assert!(gateways.into_iter().all(|name| name == "web/gw"));
    }
}

#[test]
fn external_account_needs_readable_key() {
    let of = |reference: &str| {
        options(&format!(
            "termsAgreed: true, externalAccount: {{keyID: k, secretRef: {{{reference}}}}}"
        ))
    };
    let own = of("name: eab, namespace: web");
    let other = of("name: eab, namespace: keys");
    let secret = |more: &str| {
        let secret = "---\nkind: Secret\nmetadata: {name: eab, namespace: web}\n";
        annotated(LISTENERS, "true", &format!("{secret}{more}\n"))
    };
    let key = "stringData: {key: c2VjcmV0LWtleQ}";
    let external = |resolution: &Resolution| {
        let mut requests = resolution.certificate_requests.values();
        let request = requests.next().expect("a request");
        request.issuer.external.clone().expect("an account")
    };
    let good = found(&secret(key), &own);
    let account = external(&good);
    assert_eq!(account.key_id, "k");
    assert_eq!(account.key.unwrap().bytes(), b"secret-key");
    assert_eq!(message(&good), "the Gateway is valid");
    for (yaml, options, words) in [
        (
            annotated(LISTENERS, "true", ""),
            &own,
            "Secret web/eab does not exist",
        ),
        (secret("stringData: {other: a}"), &own, "has no \"key\""),
        (
            secret("stringData: {key: 'clear key!'}"),
            &own,
            "is not base64url",
        ),
        (
            secret(&format!("type: kubernetes.io/tls\n{key}")),
            &own,
            "expected Opaque",
        ),
        (
            secret(key),
            &other,
            "no ReferenceGrant in namespace \"keys\"",
        ),
    ] {
        let resolution = found(&yaml, options);
        let message = message(&resolution);
        assert!(message.contains(words), "{words}: {message}");
        assert!(!message.contains("clear key"), "{message}");
        // An account that already exists stays in use.
        assert_eq!(external(&resolution).key, None);
    }
}

#[test]
fn controller_with_hook_requests_with_dns() {
    let staged = "termsAgreed: true, challenge: DNS01}, rollout: {stages: [{hosts: 1}]";
    let mut options = options(staged);
    options.resolved_for = ResolvedFor::Cluster;
    options.has_acme_dns_hook = true;
    let wildcard = LISTENERS.replace("hostname: a.test", "hostname: '*.a.test'");
    let resolution = found(&annotated(&wildcard, "true", ""), &options);
    let request = &resolution.certificate_requests[&NamespacedName::new("web", "pair")];
    let names = ["*.a.test".to_owned(), "b.test".to_owned()];
    assert_eq!(request.hostnames, names.into());
    assert!(request.parents.is_empty());
}
