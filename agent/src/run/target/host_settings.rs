//! This host's settings that apply to all of its Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sesame_gateway_api::api::NamespacedName;
use sesame_render::limits::Limits;

use crate::access_log::AccessLogTo;
use crate::run::addresses::OwnAddresses;
use crate::run::directories::Directories;
use crate::source::local::LocalFiles;
use crate::tickets::Tickets;

#[derive(Clone, Debug)]
pub(in crate::run) struct HostSettings {
    /// Addresses for Gateways that request none.
    pub(in crate::run) pool: Vec<IpAddr>,
    /// Ports to bind, by the port that clients use.
    pub(in crate::run) port_map: BTreeMap<u32, u32>,
    /// Total number of files that Envoy may watch, for all Gateways together.
    pub(in crate::run) subscription_budget: usize,
    pub(in crate::run) limits: Limits,
    pub(in crate::run) budget_each: Option<usize>,
    /// Number of proxies in front of Envoy.
    pub(in crate::run) trusted_hops: u32,
    pub(in crate::run) system_ca: PathBuf,
    /// True if the agent manages the session ticket keys.
    pub(in crate::run) session_tickets: bool,
    /// Used while Secrets with session ticket keys are missing.
    pub(in crate::run) tickets: Tickets,
    pub(in crate::run) access_log: AccessLogTo,
    /// True if endpoints may be the agent's and Envoy's own sockets.
    pub(in crate::run) allow_local_endpoints: bool,
    /// Addresses that the agent itself listens on.
    pub(in crate::run) own_addresses: Vec<SocketAddr>,
    pub(in crate::run) addresses: OwnAddresses,
    pub(in crate::run) refuse_host_endpoints: bool,
    /// Gateways' addresses before the agent started.
    pub(in crate::run) held: BTreeMap<NamespacedName, Vec<IpAddr>>,
    /// Endpoint files that existed before the agent started.
    pub(in crate::run) endpoint_files: BTreeMap<NamespacedName, BTreeSet<String>>,
    pub(in crate::run) directories: Directories,
    pub(in crate::run) local: LocalFiles,
}

impl HostSettings {
    pub(super) fn refused_addresses(&self) -> BTreeSet<IpAddr> {
        if self.allow_local_endpoints || !self.refuse_host_endpoints {
            return BTreeSet::new();
        }
        self.addresses.known().clone()
    }

    pub(in crate::run) async fn changed(&mut self) {
        tokio::select! {
            () = self.local.changed() => {}
            () = self.tickets.changed() => {}
            () = self.addresses.changed() => {}
        }
    }
}
