//! Tests which certificate clients get for a server name: the Gateway's or a ListenerSet's. A test
//! with real handshakes uses the same table.

use super::tls::{certificate, https, secret};
use super::tls_override_rows::rows;
use super::{HTTP, gateway, resolved};
use crate::Resolution;

const WILD: &str = "*.example.org";

fn shown(resolution: &Resolution, name: &str) -> String {
    let covers = |hostname: &str| match hostname.strip_prefix('*') {
        Some(parent) => name.ends_with(parent),
        None => hostname.is_empty() || hostname == name,
    };
    let ports = resolution.gateways.iter().flat_map(|it| &it.snapshot.ports);
    let mut listeners = ports
        .filter(|port| port.port == 443)
        .flat_map(|port| &port.listeners);
    let listener = listeners.find(|listener| covers(&listener.hostname));
    let tls = listener.and_then(|listener| listener.tls.as_ref());
    tls.map_or_else(String::new, |tls| tls.keys.join(" "))
}

#[test]
fn set_overrides_gateway_for_own_names_where_allowed() {
    let secrets: String = ["gateway", "set"]
        .map(|name| {
            let pem = certificate(&[WILD, "*.org", "a.test"]);
            secret("web", name, &pem.certificate, &pem.key)
        })
        .concat();
    let gateway_listener = https("https", WILD, "{name: gateway}");
    for row in rows() {
        let listeners = if row.gateway {
            format!("{HTTP}\n{gateway_listener}")
        } else {
            HTTP.to_owned()
        };
        let allowed = format!(
            "spec:\n  allowedListeners: {{namespaces: {{from: {}}}}}\n",
            row.allowed
        );
        let gateway = gateway(&listeners).replace("spec:\n", &allowed);
        let set_tls = row.secret.as_ref().map_or_else(String::new, |secret| {
            format!(", tls: {{certificateRefs: [{{name: {secret}}}]}}")
        });
        let set = format!(
            "---\nkind: ListenerSet\nmetadata: {{name: set, namespace: web}}\nspec:\n  parentRef: {{name: gw}}\n  \
             listeners: [{{name: own, port: 443, protocol: HTTPS, hostname: '{}'{set_tls}}}]\n",
            row.hostname
        );
        let resolution = resolved(&(gateway + &set + &secrets));
        let expected = row.shown.as_ref().map(|name| format!("Secret/web/{name}"));
        let shown = shown(&resolution, &row.client);
        assert_eq!(shown, expected.unwrap_or_default(), "{row:?}");
    }
}
