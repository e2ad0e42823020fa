//! Gateways of our classes, checked with their listeners and those of their ListenerSets. Routes are not known yet.

pub(crate) mod addresses;
pub(crate) mod classes;
pub(crate) mod service_request;

use std::ops::Range;

use self::addresses::GatewayAddresses;
use self::classes::{CheckedClass, Classes};
use crate::api::{
    Gateway, GatewayBackendTls, GatewaySpec, GatewayTls, Infrastructure, ListenerSet,
    NamespacedName, PublishingType,
};
use crate::resolve::context::ResolveContext;
use crate::resolve::listeners::sets::{self, CheckedListenerSet};
use crate::resolve::listeners::{self, CheckedListener, ListenerOwner, invalid, termination};
use crate::resolve::settings::GatewaySettings;
use crate::resolve::settings::parameters::{self, Parameters, Scope};
use crate::resolve::syntax::limits;
use crate::resolve::tls::ca_bundles::CaBundles;
use crate::resolve::tls::certificates::Certificates;
use crate::resolve::tls::client_validation::FrontendValidation;
use crate::status::{GOOD, Reason, Verdict};
use crate::world::Kind;

/// A Gateway of ours with everything that is known of it before routes attach.
pub(crate) struct CheckedGateway<'w> {
    pub(crate) owner: ListenerOwner<'w>,
    /// Its own listeners, then those of its ListenerSets.
    pub(crate) listeners: Vec<CheckedListener<'w>>,
    /// Its ListenerSets in their order of precedence.
    pub(crate) sets: Vec<CheckedListenerSet<'w>>,
    /// Number of listeners that are its own.
    own: usize,
    pub(crate) accepted: Verdict,
    /// Verdict on the references that belong to no listener.
    pub(crate) resolved: Verdict,
    pub(crate) addresses: GatewayAddresses,
    /// Addresses that a load balancer is asked for.
    pub(crate) load_balancer_addresses: Vec<String>,
    pub(crate) frontend: FrontendValidation,
    /// Name of the key that it shows to backends.
    pub(crate) client_key: Option<String>,
    pub(crate) settings: GatewaySettings,
    /// True if the settings lack parameters that are wrong.
    pub(crate) parameters_refused: bool,
    /// Messages about annotations that are not understood, so that the default applies.
    pub(crate) not_understood: Vec<String>,
}

/// The listeners of one parent of routes: of a Gateway itself or of one of its ListenerSets.
pub(crate) struct ParentListeners<'g, 'w> {
    pub(crate) owner: &'g ListenerOwner<'w>,
    /// The reason why the parent has no listeners on the Gateway, if that is so.
    pub(crate) refused: &'g Verdict,
    start: usize,
    listeners: &'g [CheckedListener<'w>],
}

impl<'g, 'w> ParentListeners<'g, 'w> {
    /// Returns the listeners with their places among all of the Gateway.
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (usize, &'g CheckedListener<'w>)> {
        (self.start..).zip(self.listeners)
    }
}

/// The objects that Gateways refer to, each read once.
pub(crate) struct ReferencedObjects<'a, 'w, 'c> {
    pub(crate) certificates: &'a mut Certificates<'w, 'c>,
    pub(crate) ca_bundles: &'a mut CaBundles<'w>,
}

/// Checks all Gateways of our classes, in the order of their names.
pub(crate) fn check_all<'w>(
    classes: &Classes<'w>,
    cx: &mut ResolveContext<'w, '_>,
    references: &mut ReferencedObjects<'_, 'w, '_>,
) -> Vec<CheckedGateway<'w>> {
    let world = cx.world;
    let sets = sets::by_gateway(world);
    world
        .gateways
        .iter()
        .filter_map(|gateway| {
            let class = classes.get(&gateway.spec.gateway_class_name)?;
            let metadata = &gateway.metadata;
            let sets = sets.get(&(metadata.namespace.as_str(), metadata.name.as_str()));
            let sets = sets.map(Vec::as_slice).unwrap_or_default();
            Some(check(gateway, class, sets, cx, references))
        })
        .collect()
}

