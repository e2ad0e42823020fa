//! Inspects an agent's directories without changing them. The agent may be running.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::Expiry;
use sesame_gateway_api::resolve::ResolvedGateway;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::Transport;
use sesame_render::MAX_ENDPOINT_FILES;

use super::accepted;
use super::directories::Directories;
use crate::access_log;
use crate::apply::state::StateDir;

#[derive(Clone, Debug)]
pub(crate) struct InspectedGateway {
    pub(crate) gateway: NamespacedName,
    /// Maps each port that clients use to the port that Envoy binds.
    pub(crate) ports: BTreeMap<(Transport, u32), u32>,
    pub(crate) addresses: Vec<IpAddr>,
    /// Number of files that Envoy would watch if the host set no limit.
    pub(crate) files: usize,
    pub(crate) expiries: Vec<Expiry>,
    pub(crate) accepted_at: Option<Timestamp>,
    pub(crate) resolved: ResolvedGateway,
}

impl InspectedGateway {
    pub(crate) fn of(resolved: ResolvedGateway) -> Self {
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

pub(crate) fn access_logs(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<PathBuf> {
    let runtimes = Directories::runtimes_below(runtime, gateway).into_iter();
    runtimes
        .filter_map(|one| access_log::current_of(&one))
        .collect()
}

pub(crate) fn envoys(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<u32> {
    Directories::envoys_below(runtime, gateway)
}

/// Logs and skips unreadable configurations.
pub(crate) fn accepted(state: &Path) -> Vec<InspectedGateway> {
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
