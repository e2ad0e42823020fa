//! Resolution: a pure function from objects to Envoy snapshots, keys and statuses.
//!
//! The same world always produces the same bytes, in whatever order objects arrive. There is no
//! I/O, clock or randomness. The steps are `gateways`, `backends`, `routes`, `tables` and
//! `snapshot`, and no step changes the results of an earlier one. `incremental` resolves only
//! changed routes or endpoints, with the same result.

mod backends;
mod conditions;
mod context;
mod filters;
mod gateways;
pub mod incremental;
mod ingresses;
mod listeners;
mod parents;
mod policies;
mod proxies;
mod routes;
pub mod settings;
mod snapshot;
mod syntax;
mod tables;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::backends::endpoints::endpoint_sets;
pub use self::context::{Options, Problem, ResolvedFor};
pub use self::gateways::merged::{MergedGateway, merged_name};
pub use self::gateways::service_request::ServiceRequest;
pub use self::ingresses::INGRESS_CONTROLLER;
pub use self::listeners::implicit::ImplicitListeners;
pub use self::listeners::{UncoveredHostname, UncoveredHostnames, session_ticket_keys};
pub use self::policies::key_sets::RemoteKeySets;
pub use self::proxies::{AuthorityRef, LayeredReferences, layered_references};
pub use self::settings::ingress::report_only;
pub use self::snapshot::ResolvedGateway;
pub use self::tls::ca_bundles::checked_bundle;
pub use self::tls::certificate_source::CertificateSource;
pub use self::tls::key_pairs::{CheckedPair, checked_pair};

use self::backends::backend_policies::BackendPolicies;
use self::backends::tls_policies::Policies;
use self::backends::traffic_policies::XTrafficPolicies;
use self::backends::x_backends::XBackends;
use self::backends::{Backends, CheckedBackends};
use self::conditions::policies::PolicyInput;
use self::context::ResolveContext;
use self::gateways::classes::Classes;
use self::gateways::mesh_trust::MeshTrust;
pub use self::gateways::ocg_bundles::{OcgBundle, OcgBundles};
use self::gateways::{CheckedGateway, ReferencedObjects, mesh_policies, telemetry_policies};
use self::ingresses::IngressClasses;
use self::ingresses::listeners::ListenersOfGateway;
use self::ingresses::lookup::LayeredLookup;
use self::policies::traffic::TrafficPolicies;
use self::proxies::FoundProxies;
use self::settings::GatewaySettings;
use self::syntax::parsed::Parsed;
use self::syntax::regexes::Regexes;
use self::tables::Findings;
use self::tables::shadowed::{Hidden, Shadowed};
use self::tls::ca_bundles::CaBundles;
use self::tls::certificates::{CertificateCache, Certificates};
use sesame_proto::provenance::Provenance;

use crate::api::NamespacedName;
use crate::expiry::{Expiry, ExpiryOf, ListenerExpiries};
use crate::status::Statuses;
use crate::world::{LastGoodKeys, ServedTogether, World};

/// Result of [`resolve`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// Accepted Gateways, sorted by published name.
    pub gateways: Vec<ResolvedGateway>,
    /// Statuses of this controller's objects.
    pub statuses: Statuses,
    /// Gateways that are not served because their class serves only one Gateway.
    pub unserved: BTreeSet<NamespacedName>,
    /// Gateways published together with others of their class, even if not accepted.
    pub merged: BTreeMap<NamespacedName, MergedGateway>,
    /// Names whose last publication remains in effect because parameters are invalid.
    pub retained: BTreeSet<NamespacedName>,
    /// Settings of Gateways with valid parameters, and of merged Gateways under their shared name.
    pub settings: BTreeMap<NamespacedName, GatewaySettings>,
    /// Kubernetes Service settings, keyed by published name.
    pub services: BTreeMap<NamespacedName, ServiceRequest>,
    /// Hostnames that no certificate of their listener covers.
    pub uncovered: UncoveredHostnames,
    /// Problems that no condition reports, sorted by object.
    pub problems: Vec<Problem>,
    /// Last good key pairs, as input for the next resolution.
    pub last_good: LastGoodKeys,
    /// Last served ports, as input for the next resolution.
    pub served_together: ServedTogether,
    /// ConfigMaps from which meshes read the Gateways' CA certificates.
    pub ocg_bundles: OcgBundles,
}

impl Resolution {
    /// Returns certificate expiries, keyed by Gateway. For merged Gateways, trust bundles are
    /// omitted.
    pub fn expiries(&self) -> BTreeMap<NamespacedName, Vec<Expiry>> {
        let mut all = BTreeMap::new();
        for published in &self.gateways {
            let name = &published.gateway;
            let members = self.merged.iter();
            let mut members = members
                .filter(|(_, it)| it.published_as == *name)
                .peekable();
            if members.peek().is_none() {
                let expiries = published.keys.iter().flat_map(Expiry::of_pair);
                let bundles = published.snapshot.trust_bundles.iter();
                let authorities = bundles.flat_map(Expiry::of_bundle);
                all.insert(name.clone(), expiries.chain(authorities).collect());
            }
            for (gateway, MergedGateway { keys, .. }) in members {
                let own = published.keys.iter().filter(|key| keys.contains(&key.name));
                all.insert(gateway.clone(), own.flat_map(Expiry::of_pair).collect());
            }
        }
        all
    }

