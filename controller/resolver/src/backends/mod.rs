//! Converts Service ports and XBackends referenced by routes into Backends: one per combination of
//! protocol and settings. An invalid reference becomes an error value, so that its share of the
//! traffic can be rejected.

mod app_protocols;
mod backend;
pub(crate) mod backend_policies;
mod connections;
pub(crate) mod endpoints;
mod pods;
mod policy_references;
mod references;
mod sessions;
mod settings;
pub(crate) mod tls_policies;
mod traffic;
pub(crate) mod traffic_policies;
mod validation;
pub(crate) mod weighted;
pub(crate) mod x_backends;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sesame_proto::schema::{Backend, EndpointSet, TrustBundle};
use sha2::{Digest as _, Sha256};

use self::backend::backend;
pub(crate) use self::backend::{MeshTransport, reached_by};
use self::backend_policies::BackendPolicies;
pub(crate) use self::connections::{Connection, LayerTls, OwnTls, UpstreamProtocol};
use self::endpoints::Slices;
use self::pods::Pods;
pub(crate) use self::references::{BackendName, PolicedBackend};
use self::references::{SERVICES, X_BACKENDS, service_port};
pub(crate) use self::sessions::BackendSession;
pub(crate) use self::settings::{BackendSettings, http_check};
use self::tls_policies::{Applied, Policies};
pub(crate) use self::traffic::Traffic;
use self::traffic_policies::XTrafficPolicies;
use self::x_backends::XBackends;
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::tls::ca_bundles::CaBundles;
use sesame_kinds::api::{BackendRef, ExtensionService, Metadata, NamespacedName, ServicePort};
use sesame_kinds::status::{Grounds, Reason, unsupported};
use sesame_kinds::world::{Kind, World};

/// Result of a valid reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendTarget {
    Backend(String),
    /// Reject the traffic because of this problem.
    Refused(String),
}

impl BackendTarget {
    pub(crate) fn served(self) -> Result<String, Grounds> {
        match self {
            Self::Backend(name) => Ok(name),
            Self::Refused(why) => Err((Reason::RefNotPermitted, why)),
        }
    }
}

pub(crate) struct ResolvedRef<'w> {
    /// One entry per kind of policy that targets the Service, or one entry for an XBackend.
    pub(crate) policed: Vec<PolicedBackend<'w>>,
    pub(crate) target: Result<BackendTarget, Grounds>,
}

/// Index in `Backends::entries`. The outer error means that the reference is invalid; the inner
/// error explains why traffic is rejected.
type FoundPort = Result<Result<usize, String>, Grounds>;

pub(crate) struct CheckedBackends<'w> {
    pub(crate) tls_policies: Policies<'w>,
    pub(crate) traffic_policies: XTrafficPolicies<'w>,
    pub(crate) backend_policies: BackendPolicies<'w>,
    pub(crate) x_backends: XBackends<'w>,
}

pub(crate) struct Backends<'w> {
    slices: Slices<'w>,
    pods: Pods<'w>,
    checked: CheckedBackends<'w>,
    ports: HashMap<(&'w str, &'w str, i32, Traffic), FoundPort>,
    entries: Vec<BackendEntry<'w>>,
    by_name: HashMap<String, usize>,
    pub(crate) ca_bundles: CaBundles<'w>,
    layer_tls: LayerTls,
    /// Trust bundles that HTTPProxies specify for their backends, by name.
    own_bundles: BTreeMap<String, Arc<TrustBundle>>,
    /// Messages about BackendPolicy settings that have no effect, by policy index.
    unfit: BTreeMap<usize, BTreeSet<String>>,
}

struct BackendEntry<'w> {
    backend: Backend,
    source: Source<'w>,
}