/// Checks one Gateway of a class of ours.
// Long: each field of a Gateway in turn, so that none is forgotten.
fn check<'w>(
    gateway: &'w Gateway,
    class: &CheckedClass<'w>,
    sets: &[&'w ListenerSet],
    cx: &mut ResolveContext<'w, '_>,
    references: &mut ReferencedObjects<'_, 'w, '_>,
) -> CheckedGateway<'w> {
    let GatewaySpec {
        gateway_class_name,
        listeners,
        addresses,
        infrastructure,
        allowed_listeners,
        tls,
        default_scope,
    } = &gateway.spec;
    let owner = ListenerOwner::of(Kind::Gateway, &gateway.metadata);
    let mut accepted = Verdict::default();
    owner.check_object(&mut accepted);
    if let Some((reason, why)) = class.verdict.fault() {
        let message = format!("GatewayClass {gateway_class_name:?} is not accepted: {why}");
        accepted.refuse(reason, message);
    }
    let own = infrastructure.as_ref().map(|infrastructure| {
        // Labels and annotations are for what is created for the Gateway, not for what it serves.
        let Infrastructure {
            labels: _,
            annotations: _,
            parameters_ref,
        } = infrastructure;
        let field = "spec.infrastructure.parametersRef";
        let (reference, scope) = (parameters_ref.as_ref(), Scope::Of(owner.namespace));
        parameters::find(field, reference, scope, cx.world, &mut accepted)
    });
    let own = own.unwrap_or(Parameters::Absent);
    let parameters_refused = [class.parameters, own].contains(&Parameters::Refused);
    let of_controller = cx.options.configuration.as_deref();
    let layers: Vec<_> = of_controller
        .into_iter()
        .chain(class.parameters.valid())
        .chain(own.valid())
        .collect();
    let annotations = &gateway.metadata.annotations;
    let (settings, not_understood) = GatewaySettings::of(&layers, annotations);
    let too_many =
        limits::entries("spec.listeners", listeners.len(), 0..=limits::MAX_LISTENERS).err();
    accepted.refuse_if(Reason::Invalid, too_many);
    let mut addresses = GatewayAddresses::read(addresses, &mut accepted);
    let load_balancer_addresses = match settings.publishing_type() {
        PublishingType::LoadBalancer => addresses.take_for_load_balancer(),
        _ => Vec::new(),
    };
    let scope = default_scope.as_deref();
    if scope.is_some_and(|scope| scope != "None") {
        let message =
            "spec.defaultScope is not supported and has no effect; routes must name the Gateway";
        cx.problems.add(owner.key(), message.to_owned());
    }
    let mut resolved = Verdict::default();
    let GatewayTls { backend, frontend } = tls.as_ref().unwrap_or(&NO_TLS);
    let client_key = client_key(&owner, backend.as_ref(), &mut resolved, cx, references);
    let ports = frontend
        .as_ref()
        .map_or(0, |frontend| frontend.per_port.len());
    let too_many = limits::entries(
        "spec.tls.frontend.perPort",
        ports,
        0..=limits::MAX_FRONTEND_PORTS,
    )
    .err();
    let frontend = frontend.as_ref().filter(|_| too_many.is_none());
    accepted.refuse_if(Reason::Invalid, too_many);
    let frontend =
        FrontendValidation::resolve(owner.referrer(), frontend, references.ca_bundles, cx);
    // Each of too many would name all the others in what it says.
    let looked_at = listeners.get(..limits::MAX_LISTENERS).unwrap_or(listeners);
    let mut listeners = listeners::check(&owner, 0, looked_at);
    let own = listeners.len();
    let sets = sets::check(&owner, allowed_listeners.as_ref(), sets, &mut listeners, cx);
    let of_sets: Vec<(&str, Range<usize>)> = sets
        .iter()
        .map(|set| (set.owner.namespace, set.range.clone()))
        .collect();
    settings.ports.refuse(&mut listeners);
    listeners::compare(&mut listeners, own, &of_sets);
    let objects = std::iter::once((&owner, 0..own))
        .chain(sets.iter().map(|set| (&set.owner, set.range.clone())));
    for (owner, range) in objects {
        for listener in listeners.get_mut(range).unwrap_or_default() {
            termination::resolve(owner, listener, &frontend, cx, references.certificates);
        }
    }
    CheckedGateway {
        owner,
        listeners,
        sets,
        own,
        accepted,
        resolved,
        addresses,
        load_balancer_addresses,
        frontend,
        client_key,
        settings,
        parameters_refused,
        not_understood,
    }
}

