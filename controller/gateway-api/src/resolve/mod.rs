//! Resolution: a pure function from the objects of one moment to snapshots, keys and statuses.
//!
//! No IO, no clock, no randomness, no order of arrival: the same world gives the same bytes. What Envoy
//! gets and what a status says come from one value.
//!
//! The steps: `classes` (which are ours) → `gateways`, their `listener_sets` and all `listeners` (`conflicts`,
//! `kinds`, `selectors`, `certificates`, `frontend_tls`) → `routes` (`rules` of each kind: `http_rules`,
//! `grpc_rules`, `l4_rules`; `matches`, `filters`, `backends` with `backend_tls`; `attach` to listeners) → `tables`
//! (`virtual_hosts` in order of `precedence`; `l4_routes`; who is `displaced`) → what is `reached`. `incremental` does it for a few
//! routes or endpoints that have changed, with the same outcome.

mod backends;
mod conditions;
mod context;
mod endpoints;
mod filters;
mod gateways;
mod grants;
pub mod incremental;
mod listeners;
mod parents;
mod routes;
mod sessions;
mod syntax;
mod tables;
mod tls;

pub use self::endpoints::endpoint_sets;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::Snapshot;

use self::backends::Backends;
use self::backends::tls_policies::Policies;
use self::context::Context;
use self::gateways::GatewayState;
use self::gateways::classes::Classes;
use self::syntax::regexes::Regexes;
use self::tables::shadowed::{Hidden, Shadowed};
use self::tls::ca_bundles::CaBundles;
use self::tls::certificates::{CertificateCache, Certificates};
use crate::api::NamespacedName;
use crate::status::Statuses;
use crate::world::{LastGoodKeys, ObjectKey, World};

/// What resolution is told beside the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only GatewayClasses that name this controller are ours.
    pub controller_name: String,
    /// Endpoints on loopback, link-local and unspecified addresses are refused unless this is set.
    pub allow_local_endpoints: bool,
    /// A few changes are resolved by themselves; if not, the whole world is resolved for every change.
    pub incremental: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_name: "projectsesame.io/gateway-controller".to_owned(),
            allow_local_endpoints: false,
            incremental: true,
        }
    }
}

/// The outcome of [`resolve`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// One for each accepted Gateway of ours, by name.
    pub gateways: Vec<ResolvedGateway>,
    /// The statuses of all objects that are ours to judge.
    pub statuses: Statuses,
    /// What else the authors of objects should know; by object.
    pub problems: Vec<Problem>,
    /// What is good of the Secrets that were looked at, now or else before: for the next world.
    pub last_good: LastGoodKeys,
}

/// Something worth telling for which the API has no condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The object that it is about.
    pub object: ObjectKey,
    /// Which field, which value, what follows.
    pub message: String,
}

/// One Gateway's snapshot and the keys it names.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedGateway {
    /// The Gateway.
    pub gateway: NamespacedName,
    /// What to serve.
    pub snapshot: Snapshot,
    /// By name; the same names as in `snapshot.keys`.
    pub keys: Vec<KeyPair>,
}

/// Resolves worlds one after the other, and remembers what it parsed of the last. The outcome is the same
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

    /// The same, and what no request reaches in each virtual host.
    fn resolve_by_host(&mut self, world: &World, options: &Options) -> (Resolution, Hidden) {
        self.run(world, options, Shadowed::by_host())
    }

    fn run(
        &mut self,
        world: &World,
        options: &Options,
        mut shadowed: Shadowed,
    ) -> (Resolution, Hidden) {
        let mut cx = Context::new(world, options);
        let mut certificates = Certificates::new(&mut self.certificates);
        let mut ca_bundles = CaBundles::default();
        let policies = Policies::judge(&mut cx, &mut ca_bundles);
        let mut backends = Backends::new(world, policies);

        let classes = Classes::judge(world, options);
        let sets = listeners::sets::by_gateway(world);
        let mut gateways: Vec<GatewayState<'_>> = world
            .gateways
            .iter()
            .filter_map(|gateway| {
                let metadata = &gateway.metadata;
                let sets = sets.get(&(metadata.namespace.as_str(), metadata.name.as_str()));
                GatewayState::judge(
                    gateway,
                    &classes,
                    sets.map(Vec::as_slice).unwrap_or_default(),
                    &mut cx,
                    &mut certificates,
                    &mut ca_bundles,
                )
            })
            .collect();
        let (routes, mut route_statuses) =
            routes::attach_all(&mut gateways, &mut cx, &mut backends, &mut self.regexes);
        let resolved = gateways
            .iter()
            .filter_map(|gateway| {
                gateway.snapshot(
                    &routes,
                    &mut backends,
                    &certificates,
                    &mut shadowed,
                    &mut cx,
                )
            })
            .collect();
        let displaced = std::mem::take(&mut cx.displaced);
        displaced.tell(&routes, &mut route_statuses, &mut cx.problems);
        let hidden = shadowed.take_hidden(&routes);
        shadowed.tell(&routes, &mut cx.problems);
        let gateway_statuses = gateways
            .iter()
            .map(|gateway| {
                let owner = &gateway.owner;
                (
                    NamespacedName::new(owner.namespace, owner.name),
                    gateway.status(),
                )
            })
            .collect();
        let listener_sets = gateways
            .iter()
            .flat_map(GatewayState::set_statuses)
            .collect();
        let policy_statuses =
            conditions::policies::all(&gateways, &routes, backends.policies(), &mut cx);
        let last_good = certificates.finish();
        self.regexes.finish();
        let resolution = Resolution {
            gateways: resolved,
            statuses: Statuses {
                gateway_classes: classes.statuses(),
                gateways: gateway_statuses,
                listener_sets,
                routes: route_statuses,
                backend_tls_policies: policy_statuses,
            },
            problems: cx.problems.into_sorted(),
            last_good,
        };
        (resolution, hidden)
    }
}

/// Resolves the whole world once.
pub fn resolve(world: &World, options: &Options) -> Resolution {
    Resolver::default().resolve(world, options)
}

#[cfg(test)]
mod tests;
