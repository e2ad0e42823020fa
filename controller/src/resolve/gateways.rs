//! Each Gateway of ours: what is wrong with it, its listeners, its status, its snapshot.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema;

use super::ResolvedGateway;
use super::addresses::Addresses;
use super::backends::Backends;
use super::ca_bundles::CaBundles;
use super::certificates::Certificates;
use super::classes::Classes;
use super::context::Context;
use super::frontend_tls::FrontendValidation;
use super::listeners::{self, ListenerState, Owner};
use super::names;
use super::routes::Routes;
use super::shadowed::Shadowed;
use super::tables;
use crate::api::{
    Gateway, GatewayBackendTls, GatewaySpec, GatewayTls, Infrastructure, NamespacedName,
};
use crate::status::{Condition, ConditionStatus, ConditionType, GatewayStatus, Reason, Verdict};
use crate::world::Kind;

/// What the API's schema allows. What is beyond is refused, and not looked at.
const MAX_LISTENERS: usize = 64;
const MAX_FRONTEND_PORTS: usize = 64;

/// The message of Programmed until a host says more.
pub(super) const WAITING: &str = "waiting for an agent to report";

/// A judged Gateway.
pub(super) struct GatewayState<'w> {
    pub(super) owner: Owner<'w>,
    pub(super) listeners: Vec<ListenerState<'w>>,
    accepted: Verdict,
    /// References that belong to no listener.
    resolved: Verdict,
    addresses: Addresses,
    frontend: FrontendValidation,
}

impl<'w> GatewayState<'w> {
    /// Judges one Gateway; none if its class is not ours.
    pub(super) fn judge(
        gateway: &'w Gateway,
        classes: &Classes<'w>,
        cx: &mut Context<'w, '_>,
        certificates: &mut Certificates<'w, '_>,
        ca_bundles: &mut CaBundles<'w>,
    ) -> Option<Self> {
        let GatewaySpec {
            gateway_class_name,
            listeners,
            addresses,
            infrastructure,
            // For ListenerSets, which are judged apart.
            allowed_listeners: _,
            tls,
            default_scope,
        } = &gateway.spec;
        let class = classes.get(gateway_class_name)?;
        let owner = Owner {
            kind: Kind::Gateway,
            namespace: &gateway.metadata.namespace,
            name: &gateway.metadata.name,
            generation: gateway.metadata.generation,
        };
        let mut accepted = Verdict::default();
        if let Err(why) = names::check_object(owner.namespace, owner.name) {
            accepted.refuse(Reason::Invalid, format!("metadata: {why}"));
        }
        if let Some((reason, why)) = class.fault() {
            accepted.refuse(
                reason,
                format!("GatewayClass {gateway_class_name:?} is not accepted: {why}"),
            );
        }
        // Labels and annotations are for what is created for the Gateway, not for what it serves.
        if let Some(Infrastructure {
            parameters_ref: Some(parameters),
            labels: _,
            annotations: _,
        }) = infrastructure
        {
            accepted.refuse(
                Reason::InvalidParameters,
                format!(
                    "spec.infrastructure.parametersRef names {} {:?}, but no parameters are supported; remove it",
                    parameters.kind.as_deref().unwrap_or_default(),
                    parameters.name
                ),
            );
        }
        if listeners.len() > MAX_LISTENERS {
            accepted.refuse(
                Reason::Invalid,
                format!(
                    "spec.listeners has {} entries; at most {MAX_LISTENERS} are allowed",
                    listeners.len()
                ),
            );
        }
        let addresses = Addresses::read(addresses, &mut accepted);
        if default_scope
            .as_deref()
            .is_some_and(|scope| scope != "None")
        {
            cx.problems.add(
                owner.key(),
                "spec.defaultScope is not supported and has no effect; routes must name the Gateway".to_owned(),
            );
        }
        let mut resolved = Verdict::default();
        let GatewayTls { backend, frontend } = tls.as_ref().unwrap_or(&NO_TLS);
        if let Some(GatewayBackendTls {
            client_certificate_ref: Some(reference),
        }) = backend
            && let Err(fault) = certificates.get(owner.referrer(), reference, cx)
        {
            let reason = if fault.not_permitted {
                Reason::RefNotPermitted
            } else {
                Reason::InvalidClientCertificateRef
            };
            resolved.refuse(
                reason,
                format!("spec.tls.backend.clientCertificateRef: {}", fault.message),
            );
        }
        if let Some(count) = frontend.as_ref().map(|frontend| frontend.per_port.len())
            && count > MAX_FRONTEND_PORTS
        {
            accepted.refuse(
                Reason::Invalid,
                format!("spec.tls.frontend.perPort has {count} entries; at most {MAX_FRONTEND_PORTS} are allowed"),
            );
        }
        let frontend = frontend
            .as_ref()
            .filter(|frontend| frontend.per_port.len() <= MAX_FRONTEND_PORTS);
        let frontend = FrontendValidation::resolve(&owner, frontend, ca_bundles, cx);
        // Each of too many would name all the others in what it says.
        let listeners = listeners.get(..MAX_LISTENERS).unwrap_or(listeners);
        let listeners = listeners::judge(&owner, listeners, &frontend, cx, certificates);
        Some(Self {
            owner,
            listeners,
            accepted,
            resolved,
            addresses,
            frontend,
        })
    }

    /// What is wrong with the Gateway as a whole, its listeners included.
    fn verdict(&self) -> Verdict {
        let mut verdict = self.accepted.clone();
        if !self
            .listeners
            .iter()
            .any(|listener| listener.accepted.good())
        {
            let message = if self.listeners.is_empty() {
                "spec.listeners is empty; at least one is needed".to_owned()
            } else {
                format!("no listener is valid: {}", self.invalid_listeners())
            };
            verdict.refuse(Reason::ListenersNotValid, message);
        }
        verdict
    }

