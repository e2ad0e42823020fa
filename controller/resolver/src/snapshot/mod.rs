//! Assembles the snapshot of one or several Gateways.

mod limits;
mod upstreams;

use std::collections::BTreeSet;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{self, BackendTls, EndpointSet, KeyRef, Snapshot, TlsTermination};

use self::limits::SharedFilters;
use crate::backends::Backends;
use crate::context::ResolveContext;
use crate::routes::Routes;
use crate::routes::attachments::{AttachedGateway, AttachedListener};
use crate::tables::reached_by::ReachedBy;
use crate::tables::{self, Findings, RoomOfGateways, Tables};
use crate::tls::certificates::Certificates;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, World};

/// Snapshot and keys of one Gateway, or of several that are served together.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedGateway {
    /// The Gateway's name, or [`merged_name`](crate::merged_name).
    pub gateway: NamespacedName,
    /// Listeners, route tables, Backends and endpoints.
    pub snapshot: Snapshot,
    /// Key pairs for `snapshot.keys`, sorted by name. Excludes keys that are stored on hosts.
    pub keys: Vec<KeyPair>,
}

/// `most` is in bytes. The Gateways of a group are served together.
pub(crate) fn divide_room<'w>(
    groups: &[&[&AttachedGateway<'_, 'w>]],
    routes: &Routes<'w>,
    most: u64,
) -> RoomOfGateways {
    let wanted = || {
        let listeners = groups.iter().map(|together| listeners(together));
        listeners.map(|it| tables::wanted(it, routes)).collect()
    };
    RoomOfGateways::divide(most, groups.len(), wanted)
}

/// `None` if no accepted Gateway has an address.
#[expect(clippy::too_many_lines, reason = "each value builds on earlier values")]
pub(crate) fn assemble<'w>(
    together: &[&AttachedGateway<'_, 'w>],
    routes: &Routes<'w>,
    room: RoomOfGateways,
    backends: &Backends<'w>,
    certificates: &Certificates<'w, '_>,
    findings: &mut Findings,
    cx: &mut ResolveContext<'w, '_>,
) -> Option<ResolvedGateway> {
    let served: Vec<_> = served(together).collect();
    // Gateways that are served together share all settings outside listeners.
    let mut accepted = served.iter().filter(|it| it.gateway.accepted.good());
    let gateway = accepted.next()?.gateway;
    let mut tables = tables::build(listeners(together), routes, room, findings);
    let mut rate_limits = limits::find(listeners(together), routes, &mut cx.problems);
    let SharedFilters {
        filters: shared_filters,
        credentials,
        unserved_logins,
    } = limits::shared_filters(listeners(together), routes, &mut cx.problems);
    for it in &served {
        let unserved = unserved_logins.iter().cloned();
        let unserved = unserved.map(|policy| (it.gateway.name(), policy));
        cx.unserved_logins.extend(unserved);
    }
    let meshes = || served.iter().filter_map(|it| it.gateway.mesh.as_ref());
    let tls = meshes().map(|it| (it.gateway.as_str(), it.tls())).collect();
    let mut tracing = gateway.tracing.traces.clone();
    let client_key = gateway.client_key.as_deref();
    let mut log_output = gateway.log.output.clone();
    let sinks = log_output.iter_mut().flat_map(|output| &mut output.sinks);
    let sink_backends = sinks.map(|sink| &mut sink.backend);
    let span_backends = tracing.iter_mut().map(|it| &mut it.backend);
    let limit_services = rate_limits.iter_mut().filter_map(|it| it.service.as_mut());
    let limit_services = limit_services.map(|service| &mut service.backend);
    let receivers = span_backends.chain(sink_backends);
    let mut collectors: Vec<&mut String> = receivers.chain(limit_services).collect();
    for collector in &mut collectors {
        ReachedBy::by_key(client_key).append_to(collector);
    }
    let filters = share_filters(&served, &mut tables);
    let upstreams = upstreams::find(&mut tables, &mut collectors, backends, &tls, cx);
    let Tables {
        mut ports,
        route_tables,
        wanted,
    } = tables;
    gateway.settings.apply_to(&mut ports);

    let terminations = || {
        ports
            .iter()
            .flat_map(|port| &port.listeners)
            .filter_map(|listener| listener.tls.as_ref())
    };
    let originations = || upstreams.backends.iter().filter_map(|b| b.tls.as_deref());
    let names = key_names(terminations(), originations()).into_iter();
    let pairs = names.filter_map(|name| certificates.published(name));
    let credentials = credentials.values().map(|pair| {
        let key = KeyRef {
            name: pair.name.clone(),
            digest: pair.digest(),
            ..KeyRef::default()
        };
        (key, Some(&**pair))
    });
    let mut keys: Vec<(KeyRef, Option<&KeyPair>)> = pairs.chain(credentials).collect();
    keys.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    // Bundles with the same name are identical.
    let mut bundles = backends.bundles();
    bundles.extend(served.iter().flat_map(|it| it.gateway.frontend.bundles()));
    let listeners = served.iter().flat_map(|it| &it.gateway.listeners);
    let client_bundles = listeners.filter_map(|listener| listener.client_bundle.as_deref());
    bundles.extend(client_bundles.map(|bundle| (bundle.name.as_str(), bundle)));
    let mesh_bundles = meshes().filter_map(|it| it.bundle.as_ref());
    bundles.extend(mesh_bundles.map(|bundle| (bundle.name.as_str(), bundle)));
    let trust_bundles = bundle_names(terminations(), originations())
        .into_iter()
        .filter_map(|name| bundles.get(name))
        .map(|b| (*b).clone())
        .collect();

    let name = gateway.published_as();
    let mut endpoints = upstreams.endpoints;
    if rate_limits.iter().any(|limit| limit.fleet) {
        let set = hosts_of(&name, cx.world);
        let place = endpoints.partition_point(|it| it.name < set.name);
        endpoints.insert(place, set);
    }
    cx.sizes.insert(name.clone(), wanted);
    Some(ResolvedGateway {
        snapshot: schema::Snapshot {
            gateway: Kind::Gateway.named(name.clone()).to_string(),
            addresses: gateway.addresses.usable.clone(),
            keys: keys.iter().map(|(key, _)| key.clone()).collect(),
            trust_bundles,
            ports,
            route_tables,
            backends: upstreams.backends,
            endpoints,
            edge: gateway.settings.clients.edge(),
            rotation: gateway.settings.rotation,
            tracing,
            log_output,
            measured_routes: gateway.settings.measured_routes.clone(),
            rate_limits,
            shared_filters,
            filters: filters.map(Box::new),
            rollout: gateway.settings.rollout.clone(),
        },
        gateway: name,
        keys: keys
            .into_iter()
            .filter_map(|(_, pair)| pair.cloned())
            .collect(),
    })
}

