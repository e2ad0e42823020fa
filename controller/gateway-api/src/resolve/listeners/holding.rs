//! Hostnames that listeners hold although nothing can be served on them.
//!
//! Otherwise a wider listener of the port would get their requests, with its own certificate,
//! filters and routes. It never takes a hostname from a listener that is served.

use std::collections::HashSet;

use sesame_proto::schema;

use super::listener::{CheckedListener, HeldHostname};
use crate::resolve::syntax::hostnames::Hostname;

/// Port, true for TLS, and key of a hostname.
type HostnameKey = (u16, bool, String);

/// Makes each unserved listener hold its hostname if a wider one is served. `listeners` are all
/// listeners of the same Envoys, in their order of precedence and otherwise complete. The flag is
/// false if the Gateway is not accepted.
pub(crate) fn hold(listeners: &mut [(&mut CheckedListener<'_>, bool)]) {
    let mut served: HashSet<HostnameKey> = HashSet::new();
    for (listener, of_served) in listeners.iter() {
        if let (true, Some(hostname)) = (*of_served && listener.is_served(), &listener.hostname) {
            served.extend(keys(listener, hostname));
        }
    }
    let mut held: HashSet<HostnameKey> = HashSet::new();
    for (listener, of_served) in listeners.iter_mut() {
        // A listener beyond a share holds nothing.
        if (*of_served && listener.is_served()) || listener.beyond_share {
            continue;
        }
        let Some(hostname) = meant(listener) else {
            continue;
        };
        let key = keys(listener, &hostname).into_iter().find(|key| {
            let (port, tls, _) = key;
            let mut wider = hostname.covering_keys().skip(1);
            let is_wider = wider.any(|wider| served.contains(&(*port, *tls, wider.to_owned())));
            is_wider && !served.contains(key)
        });
        if let Some((port, tls, name)) = key
            && held.insert((port, tls, name))
        {
            listener.holds = Some(HeldHostname { tls, hostname });
            // The handshake is refused.
            listener.tls = None;
        }
    }
}

/// Returns the hostname that the author of a listener meant.
fn meant(listener: &CheckedListener<'_>) -> Option<Hostname> {
    let text = || Hostname::meant(listener.spec.hostname.as_deref().unwrap_or_default());
    listener.hostname.clone().or_else(text)
}

/// Returns the parts of a port that a listener may be for: none for protocols without hostnames,
/// and both for an unknown one.
fn keys(listener: &CheckedListener<'_>, hostname: &Hostname) -> Vec<HostnameKey> {
    let families: &[bool] = match listener.protocol {
        Some(schema::Protocol::Http) => &[false],
        Some(schema::Protocol::Https | schema::Protocol::Tls) => &[true],
        Some(schema::Protocol::RawTcp | schema::Protocol::RawUdp) => &[],
        None => &[false, true],
    };
    let of_port = |port: u16| {
        let key = move |tls: &bool| (port, *tls, hostname.key().to_owned());
        families.iter().map(key)
    };
    listener.port.into_iter().flat_map(of_port).collect()
}