    fn invalid_listeners(&self) -> String {
        let faults: Vec<String> = self
            .listeners
            .iter()
            .filter_map(|listener| {
                let (_, message) = listener.accepted.fault()?;
                Some(format!("listener {:?}: {message}", listener.spec.name))
            })
            .collect();
        faults.join("; ")
    }

    pub(super) fn status(&self) -> GatewayStatus {
        let generation = self.owner.generation;
        let verdict = self.verdict();
        let condition = |type_, status, reason, message: &str| {
            Condition::new(type_, status, reason, message, generation)
        };
        let accepted = if verdict.good() && self.listeners.iter().any(|l| !l.accepted.good()) {
            condition(
                ConditionType::Accepted,
                ConditionStatus::True,
                Reason::ListenersNotValid,
                &format!(
                    "served without its invalid listeners: {}",
                    self.invalid_listeners()
                ),
            )
        } else {
            verdict.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                "the Gateway is valid",
                generation,
            )
        };
        let programmed = if let Some((_, message)) = verdict.fault() {
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                Reason::Invalid,
                message,
            )
        } else if let Some((reason, message)) = self.addresses.unusable.fault() {
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                reason,
                message,
            )
        } else if self.listeners.iter().any(ListenerState::served) {
            condition(
                ConditionType::Programmed,
                ConditionStatus::Unknown,
                Reason::Pending,
                WAITING,
            )
        } else {
            condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                Reason::Invalid,
                "no listener can be served; see status.listeners",
            )
        };
        let mut resolved = self.resolved.clone();
        for listener in &self.listeners {
            if let Some((_, message)) = listener.resolved.fault() {
                resolved.refuse(
                    Reason::ListenersNotResolved,
                    format!("listener {:?}: {message}", listener.spec.name),
                );
            }
        }
        let mut conditions = vec![
            accepted,
            programmed,
            resolved.condition(
                ConditionType::ResolvedRefs,
                Reason::ResolvedRefs,
                "all references are resolved",
                generation,
            ),
        ];
        if self.frontend.insecure {
            conditions.push(condition(
                ConditionType::InsecureFrontendValidationMode,
                ConditionStatus::True,
                Reason::ConfigurationChanged,
                "spec.tls.frontend allows clients without a valid certificate (AllowInsecureFallback)",
            ));
        }
        // Listeners of a Gateway that is refused as a whole are not served either.
        let own = if !self.accepted.good() {
            &self.accepted
        } else if self.addresses.nowhere() {
            &self.addresses.unusable
        } else {
            &GOOD
        };
        GatewayStatus {
            addresses: Vec::new(),
            conditions,
            listeners: self
                .listeners
                .iter()
                .map(|l| l.status(generation, own))
                .collect(),
            attached_listener_sets: 0,
        }
    }

    /// The snapshot and its keys; none if the Gateway is not accepted, or has no address to be served on.
    pub(super) fn snapshot(
        &self,
        routes: &Routes,
        backends: &mut Backends<'w>,
        certificates: &Certificates<'w, '_>,
        shadowed: &mut Shadowed,
        cx: &mut Context<'w, '_>,
    ) -> Option<ResolvedGateway> {
        if !self.verdict().good() || self.addresses.nowhere() {
            return None;
        }
        let served: Vec<&ListenerState<'w>> =
            self.listeners.iter().filter(|l| l.served()).collect();
        let tables::Served {
            ports,
            route_tables,
        } = tables::build(&served, routes, shadowed);

        let mut names = BTreeSet::new();
        for table in &route_tables {
            tables::backends_of(table, &mut names);
        }
        let l4_routes = ports
            .iter()
            .flat_map(|port| &port.listeners)
            .flat_map(|listener| &listener.l4_routes);
        for backend in l4_routes.flat_map(|route| &route.backends) {
            if !backend.backend.is_empty() {
                names.insert(backend.backend.as_str());
            }
        }
        let mut resolved_backends = Vec::with_capacity(names.len());
        let mut endpoints = BTreeMap::new();
        for name in names {
            if let Some((backend, set)) = backends.named(name, cx) {
                endpoints.insert(set.name.clone(), set.clone());
                resolved_backends.push(backend.clone());
            }
        }

        let tls = || {
            ports
                .iter()
                .flat_map(|port| &port.listeners)
                .filter_map(|listener| listener.tls.as_ref())
        };
        let keys: BTreeSet<&str> = tls()
            .flat_map(|tls| &tls.keys)
            .map(String::as_str)
            .collect();
        let certificates: Vec<_> = keys
            .into_iter()
            .filter_map(|name| certificates.named(name))
            .collect();
        let bundles = self.frontend.bundles();
        let used: BTreeSet<&str> = tls().map(|tls| tls.client_trust_bundle.as_str()).collect();
        let trust_bundles = used
            .into_iter()
            .filter_map(|name| bundles.get(name))
            .map(|b| (*b).clone())
            .collect();

        let gateway = NamespacedName::new(self.owner.namespace, self.owner.name);
        Some(ResolvedGateway {
            snapshot: schema::Snapshot {
                gateway: self.owner.key().to_string(),
                addresses: self.addresses.usable.clone(),
                keys: certificates
                    .iter()
                    .map(|certificate| certificate.key.clone())
                    .collect(),
                trust_bundles,
                ports,
                route_tables,
                backends: resolved_backends,
                endpoints: endpoints.into_values().collect(),
            },
            keys: certificates
                .iter()
                .map(|certificate| certificate.pair.clone())
                .collect(),
            gateway,
        })
    }
}

static NO_TLS: GatewayTls = GatewayTls {
    backend: None,
    frontend: None,
};
static GOOD: Verdict = Verdict::good_one();
