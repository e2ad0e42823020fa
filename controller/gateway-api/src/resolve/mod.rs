//! Resolution: a pure function from the objects of one moment to snapshots, keys and statuses.
//!
//! It has no IO, no clock, no randomness, and depends on no order of arrival: the same world gives the same bytes. The
//! snapshots and the statuses come from the same values, each of which is made from the ones before and never changed:
//!
//! 1. `gateways`: the Gateways of our `gateways::classes`, checked with their `settings`, their `listeners` and the
//!    ListenerSets';
//! 2. `backends`: the BackendTLSPolicies, and the Backends that references of routes lead to;
//! 3. `routes`: routes of all kinds, checked with their `parents`, rules, matches and `filters`, and attached to listeners;
//! 4. `tables`: ports, virtual hosts and routes;
//! 5. `snapshot`: one Gateway assembled from these, and `conditions`: the statuses of all objects.
//!
//! `syntax`, `context` and `tls` serve all steps. `incremental` resolves a few changed routes or
//! endpoints by themselves, with the same outcome.

mod backends;
mod conditions;
mod context;
mod filters;
mod gateways;
pub mod incremental;
mod listeners;
mod parents;
mod routes;
pub mod settings;
mod snapshot;
mod syntax;
mod tables;
mod tls;

use std::collections::BTreeMap;

pub use self::backends::endpoints::endpoint_sets;
pub use self::context::{Options, Problem};
pub use self::gateways::service_request::ServiceRequest;
pub use self::snapshot::ResolvedGateway;

use self::backends::Backends;
use self::backends::tls_policies::Policies;
use self::context::ResolveContext;
use self::gateways::classes::Classes;
use self::gateways::{CheckedGateway, ReferencedObjects};
use self::settings::GatewaySettings;
use self::syntax::regexes::Regexes;
use self::tables::Findings;
use self::tables::shadowed::{Hidden, Shadowed};
use self::tls::ca_bundles::CaBundles;
use self::tls::certificates::{CertificateCache, Certificates};
use crate::api::NamespacedName;
use crate::status::Statuses;
use crate::world::{LastGoodKeys, World};

/// The outcome of [`resolve`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// The accepted Gateways of ours, sorted by name.
    pub gateways: Vec<ResolvedGateway>,
    /// The statuses of all objects that are ours to judge.
    pub statuses: Statuses,
    /// The settings of all Gateways of ours whose parameters are valid.
    pub settings: BTreeMap<NamespacedName, GatewaySettings>,
    /// The wishes of the same Gateways for the Services beside them.
    pub services: BTreeMap<NamespacedName, ServiceRequest>,
    /// Messages for the authors of objects for which there is no condition, sorted by object.
    pub problems: Vec<Problem>,
    /// The last good key pair of each Secret that was looked at, for the next world.
    pub last_good: LastGoodKeys,
}

/// Resolves worlds one after the other, and remembers what it parsed of the last one. The outcome is the same
/// as without memory.
#[derive(Debug, Default)]
pub struct Resolver {
    certificates: CertificateCache,
    regexes: Regexes,
}

impl Resolver {
    /// Resolves the whole world.
    pub fn resolve(&mut self, world: &World, options: &Options) -> Resolution {
        self.run(world, options, Shadowed::default()).0
    }

    /// Resolves the whole world, and also returns the matches that no request reaches in each virtual host.
    fn resolve_by_host(&mut self, world: &World, options: &Options) -> (Resolution, Hidden) {
        self.run(world, options, Shadowed::by_host())
    }

    fn run(
        &mut self,
        world: &World,
        options: &Options,
        shadowed: Shadowed,
    ) -> (Resolution, Hidden) {
        // The flow as a whole, as the module says it.
        let mut cx = ResolveContext::new(world, options);
        let mut certificates = Certificates::new(&mut self.certificates);
        let mut ca_bundles = CaBundles::default();

        let classes = Classes::check(world, options);
        let policies = Policies::check_all(&mut cx, &mut ca_bundles);
        let mut references = ReferencedObjects {
            certificates: &mut certificates,
            ca_bundles: &mut ca_bundles,
        };
        let checked = gateways::check_all(&classes, &mut cx, &mut references);
        let mut backends = Backends::new(world, policies);
        let routes = routes::check_all(&checked, &mut cx, &mut backends, &mut self.regexes);
        let attached = routes::attachments::attach(&checked, &routes);

        let mut findings = Findings::new(shadowed);
        let gateways = attached
            .iter()
            .filter_map(|gateway| {
                let (backends, findings) = (&mut backends, &mut findings);
                snapshot::assemble(gateway, &routes, backends, &certificates, findings, &mut cx)
            })
            .collect();
        let (displaced, hidden) = findings.tell(&routes, &mut cx.problems);

        let controller_name = &options.controller_name;
        let statuses = Statuses {
            gateway_classes: classes.statuses(),
            gateways: attached
                .iter()
                .map(|it| (it.gateway.name(), conditions::gateways::status(it)))
                .collect(),
            listener_sets: attached
                .iter()
                .flat_map(conditions::listener_sets::statuses)
                .collect(),
            routes: conditions::routes::statuses(&routes, &checked, &displaced, controller_name),
            backend_tls_policies: conditions::policies::statuses(
                &attached,
                &routes,
                backends.policies(),
                &mut cx,
            ),
        };
        let (settings, services) = publishing(&checked);
        let problems = cx.problems.into_sorted();
        let last_good = certificates.finish();
        let resolution = Resolution {
            gateways,
            statuses,
            settings,
            services,
            problems,
            last_good,
        };
        self.regexes.finish();
        (resolution, hidden)
    }
}

/// Returns the settings of the Gateways whose parameters are valid, and their wishes for the Services beside them.
fn publishing(
    checked: &[CheckedGateway<'_>],
) -> (
    BTreeMap<NamespacedName, GatewaySettings>,
    BTreeMap<NamespacedName, ServiceRequest>,
) {
    let known = checked.iter().filter(|it| !it.parameters_refused);
    let both = known.map(|it| {
        let name = it.name();
        let settings = (name.clone(), it.settings.clone());
        (settings, (name, ServiceRequest::of(it)))
    });
    both.unzip()
}

/// Resolves the whole world once.
pub fn resolve(world: &World, options: &Options) -> Resolution {
    Resolver::default().resolve(world, options)
}

#[cfg(test)]
mod tests;
