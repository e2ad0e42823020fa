//! The snapshot of one Gateway, assembled from its listeners, their routes, and the Backends that these send to.

mod upstreams;

use std::collections::BTreeSet;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{self, BackendTls, Snapshot, TlsTermination};

use crate::api::NamespacedName;
use crate::resolve::backends::Backends;
use crate::resolve::context::ResolveContext;
use crate::resolve::routes::Routes;
use crate::resolve::routes::attachments::AttachedGateway;
use crate::resolve::tables::{self, Findings, Tables};
use crate::resolve::tls::certificates::Certificates;

/// One Gateway's snapshot and the keys that it names.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedGateway {
    /// The Gateway.
    pub gateway: NamespacedName,
    /// The listeners, route tables, Backends and endpoints.
    pub snapshot: Snapshot,
    /// The keys, sorted by name; the same names as in `snapshot.keys`.
    pub keys: Vec<KeyPair>,
}

/// Returns the snapshot and its keys; none if the Gateway is not accepted, or has no address to be served on.
pub(crate) fn assemble<'w>(
    attached: &AttachedGateway<'_, 'w>,
    routes: &Routes<'w>,
    backends: &mut Backends<'w>,
    certificates: &Certificates<'w, '_>,
    findings: &mut Findings,
    cx: &mut ResolveContext<'w, '_>,
) -> Option<ResolvedGateway> {
    // One value after the other, each from those before: the parts have no life of their own.
    let gateway = attached.gateway;
    if !gateway.verdict().good() || gateway.addresses.nowhere() {
        return None;
    }
    let mut tables = tables::build(attached.listeners.iter(), routes, findings);
    let client_key = gateway.client_key.as_deref();
    let upstreams = upstreams::find(&mut tables, client_key, backends, cx);
    let Tables {
        mut ports,
        route_tables,
    } = tables;
    gateway.settings.ports.open(&mut ports);

    let terminations = || {
        ports
            .iter()
            .flat_map(|port| &port.listeners)
            .filter_map(|listener| listener.tls.as_ref())
    };
    let originations = || upstreams.backends.iter().filter_map(|b| b.tls.as_ref());
    let certificates: Vec<_> = key_names(terminations(), originations())
        .into_iter()
        .filter_map(|name| certificates.named(name))
        .collect();
    // Bundles of the same references are the same.
    let mut bundles = backends.policies().bundles();
    bundles.extend(gateway.frontend.bundles());
    let trust_bundles = bundle_names(terminations(), originations())
        .into_iter()
        .filter_map(|name| bundles.get(name))
        .map(|b| (*b).clone())
        .collect();

    Some(ResolvedGateway {
        gateway: gateway.name(),
        snapshot: schema::Snapshot {
            gateway: gateway.owner.key().to_string(),
            addresses: gateway.addresses.usable.clone(),
            keys: certificates
                .iter()
                .map(|certificate| certificate.key.clone())
                .collect(),
            trust_bundles,
            ports,
            route_tables,
            backends: upstreams.backends,
            endpoints: upstreams.endpoints,
            edge: gateway.settings.edge,
        },
        keys: certificates
            .iter()
            .map(|certificate| (*certificate.pair).clone())
            .collect(),
    })
}

/// Returns the names of the keys that are shown to clients and to backends.
fn key_names<'t>(
    terminations: impl Iterator<Item = &'t TlsTermination>,
    originations: impl Iterator<Item = &'t BackendTls>,
) -> BTreeSet<&'t str> {
    terminations
        .flat_map(|tls| &tls.keys)
        .chain(originations.map(|tls| &tls.client_key))
        .map(String::as_str)
        .collect()
}

/// Returns the names of the trust bundles that verify clients and backends.
fn bundle_names<'t>(
    terminations: impl Iterator<Item = &'t TlsTermination>,
    originations: impl Iterator<Item = &'t BackendTls>,
) -> BTreeSet<&'t str> {
    terminations
        .map(|tls| tls.client_trust_bundle.as_str())
        .chain(originations.map(|tls| tls.trust_bundle.as_str()))
        .collect()
}
