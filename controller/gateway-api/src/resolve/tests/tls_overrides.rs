//! The certificate that a name is shown: the Gateway's or a ListenerSet's, for each combination of what both say of TLS, what the
//! Gateway allows, and how their hostnames relate.
//!
//! A set overrides the Gateway for its own, narrower names alone, and only where it is allowed to; nothing of TLS is inherited.

use super::tls::{certificate, https, secret};
use super::{HTTP, gateway, resolved};
use crate::resolve::Resolution;

/// Hostname of the Gateway's listener.
const WILD: &str = "*.example.org";
/// Hostnames of the set's listener, each with the name that a client asks for.
const SAME: (&str, &str) = (WILD, "a.example.org");
const NARROWER: (&str, &str) = ("a.example.org", "a.example.org");
const WIDER: (&str, &str) = ("*.org", "a.example.org");
const OTHER: (&str, &str) = ("a.test", "a.test");

const OWN: &str = ", tls: {certificateRefs: [{name: set}]}";
const MISSING: &str = ", tls: {certificateRefs: [{name: missing}]}";
const NONE: &str = "";

const ALLOWED: &str = "allowedListeners: {namespaces: {from: All}}";
const SAME_NAMESPACE: &str = "allowedListeners: {namespaces: {from: Same}}";
const NOT_ALLOWED: &str = "allowedListeners: {namespaces: {from: None}}";

const GATEWAY: &str = "Secret/web/gateway";
const SET: &str = "Secret/web/set";
const NOBODY: &str = "";

/// Returns the key pairs that a client is shown that says this name.
fn shown(resolution: &Resolution, name: &str) -> String {
    let covers = |hostname: &str| match hostname.strip_prefix('*') {
        Some(parent) => name.ends_with(parent),
        None => hostname.is_empty() || hostname == name,
    };
    let ports = resolution.gateways.iter().flat_map(|it| &it.snapshot.ports);
    let mut listeners = ports
        .filter(|port| port.port == 443)
        .flat_map(|port| &port.listeners);
    // The most specific is first.
    let listener = listeners.find(|listener| covers(&listener.hostname));
    let tls = listener.and_then(|listener| listener.tls.as_ref());
    tls.map_or_else(String::new, |tls| tls.keys.join(" "))
}

#[test]
fn a_set_overrides_the_gateway_for_its_own_names_where_it_is_allowed_to() {
    let secrets: String = ["gateway", "set"]
        .map(|name| {
            let pem = certificate(&[WILD, "*.org", "a.test"]);
            secret("web", name, &pem.certificate, &pem.key)
        })
        .concat();
    let of_gateway = https("https", WILD, "{name: gateway}");
    for (gateway_has_tls, allowed, of_set, (hostname, name), expected) in [
        // What the Gateway does not allow changes nothing.
        (true, NOT_ALLOWED, OWN, SAME, GATEWAY),
        (true, NOT_ALLOWED, OWN, NARROWER, GATEWAY),
        (true, NOT_ALLOWED, OWN, WIDER, GATEWAY),
        (true, NOT_ALLOWED, OWN, OTHER, NOBODY),
        (true, NOT_ALLOWED, MISSING, NARROWER, GATEWAY),
        (true, NOT_ALLOWED, NONE, NARROWER, GATEWAY),
        (false, NOT_ALLOWED, OWN, SAME, NOBODY),
        (false, NOT_ALLOWED, OWN, NARROWER, NOBODY),
        (false, NOT_ALLOWED, OWN, OTHER, NOBODY),
        // The narrower name is the set's; of the same names, the Gateway's listener wins.
        (true, ALLOWED, OWN, SAME, GATEWAY),
        (true, ALLOWED, OWN, NARROWER, SET),
        (true, ALLOWED, OWN, WIDER, GATEWAY),
        (true, ALLOWED, OWN, OTHER, SET),
        (true, SAME_NAMESPACE, OWN, SAME, GATEWAY),
        (true, SAME_NAMESPACE, OWN, NARROWER, SET),
        (true, SAME_NAMESPACE, OWN, OTHER, SET),
        // One whose certificate is not there has its narrower name refused, rather than shown the Gateway's.
        (true, ALLOWED, MISSING, SAME, GATEWAY),
        (true, ALLOWED, MISSING, NARROWER, NOBODY),
        (true, ALLOWED, MISSING, OTHER, NOBODY),
        // One that says nothing of TLS does not inherit the Gateway's certificate.
        (true, ALLOWED, NONE, SAME, GATEWAY),
        (true, ALLOWED, NONE, NARROWER, NOBODY),
        (true, ALLOWED, NONE, OTHER, NOBODY),
        // A Gateway without TLS of its own.
        (false, ALLOWED, OWN, SAME, SET),
        (false, ALLOWED, OWN, NARROWER, SET),
        (false, ALLOWED, OWN, OTHER, SET),
        (false, ALLOWED, MISSING, NARROWER, NOBODY),
        (false, ALLOWED, NONE, NARROWER, NOBODY),
        (false, SAME_NAMESPACE, OWN, NARROWER, SET),
    ] {
        let listeners = if gateway_has_tls {
            format!("{HTTP}\n{of_gateway}")
        } else {
            HTTP.to_owned()
        };
        let gateway = gateway(&listeners).replace("spec:\n", &format!("spec:\n  {allowed}\n"));
        let set = format!(
            "---\nkind: ListenerSet\nmetadata: {{name: set, namespace: web}}\nspec:\n  parentRef: {{name: gw}}\n  \
             listeners: [{{name: own, port: 443, protocol: HTTPS, hostname: '{hostname}'{of_set}}}]\n"
        );
        let resolution = resolved(&(gateway + &set + &secrets));
        let case =
            format!("TLS of the Gateway: {gateway_has_tls}, {allowed}, set {hostname}{of_set}");
        assert_eq!(shown(&resolution, name), expected, "{case}");
    }
}
