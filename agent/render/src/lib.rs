//! Rendering: a pure function from a snapshot to the resources that Envoy loads.
//!
//! Same snapshot, same bytes, whichever process runs it. Each resource is encoded as soon as it is built,
//! because the unencoded form of five thousand clusters is many times their encoded size. What cannot be
//! said to Envoy is left out with a [`Problem`]; everything else keeps going.
//!
//! It must never read a file, a clock or the environment, and never fail as a whole.

mod bootstrap;
mod budget;
mod clusters;
mod config_sources;
pub mod dump;
mod endpoints;
mod filter_chains;
mod http;
mod l4;
pub mod layout;
pub mod limits;
mod listeners;
mod overload;
mod route_table_patch;
mod secrets;
mod shares;
mod static_bootstrap;
mod tls;
mod udp;
mod weights;
mod wrappers;

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Envoy is asked"
)]
mod hostile;
#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a real Envoy is asked"
)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{Backend, Edge, EndpointSet, Snapshot};

pub use bootstrap::bootstrap;
pub use endpoints::EndpointRules;
pub use shares::none as no_shares;
pub use static_bootstrap::static_bootstrap;
pub use weights::REFUSED_CLUSTER;

use crate::http::{route_tables, sessions};
use crate::limits::Limits;

/// What the host decides, beside the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The addresses to listen on, each listener on all of them.
    pub addresses: Vec<IpAddr>,
    /// Outside port → port to bind; identity where absent.
    pub port_map: BTreeMap<u32, u32>,
    /// How many file subscriptions (inotify instances) Envoy may open in all.
    pub subscription_budget: usize,
    /// What it may use in all.
    pub limits: Limits,
    /// The files that Envoy watches; paths as Envoy sees them.
    pub layout: crate::layout::XdsLayout,
    /// The admin socket.
    pub admin_socket: std::path::PathBuf,
    /// Whether Envoy trusts forwarding headers of this many proxies before it.
    pub trusted_hops: u32,
    /// The system's certificate authorities, one PEM file; a path as Envoy sees it.
    pub system_ca: std::path::PathBuf,
    /// Which endpoints are served.
    pub endpoints: EndpointRules,
}

/// One encoded resource.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    /// The resource's own name.
    pub name: String,
    /// The encoded message, without `Any`.
    pub bytes: Bytes,
}

// By hand, because the bytes of a secret hold a private key.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource")
            .field("name", &self.name)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// Everything that Envoy gets, each list by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// LDS, one file.
    pub listeners: Vec<Resource>,
    /// RDS, a file each.
    pub route_tables: Vec<Resource>,
    /// CDS, one file.
    pub clusters: Vec<Resource>,
    /// EDS, a file each; only of the clusters that the subscription budget gives a file.
    pub endpoints: Vec<Resource>,
    /// SDS, a file each, 0600: key pairs and trust bundles.
    pub secrets: Vec<Resource>,
    /// RTDS, one file: what each listener and backend may open, a `Runtime`.
    pub shares: Bytes,
    /// What could not be said to Envoy, in the snapshot's order.
    pub problems: Vec<Problem>,
}

/// Something of the snapshot that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The snapshot's name of it: `HTTPRoute/namespace/name/rules/0/matches/1`.
    pub object: String,
    /// The field, its value, what was expected, and what happens instead.
    pub message: String,
}

impl Problem {
    fn new(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}

/// What every translator may ask about the rest of the snapshot.
struct Context<'a> {
    options: &'a Options,
    /// How clients are treated.
    edge: Edge,
    subscriptions: budget::Subscriptions<'a>,
    /// The key pairs and trust bundles that have a resource, encoded.
    secrets: BTreeMap<&'a str, &'a [u8]>,
    /// The rendered route tables.
    route_tables: BTreeMap<&'a str, &'a [u8]>,
    /// Names of the backends that have a cluster.
    clusters: BTreeSet<&'a str>,
    /// Names of those that have clusters for sessions, too.
    session_backends: BTreeSet<&'a str>,
}

/// Takes over everything but route tables, and of those the virtual hosts that are the same, of a Gateway that differs
/// from the rendered one in nothing else. None where more might differ for it; otherwise the outcome is that of
/// [`render`].
pub fn routes_after(
    rendered: &Rendered,
    before: &EncodedSnapshot,
    now: &EncodedSnapshot,
    options: &Options,
) -> Option<Rendered> {
    // With problems something was left out, and a route may look different for it.
    if !rendered.problems.is_empty() {
        return None;
    }
    let context = Context {
        options,
        edge: now.edge(),
        subscriptions: budget::Subscriptions::default(),
        secrets: BTreeMap::new(),
        route_tables: BTreeMap::new(),
        clusters: rendered.clusters.iter().map(|c| c.name.as_str()).collect(),
        session_backends: sessions::backends_of(&rendered.clusters),
    };
    let (before, now) = (before.route_tables()?, now.route_tables()?);
    let route_tables = route_table_patch::render(&rendered.route_tables, &before, &now, &context)?;
    Some(Rendered {
        route_tables,
        ..rendered.clone()
    })
}

