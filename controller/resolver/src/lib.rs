//! Resolution: a pure function from objects to Envoy snapshots, keys and statuses.
//!
//! The same world always produces the same bytes, in whatever order objects arrive. There is no
//! I/O, clock or randomness. The steps are `gateways`, `backends`, `routes`, `tables` and
//! `snapshot`, and no step changes the results of an earlier one. `incremental` resolves only
//! changed routes or endpoints, with the same result.

#![doc = include_str!("example.md")]
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod acme;
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
mod resolution;
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
pub use self::ingresses::nginx::shared as nginx_annotations;
pub use self::ingresses::{INGRESS_CONTROLLER, ImpliedGateway, with_implied_gateway};
pub use self::listeners::implicit::ImplicitListeners;
pub use self::listeners::{UncoveredHostname, UncoveredHostnames, session_ticket_keys};
pub use self::policies::key_sets::RemoteKeySets;
pub use self::proxies::shared as http_proxies;
pub use self::proxies::{AuthorityRef, LayeredReferences, layered_references};
pub use self::resolution::Resolution;
pub use self::settings::acme::external_account_secrets;
pub use self::settings::ingress::report_only;
pub use self::snapshot::{ResolvedGateway, hosts_of};
pub use self::tls::ca_bundles::checked_bundle;
pub use self::tls::certificate_source::CertificateSource;
pub use self::tls::key_pairs::{CheckedPair, checked_pair};

use self::backends::backend_policies::BackendPolicies;
use self::backends::tls_policies::Policies;
use self::backends::traffic_policies::XTrafficPolicies;
use self::backends::x_backends::XBackends;
use self::backends::{Backends, CheckedBackends, LayerTls};
use self::conditions::policies::PolicyInput;
use self::context::ResolveContext;
use self::context::filter_cache::FilterCache;
use self::gateways::classes::Classes;
use self::gateways::mesh_trust::MeshTrust;
pub use self::gateways::ocg_bundles::{OcgBundle, OcgBundles};
use self::gateways::{CheckedGateway, ReferencedObjects, mesh_policies, telemetry_policies};
use self::ingresses::IngressClasses;
use self::ingresses::listeners::ListenersOfGateway;
use self::ingresses::lookup::LayeredLookup;
use self::policies::traffic::TrafficPolicies;
use self::proxies::FoundProxies;
use self::syntax::parsed::Parsed;
use self::syntax::regexes::Regexes;
use self::tables::Findings;
use self::tables::shadowed::{Hidden, Shadowed};
use self::tls::ca_bundles::CaBundles;
use self::tls::certificates::{CertificateCache, Certificates};

use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::Statuses;
use sesame_kinds::world::World;

/// Resolves a sequence of worlds. Its caches never affect the result.
#[derive(Debug, Default)]
pub struct Resolver {
    certificates: CertificateCache,
    regexes: Regexes,
    key_sets: Parsed<Arc<str>>,
    filters: FilterCache,
    /// Route sizes in bytes, before any routes are excluded.
    sizes: BTreeMap<NamespacedName, u64>,
    /// Separate resolver for reduced worlds, which would otherwise evict the whole world's cached
    /// values.
    neighbours: Option<Box<Resolver>>,
}

impl Resolver {
    /// Resolves the whole world.
    pub fn resolve(&mut self, world: &World, options: &Options) -> Resolution {
        self.resolve_with_implied(world, options, Shadowed::default())
            .0
    }

    /// Also returns unreachable matches.
    fn resolve_by_host(&mut self, world: &World, options: &Options) -> (Resolution, Hidden) {
        self.resolve_with_implied(world, options, Shadowed::by_host())
    }

    fn resolve_with_implied(
        &mut self,
        world: &World,
        options: &Options,
        shadowed: Shadowed,
    ) -> (Resolution, Hidden) {
        let whole = with_implied_gateway(world, options);
        let (mut resolution, hidden) = self.run(&whole, options, shadowed);
        if let Some(implied) = ImpliedGateway::find(world, options) {
            resolution.record_implied(&implied, options);
        }
        resolution.report_unused_listeners(world, options, None);
        (resolution, hidden)
    }

    #[expect(
        clippy::too_many_lines,
        reason = "it contains the whole flow that the module header describes"
    )]
    fn run(
        &mut self,
        world: &World,
        options: &Options,
        shadowed: Shadowed,
    ) -> (Resolution, Hidden) {
        let ingress_classes = IngressClasses::check(world, options);
        let found_proxies = FoundProxies::find(world, &ingress_classes);
        let implicit = proxies::listeners_of_all(world, &ingress_classes, &found_proxies);
        let mut cx = ResolveContext::new(world, options, &mut self.key_sets, &mut self.filters);
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
        let mut backends = Backends::new(world, checked, LayerTls::of(ingress_classes.settings()));
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
        let certificate_requests = acme::requests(&mut checked, &cx);
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
        ingress_classes.report_ports(&found, &mut cx.problems);
        let mut lookup = LayeredLookup {
            listeners: &found,
            routes: &mut routes,
            cx: &mut cx,
            backends: &mut backends,
            regexes: &mut self.regexes,
        };
        let proxies = proxies::check_all(&mut lookup, found_proxies);
        let ingresses = ingresses::check_all(&mut lookup, &ingress_classes);
        let extensions = std::mem::take(&mut cx.extensions).finish();
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
            .chain(extensions.iter().map(conditions::http_proxies::extension))
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
        let (settings, services) = gateways::publishing::all(&checked, &classes, options);
        let retained = gateways::merged::retained(&checked, &classes, options);
        let snapshots = gateways.iter().map(|it| &it.snapshot);
        let served_together =
            gateways::merged::served_together(snapshots, &checked, &retained, world);
        let uncovered = gateways::uncovered(&checked);
        let problems = cx.problems.into_sorted();
        let last_good = certificates.finish();
        self.sizes = std::mem::take(&mut cx.sizes);
        let mut resolution = Resolution {
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
            last_parameters: settings::parameters::last(world, options),
            layers_unknown: ingress_classes.unknown_to().is_some(),
            kept_layers: gateways::merged::of_refused_classes(&checked, &classes),
            unless_published: BTreeSet::new(),
            ocg_bundles: mesh_trust.bundles,
            certificate_requests,
        };
        if let Some(class) = ingress_classes.unknown_to() {
            resolution.report_unknown(class, ingresses::unknown::gateways(&checked, world));
        }
        self.regexes.finish();
        self.key_sets.finish();
        self.filters.finish();
        (resolution, hidden)
    }
}

/// Returns `None` if the Gateway is published separately.
fn merged(gateway: &CheckedGateway<'_>) -> Option<(NamespacedName, MergedGateway)> {
    let published_as = gateway.merged.clone()?;
    let keys = gateway.keys();
    Some((gateway.name(), MergedGateway { published_as, keys }))
}

/// Resolves a world without a cache.
pub fn resolve(world: &World, options: &Options) -> Resolution {
    Resolver::default().resolve(world, options)
}

#[cfg(test)]
mod tests;