    /// Returns the certificate expiries of each listener.
    pub fn listener_expiries(&self) -> ListenerExpiries {
        let mut all = ListenerExpiries::new();
        for published in &self.gateways {
            let pairs = published.keys.iter();
            let pairs: BTreeMap<&str, Vec<Expiry>> = pairs
                .map(|pair| (pair.name.as_str(), Expiry::of_pair(pair).collect()))
                .collect();
            let listeners = published
                .snapshot
                .ports
                .iter()
                .flat_map(|port| &port.listeners);
            for listener in listeners {
                let keys = listener.tls.iter().flat_map(|tls| &tls.keys);
                let expiries: Vec<Expiry> = keys
                    .filter_map(|key| pairs.get(key.as_str()))
                    .flatten()
                    // The certificate remains valid without an optional OCSP staple.
                    .filter(|expiry| expiry.of != ExpiryOf::Staple { demanded: false })
                    .cloned()
                    .collect();
                let Ok(provenance) = Provenance::parse(&listener.name) else {
                    continue;
                };
                if let (Some(name), false) = (provenance.listener(), expiries.is_empty()) {
                    let object_expiries = all.entry(provenance.object().to_string()).or_default();
                    object_expiries.insert(name.to_owned(), expiries);
                }
            }
        }
        all
    }
}

/// Resolves a sequence of worlds. Its caches never affect the result.
#[derive(Debug, Default)]
pub struct Resolver {
    certificates: CertificateCache,
    regexes: Regexes,
    key_sets: Parsed<Arc<str>>,
    /// Route sizes in bytes, before any routes are excluded.
    sizes: BTreeMap<NamespacedName, u64>,
    /// Separate resolver for reduced worlds, which would otherwise evict the whole world's cached
    /// values.
    neighbours: Option<Box<Resolver>>,
}

impl Resolver {
    /// Resolves the whole world.
    pub fn resolve(&mut self, world: &World, options: &Options) -> Resolution {
        self.run(world, options, Shadowed::default()).0
    }

    /// Also returns unreachable matches.
    fn resolve_by_host(&mut self, world: &World, options: &Options) -> (Resolution, Hidden) {
        self.run(world, options, Shadowed::by_host())
    }

