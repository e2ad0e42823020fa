//! Plans the handshakes that prove a certificate change.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustls_pki_types::CertificateDer;
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_proto::keys::KeyPair;
use sesame_proto::pem;
use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::tls_termination::Version;
use sesame_proto::schema::{Listener, Port, Protocol, Snapshot, TlsTermination, Transport};
use sesame_render::RenderOptions;

use super::{CertificateProof, ShownKind};

/// Maximum number of handshakes. Beyond it, the agent checks only the serial numbers that Envoy
/// reports.
const MAX_PROOFS: usize = 256;
/// Replaces the `*` of a wildcard. No listener's hostname contains this label.
const BELOW_WILDCARD: &str = "certificate-proof";
/// Substrings of supported TLS 1.2 cipher suite names.
const OFFERED: [&str; 2] = ["GCM", "CHACHA20"];
const OFFERED_GROUPS: [&str; 3] = ["X25519", "P-256", "P-384"];

/// Names of the key pairs to prove.
pub type ChangedKeys = std::collections::BTreeSet<String>;

/// Skips TLS listeners, because each handshake would open a connection to a backend.
pub fn proofs(
    snapshot: &Snapshot,
    keys: &[KeyPair],
    changed: &ChangedKeys,
    options: &RenderOptions,
) -> Vec<CertificateProof> {
    let Some(ip) = options.addresses.first().copied().map(reachable) else {
        return Vec::new();
    };
    let leaves: BTreeMap<&str, Leaf> = keys
        .iter()
        .filter_map(|pair| Some((pair.name.as_str(), Leaf::of(pair)?)))
        .collect();
    let mut all = Vec::new();
    for port in &snapshot.ports {
        let Ok(bound) = u16::try_from(options.bound(port)) else {
            continue;
        };
        if port.transport() != Transport::Tcp {
            continue;
        }
        let address = SocketAddr::new(ip, bound);
        for listener in &port.listeners {
            let found = listener_proofs(listener, port, &leaves, changed);
            all.extend(found.map(|proof| CertificateProof { address, ..proof }));
            if all.len() >= MAX_PROOFS {
                all.truncate(MAX_PROOFS);
                return all;
            }
        }
    }
    all
}

struct Leaf {
    der: CertificateDer<'static>,
    names: Vec<String>,
    kind: ShownKind,
}

impl Leaf {
    fn of(pair: &KeyPair) -> Option<Self> {
        let der = pem::read_first::<CertificateDer<'_>>(&pair.certificate_chain).ok()?;
        let facts = CertificateFacts::from_pem(&pair.certificate_chain);
        let CertificateFacts { names, key, .. } = facts.into_iter().next()?;
        Some(Self {
            der,
            names,
            kind: if key.starts_with("RSA") {
                ShownKind::Rsa
            } else {
                ShownKind::Other
            },
        })
    }
}

/// The caller must fill in the address.
fn listener_proofs<'a>(
    listener: &'a Listener,
    port: &'a Port,
    leaves: &'a BTreeMap<&str, Leaf>,
    changed: &'a ChangedKeys,
) -> impl Iterator<Item = CertificateProof> + 'a {
    let https = listener.protocol() == Protocol::Https;
    let tls = listener.tls.as_ref().filter(|tls| https && can_speak(tls));
    let keys = tls.into_iter().flat_map(|tls| &tls.keys);
    let shown: Vec<CertificateDer<'static>> = keys
        .clone()
        .filter_map(|key| Some(leaves.get(key.as_str())?.der.clone()))
        .collect();
    keys.filter(|key| changed.contains(*key))
        .filter_map(move |key| {
            let leaf = leaves.get(key.as_str())?;
            Some(CertificateProof {
                listener: listener.name.clone(),
                key: key.clone(),
                address: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
                server_name: server_name(listener, port, leaf)?,
                proxy_header: port.proxy_protocol != i32::from(ProxyProtocol::None),
                kind: leaf.kind,
                leaves: shown.clone(),
            })
        })
}

/// Returns true if the client can connect. It does not support older TLS 1.2 cipher suites.
fn can_speak(tls: &TlsTermination) -> bool {
    let is_known = |suite: &String| OFFERED.iter().any(|known| suite.contains(known));
    let is_offered = |group: &String| OFFERED_GROUPS.contains(&group.as_str());
    let (suites, groups) = (&tls.cipher_suites, &tls.key_exchange_groups);
    let has_suite = tls.max_version != i32::from(Version::Tls12)
        || suites.is_empty()
        || suites.iter().any(is_known);
    has_suite && (groups.is_empty() || groups.iter().any(is_offered))
}

/// Prefers a name that selects this leaf certificate. Returns `None` if no candidate selects the
/// listener.
fn server_name(listener: &Listener, port: &Port, leaf: &Leaf) -> Option<String> {
    let hostname = listener.hostname.as_str();
    let leaf_names = leaf.names.iter().map(|name| concrete(name));
    let own = (!hostname.is_empty()).then(|| concrete(hostname));
    let exact = own.clone().filter(|_| !hostname.starts_with('*'));
    let mut candidates = exact.into_iter().chain(leaf_names).chain(own);
    candidates.find(|name| owner(name, port) == Some(hostname))
}

fn concrete(hostname: &str) -> String {
    let hostname = hostname.to_ascii_lowercase();
    match hostname.strip_prefix('*') {
        Some(parent) => format!("{BELOW_WILDCARD}{parent}"),
        None => hostname,
    }
}

/// The most specific matching hostname wins.
fn owner<'p>(name: &str, port: &'p Port) -> Option<&'p str> {
    let covers = |hostname: &str| match hostname.strip_prefix('*') {
        Some(parent) => name.len() > parent.len() && name.ends_with(parent),
        None => hostname.is_empty() || hostname == name,
    };
    let all = port
        .listeners
        .iter()
        .filter(|listener| listener.tls.is_some() || listener.protocol() == Protocol::Tls);
    let hostnames = all.map(|listener| listener.hostname.as_str());
    hostnames
        .filter(|hostname| covers(hostname))
        .max_by_key(|hostname| {
            let is_exact = !hostname.is_empty() && !hostname.starts_with('*');
            (is_exact, hostname.len())
        })
}

fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
