//! The host's options, and the context that all rendering functions share.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::{
    Edge, LogOutput, Port, RateLimit, RequestFilters, SharedFilter, Snapshot, Tracing,
};

use crate::budget::{self, SubscriptionBudget, Subscriptions};
use crate::clusters::fleet;
use crate::http::protocol_options;
use crate::layout::{PASSWORDS, XdsLayout};
use crate::limits::Limits;
use crate::rendered::{Resource, find};

/// Rendering options that the host sets, not the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Addresses that each listener binds.
    pub addresses: Vec<IpAddr>,
    /// Ports to bind instead of the snapshot's, keyed by the port number that clients use.
    pub port_map: BTreeMap<u32, u32>,
    /// Maximum number of files (inotify instances) that Envoy may watch.
    pub subscription_budget: usize,
    /// File names of the endpoint sets that get subscriptions first.
    pub first_in_files: Arc<BTreeSet<String>>,
    /// Limits on the host resources that Envoy may use.
    pub limits: Limits,
    /// Files that Envoy watches, with paths as Envoy sees them.
    pub layout: XdsLayout,
    /// Path of the admin socket.
    pub admin_socket: PathBuf,
    /// Number of trusted proxies in front of Envoy.
    pub trusted_hops: u32,
    /// Number of hosts that share fleet limits, unless the snapshot contains it.
    pub fleet_hosts: u32,
    /// PEM file with the system's certificate authorities, as Envoy sees it.
    pub system_ca: PathBuf,
    /// Rules for which endpoints are served.
    pub endpoints: EndpointRules,
    /// True if a session ticket key file exists.
    pub session_tickets: bool,
    /// The host's session ticket keys, for listeners whose own keys are not on this host.
    pub stand_in_tickets: Option<StandInTickets>,
    /// Destination for access logs, or `None` to disable them.
    pub access_log: Option<AccessLogSink>,
    /// Additional trusted authorities, by trust bundle name.
    pub retained: BTreeMap<String, RetainedAuthorities>,
}

impl RenderOptions {
    /// Returns the port number that this host binds.
    pub fn bound(&self, port: &Port) -> u32 {
        let mapped = self.port_map.get(&port.port).copied();
        mapped.unwrap_or_else(|| port.opened())
    }
}

/// Concatenated session ticket keys. The first one encrypts new tickets.
#[derive(Clone, PartialEq, Eq)]
pub struct StandInTickets(pub Arc<[u8]>);

// Never print these keys: they can decrypt recorded traffic.
impl fmt::Debug for StandInTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandInTickets")
    }
}

/// Authorities that a rotation removed from a trust bundle, but that remain trusted for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedAuthorities {
    /// Certificates.
    pub pem: String,
    /// Certificate revocation lists.
    pub crl: String,
}

/// Destination for Envoy's access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogSink {
    /// A file, as Envoy sees it.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// Rules for endpoints. Anyone who can write an endpoint shard could otherwise direct requests to
/// the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointRules {
    /// Allows the host's own, link-local and cloud metadata addresses.
    pub local: bool,
    /// Sockets of Envoy and the agent. Requests to these would loop.
    pub own: BTreeSet<SocketAddr>,
    /// Addresses of this host, forbidden on any port.
    pub host: BTreeSet<IpAddr>,
    /// Zone of this host; empty if unknown.
    pub zone: String,
}

pub(crate) const MAX_MEASURED: usize = 32;

pub(crate) struct SnapshotFilters<'a> {
    /// Filters for virtual hosts that configure none. Each route table contains them once.
    pub(crate) default: Option<&'a RequestFilters>,
    /// Rendered filters by placeholder, or an error if Envoy would reject one.
    pub(crate) rendered: Result<Vec<(&'static str, Any)>, String>,
    pub(crate) shared: SharedPlaces<'a>,
}

pub(crate) type SharedPlaces<'a> = BTreeMap<&'a str, SharedPlace<'a>>;

pub(crate) struct SharedPlace<'a> {
    pub(crate) filter: &'a SharedFilter,
    /// The filter's placeholder, or an error if Envoy would reject it. Unset until a route needs
    /// it.
    pub(crate) place: OnceCell<Result<&'static str, String>>,
}

/// Parts of the snapshot, and resources rendered so far. Lists are sorted by name.
pub(crate) struct RenderContext<'a> {
    pub(crate) options: &'a RenderOptions,
    pub(crate) gateway: &'a str,
    /// While a port is rendered, its own settings.
    pub(crate) edge: Edge,
    /// Shortest idle timeout of a request on any port; 0 if there is none.
    pub(crate) stream_idle_ms: u64,
    pub(crate) tracing: Option<&'a Tracing>,
    /// `None` selects the defaults.
    pub(crate) log_output: Option<&'a LogOutput>,
    pub(crate) measured_routes: &'a [String],
    pub(crate) rate_limits: &'a [RateLimit],
    /// Number of live hosts, at least one.
    pub(crate) fleet_hosts: u32,
    pub(crate) filters: SnapshotFilters<'a>,
    pub(crate) subscriptions: Subscriptions<'a>,
    pub(crate) secrets: &'a [Resource],
    pub(crate) clusters: &'a [Resource],
    /// Includes inlined tables.
    pub(crate) route_tables: &'a [Resource],
}

impl<'a> RenderContext<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        secrets: &'a [Resource],
        filters: SnapshotFilters<'a>,
        options: &'a RenderOptions,
    ) -> Self {
        Self {
            options,
            gateway: &snapshot.gateway,
            edge: snapshot.edge.unwrap_or_default(),
            stream_idle_ms: protocol_options::shortest_stream_idle_ms(snapshot),
            tracing: snapshot.tracing.as_ref(),
            log_output: snapshot.log_output.as_ref(),
            measured_routes: &snapshot.measured_routes,
            rate_limits: RateLimit::usable(&snapshot.rate_limits),
            fleet_hosts: fleet::hosts(&snapshot.endpoints, options),
            filters,
            subscriptions: budget::plan(
                &snapshot.ports,
                &snapshot.backends,
                secrets,
                SubscriptionBudget {
                    files: options.subscription_budget,
                    tickets: options.session_tickets,
                    first: &options.first_in_files,
                },
            ),
            secrets,
            clusters: &[],
            route_tables: &[],
        }
    }

    /// Returns the name for statistics, or `None` if the route is not measured separately. Limits
    /// the number of names, because neither the snapshot nor Envoy does so reliably.
    pub(crate) fn measured_as(&self, route: &str) -> Option<String> {
        let measured = self.measured_routes.get(..MAX_MEASURED);
        let measured = measured.unwrap_or(self.measured_routes);
        if measured.is_empty() {
            return None;
        }
        let object = Provenance::parse(route).ok()?.object().to_string();
        measured.binary_search(&object).ok().map(|_| object)
    }

    pub(crate) fn has_cluster(&self, name: &str) -> bool {
        name != PASSWORDS && find(self.clusters, name).is_some()
    }
}
