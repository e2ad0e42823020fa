//! The host's options, and the context that all rendering functions share.
//!
//! This module only holds data; it does not render anything.

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
use crate::layout::XdsLayout;
use crate::limits::Limits;
use crate::rendered::{Resource, find};

/// Rendering options that are set by the host, not by the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// The addresses to listen on. Each listener uses all of them.
    pub addresses: Vec<IpAddr>,
    /// Ports to bind instead of the snapshot's, by the port number that clients use.
    pub port_map: BTreeMap<u32, u32>,
    /// Maximum number of file subscriptions (inotify instances) that Envoy may use.
    pub subscription_budget: usize,
    /// File names of the endpoint sets that get subscriptions before all others.
    pub first_in_files: Arc<BTreeSet<String>>,
    /// Limits on the resources of the host that Envoy may use.
    pub limits: Limits,
    /// Paths of the files that Envoy watches, as Envoy sees them.
    pub layout: XdsLayout,
    /// Path of the admin socket.
    pub admin_socket: PathBuf,
    /// Number of proxies in front of Envoy whose forwarding headers are trusted.
    pub trusted_hops: u32,
    /// Path, as Envoy sees it, of a PEM file with the system's certificate authorities.
    pub system_ca: PathBuf,
    /// Rules that decide which endpoints are served.
    pub endpoints: EndpointRules,
    /// True if a file for session ticket keys exists.
    pub session_tickets: bool,
    /// The host's own session ticket keys. They are used if a listener refers to keys that are
    /// missing on this host.
    pub stand_in_tickets: Option<StandInTickets>,
    /// The destination of access logs, or `None` to disable them.
    pub access_log: Option<AccessLogSink>,
    /// Additional trusted authorities, by the name of the trust bundle.
    pub retained: BTreeMap<String, RetainedAuthorities>,
}

impl RenderOptions {
    /// Returns the port number that this host binds.
    pub fn bound(&self, port: &Port) -> u32 {
        let mapped = self.port_map.get(&port.port).copied();
        mapped.unwrap_or_else(|| port.opened())
    }
}

/// Concatenated session ticket keys. They are used if the keys of a Secret are missing. The first
/// key encrypts new tickets.
#[derive(Clone, PartialEq, Eq)]
pub struct StandInTickets(pub Arc<[u8]>);

// `Debug` is implemented by hand, because these keys can decrypt recorded traffic.
impl fmt::Debug for StandInTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandInTickets")
    }
}

/// Authorities that a rotation has removed from a trust bundle, but that remain trusted for some
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedAuthorities {
    /// The authorities' certificates.
    pub pem: String,
    /// The authorities' certificate revocation lists.
    pub crl: String,
}

/// The destination of Envoy's access logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogSink {
    /// A file, with the path as Envoy sees it.
    File(PathBuf),
    /// Envoy's standard output.
    Stdout,
}

/// Rules that decide which endpoints this host may serve. The snapshot is not trusted here: anyone
/// who can write an endpoint shard could otherwise direct requests to the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointRules {
    /// True to allow endpoints at the host's own, link-local and cloud metadata addresses.
    pub local: bool,
    /// Sockets on which Envoy and the agent listen. Requests to these sockets would loop.
    pub own: BTreeSet<SocketAddr>,
    /// Addresses of this host, which no endpoint may have, on any port.
    pub host: BTreeSet<IpAddr>,
}

/// Maximum number of routes per Gateway with separate statistics.
pub(crate) const MAX_MEASURED: usize = 32;

/// Default filters of the snapshot, and shared filters to which virtual hosts and routes refer.
pub(crate) struct SnapshotFilters<'a> {
    /// Default filters, for virtual hosts that define no filters. Each route table contains the
    /// default filters once.
    pub(crate) default: Option<&'a RequestFilters>,
    /// Rendered default filters by placeholder, or an error if Envoy would reject one of them.
    pub(crate) rendered: Result<Vec<(&'static str, Any)>, String>,
    pub(crate) shared: SharedPlaces<'a>,
}

/// The shared filters by name.
pub(crate) type SharedPlaces<'a> = BTreeMap<&'a str, SharedPlace<'a>>;

/// A shared filter.
pub(crate) struct SharedPlace<'a> {
    pub(crate) filter: &'a SharedFilter,
    /// Placeholder in which the filter runs, or an error if Envoy would reject the filter. Unset
    /// until a route needs the filter.
    pub(crate) place: OnceCell<Result<&'static str, String>>,
}

/// Parts of the snapshot, and resources that have already been rendered, for use by all rendering
/// functions. Lists are sorted by name.
pub(crate) struct RenderContext<'a> {
    pub(crate) options: &'a RenderOptions,
    /// The name of the Gateway, for access logs.
    pub(crate) gateway: &'a str,
    /// The settings for clients.
    pub(crate) edge: Edge,
    pub(crate) tracing: Option<&'a Tracing>,
    /// The format and receivers of access logs, or `None` for the defaults.
    pub(crate) log_output: Option<&'a LogOutput>,
    /// The names of routes with separate statistics.
    pub(crate) measured_routes: &'a [String],
    /// The usable rate limits, sorted by name.
    pub(crate) rate_limits: &'a [RateLimit],
    pub(crate) filters: SnapshotFilters<'a>,
    pub(crate) subscriptions: Subscriptions<'a>,
    /// The key pairs and trust bundles, including inlined ones.
    pub(crate) secrets: &'a [Resource],
    pub(crate) clusters: &'a [Resource],
    /// The route tables, including inlined ones.
    pub(crate) route_tables: &'a [Resource],
}

impl<'a> RenderContext<'a> {
    /// Returns a context with rendered secrets, but without clusters and route tables.
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
            tracing: snapshot.tracing.as_ref(),
            log_output: snapshot.log_output.as_ref(),
            measured_routes: &snapshot.measured_routes,
            rate_limits: RateLimit::usable(&snapshot.rate_limits),
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

    /// Returns the name under which a route appears in statistics, which is the name of its object.
    /// Returns `None` if the route has no separate statistics. The number of names is limited here,
    /// because neither the snapshot nor Envoy reliably limits it.
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
        find(self.clusters, name).is_some()
    }
}
