//! Listener hostnames that none of the listener's certificates cover.

use super::tls::{certificate, https, secret};
use super::{gateway, resolved};
use crate::UncoveredHostname;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::ConditionType;
use sesame_kinds::world::Kind;

#[test]
fn uncovered_hostnames_are_listed_by_object() {
    let pem = certificate(&["*.example.org"]);
    let listeners = https("covered", "a.example.org", "{name: s}")
        + &https("deep", "b.a.example.org", "{name: s}")
        + &https("wild", "*.example.net", "{name: s}")
        + &https("missing", "missing.test", "{name: none}")
        + "- {name: all, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: s}]}}\n";
    let set = "---\nkind: ListenerSet\nmetadata: {name: set, namespace: web}\nspec:\n  parentRef: {name: gw}\n  \
        listeners: [{name: own, port: 443, protocol: HTTPS, hostname: own.test, tls: {certificateRefs: [{name: s}]}}]\n";
    let gateway = gateway(&listeners).replace(
        "spec:\n",
        "spec:\n  allowedListeners: {namespaces: {from: Same}}\n",
    );
    let secret = secret("web", "s", &pem.certificate, &pem.key);
    let resolution = resolved(&(gateway + set + &secret));

    let uncovered = |listener: &str, hostname: &str| UncoveredHostname {
        listener: listener.to_owned(),
        hostname: hostname.to_owned(),
    };
    let expected = [
        (
            Kind::Gateway.named(NamespacedName::new("web", "gw")),
            vec![
                uncovered("deep", "b.a.example.org"),
                uncovered("wild", "*.example.net"),
            ],
        ),
        (
            Kind::ListenerSet.named(NamespacedName::new("web", "set")),
            vec![uncovered("own", "own.test")],
        ),
    ];
    assert_eq!(resolution.uncovered, expected.into());
    let conditions = resolution.listener_conditions("deep");
    let mut conditions = conditions.iter();
    let resolved = conditions.find(|it| it.type_ == ConditionType::ResolvedRefs);
    let sentence = uncovered("deep", "b.a.example.org").to_string();
    assert!(resolved.is_some_and(|it| it.message.ends_with(&sentence)));
}
