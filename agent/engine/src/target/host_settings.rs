//! This host's settings that apply to all of its Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sesame_kinds::api::NamespacedName;
use sesame_render::limits::Limits;

use crate::addresses::OwnAddresses;
use crate::directories::Directories;
use sesame_apply::tickets::Tickets;
use sesame_envoy::access_log::AccessLogTo;
use sesame_sources::local::LocalFiles;

#[derive(Clone, Debug)]
pub(crate) struct HostSettings {
    /// Addresses for Gateways that request none.
    pub(crate) pool: Vec<IpAddr>,
    /// Ports to bind, by the port that clients use.
    pub(crate) port_map: BTreeMap<u32, u32>,
    /// Total number of files that Envoy may watch, for all Gateways together.
    pub(crate) subscription_budget: usize,
    pub(crate) limits: Limits,
    pub(crate) budget_each: Option<usize>,
    /// Number of proxies in front of Envoy.
    pub(crate) trusted_hops: u32,
    pub(crate) zone: String,
    /// Number of hosts that share fleet limits, unless the snapshot contains it.
    pub(crate) fleet_hosts: u32,
    pub(crate) system_ca: PathBuf,
    /// True if the agent manages the session ticket keys.
    pub(crate) session_tickets: bool,
    /// Used while Secrets with session ticket keys are missing.
    pub(crate) tickets: Tickets,
    pub(crate) access_log: AccessLogTo,
    /// True if endpoints may be the agent's and Envoy's own sockets.
    pub(crate) allow_local_endpoints: bool,
    /// Addresses that the agent itself listens on.
    pub(crate) own_addresses: Vec<SocketAddr>,
    pub(crate) addresses: OwnAddresses,
    pub(crate) refuse_host_endpoints: bool,
    /// Gateways' addresses before the agent started.
    pub(crate) held: BTreeMap<NamespacedName, Vec<IpAddr>>,
    /// Endpoint files that existed before the agent started.
    pub(crate) endpoint_files: BTreeMap<NamespacedName, BTreeSet<String>>,
    pub(crate) directories: Directories,
    pub(crate) local: LocalFiles,
}

impl HostSettings {
    pub(super) fn refused_addresses(&self) -> BTreeSet<IpAddr> {
        if self.allow_local_endpoints || !self.refuse_host_endpoints {
            return BTreeSet::new();
        }
        self.addresses.known().clone()
    }

    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            () = self.local.changed() => {}
            () = self.tickets.changed() => {}
            () = self.addresses.changed() => {}
        }
    }
}
