//! Resolution: a pure function from the objects of one moment to snapshots, keys and statuses.
//!
//! No IO, no clock, no randomness, no order of arrival: the same world gives the same bytes. What Envoy
//! gets and what a status says come from one value.

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::Snapshot;

use crate::api::NamespacedName;
use crate::status::Statuses;
use crate::world::World;

/// What resolution is told beside the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only GatewayClasses that name this controller are ours.
    pub controller_name: String,
    /// Endpoints on loopback, link-local and unspecified addresses are refused unless this is set.
    pub allow_local_endpoints: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_name: "projectsesame.io/gateway-controller".to_owned(),
            allow_local_endpoints: false,
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

/// Resolves the whole world.
pub fn resolve(world: &World, options: &Options) -> Resolution {
    let _ = (world, options);
    Resolution::default()
}
