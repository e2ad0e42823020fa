//! The objects, options and problems that the steps of a resolution share.

pub(crate) mod filter_cache;
pub(crate) mod grants;
pub(crate) mod references;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::filter_cache::FilterCache;
use self::grants::Grants;
use crate::proxies::CheckedExtensions;
use crate::syntax::parsed::Parsed;
use sesame_kinds::api::{CONTROLLER_NAME, Metadata, NamespacedName, SesameConfiguration};
use sesame_kinds::world::{Kind, ObjectKey, World};
use sesame_proto::keys::KeyPair;
use sesame_proto::salts::SaltKey;

/// Where the objects come from. This also determines where results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedFor {
    /// A host that reads manifests. Results are never written to the objects.
    Host,
    /// A cluster. The controller's own namespace is not watched.
    Cluster,
}

/// Options for a resolution.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent option"
)]
pub struct Options {
    /// The `controllerName` of this controller's GatewayClasses.
    pub controller_name: String,
    /// Allows endpoints on loopback, link-local and unspecified addresses.
    pub allow_local_endpoints: bool,
    /// Supports Gateways outside the cluster that send traffic to the cluster's mesh. If false,
    /// objects that configure such traffic are rejected.
    pub extra_minimal_ocg: bool,
    /// Source of the objects.
    pub resolved_for: ResolvedFor,
    /// Maximum total size of the routes of all Gateways, in bytes as computed by
    /// `sesame_proto::sizes`.
    pub max_route_bytes: u64,
    /// Resolves Ingresses and HTTPProxies even if `spec.ingress.watch` is `Report`. The result must
    /// only be shown, never published.
    pub preview: bool,
    /// Serves the Gateway that `spec.ingress.listeners` implies. False if the world contains it
    /// already.
    pub implied_gateway: bool,
    /// Namespace of the controller. Gateways that are served together are published in this
    /// namespace.
    pub namespace: String,
    /// The controller's own configuration, which provides the defaults for all Gateways.
    pub configuration: Option<Arc<SesameConfiguration>>,
    /// Salts credentials whose digests leave the host.
    pub salt_key: Option<SaltKey>,
    /// True if the controller has a program that changes DNS records. Hosts need no such option,
    /// because their orders report a missing program.
    pub has_acme_dns_hook: bool,
}

impl Options {
    /// Returns the pair with credentials. The snapshot contains its digest.
    pub(crate) fn credential_pair(&self, name: String, content: &str) -> Arc<KeyPair> {
        let mut pair = KeyPair {
            name,
            private_key: content.into(),
            ..KeyPair::default()
        };
        if let Some(key) = &self.salt_key {
            key.add_to(&mut pair);
        }
        Arc::new(pair)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controller_name: CONTROLLER_NAME.to_owned(),
            allow_local_endpoints: false,
            extra_minimal_ocg: false,
            resolved_for: ResolvedFor::Host,
            max_route_bytes: u64::MAX,
            preview: false,
            implied_gateway: true,
            namespace: "sesame-system".to_owned(),
            configuration: None,
            salt_key: None,
            has_acme_dns_hook: false,
        }
    }
}

/// A message for an object's author that none of the object's status conditions can report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The affected object.
    pub object: ObjectKey,
    /// States the field, its value and the consequence.
    pub message: String,
    /// For an unreachable match, the match that hides it, such as
    /// `HTTPRoute/namespace/name/rules/0/matches/0`.
    pub hidden_by: Option<String>,
}

impl Problem {
    /// Creates a problem that affects an object.
    pub fn new(object: ObjectKey, message: String) -> Self {
        Self {
            object,
            message,
            hidden_by: None,
        }
    }
}

pub(crate) struct ResolveContext<'w, 'o> {
    pub(crate) world: &'w World,
    pub(crate) options: &'o Options,
    pub(crate) grants: Grants<'w>,
    pub(crate) problems: Problems,
    /// Route sizes in bytes, keyed by Gateway. Includes routes that are excluded later because they
    /// exceed the limit.
    pub(crate) sizes: BTreeMap<NamespacedName, u64>,
    /// AccessPolicies whose logins exceed a Gateway's limit, each after the Gateway.
    pub(crate) unserved_logins: BTreeSet<(NamespacedName, NamespacedName)>,
    /// ExtensionServices that served HTTPProxies need.
    pub(crate) extensions: CheckedExtensions<'w>,
    /// Canonical JSON Web Key Sets, keyed by their original text.
    pub(crate) key_sets: &'o mut Parsed<Arc<str>>,
    pub(crate) filters: &'o mut FilterCache,
}

impl<'w, 'o> ResolveContext<'w, 'o> {
    pub(crate) fn new(
        world: &'w World,
        options: &'o Options,
        key_sets: &'o mut Parsed<Arc<str>>,
        filters: &'o mut FilterCache,
    ) -> Self {
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
            unserved_logins: BTreeSet::new(),
            extensions: CheckedExtensions::default(),
            key_sets,
            filters,
        }
    }

    pub(crate) fn config_map_text(
        &self,
        at: &str,
        (namespace, name): (&str, &str),
        key: &str,
    ) -> Result<&'w str, String> {
        let map = self.world.config_maps.get(namespace, name);
        let map = map.ok_or_else(|| format!("{at} does not exist"))?;
        let text = map.data.get(key).map(String::as_str);
        text.ok_or_else(|| format!("{at} has no key {key:?}"))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, object: ObjectKey, message: String) {
        self.0.push(Problem::new(object, message));
    }

    /// The match `hidden_by` takes precedence over the unreachable match.
    pub(crate) fn add_hidden(&mut self, object: ObjectKey, message: String, hidden_by: String) {
        self.0.push(Problem {
            hidden_by: Some(hidden_by),
            ..Problem::new(object, message)
        });
    }

    fn add_unknown(&mut self, kind: Kind, metadata: &Metadata) {
        let message = match metadata.unknown.refusal("") {
            Some(why) => Cow::Owned(format!("grants nothing: {why}")),
            None => metadata.unknown.append_harmless("", "", None),
        };
        if !message.is_empty() {
            let name = metadata.key();
            let message = message.trim_start_matches("; ").to_owned();
            self.add(kind.named(name), message);
        }
    }

    pub(crate) fn into_sorted(mut self) -> Vec<Problem> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}