/// Returns the set that counts the Gateway's live hosts. `gateway` is the published name.
pub fn hosts_of(gateway: &NamespacedName, world: &World) -> EndpointSet {
    let hosts = world.live_hosts.get(gateway).copied().unwrap_or_default();
    EndpointSet::of_hosts(&Kind::Gateway.named(gateway.clone()).to_string(), hosts)
}

/// If all Gateways have the same filters, removes them from virtual hosts and returns them.
fn share_filters(
    served: &[&AttachedGateway<'_, '_>],
    tables: &mut Tables,
) -> Option<schema::RequestFilters> {
    let mut all = served.iter().map(|it| it.gateway.filters.as_ref());
    let first = all.next()??;
    if !all.all(|it| it == Some(first)) {
        return None;
    }
    for table in &mut tables.route_tables {
        for host in &mut table.virtual_hosts {
            host.filters.take_if(|it| it == first);
        }
    }
    Some(first.clone())
}

/// Returns nothing unless a Gateway is accepted.
fn served<'a, 'w>(
    together: &[&'a AttachedGateway<'a, 'w>],
) -> impl Iterator<Item = &'a AttachedGateway<'a, 'w>> {
    // With several Gateways, include Gateways that only reject requests. Otherwise, other Gateways'
    // listeners would receive their requests.
    let several = together.len() > 1;
    let is_served = move |it: &&AttachedGateway<'_, '_>| {
        let gateway = it.gateway;
        let good = gateway.verdict().good() || several && gateway.has_refusing();
        good && !gateway.addresses.has_no_usable_address()
    };
    let served = move || together.iter().copied().filter(is_served);
    let any = served().any(|it| it.gateway.accepted.good());
    served().filter(move |_| any)
}

fn listeners<'a, 'w>(
    together: &[&'a AttachedGateway<'a, 'w>],
) -> impl Iterator<Item = &'a AttachedListener<'a, 'w>> {
    served(together).flat_map(|it| {
        let listeners = it.listeners.iter();
        listeners.filter(|attached| it.gateway.has_in_snapshot(attached.listener))
    })
}

fn key_names<'t>(
    terminations: impl Iterator<Item = &'t TlsTermination>,
    originations: impl Iterator<Item = &'t BackendTls>,
) -> BTreeSet<&'t str> {
    terminations
        .flat_map(|tls| tls.keys.iter().chain([&tls.session_ticket_keys]))
        .chain(originations.map(|tls| &tls.client_key))
        .map(String::as_str)
        .collect()
}

fn bundle_names<'t>(
    terminations: impl Iterator<Item = &'t TlsTermination>,
    originations: impl Iterator<Item = &'t BackendTls>,
) -> BTreeSet<&'t str> {
    terminations
        .map(|tls| tls.client_trust_bundle.as_str())
        .chain(originations.map(|tls| tls.trust_bundle.as_str()))
        .collect()
}
