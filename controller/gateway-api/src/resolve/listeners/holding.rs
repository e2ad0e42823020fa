//! Prevents listeners with wider hostnames from serving the hostnames of listeners that cannot be
//! served.
//!
//! Without this protection, requests for the hostname would reach a listener with a wider hostname
//! on the same port. They would then get that listener's certificate, filters and routes. Holding a
//! hostname never takes it away from a listener that is served.

use std::collections::HashSet;

use sesame_proto::schema;

use super::listener::{CheckedListener, HeldHostname};
use crate::resolve::syntax::hostnames::Hostname;

/// Port number, true for protocols over TLS, and hostname key.
type HostnameKey = (u16, bool, String);

/// Makes an unserved listener hold its hostname if a listener with a wider hostname is served on
/// the same port. `listeners` are all listeners on the same Envoys, in order of precedence, after
/// all other checks. The flag of each listener is false if its Gateway is not accepted.
pub(crate) fn hold(listeners: &mut [(&mut CheckedListener<'_>, bool)]) {
    let mut served: HashSet<HostnameKey> = HashSet::new();
    for (listener, of_served) in listeners.iter() {
        if let (true, Some(hostname)) = (*of_served && listener.is_served(), &listener.hostname) {
            served.extend(keys(listener, hostname));
        }
    }
    let mut held: HashSet<HostnameKey> = HashSet::new();
    for (listener, of_served) in listeners.iter_mut() {
        // A listener that exceeds its namespace's share does not hold a hostname.
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
            // Without TLS settings, TLS handshakes for the hostname are rejected.
            listener.tls = None;
        }
    }
}

/// Returns the listener's hostname. For an invalid hostname, returns the hostname that was probably
/// intended.
fn meant(listener: &CheckedListener<'_>) -> Option<Hostname> {
    let text = || Hostname::meant(listener.spec.hostname.as_deref().unwrap_or_default());
    listener.hostname.clone().or_else(text)
}

/// Returns the hostname keys that a listener may hold. Protocols without hostnames have no keys. An
/// unknown protocol has a plaintext key and a TLS key.
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
