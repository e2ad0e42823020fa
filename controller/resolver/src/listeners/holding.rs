//! Keeps listeners with wider hostnames from serving a rejected listener's hostname with the wrong
//! certificate, filters and routes. Never takes a hostname away from a served listener.

use std::collections::HashSet;

use sesame_proto::schema;

use super::listener::{CheckedListener, HeldHostname};
use crate::syntax::hostnames::Hostname;

/// Port, TLS flag and hostname key.
type HostnameKey = (u16, bool, String);

/// `listeners` are all listeners on the same Envoy instances, in order of precedence. The flag is
/// false if the listener's Gateway is not accepted.
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
            // Without TLS settings, Envoy rejects TLS handshakes for the hostname.
            listener.tls = None;
        }
    }
}

/// For an invalid hostname, returns the hostname that was probably intended.
fn meant(listener: &CheckedListener<'_>) -> Option<Hostname> {
    let text = || Hostname::meant(listener.spec.hostname.as_deref().unwrap_or_default());
    listener.hostname.clone().or_else(text)
}

/// Returns a key for plaintext or TLS, or both keys for an unknown protocol.
fn keys(listener: &CheckedListener<'_>, hostname: &Hostname) -> Vec<HostnameKey> {
    let families: &[bool] = match listener.protocol {
        Some(schema::Protocol::Http) => &[false],
        Some(schema::Protocol::Https | schema::Protocol::Tls) => &[true],
        Some(schema::Protocol::RawTcp | schema::Protocol::RawUdp) => &[],
        None => &[false, true],
    };
    let port_keys = |port: u16| {
        let key = move |tls: &bool| (port, *tls, hostname.key().to_owned());
        families.iter().map(key)
    };
    listener.port.into_iter().flat_map(port_keys).collect()
}