/// Takes over everything but what says endpoints that are not as they were `before`, of a snapshot that differs from the
/// rendered one in nothing else. Its route tables are not looked at. None where more might differ for it; otherwise the
/// outcome is that of [`render`].
pub fn endpoints_after(
    rendered: &Rendered,
    before: &[EndpointSet],
    snapshot: &Snapshot,
    keys: &[KeyPair],
    options: &Options,
) -> Option<Rendered> {
    // With problems something was left out, and something else may look different for it.
    if !rendered.problems.is_empty() {
        return None;
    }
    let mut problems = Vec::new();
    let secrets = secrets::render(&snapshot.keys, keys, &snapshot.trust_bundles, &mut problems);
    let secrets = by_name(&secrets);
    let Snapshot {
        ports,
        backends,
        endpoints,
        ..
    } = snapshot;
    let mut context = Context {
        options,
        edge: snapshot.edge.unwrap_or_default(),
        subscriptions: budget::plan(ports, backends, &secrets, options.subscription_budget),
        secrets,
        route_tables: BTreeMap::new(),
        clusters: BTreeSet::new(),
        session_backends: BTreeSet::new(),
    };
    endpoints::check(endpoints, &options.endpoints, &mut problems);
    let (before, sets) = (endpoints::sets(before), endpoints::sets(endpoints));
    let others: Vec<&Backend> = backends
        .iter()
        .filter(|backend| {
            let set = backend.endpoints.as_str();
            before.get(set) != sets.get(set)
        })
        .collect();
    let (clusters, usable) = clusters::render(&others, &sets, &context, &mut problems);
    context.clusters = usable;
    let endpoints = endpoints::render(&others, &sets, &context);
    if !problems.is_empty() {
        return None;
    }
    Some(Rendered {
        clusters: replaced(&rendered.clusters, clusters)?,
        endpoints: replaced(&rendered.endpoints, endpoints)?,
        ..rendered.clone()
    })
}

/// The same resources, but for these; none if one is not among them.
fn replaced(sorted: &[Resource], others: Vec<Resource>) -> Option<Vec<Resource>> {
    let mut all = sorted.to_vec();
    for other in others {
        let place = all.binary_search_by(|known| known.name.cmp(&other.name));
        *all.get_mut(place.ok()?)? = other;
    }
    Some(all)
}

/// Renders a snapshot with its keys.
pub fn render(snapshot: &Snapshot, keys: &[KeyPair], options: &Options) -> Rendered {
    // `addresses` are what was asked for; the host says in `options` what it listens on.
    let Snapshot {
        gateway: _,
        addresses: _,
        ports,
        route_tables,
        backends,
        endpoints,
        keys: key_refs,
        trust_bundles,
        edge,
    } = snapshot;
    let mut problems = Vec::new();
    let secrets = secrets::render(key_refs, keys, trust_bundles, &mut problems);
    let secrets = sorted(secrets, &mut problems);
    let secret_bytes = by_name(&secrets);
    let mut context = Context {
        options,
        edge: edge.unwrap_or_default(),
        subscriptions: budget::plan(ports, backends, &secret_bytes, options.subscription_budget),
        secrets: secret_bytes,
        route_tables: BTreeMap::new(),
        clusters: BTreeSet::new(),
        session_backends: BTreeSet::new(),
    };
    endpoints::check(endpoints, &options.endpoints, &mut problems);
    let (backends, sets): (Vec<&Backend>, _) =
        (backends.iter().collect(), endpoints::sets(endpoints));
    let (clusters, usable) = clusters::render(&backends, &sets, &context, &mut problems);
    context.session_backends = backends
        .iter()
        .filter(|backend| !backend.session_key.is_empty())
        .map(|backend| backend.name.as_str())
        .collect();
    context
        .session_backends
        .retain(|name| usable.contains(name));
    context.clusters = usable;
    let mut of_routes = Vec::new();
    let route_tables = route_tables
        .iter()
        .map(|table| route_tables::render(table, &context, &mut of_routes))
        .collect();
    let route_tables = sorted(route_tables, &mut of_routes);
    context.route_tables = by_name(&route_tables);
    let listeners = listeners::render(ports, &context, &mut problems);
    problems.append(&mut of_routes);
    let endpoints = endpoints::render(&backends, &sets, &context);
    let granted = &context.subscriptions;
    let listeners = sorted(listeners, &mut problems);
    let clusters = sorted(clusters, &mut problems);
    let mut rendered = Rendered {
        shares: shares::render(&options.limits, &listeners, &clusters, &backends),
        listeners,
        route_tables: in_files(&route_tables, &granted.route_tables),
        clusters,
        endpoints: sorted(endpoints, &mut problems),
        secrets: in_files(&secrets, &granted.secrets),
        problems,
    };
    // A route may be in several tables, and wrong in each.
    let mut seen = BTreeSet::new();
    rendered
        .problems
        .retain(|problem| seen.insert(problem.clone()));
    rendered
}

fn by_name(resources: &[Resource]) -> BTreeMap<&str, &[u8]> {
    resources
        .iter()
        .map(|resource| (resource.name.as_str(), &resource.bytes[..]))
        .collect()
}

/// Those that are not inline where they are used.
fn in_files(resources: &[Resource], granted: &budget::Granted<'_>) -> Vec<Resource> {
    resources
        .iter()
        .filter(|resource| !granted.is_inline(&resource.name))
        .cloned()
        .collect()
}

/// By name; of those that share one, the first.
fn sorted(mut resources: Vec<Resource>, problems: &mut Vec<Problem>) -> Vec<Resource> {
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    resources.dedup_by(|later, first| {
        let same = later.name == first.name;
        if same {
            problems.push(Problem::new(
                &later.name,
                "two have this name; the first is used, the other is left out",
            ));
        }
        same
    });
    resources
}
