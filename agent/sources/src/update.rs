//! Updates from a snapshot source, with complete and verified revisions.
//!
//! A source must never send a partial revision, and may omit a Gateway only if the Gateway was
//! definitely withdrawn.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{KeyRef, Snapshot};
use sesame_proto::signature::TrustedKeys;
use sesame_resolver::ResolvedGateway;

use super::problem::SourceProblem;
use sesame_proto::encoded::{EncodedSnapshot, Entry};

/// Keys that may sign the content. `None` accepts unsigned content, so anyone who can write to the
/// source is trusted.
pub type Trusted = Option<Arc<TrustedKeys>>;

/// The latest content of a source.
#[derive(Clone, Debug, Default)]
pub struct SourceUpdate {
    /// Why the source cannot be read. The last content then remains in use.
    pub away: Option<String>,
    /// Gateways in the source.
    pub gateways: BTreeMap<NamespacedName, GatewayUpdate>,
    /// If true, Gateways missing from `gateways` were withdrawn. If false, the state of missing
    /// Gateways is unknown.
    pub lists_all: bool,
    /// Problems with the source, except incomplete revisions.
    pub problems: Vec<SourceProblem>,
    /// Cause of the update, for the history.
    pub cause: String,
    /// Arrival of each complete revision's manifest, if the source is a cluster.
    pub receipts: BTreeMap<NamespacedName, Receipt>,
}

/// Arrival of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// When the manifest was seen.
    pub seen: SystemTime,
    /// `metadata.resourceVersion` of the manifest.
    pub version: u64,
}

/// State of one Gateway in the source.
#[derive(Clone, Debug, Default)]
pub struct GatewayUpdate {
    /// Newest complete revision.
    pub complete: Option<GatewayRevision>,
    /// Newer revision that is incomplete.
    pub incomplete: Option<IncompleteRevision>,
}

/// A resolved and encoded revision. If it has a manifest, all digests were verified.
#[derive(Clone, Debug)]
pub struct GatewayRevision {
    /// Gateway.
    pub gateway: NamespacedName,
    /// Snapshot and its keys.
    pub encoded: Arc<EncodedSnapshot>,
    /// The manifest's revision, if there is a manifest.
    pub manifest_revision: Option<String>,
    /// Whether this host may serve the revision.
    pub staging: Staging,
    /// Current endpoint sets that only hosts with an older revision use.
    pub others: Arc<[Entry]>,
}

/// Whether a host may serve a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Staging {
    /// No rollout is under way.
    #[default]
    Immediate,
    /// The host may serve the revision, but other hosts must wait.
    Released {
        /// True while the controller compares the requests of hosts.
        is_compared: bool,
    },
    /// The host keeps its last revision.
    Waits {
        /// Why, for its status.
        why: String,
        /// True while the controller compares the requests of hosts.
        is_compared: bool,
    },
    /// All hosts return to the revision with this digest.
    Undone(String),
    /// The revision is in a bundle, and the host comes after other hosts.
    Ring {
        /// Stage of the host, from 1.
        ring: usize,
        /// Unix timestamp from which the host may serve the revision. `None` until an operator
        /// accepts it.
        opens: Option<i64>,
    },
}

impl Staging {
    /// Returns true while the controller compares hosts.
    pub fn is_compared(&self) -> bool {
        match self {
            Self::Released { is_compared } | Self::Waits { is_compared, .. } => *is_compared,
            Self::Immediate | Self::Undone(_) | Self::Ring { .. } => false,
        }
    }
}

impl GatewayRevision {
    /// Returns a revision with a manifest.
    pub fn of_manifest(
        gateway: NamespacedName,
        revision: String,
        encoded: Arc<EncodedSnapshot>,
    ) -> Self {
        Self {
            gateway,
            encoded,
            manifest_revision: Some(revision),
            staging: Staging::Immediate,
            others: Arc::default(),
        }
    }
}