#[derive(Clone, Copy)]
enum Source<'w> {
    Service(&'w Metadata, &'w ServicePort),
    XBackend(&'w Metadata),
    /// With several Services.
    Extension(&'w ExtensionService),
}

impl<'w> Backends<'w> {
    pub(crate) fn new(world: &'w World, checked: CheckedBackends<'w>, layer_tls: LayerTls) -> Self {
        let likely = world.services.len().min(world.http_routes.len());
        Self {
            slices: Slices::new(world),
            pods: Pods::new(world),
            checked,
            ports: HashMap::with_capacity(likely),
            entries: Vec::with_capacity(likely),
            by_name: HashMap::with_capacity(likely),
            ca_bundles: CaBundles::default(),
            layer_tls,
            own_bundles: BTreeMap::new(),
            unfit: BTreeMap::new(),
        }
    }

    pub(crate) fn checked(&self) -> &CheckedBackends<'w> {
        &self.checked
    }

    pub(crate) fn unfit(&self, policy: usize) -> impl Iterator<Item = &String> {
        self.unfit.get(&policy).into_iter().flatten()
    }

    fn record_unfit(&mut self, policy: Option<usize>, at: &str, unfit: Vec<String>) {
        if let Some(policy) = policy
            && !unfit.is_empty()
        {
            let unfit = unfit.into_iter().map(|why| format!("{at}: {why}"));
            self.unfit.entry(policy).or_default().extend(unfit);
        }
    }

    pub(crate) fn bundles(&self) -> BTreeMap<&str, &TrustBundle> {
        let CheckedBackends {
            tls_policies,
            traffic_policies: _,
            backend_policies: _,
            x_backends,
        } = &self.checked;
        let mut bundles = tls_policies.bundles();
        let x_backend_bundles = x_backends.bundles();
        let own = self.own_bundles.values().map(AsRef::as_ref);
        let others = x_backend_bundles.chain(own);
        bundles.extend(others.map(|bundle| (bundle.name.as_str(), bundle)));
        bundles
    }

    pub(crate) fn resolve(
        &mut self,
        referrer: Referrer<'w>,
        reference: &'w BackendRef,
        traffic: Traffic,
        cx: &ResolveContext<'w, '_>,
    ) -> ResolvedRef<'w> {
        let is_x_backend = X_BACKENDS.is_named_by(reference.into());
        let expected = if is_x_backend { &X_BACKENDS } else { &SERVICES };
        let name = match expected.find(reference.into(), referrer, &cx.grants) {
            Ok(name) => name,
            Err(fault) => {
                return ResolvedRef {
                    policed: Vec::new(),
                    target: Err(fault),
                };
            }
        };
        if is_x_backend {
            return ResolvedRef {
                policed: vec![PolicedBackend::XBackend(name)],
                target: self.x_backend(name, reference.port, traffic),
            };
        }
        ResolvedRef {
            policed: self.policed(name, traffic.supports_tls_policies()),
            target: self.target(name, reference.port, traffic, cx),
        }
    }

    /// Returns one entry per kind of policy that targets the Service.
    fn policed<'n>(&self, service: BackendName<'n>, heeds_tls: bool) -> Vec<PolicedBackend<'n>> {
        let CheckedBackends {
            tls_policies,
            traffic_policies,
            backend_policies,
            x_backends: _,
        } = &self.checked;
        let mut policed = Vec::new();
        if heeds_tls && tls_policies.targets.has(Kind::Service, service) {
            policed.push(PolicedBackend::WithTls(service));
        }
        if traffic_policies.targets.has(Kind::Service, service) {
            policed.push(PolicedBackend::WithTraffic(service));
        }
        if backend_policies.targets.has(Kind::Service, service) {
            policed.push(PolicedBackend::WithSettings(service));
        }
        policed
    }

    fn target(
        &mut self,
        (namespace, name): BackendName<'w>,
        port: Option<i32>,
        traffic: Traffic,
        cx: &ResolveContext<'w, '_>,
    ) -> Result<BackendTarget, Grounds> {
        let Some(port) = port else {
            return Err(unsupported(format!(
                "port is missing; set the port of Service {namespace}/{name}"
            )));
        };
        let key = (namespace, name, port, traffic);
        let found = if let Some(found) = self.ports.get(&key) {
            found.clone()
        } else {
            let policy_settings = Connection::default();
            let found = self.find((namespace, name), port, traffic, &policy_settings, cx);
            self.ports.insert(key, found.clone());
            found
        };
        self.named_target(found)
    }

    fn named_target(&self, found: FoundPort) -> Result<BackendTarget, Grounds> {
        Ok(match found? {
            Ok(index) => {
                let entry = self.entries.get(index);
                BackendTarget::Backend(entry.map(|e| e.backend.name.clone()).unwrap_or_default())
            }
            Err(why) => BackendTarget::Refused(why),
        })
    }

    fn find(
        &mut self,
        (namespace, name): BackendName<'w>,
        port: i32,
        traffic: Traffic,
        connection: &Connection,
        cx: &ResolveContext<'w, '_>,
    ) -> FoundPort {
        let key = NamespacedName::new(namespace, name);
        let Some(service) = cx.world.services.get(namespace, name) else {
            let message = format!("Service {key} does not exist");
            return Err((Reason::BackendNotFound, message));
        };
        let port = service_port(&key, service, port, traffic)?;
        let policy = if traffic.supports_tls_policies() {
            let policies = &self.checked.tls_policies;
            policies.find((namespace, name), &port.name)
        } else {
            None
        };
        let tls = match (&connection.own_tls, policy) {
            (Some(own), _) => Some(&own.tls),
            (None, Some(Applied::Refused(why))) => return Ok(Err(why)),
            (None, Some(Applied::Tls(tls))) => Some(tls),
            (None, None) => None,
        };
        let policies = &self.checked.backend_policies;
        let applied = policies.applied(Kind::Service, (namespace, name), &port.name);
        let settings = applied.map(|(_, settings)| settings);
        let mut unfit = Vec::new();
        let backend = backend(
            service, port, traffic, tls, connection, settings, &mut unfit,
        )?;
        let at = format!("port {} of Service {key}", port.port);
        self.record_unfit(applied.map(|(policy, _)| policy), &at, unfit);
        if let Some(OwnTls { tls: _, bundle }) = &connection.own_tls {
            let name = bundle.name.clone();
            self.own_bundles.insert(name, Arc::clone(bundle));
        }
        let source = Source::Service(&service.metadata, port);
        Ok(Ok(self.add(BackendEntry { backend, source })))
    }

    /// Returns the index of the Backend. If it is known, keeps the known entry.
    fn add(&mut self, entry: BackendEntry<'w>) -> usize {
        if let Some(known) = self.by_name.get(&entry.backend.name) {
            return *known;
        }
        let index = self.entries.len();
        self.by_name.insert(entry.backend.name.clone(), index);
        self.entries.push(entry);
        index
    }

    fn entry(&self, name: &str) -> Option<&BackendEntry<'w>> {
        self.entries.get(*self.by_name.get(name)?)
    }

    /// `name` must come from [`Self::resolve`]. Does not cache endpoints: they use as much memory
    /// as everything else combined, and most Backends are in only one snapshot.
    pub(crate) fn named(
        &self,
        name: &str,
        cx: &mut ResolveContext<'w, '_>,
    ) -> Option<(&Backend, EndpointSet)> {
        let BackendEntry { backend, source } = self.entry(name)?;
        let name = backend.endpoints.clone();
        let endpoints = match source {
            Source::Service(service, port) => self.slices.endpoints(name, service, port, cx),
            Source::Extension(extension) => weighted::set(extension, cx.world, |service, port| {
                self.slices
                    .endpoints(String::new(), &service.metadata, port, cx)
            }),
            Source::XBackend(metadata) => {
                let object = (metadata.namespace.as_str(), metadata.name.as_str());
                let found = self.checked.x_backends.get(object);
                EndpointSet {
                    name,
                    endpoints: found.map_or_else(Vec::new, |found| self.pods.of(found, cx)),
                    ..EndpointSet::default()
                }
            }
        };
        Some((backend, endpoints))
    }

    /// Returns an empty name if the Backend does not exist or has no fallback.
    pub(crate) fn fallback_of(&self, name: &str) -> &str {
        let entry = self.entry(name);
        entry.map_or("", |entry| entry.backend.fallback.as_str())
    }

    /// Returns true if connections to the Backend use TLS with a verified certificate. `name` must come from [`Self::resolve`].
    pub(crate) fn is_encrypted(&self, name: &str) -> bool {
        let tls = self
            .entry(name)
            .and_then(|entry| entry.backend.tls.as_deref());
        tls.is_some_and(|tls| !tls.unverified)
    }

    /// Returns an empty key if the Backend does not exist.
    pub(crate) fn session_key(&self, name: &str) -> Vec<u8> {
        let entry = self.entry(name);
        entry.map_or_else(Vec::new, |entry| match entry.source {
            Source::Service(service, _) => session_key(Kind::Service, service),
            Source::XBackend(metadata) => session_key(Kind::XBackend, metadata),
            Source::Extension(extension) => {
                session_key(Kind::ExtensionService, &extension.metadata)
            }
        })
    }
}

/// Returns the key for the endpoint digests in persistent sessions.
///
/// All Gateways, hosts and revisions share the key, so sessions survive if any of these changes.
/// The UID makes the key unpredictable to clients. Objects from files usually have no UID, so their
/// keys can be guessed.
fn session_key(kind: Kind, object: &Metadata) -> Vec<u8> {
    let Metadata {
        namespace,
        name,
        uid,
        ..
    } = object;
    let text = format!("session persistence of {kind} {namespace}/{name} {uid}");
    Sha256::digest(text).to_vec()
}
