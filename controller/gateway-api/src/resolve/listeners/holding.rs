//! Hostnames that listeners hold though nothing can be served on them.
//!
//! Without it a wider listener of the port would have their requests, with its own certificate, filters and routes. It never
//! takes a hostname from a listener that is served.

use std::collections::HashSet;

use sesame_proto::schema;

use super::listener::CheckedListener;

/// Port, true for TLS, and key of a hostname.
type HostnameKey = (u16, bool, String);

/// Has each listener hold its hostname that is not served and of which a wider one is. `listeners` are all that the same Envoys are
/// to serve, in their order of precedence, with everything else known.
pub(crate) fn hold(listeners: &mut [&mut CheckedListener<'_>]) {
    let served = listeners.iter().filter(|listener| listener.is_served());
    let served: HashSet<HostnameKey> = served.filter_map(|listener| key(listener)).collect();
    let mut held: HashSet<HostnameKey> = HashSet::new();
    for listener in listeners.iter_mut() {
        // Who loses a conflict has lost the hostname, and who exceeds a share may have no more.
        if listener.is_served() || listener.conflict.is_some() || listener.beyond_share {
            continue;
        }
        let (Some(key), Some(hostname)) = (key(listener), &listener.hostname) else {
            continue;
        };
        let (port, tls, _) = key;
        let mut wider = hostname.covering_keys().skip(1);
        let is_wider = wider.any(|wider| served.contains(&(port, tls, wider.to_owned())));
        if is_wider && !served.contains(&key) && held.insert(key) {
            listener.holds = true;
            // No handshake is made.
            listener.tls = None;
        }
    }
}

/// Returns the part of a port that a listener is for; none for protocols without hostnames.
fn key(listener: &CheckedListener<'_>) -> Option<HostnameKey> {
    let tls = match listener.protocol? {
        schema::Protocol::Http => false,
        schema::Protocol::Https | schema::Protocol::Tls => true,
        schema::Protocol::RawTcp | schema::Protocol::RawUdp => return None,
    };
    Some((
        listener.port?,
        tls,
        listener.hostname.as_ref()?.key().to_owned(),
    ))
}
