//! Context of a resolution: the objects, the options, and the problems found so far.

pub(crate) mod grants;
pub(crate) mod references;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use self::grants::Grants;
use crate::api::{Metadata, NamespacedName, SesameConfiguration};
use crate::world::{Kind, ObjectKey, World};

/// Source of the objects, which also determines where the results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedFor {
    /// A host that reads manifests and never writes objects.
    Host,
    /// A cluster. The controller's own namespace is not watched.
    Cluster,
}

/// Options of resolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the controller. GatewayClasses with this name belong to it.
    pub controller_name: String,
    /// Allows endpoints on loopback, link-local and unspecified addresses.
    pub allow_local_endpoints: bool,
    /// Supports Gateways outside the cluster and its mesh. Otherwise objects that refer to them are
    /// rejected.
    pub extra_minimal_ocg: bool,
    /// Source of the objects.
    pub resolved_for: ResolvedFor,
    /// Maximum size of the routes of all Gateways together, in bytes as in `sesame_proto::sizes`.
    pub most_of_gateways: u64,
    /// Enables incremental resolution. Otherwise every change resolves the whole world.
    pub incremental: bool,
    /// Namespace of the controller. Gateways that are served together are published there under the
    /// name of their class.
    pub namespace: String,
    /// The controller's own configuration: the default settings of all Gateways.
    pub configuration: Option<Arc<SesameConfiguration>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_name: "projectsesame.io/gateway-controller".to_owned(),
            allow_local_endpoints: false,
            extra_minimal_ocg: false,
            resolved_for: ResolvedFor::Host,
            most_of_gateways: u64::MAX,
            incremental: true,
            namespace: "sesame-system".to_owned(),
            configuration: None,
        }
    }
}

/// A message for the author of an object that has no suitable condition in the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The affected object.
    pub object: ObjectKey,
    /// States the field, the value and the consequence.
    pub message: String,
    /// The match that receives the requests of an unreachable match, as
    /// `HTTPRoute/namespace/name/rules/0/matches/0`. `None` for other problems.
    pub hidden_by: Option<String>,
}

impl Problem {
    /// Creates a problem with an object.
    pub fn new(object: ObjectKey, message: String) -> Self {
        Self {
            object,
            message,
            hidden_by: None,
        }
    }
}

/// The input for every step of a resolution, and the problems that the steps add.
pub(crate) struct ResolveContext<'w, 'o> {
    pub(crate) world: &'w World,
    pub(crate) options: &'o Options,
    pub(crate) grants: Grants<'w>,
    pub(crate) problems: Problems,
    /// Total size in bytes of the routes of each published Gateway if none were excluded.
    pub(crate) sizes: BTreeMap<NamespacedName, u64>,
}

impl<'w, 'o> ResolveContext<'w, 'o> {
    pub(crate) fn new(world: &'w World, options: &'o Options) -> Self {
        let mut problems = Problems::default();
        for grant in &world.reference_grants {
            problems.add_unknown(Kind::ReferenceGrant, &grant.metadata);
        }
        Self {
            world,
            options,
            grants: Grants::new(world),
            problems,
            sizes: BTreeMap::new(),
        }
    }
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, object: ObjectKey, message: String) {
        self.0.push(Problem::new(object, message));
    }

    /// Adds a problem about a match that the match `by` hides.
    pub(crate) fn add_hidden(&mut self, object: ObjectKey, message: String, by: String) {
        self.0.push(Problem {
            hidden_by: Some(by),
            ..Problem::new(object, message)
        });
    }

    /// Adds a problem about unknown fields of an object that has no status.
    fn add_unknown(&mut self, kind: Kind, metadata: &Metadata) {
        let message = match metadata.unknown.refusal("") {
            Some(why) => Cow::Owned(format!("grants nothing: {why}")),
            None => metadata.unknown.beside("", "", None),
        };
        if !message.is_empty() {
            let name = metadata.key();
            let message = message.trim_start_matches("; ").to_owned();
            self.add(kind.named(name), message);
        }
    }

    /// Returns the distinct problems, in sorted order.
    pub(crate) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}
