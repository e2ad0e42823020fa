//! Canonical order and digests of snapshots.
//!
//! The schema has no maps, so the same canonical snapshot always has the same bytes.

use std::cmp::Reverse;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::keys::hex;
use crate::owned;
use crate::schema::{Backend, EndpointSet, Snapshot};

const SHORT: usize = 12;

/// Returns the first digits of a revision or digest, for messages.
pub fn short(digest: &str) -> &str {
    digest.get(..SHORT).unwrap_or(digest)
}

/// Returns the SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns the SHA-256 of the concatenated parts in hexadecimal.
pub fn sha256_of_all(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Returns 16 hex digits that distinguish backends for the same Service port.
pub fn backend(backend: &Backend) -> String {
    let nameless = Backend {
        name: String::new(),
        ..backend.clone()
    };
    let mut digest = sha256(&nameless.encode_to_vec());
    digest.truncate(16);
    digest
}

/// Sorts all lists whose order has no meaning.
pub fn canonicalize(snapshot: &mut Snapshot) {
    let Snapshot {
        gateway: _,
        addresses: _,
        ports,
        route_tables,
        backends,
        endpoints,
        keys,
        trust_bundles,
        edge: _,
        rotation: _,
        tracing: _,
        log_output: _,
        measured_routes,
        rate_limits,
        shared_filters,
        filters: _,
        rollout: _,
    } = snapshot;
    measured_routes.sort_unstable();
    rate_limits.sort_by(|a, b| a.name.cmp(&b.name));
    shared_filters.sort_by(|a, b| a.name.cmp(&b.name));
    ports.sort_by_key(|port| (port.transport, port.port));
    for port in ports {
        port.listeners.sort_by(|a, b| {
            (domain_order(&a.hostname), &a.name).cmp(&(domain_order(&b.hostname), &b.name))
        });
    }
    route_tables.sort_by(|a, b| a.name.cmp(&b.name));
    for table in route_tables {
        table
            .virtual_hosts
            .sort_by(|a, b| domain_order(&a.domain).cmp(&domain_order(&b.domain)));
    }
    backends.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints.sort_by(|a, b| a.name.cmp(&b.name));
    endpoints.iter_mut().for_each(canonicalize_endpoints);
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    trust_bundles.sort_by(|a, b| a.name.cmp(&b.name));
}

/// Sorts a set's endpoints and removes duplicates.
pub fn canonicalize_endpoints(set: &mut EndpointSet) {
    set.endpoints
        .sort_by(|a, b| (&a.address, a.port).cmp(&(&b.address, b.port)));
    set.endpoints.dedup();
}

/// Returns the sort key of a domain: exact domains by name, wildcards from the most specific, then
/// `*` or an empty hostname.
pub fn domain_order(domain: &str) -> (u8, Reverse<usize>, &str) {
    match domain {
        "" | "*" => (2, Reverse(0), domain),
        wildcard if wildcard.starts_with("*.") => {
            let labels = wildcard.bytes().filter(|byte| *byte == b'.').count();
            (1, Reverse(labels), wildcard)
        }
        exact => (0, Reverse(0), exact),
    }
}

/// Number of digits in [`listeners`].
pub const LISTENERS_DIGITS: usize = 16;

/// Returns hex digits that identify the [owner's listeners](owned::listeners) and their settings.
pub fn listeners(snapshot: &Snapshot) -> String {
    let mut digest = sha256(&owned::listeners(snapshot).encode_to_vec());
    digest.truncate(LISTENERS_DIGITS);
    digest
}

/// Returns the SHA-256 in hex of the canonical snapshot without endpoints. Snapshots with equal
/// revisions are rendered identically.
pub fn revision(snapshot: &Snapshot) -> String {
    let mut config = Snapshot {
        endpoints: Vec::new(),
        ..snapshot.clone()
    };
    canonicalize(&mut config);
    sha256(&config.encode_to_vec())
}