    // This function is long because it contains the whole flow that the module header describes.
    fn run(
        &mut self,
        world: &World,
        options: &Options,
        shadowed: Shadowed,
    ) -> (Resolution, Hidden) {
        let ingress_classes = IngressClasses::check(world, options);
        let found_proxies = FoundProxies::find(world, &ingress_classes);
        let implicit = proxies::listeners_of_all(world, &ingress_classes, &found_proxies);
        let mut cx = ResolveContext::new(world, options, &mut self.key_sets);
        let mut certificates = Certificates::new(&mut self.certificates);
        let mut ca_bundles = CaBundles::default();

        let classes = Classes::check(world, options);
        let unserved = gateways::single::unserved(&classes, world);
        let checked = CheckedBackends {
            tls_policies: Policies::check_all(&mut cx, &mut ca_bundles),
            traffic_policies: XTrafficPolicies::check_all(&mut cx),
            backend_policies: BackendPolicies::check_all(&mut cx),
            x_backends: XBackends::check_all(&mut cx, &mut ca_bundles),
        };
        let mesh_policies = mesh_policies::check_all(&mut cx);
        let telemetry_policies = telemetry_policies::check_all(&mut cx);
        let mut backends = Backends::new(world, checked);
        let traffic_policies = TrafficPolicies::check_all(&mut backends, &mut cx);
        let mut references = ReferencedObjects {
            certificates: &mut certificates,
            ca_bundles: &mut ca_bundles,
            mesh_policies: &mesh_policies,
            telemetry_policies: &telemetry_policies,
            traffic_policies: &traffic_policies,
            backends: &mut backends,
        };
        let mut checked =
            gateways::check_all(&classes, &unserved, &implicit, &mut cx, &mut references);
        let mesh_trust = MeshTrust::check_all(&checked, &certificates, &mut ca_bundles, &mut cx);
        backends.ca_bundles = ca_bundles;
        let mut routes = routes::check_all(
            &checked,
            &traffic_policies,
            &mut cx,
            &mut backends,
            &mut self.regexes,
        );
        ingresses::give_way(&mut checked, &routes);
        let ports = ingress_classes.ports();
        let found = checked.iter();
        let found: Vec<_> = found.map(|it| ListenersOfGateway::of(it, ports)).collect();
        let mut lookup = LayeredLookup {
            listeners: &found,
            routes: &mut routes,
            cx: &mut cx,
            backends: &mut backends,
            regexes: &mut self.regexes,
        };
        let proxies = proxies::check_all(&mut lookup, found_proxies);
        let ingresses = ingresses::check_all(&mut lookup, &ingress_classes);
        let attached = routes::attachments::attach(&checked, &routes);

        let mut findings = Findings::new(shadowed);
        let mut by_snapshot: Vec<_> = attached.iter().collect();
        by_snapshot.sort_by_key(|it| it.gateway.snapshot_key());
        let groups: Vec<&[_]> = by_snapshot
            .chunk_by(|a, b| a.gateway.snapshot_key() == b.gateway.snapshot_key())
            .collect();
        let room = snapshot::divide_room(&groups, &routes, options.max_route_bytes);
        let gateways: Vec<ResolvedGateway> = groups
            .into_iter()
            .filter_map(|together| {
                snapshot::assemble(
                    together,
                    &routes,
                    room,
                    &backends,
                    &certificates,
                    &mut findings,
                    &mut cx,
                )
            })
            .collect();
        let (lost, hidden) = findings.report(&routes, &mut cx.problems);

        let controller_name = &options.controller_name;
        let statuses = Statuses {
            gateway_classes: classes.statuses(),
            gateways: attached
                .iter()
                .map(|it| {
                    (
                        it.gateway.name(),
                        conditions::gateways::status(it, &mesh_trust, &traffic_policies),
                    )
                })
                .chain(unserved.clone())
                .collect(),
            listener_sets: attached
                .iter()
                .flat_map(|it| conditions::listener_sets::statuses(it, &traffic_policies))
                .collect(),
            routes: conditions::routes::statuses(
                &routes,
                &checked,
                &traffic_policies,
                &lost.displaced,
                &lost.unreached,
                controller_name,
            )
            .into_iter()
            .chain(conditions::ingresses::statuses(
                &ingresses, &routes, &checked, &lost,
            ))
            .chain(conditions::http_proxies::statuses(
                &proxies, &routes, &checked, &lost,
            ))
            .collect(),
            policies: PolicyInput {
                attached: &attached,
                gateways: &checked,
                routes: &routes,
                backends: &backends,
                mesh_policies: &mesh_policies,
                mesh_trust: &mesh_trust,
                telemetry_policies: &telemetry_policies,
                traffic_policies: &traffic_policies,
            }
            .statuses(&mut cx),
        };
        let (settings, services) = publishing(&checked, &classes, options);
        let retained = gateways::merged::retained(&checked, &classes, options);
        let snapshots = gateways.iter().map(|it| &it.snapshot);
        let served_together =
            gateways::merged::served_together(snapshots, &checked, &retained, world);
        let uncovered = gateways::uncovered(&checked);
        let problems = cx.problems.into_sorted();
        let last_good = certificates.finish();
        self.sizes = std::mem::take(&mut cx.sizes);
        let resolution = Resolution {
            gateways,
            statuses,
            unserved: unserved.into_keys().collect(),
            merged: checked.iter().filter_map(merged).collect(),
            retained,
            settings,
            services,
            uncovered,
            problems,
            last_good,
            served_together,
            ocg_bundles: mesh_trust.bundles,
        };
        self.regexes.finish();
        self.key_sets.finish();
        (resolution, hidden)
    }
}

/// Returns `None` if the Gateway is published separately.
fn merged(gateway: &CheckedGateway<'_>) -> Option<(NamespacedName, MergedGateway)> {
    let published_as = gateway.merged.clone()?;
    let keys = gateway.keys();
    Some((gateway.name(), MergedGateway { published_as, keys }))
}

/// Omits Gateways with invalid parameters.
fn publishing(
    checked: &[CheckedGateway<'_>],
    classes: &Classes<'_>,
    options: &Options,
) -> (
    BTreeMap<NamespacedName, GatewaySettings>,
    BTreeMap<NamespacedName, ServiceRequest>,
) {
    let (mut settings, mut services) = (BTreeMap::new(), BTreeMap::new());
    let known = checked.iter().filter(|it| {
        !it.parameters_refused && !gateways::merged::is_of_class(&it.name(), classes, options)
    });
    for gateway in known {
        settings.insert(gateway.name(), gateway.settings.clone());
        let class = classes.get(gateway.class);
        match (gateway.merged.clone(), class) {
            (Some(name), Some(class)) if gateway.accepted.good() => {
                settings.insert(name.clone(), class.settings.clone());
                let all: &mut ServiceRequest = services.entry(name).or_default();
                all.add(ServiceRequest::of(gateway));
            }
            (Some(_), _) => {}
            (None, _) => {
                services.insert(gateway.name(), ServiceRequest::of(gateway));
            }
        }
    }
    (settings, services)
}

/// Resolves a world without a cache.
pub fn resolve(world: &World, options: &Options) -> Resolution {
    Resolver::default().resolve(world, options)
}

#[cfg(test)]
mod tests;
