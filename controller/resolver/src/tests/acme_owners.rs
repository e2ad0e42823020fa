//! Which namespaces may request certificates for which hostnames.

use std::sync::Arc;

use super::acme::{
    LISTENERS, OF_SET, PRIVATE, SHARED, annotated, found, message, options, set_message, with_set,
};
use crate::context::ResolvedFor;
use sesame_kinds::api::NamespacedName;

#[test]
fn reserved_listener_excludes_other_listener_sets() {
    let agreed = options("termsAgreed: true");
    let shared = with_set(SHARED, "true", "true", OF_SET);
    let other = "---\nkind: ListenerSet\nmetadata: {name: other, namespace: bank}\nspec:\n  \
                 parentRef: {name: gw, namespace: web}\n  listeners:\n  - {name: s, port: 80, \
                 protocol: HTTP, hostname: s.test, allowedRoutes: {namespaces: {from: RULE}}}\n";
    let with = |rule: &str| found(&(shared.clone() + &other.replace("RULE", rule)), &agreed);
    let reserved = with("Same");
    assert!(reserved.certificate_requests.is_empty());
    let why = set_message(&reserved);
    assert!(why.contains("no HTTP listener for \"s.test\""), "{why}");
    let open = with("All");
    let request = &open.certificate_requests[&NamespacedName::new("shop", "s")];
    let parents: Vec<_> = request.parents.iter().collect();
    assert_eq!(parents.len(), 1);
    assert_eq!(parents[0].object.to_string(), "ListenerSet/bank/other");
}

#[test]
fn dns_orders_need_namespace_of_configuration() {
    for (challenge, namespace, is_operators) in [
        ("DNS01", "web", Some(true)),
        ("DNS01", "sesame", None),
        ("HTTP01", "sesame", Some(false)),
    ] {
        let mut options = options(&format!("termsAgreed: true, challenge: {challenge}"));
        options.resolved_for = ResolvedFor::Cluster;
        options.has_acme_dns_hook = true;
        let configuration = Arc::make_mut(options.configuration.as_mut().unwrap());
        namespace.clone_into(&mut configuration.metadata.namespace);
        let resolution = found(&annotated(LISTENERS, "true", ""), &options);
        let mut requests = resolution.certificate_requests.values();
        let first = requests.next().map(|request| request.is_operators);
        assert_eq!(first, is_operators, "{challenge} {namespace}");
        let refused = message(&resolution).contains("Gateways in the namespace of");
        assert_eq!(refused, is_operators.is_none());
        options.resolved_for = ResolvedFor::Host;
        let on_host = found(&annotated(LISTENERS, "true", ""), &options);
        let mut requests = on_host.certificate_requests.values();
        assert!(requests.all(|request| request.is_operators));
        assert_eq!(on_host.certificate_requests.len(), 1);
    }
}

#[test]
fn obstacles_of_listener_sets_are_in_their_conditions() {
    // Requests for the hostname go to the second listener.
    let reserved =
        &format!("{SHARED}- {{name: own, port: 80, protocol: HTTP, hostname: '*.test'}}\n");
    let elsewhere = OF_SET.replace("{name: s}", "{name: s, namespace: web}");
    let (yes, dns) = ("termsAgreed: true", "termsAgreed: true, challenge: DNS01");
    for (listeners, value, set_value, of_set, acme, words) in [
        (
            SHARED,
            "true",
            "no",
            OF_SET,
            yes,
            "\"no\": expected \"true\"",
        ),
        (
            SHARED,
            "false",
            "true",
            OF_SET,
            yes,
            "Gateway web/gw lacks the annotation",
        ),
        (
            SHARED,
            "true",
            "true",
            OF_SET,
            "",
            "spec.acme.termsAgreed is not true",
        ),
        (
            PRIVATE,
            "true",
            "true",
            OF_SET,
            yes,
            "permits HTTPRoutes in namespace \"shop\"",
        ),
        (
            reserved,
            "true",
            "true",
            OF_SET,
            yes,
            "no HTTP listener for \"s.test\" permits HTTPRoutes in namespace \"shop\"",
        ),
        (
            SHARED,
            "true",
            "true",
            &elsewhere,
            yes,
            "in another namespace",
        ),
        (
            SHARED,
            "true",
            "true",
            OF_SET,
            dns,
            "only for the Gateway's own namespace",
        ),
        (
            SHARED,
            "true",
            "false",
            OF_SET,
            yes,
            "Secret shop/s does not exist",
        ),
    ] {
        let yaml = with_set(listeners, value, set_value, of_set);
        let resolution = found(&yaml, &options(acme));
        let message = set_message(&resolution);
        assert!(message.contains(words), "{words}: {message}");
        assert!(resolution.certificate_requests.is_empty(), "{words}");
    }
}
