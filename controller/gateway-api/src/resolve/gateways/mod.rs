//! Each Gateway of ours: what is wrong with it, its listeners and those of its ListenerSets, its snapshot.

pub(crate) mod addresses;
pub(crate) mod classes;
pub(crate) mod edge;

use std::collections::BTreeSet;
use std::ops::Range;

use sesame_proto::schema;

use self::addresses::Addresses;
use self::classes::Classes;
use crate::api::{
    Gateway, GatewayBackendTls, GatewaySpec, GatewayTls, Infrastructure, ListenerSet,
    NamespacedName,
};
use crate::resolve::ResolvedGateway;
use crate::resolve::backends::Backends;
use crate::resolve::context::Context;
use crate::resolve::listeners::sets::{self, SetState};
use crate::resolve::listeners::termination;
use crate::resolve::listeners::{self, ListenerState, Owner};
use crate::resolve::routes::Routes;
use crate::resolve::syntax::names;
use crate::resolve::tables;
use crate::resolve::tables::reached;
use crate::resolve::tables::shadowed::Shadowed;
use crate::resolve::tls::ca_bundles::CaBundles;
use crate::resolve::tls::certificates::Certificates;
use crate::resolve::tls::client_validation::FrontendValidation;
use crate::status::{Reason, Verdict};
use crate::world::Kind;

/// What the API's schema allows. What is beyond is refused, and not looked at.
const MAX_LISTENERS: usize = 64;
const MAX_FRONTEND_PORTS: usize = 64;

/// The message of Programmed until a host says more.
pub(crate) const WAITING: &str = "waiting for an agent to report";

/// A judged Gateway.
pub(crate) struct GatewayState<'w> {
    pub(crate) owner: Owner<'w>,
    /// Its own, then those of its ListenerSets.
    pub(crate) listeners: Vec<ListenerState<'w>>,
    /// In their order of precedence.
    pub(crate) sets: Vec<SetState<'w>>,
    /// How many of the listeners are its own.
    own: usize,
    pub(crate) accepted: Verdict,
    /// References that belong to no listener.
    pub(crate) resolved: Verdict,
    pub(crate) addresses: Addresses,
    pub(crate) frontend: FrontendValidation,
    /// The name of the key that it shows to backends.
    client_key: Option<String>,
    /// What differs from the edge defaults.
    edge: Option<schema::Edge>,
    /// What was asked for in their place and is not understood.
    pub(crate) not_understood: Vec<String>,
}

/// The listeners of a Gateway itself or of one of its ListenerSets.
pub(crate) struct Owned<'g, 'w> {
    owner: &'g Owner<'w>,
    /// Why the object has no listeners on the Gateway.
    pub(crate) refused: &'g Verdict,
    start: usize,
    pub(crate) listeners: &'g [ListenerState<'w>],
}

impl<'g, 'w> Owned<'g, 'w> {
    /// With their places among all listeners of the Gateway.
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (usize, &'g ListenerState<'w>)> {
        (self.start..).zip(self.listeners)
    }

    /// For people: `Gateway namespace/name`.
    pub(crate) fn name(&self) -> String {
        let Owner {
            kind,
            namespace,
            name,
            generation: _,
            unknown: _,
        } = self.owner;
        format!("{kind} {namespace}/{name}")
    }
}

