//! Inspects an agent's directories without changing them. The agent may be running.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::Expiry;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::Transport;
use sesame_render::MAX_ENDPOINT_FILES;
use sesame_resolver::ResolvedGateway;

use super::accepted;
use super::directories::Directories;
use sesame_apply::state::StateDir;
use sesame_envoy::access_log;

/// Resolved configuration of a Gateway, with facts derived from it.
#[derive(Clone, Debug)]
pub struct InspectedGateway {
    /// Name of the Gateway, or the common name of merged Gateways.
    pub gateway: NamespacedName,
    /// Maps each port that clients use to the port that Envoy binds.
    pub ports: BTreeMap<(Transport, u32), u32>,
    /// Addresses at which Envoy serves the configuration. Empty if unknown.
    pub addresses: Vec<IpAddr>,
    /// Number of files that Envoy would watch if the host set no limit.
    pub files: usize,
    /// Validity periods of the leaf certificates and OCSP staples.
    pub expiries: Vec<Expiry>,
    /// When Envoy accepted the configuration, or `None` if unknown.
    pub accepted_at: Option<Timestamp>,
    /// Snapshot and key pairs. [`accepted`] omits the private keys.
    pub resolved: ResolvedGateway,
}

impl InspectedGateway {
    /// Derives the facts from `resolved`. Leaves `addresses` and `accepted_at` empty.
    pub fn of(resolved: ResolvedGateway) -> Self {
        let encoded = EncodedSnapshot::new(&resolved.snapshot, resolved.keys.clone());
        let counts = encoded.counts();
        Self {
            gateway: resolved.gateway.clone(),
            ports: encoded.ports().clone(),
            addresses: Vec::new(),
            // LDS, CDS, and one file per route table, secret and backend.
            files: 2
                + counts.listeners
                + resolved.keys.len()
                + counts.backends.min(MAX_ENDPOINT_FILES),
            expiries: resolved.keys.iter().flat_map(Expiry::of_pair).collect(),
            accepted_at: None,
            resolved,
        }
    }
}

/// Returns the current access log of each Gateway, or of `gateway` only.
/// Skips Gateways that do not log to files.
pub fn access_logs(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<PathBuf> {
    let runtimes = Directories::runtimes_below(runtime, gateway).into_iter();
    runtimes
        .filter_map(|one| access_log::current_of(&one))
        .collect()
}

/// Returns the recorded process IDs of all Envoys below `runtime`, or of `gateway`'s only.
/// The processes may have exited.
pub fn envoys(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<u32> {
    Directories::envoys_below(runtime, gateway)
}

/// Logs and skips unreadable configurations.
pub fn accepted(state: &Path) -> Vec<InspectedGateway> {
    let mut found: Vec<InspectedGateway> = Directories::states_below(state)
        .iter()
        .filter_map(|directory| {
            let loaded = accepted::load_public(directory);
            let resolved = loaded
                .inspect_err(|error| {
                    tracing::warn!(directory = %directory.display(), "cannot read the accepted configuration: {error:#}");
                })
                .ok()
                .flatten()?;
            let state = StateDir::view(directory);
            let last = state.accepted();
            let metas = state.list().unwrap_or_default();
            let meta = metas.into_iter().find(|meta| Some(meta.number) == last);
            Some(InspectedGateway {
                addresses: meta.as_ref().map(|meta| meta.addresses.clone()).unwrap_or_default(),
                accepted_at: meta.map(|meta| meta.time),
                ..InspectedGateway::of(resolved)
            })
        })
        .collect();
    found.sort_by(|one, other| one.gateway.cmp(&other.gateway));
    found
}