impl From<ResolvedGateway> for GatewayRevision {
    fn from(resolved: ResolvedGateway) -> Self {
        let ResolvedGateway {
            gateway,
            snapshot,
            keys,
        } = resolved;
        Self {
            gateway,
            encoded: Arc::new(EncodedSnapshot::new(&snapshot, keys)),
            manifest_revision: None,
            staging: Staging::Immediate,
            others: Arc::default(),
        }
    }
}

/// A revision with missing or invalid parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncompleteRevision {
    /// The manifest's revision. Empty if no manifest can be read.
    pub revision: String,
    /// Which parts are missing or invalid.
    pub reason: String,
    /// True for a failure, false while parts are still being read.
    pub stuck: bool,
}

impl fmt::Display for IncompleteRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.get(..12) {
            Some(revision) => write!(f, "revision {revision} is incomplete: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Parses a name such as `Gateway/namespace/name`.
pub fn gateway_of(name: &str) -> Option<NamespacedName> {
    ObjectKey::parse_as(Kind::Gateway, name)
}

/// Returns true if the snapshot needs keys that are not in files on the host.
pub fn needs_keys(snapshot: &Snapshot) -> bool {
    snapshot.keys.iter().any(|named| !named.on_host)
}

/// Returns the keys that the source must provide, in order, or the names of keys that `held` lacks.
pub fn keys_of<'a>(
    named: &[KeyRef],
    held: impl IntoIterator<Item = &'a KeyPair>,
) -> Result<Vec<KeyPair>, Vec<String>> {
    let mut held: BTreeMap<(&str, String), &KeyPair> = held
        .into_iter()
        .map(|key| ((key.name.as_str(), key.digest()), key))
        .collect();
    let mut missing = Vec::new();
    let mut keys = Vec::new();
    for named in named.iter().filter(|named| !named.on_host) {
        // Each key pair is used once, so that repeated references cannot multiply its size.
        match held.remove(&(named.name.as_str(), named.digest.clone())) {
            Some(key) => keys.push(key.clone()),
            None => missing.push(named.name.clone()),
        }
    }
    if missing.is_empty() {
        Ok(keys)
    } else {
        Err(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_can_be_names_are_gateways() {
        let edge = NamespacedName::new("default", "edge.one");
        assert_eq!(gateway_of("Gateway/default/edge.one"), Some(edge));
        for bad in [
            "",
            "Gateway/default",
            "Gateway//edge",
            "Route/default/edge",
            "Gateway/default/edge/more",
            "Gateway/default/../etc",
            "Gateway/a.b/edge",
            "Gateway/default/Edge?x=1",
        ] {
            assert_eq!(gateway_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn key_counts_only_with_matching_name_and_digest() {
        let key = |name: &str, content: &[u8]| KeyPair {
            name: name.to_owned(),
            certificate_chain: content.to_vec(),
            private_key: b"key".to_vec(),
            ..KeyPair::default()
        };
        let good = key("Secret/default/a", b"one");
        let snapshot = Snapshot {
            keys: vec![
                KeyRef {
                    name: "Secret/default/in-files".to_owned(),
                    on_host: true,
                    ..KeyRef::default()
                },
                KeyRef {
                    name: good.name.clone(),
                    digest: good.digest(),
                    ..KeyRef::default()
                },
            ],
            ..Snapshot::default()
        };
        let older = key("Secret/default/a", b"two");
        let other = key("Secret/default/b", b"one");
        assert_eq!(
            keys_of(&snapshot.keys, [&older, &other]).unwrap_err(),
            ["Secret/default/a"]
        );
        assert_eq!(
            keys_of(&snapshot.keys, [&older, &good, &other]).unwrap(),
            std::slice::from_ref(&good)
        );
        let reference = snapshot.keys[1].clone();
        assert_eq!(
            keys_of(&[reference.clone(), reference], [&good]).unwrap_err(),
            ["Secret/default/a"],
            "a repeated reference"
        );
    }
}
