//! Validates `spec.ingress.listeners`.

use std::collections::BTreeSet;

use super::word_fault;
use crate::syntax::hostnames::Hostname;
use crate::syntax::{limits, names};
use sesame_kinds::api::{IngressListener, IngressSettings};

/// Returns errors with field paths relative to `spec.ingress`.
pub(super) fn faults(listeners: &[IngressListener], settings: &IngressSettings) -> Vec<String> {
    let mut faults = Vec::new();
    let most = limits::MAX_LISTENERS;
    faults.extend(limits::entries("listeners", listeners.len(), 1..=most).err());
    if settings.gateway_ref.is_none() {
        let why = "listeners: gatewayRef is missing; it names the Gateway that has the listeners";
        faults.push(why.to_owned());
    }
    let mut seen = BTreeSet::new();
    for (i, listener) in listeners.iter().enumerate().take(most) {
        let IngressListener {
            name: _,
            port,
            protocol,
            hostname,
            secret_name,
        } = listener;
        let mut add = |why: String| faults.push(format!("listeners[{i}].{why}"));
        if names::port(*port).is_none() {
            add(format!("port: {port}: expected 1 to 65535"));
        }
        if let Some(why) = word_fault("protocol", protocol.as_ref()) {
            add(why);
        }
        let name = listener.listener_name();
        if !seen.insert(name.clone()) {
            add(format!("name: {name:?} is not unique; set another name"));
        }
        if let Some(Err(why)) = hostname.as_deref().map(Hostname::parse) {
            add(format!("hostname: {why}"));
        }
        match (listener.is_https(), secret_name) {
            (true, None) => add("secretName is missing; protocol HTTPS requires it".to_owned()),
            (false, Some(_)) => add("secretName: expected only with protocol HTTPS".to_owned()),
            _ => {}
        }
    }
    faults.extend(unserved_ports(listeners, settings));
    faults
}

/// Ports to which Ingresses and HTTPProxies are restricted must have a listener.
fn unserved_ports(listeners: &[IngressListener], settings: &IngressSettings) -> Option<String> {
    let port = settings.http?;
    let mut plain = listeners.iter().filter(|it| !it.is_https());
    let is_served = plain.any(|it| it.port == port);
    (!is_served).then(|| format!("http: {port}: listeners has no HTTP listener on this port"))
}