impl<'w> GatewayState<'w> {
    /// Judges one Gateway; none if its class is not ours.
    pub(crate) fn judge(
        gateway: &'w Gateway,
        classes: &Classes<'w>,
        sets: &[&'w ListenerSet],
        cx: &mut Context<'w, '_>,
        certificates: &mut Certificates<'w, '_>,
        ca_bundles: &mut CaBundles<'w>,
    ) -> Option<Self> {
        let GatewaySpec {
            gateway_class_name,
            listeners,
            addresses,
            infrastructure,
            allowed_listeners,
            tls,
            default_scope,
        } = &gateway.spec;
        let class = classes.get(gateway_class_name)?;
        let owner = Owner {
            kind: Kind::Gateway,
            namespace: &gateway.metadata.namespace,
            name: &gateway.metadata.name,
            generation: gateway.metadata.generation,
            unknown: &gateway.metadata.unknown,
        };
        let mut accepted = Verdict::default();
        if let Some(why) = owner.unknown.refusal("listeners") {
            accepted.refuse(Reason::UnsupportedValue, why);
        }
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
        let (edge, not_understood) = edge::read(&gateway.metadata.annotations);
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
        let mut client_key = None;
        if let Some(GatewayBackendTls {
            client_certificate_ref: Some(reference),
        }) = backend
        {
            let fault;
            match certificates.get(owner.referrer(), reference, cx) {
                Ok(usable) => {
                    client_key = Some(usable.certificate.key.name.clone());
                    fault = usable.fault;
                }
                Err(why) => fault = Some(why),
            }
            if let Some(fault) = fault {
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
        let mut listeners = listeners::judge(&owner, 0, listeners);
        let own = listeners.len();
        let sets = sets::judge(&owner, allowed_listeners.as_ref(), sets, &mut listeners, cx);
        let of_sets: Vec<(&str, Range<usize>)> = sets
            .iter()
            .map(|set| (set.owner.namespace, set.range.clone()))
            .collect();
        listeners::compare(&mut listeners, own, &of_sets);
        let objects = std::iter::once((&owner, 0..own))
            .chain(sets.iter().map(|set| (&set.owner, set.range.clone())));
        for (owner, range) in objects {
            for listener in listeners.get_mut(range).unwrap_or_default() {
                termination::resolve(owner, listener, &frontend, cx, certificates);
            }
        }
        Some(Self {
            owner,
            listeners,
            sets,
            own,
            accepted,
            resolved,
            addresses,
            frontend,
            client_key,
            edge,
            not_understood,
        })
    }

    /// The listeners of its ListenerSet, or its own.
    pub(crate) fn owned(&self, set: Option<usize>) -> Owned<'_, 'w> {
        let (owner, refused, range) = match set.and_then(|set| self.sets.get(set)) {
            Some(set) => (&set.owner, &set.refused, set.range.clone()),
            None => (&self.owner, &GOOD, 0..self.own),
        };
        Owned {
            owner,
            refused,
            start: range.start,
            listeners: self.listeners.get(range).unwrap_or_default(),
        }
    }

    /// What is wrong with the Gateway as a whole, its own listeners included: it answers for no others.
    pub(crate) fn verdict(&self) -> Verdict {
        let mut verdict = self.accepted.clone();
        let own = self.answers_for();
        if !own.iter().any(|listener| listener.accepted.good()) {
            let message = if own.is_empty() {
                "spec.listeners is empty; at least one is needed, here or in a ListenerSet"
                    .to_owned()
            } else {
                format!("no listener is valid: {}", sets::invalid(own))
            };
            verdict.refuse(Reason::ListenersNotValid, message);
        }
        verdict
    }

    /// The listeners that its conditions speak of: its own, or all where it has none.
    pub(crate) fn answers_for(&self) -> &[ListenerState<'w>] {
        if self.own == 0 {
            &self.listeners
        } else {
            self.owned(None).listeners
        }
    }

    /// The snapshot and its keys; none if the Gateway is not accepted, or has no address to be served on.
    pub(crate) fn snapshot(
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
        let mut tables = tables::build(&served, routes, shadowed, &mut cx.displaced);
        let reached = reached::backends(&mut tables, self.client_key.as_deref(), backends, cx);
        let tables::Served {
            ports,
            route_tables,
        } = tables;

        let tls = || {
            ports
                .iter()
                .flat_map(|port| &port.listeners)
                .filter_map(|listener| listener.tls.as_ref())
        };
        let upstream = || reached.backends.iter().filter_map(|b| b.tls.as_ref());
        let keys: BTreeSet<&str> = tls()
            .flat_map(|tls| &tls.keys)
            .chain(upstream().map(|tls| &tls.client_key))
            .map(String::as_str)
            .collect();
        let certificates: Vec<_> = keys
            .into_iter()
            .filter_map(|name| certificates.named(name))
            .collect();
        // Bundles of the same references are the same.
        let mut bundles = backends.policies().bundles();
        bundles.extend(self.frontend.bundles());
        let used: BTreeSet<&str> = tls()
            .map(|tls| tls.client_trust_bundle.as_str())
            .chain(upstream().map(|tls| tls.trust_bundle.as_str()))
            .collect();
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
                backends: reached.backends,
                endpoints: reached.endpoints,
                edge: self.edge,
            },
            keys: certificates
                .iter()
                .map(|certificate| (*certificate.pair).clone())
                .collect(),
            gateway,
        })
    }
}

static NO_TLS: GatewayTls = GatewayTls {
    backend: None,
    frontend: None,
};
/// Nothing wrong.
pub(crate) static GOOD: Verdict = Verdict::good_one();