/// Returns the name of the key that the Gateway shows to backends; a bad reference is told in `resolved`.
fn client_key<'w>(
    owner: &ListenerOwner<'w>,
    backend: Option<&'w GatewayBackendTls>,
    resolved: &mut Verdict,
    cx: &ResolveContext<'w, '_>,
    references: &mut ReferencedObjects<'_, 'w, '_>,
) -> Option<String> {
    let GatewayBackendTls {
        client_certificate_ref,
    } = backend?;
    let reference = client_certificate_ref.as_ref()?;
    let (key, fault) = match references.certificates.get(owner.referrer(), reference, cx) {
        Ok(usable) => (Some(usable.certificate.key.name.clone()), usable.fault),
        Err(fault) => (None, Some(fault)),
    };
    if let Some((reason, why)) = fault {
        let reason = match reason {
            Reason::RefNotPermitted => reason,
            _ => Reason::InvalidClientCertificateRef,
        };
        resolved.refuse(
            reason,
            format!("spec.tls.backend.clientCertificateRef: {why}"),
        );
    }
    key
}

impl<'w> CheckedGateway<'w> {
    pub(crate) fn name(&self) -> NamespacedName {
        NamespacedName::new(self.owner.namespace, self.owner.name)
    }

    /// Returns the listeners that are its own.
    pub(crate) fn own_listeners(&self) -> &[CheckedListener<'w>] {
        self.listeners.get(..self.own).unwrap_or_default()
    }

    /// Returns the listeners of one of its ListenerSets.
    pub(crate) fn listeners_of(&self, set: &CheckedListenerSet<'_>) -> &[CheckedListener<'w>] {
        self.listeners.get(set.range.clone()).unwrap_or_default()
    }

    /// Returns the listeners of the ListenerSet at this place, or those of the Gateway itself.
    pub(crate) fn parent_listeners(&self, set: Option<usize>) -> ParentListeners<'_, 'w> {
        let (owner, refused, range) = match set.and_then(|set| self.sets.get(set)) {
            Some(set) => (&set.owner, &set.refused, set.range.clone()),
            None => (&self.owner, &GOOD, 0..self.own),
        };
        ParentListeners {
            owner,
            refused,
            start: range.start,
            listeners: self.listeners.get(range).unwrap_or_default(),
        }
    }

    /// Returns true if the listener at this place terminates TLS.
    pub(crate) fn terminates_tls(&self, listener: usize) -> bool {
        let listener = self.listeners.get(listener);
        listener.is_some_and(|listener| listener.tls.is_some())
    }

    /// Returns the listeners that its conditions speak of: its own, or all where it has none.
    pub(crate) fn answers_for(&self) -> &[CheckedListener<'w>] {
        if self.own == 0 {
            &self.listeners
        } else {
            self.own_listeners()
        }
    }

    /// Returns the verdict on the Gateway as a whole, its own listeners included: it answers for no others.
    pub(crate) fn verdict(&self) -> Verdict {
        let mut verdict = self.accepted.clone();
        let own = self.answers_for();
        if !own.iter().any(|listener| listener.accepted.good()) {
            let message = if own.is_empty() {
                "spec.listeners is empty; at least one is needed, here or in a ListenerSet"
                    .to_owned()
            } else {
                format!("no listener is valid: {}", invalid(own))
            };
            verdict.refuse(Reason::ListenersNotValid, message);
        }
        verdict
    }
}

static NO_TLS: GatewayTls = GatewayTls {
    backend: None,
    frontend: None,
};
