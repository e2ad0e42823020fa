//! Checks the Gateways that use a Sesame class, and the listeners in their ListenerSets. Listeners
//! that share Envoy instances are compared with each other. Routes are attached later.

pub(crate) mod addresses;
pub(crate) mod classes;
mod client_key;
mod collectors;
mod envoys;
mod features;
mod gateway_policies;
pub(crate) mod log_output;
pub(crate) mod merged;
pub(crate) mod mesh;
pub(crate) mod mesh_policies;
pub(crate) mod mesh_trust;
pub(crate) mod ocg_bundles;
mod own_settings;
mod parent_listeners;
pub(crate) mod publishing;
pub(crate) mod service_request;
pub(crate) mod single;
pub(crate) mod telemetry_policies;
mod terminate;
pub(crate) mod tracing;

use std::collections::BTreeMap;

use self::addresses::GatewayAddresses;
use self::classes::{CheckedClass, Classes};
use self::log_output::GatewayLog;
use self::mesh::CheckedMesh;
use self::mesh_policies::MeshPolicies;
use self::own_settings::OwnSettings;
pub(crate) use self::parent_listeners::ParentListeners;
use self::telemetry_policies::TelemetryPolicies;
use self::tracing::GatewayTracing;
use crate::backends::Backends;
use crate::context::ResolveContext;
use crate::listeners::implicit::ImplicitListeners;
use crate::listeners::sets::{self, CheckedListenerSet, ListenerSource};
use crate::listeners::{
    self, CheckedListener, ComparedGateway, ListenerOwner, UncoveredHostnames, invalid,
};
use crate::policies::traffic::{LimitCounts, TrafficPolicies};
use crate::settings::ports::{self, Socket};
use crate::settings::{GatewaySettings, OnPort};
use crate::syntax::limits;
use crate::tls::ca_bundles::CaBundles;
use crate::tls::certificates::Certificates;
use crate::tls::client_validation::FrontendValidation;
use sesame_kinds::api::{
    Gateway, GatewaySpec, GatewayTls, Metadata, NamespacedName, PublishingType,
};
use sesame_kinds::status::{GOOD, GatewayStatus, Reason, Verdict};
use sesame_kinds::world::{Kind, ObjectKey};

pub(crate) struct CheckedGateway<'w> {
    pub(crate) owner: ListenerOwner<'w>,
    pub(crate) metadata: &'w Metadata,
    pub(crate) class: &'w str,
    /// `None` if the Gateway is published separately.
    pub(crate) merged: Option<NamespacedName>,
    /// The Gateway's own listeners come first.
    pub(crate) listeners: Vec<CheckedListener<'w>>,
    /// In order of precedence.
    pub(crate) sets: Vec<CheckedListenerSet<'w>>,
    own: usize,
    pub(crate) most_limits: LimitCounts,
    /// `None` if the listeners' filters differ.
    pub(crate) filters: Option<sesame_proto::schema::RequestFilters>,
    pub(crate) accepted: Verdict,
    /// Errors in the Gateway's references, excluding references in listeners.
    pub(crate) resolved: Verdict,
    pub(crate) addresses: GatewayAddresses,
    pub(crate) load_balancer_addresses: Vec<String>,
    pub(crate) frontend: FrontendValidation,
    pub(crate) client_key: Option<String>,
    pub(crate) mesh: Option<CheckedMesh<'w>>,
    pub(crate) tracing: GatewayTracing<'w>,
    pub(crate) log: GatewayLog<'w>,
    pub(crate) settings: GatewaySettings,
    /// True if `settings` omits invalid parameters.
    pub(crate) parameters_refused: bool,
    pub(crate) not_understood: Vec<String>,
    /// On error, a merged Gateway uses the class's settings, limited to the ports already served.
    pub(crate) passed_over: Verdict,
}

pub(crate) struct ReferencedObjects<'a, 'w, 'c> {
    pub(crate) certificates: &'a mut Certificates<'w, 'c>,
    pub(crate) ca_bundles: &'a mut CaBundles<'w>,
    pub(crate) mesh_policies: &'a MeshPolicies<'w>,
    pub(crate) telemetry_policies: &'a TelemetryPolicies<'w>,
    pub(crate) traffic_policies: &'a TrafficPolicies<'w>,
    pub(crate) backends: &'a mut Backends<'w>,
}

pub(crate) fn check_all<'w>(
    classes: &Classes<'w>,
    unserved: &BTreeMap<NamespacedName, GatewayStatus>,
    implicit: &'w [ImplicitListeners<'w>],
    cx: &mut ResolveContext<'w, '_>,
    references: &mut ReferencedObjects<'_, 'w, '_>,
) -> Vec<CheckedGateway<'w>> {
    let world = cx.world;
    let sets = sets::by_gateway(world, implicit);
    let mut checked: Vec<CheckedGateway<'w>> = world
        .gateways
        .iter()
        .filter(|gateway| !unserved.contains_key(&gateway.metadata.key()))
        .filter_map(|gateway| {
            let class = classes.get(&gateway.spec.gateway_class_name)?;
            let metadata = &gateway.metadata;
            let sets = sets.get(&(metadata.namespace.as_str(), metadata.name.as_str()));
            let sets = sets.map(Vec::as_slice).unwrap_or_default();
            let mut accepted = Verdict::default();
            merged::check_name(&metadata.key(), classes, cx.options, &mut accepted);
            Some(check(gateway, class, sets, accepted, cx, references))
        })
        .collect();
    let mut ordered = merged::by_order(&mut checked, CheckedGateway::comparison_key);
    for together in ordered.chunk_by_mut(|a, b| a.comparison_key() == b.comparison_key()) {
        compare(together);
    }
    for gateway in &mut checked {
        gateway.collect(cx, references);
        gateway.terminate(cx, references);
        gateway.report_http3();
    }
    let mut ordered = merged::by_order(&mut checked, CheckedGateway::comparison_key);
    for together in ordered.chunk_by_mut(|a, b| a.comparison_key() == b.comparison_key()) {
        let compared = together.iter_mut();
        let compared = compared.map(|it| (it.owner.display(), it.listeners.as_mut_slice()));
        listeners::compare_certificates(&mut compared.collect::<Vec<_>>());
    }
    let mut ordered = merged::by_order(&mut checked, CheckedGateway::snapshot_key);
    for together in ordered.chunk_by_mut(|a, b| a.snapshot_key() == b.snapshot_key()) {
        let all = together.iter_mut().flat_map(|it| {
            let is_accepted = it.accepted.good();
            it.listeners
                .iter_mut()
                .map(move |listener| (listener, is_accepted))
        });
        listeners::hold(&mut all.collect::<Vec<_>>());
    }
    checked
}

fn compare(together: &mut [&mut CheckedGateway<'_>]) {
    let listeners = together.iter().flat_map(|it| &it.listeners);
    let used: Vec<Socket> = listeners.filter_map(ports::socket).collect();
    let mut compared = Vec::with_capacity(together.len());
    for gateway in together {
        let CheckedGateway {
            owner,
            listeners,
            sets,
            own,
            settings,
            ..
        } = &mut **gateway;
        settings.ports.refuse(listeners, &used);
        let sets = sets.iter();
        compared.push(ComparedGateway {
            name: owner.display(),
            namespace: owner.namespace,
            listeners,
            own: *own,
            sets: sets
                .map(|set| {
                    // All HTTPProxies need the fallback listener, so no tenant's share limits it.
                    let payer = if set.is_fallback { &*owner } else { &set.owner };
                    (payer.namespace, set.range.clone())
                })
                .collect(),
        });
    }
    listeners::compare(&mut compared);
}

#[expect(
    clippy::too_many_lines,
    reason = "it destructures every field of a Gateway, so that none is forgotten"
)]
fn check<'w>(
    gateway: &'w Gateway,
    class: &CheckedClass<'w>,
    sets: &[ListenerSource<'w>],
    mut accepted: Verdict,
    cx: &mut ResolveContext<'w, '_>,
    references: &mut ReferencedObjects<'_, 'w, '_>,
) -> CheckedGateway<'w> {
    let GatewaySpec {
        gateway_class_name,
        listeners,
        addresses,
        // `OwnSettings` reads the parameters.
        infrastructure: _,
        allowed_listeners,
        tls,
        // Checked together with policies that can replace the mesh settings.
        mesh: _,
        default_scope,
    } = &gateway.spec;
    let owner = ListenerOwner::of(Kind::Gateway, &gateway.metadata);
    owner.check_object(&mut accepted);
    if let Some((reason, why)) = class.verdict.fault() {
        let message = format!("GatewayClass {gateway_class_name:?} is not accepted: {why}");
        accepted.refuse(reason, message);
    }
    let OwnSettings {
        settings,
        not_understood,
        parameters_refused,
        merged,
        passed_over,
    } = OwnSettings::find(gateway, class, sets, &mut accepted, cx);
    let too_many =
        limits::entries("spec.listeners", listeners.len(), 0..=limits::MAX_LISTENERS).err();
    accepted.refuse_if(Reason::Invalid, too_many);
    // Merged Gateways do not have their own addresses.
    let addresses = if merged.is_some() {
        &[]
    } else {
        addresses.as_slice()
    };
    let mut addresses = GatewayAddresses::read(addresses, &mut accepted);
    let load_balancer_addresses = match settings.publishing_type() {
        PublishingType::LoadBalancer | PublishingType::UpstreamGateway => {
            addresses.take_for_load_balancer()
        }
        _ => Vec::new(),
    };
    let scope = default_scope.as_deref();
    if scope.is_some_and(|scope| scope != "None") {
        let message =
            "spec.defaultScope is not supported and has no effect; routes must name the Gateway";
        cx.problems.add(owner.key(), message.to_owned());
    }
    let mut resolved = Verdict::default();
    let GatewayTls {
        backend: _,
        frontend,
    } = tls.as_ref().unwrap_or(&NO_TLS);
    let client_key = client_key::find(gateway, &owner, &mut resolved, cx, references);
    let mesh = mesh::check(
        gateway,
        client_key.as_deref(),
        references.mesh_policies,
        references.ca_bundles,
        cx,
    );
    let number = frontend.as_ref().map_or(0, |it| it.per_port.len());
    let too_many = limits::entries(
        "spec.tls.frontend.perPort",
        number,
        0..=limits::MAX_FRONTEND_PORTS,
    )
    .err();
    let frontend = frontend.as_ref().filter(|_| too_many.is_none());
    accepted.refuse_if(Reason::Invalid, too_many);
    let frontend =
        FrontendValidation::resolve(owner.referrer(), frontend, references.ca_bundles, cx);
    // Ignore excess listeners, because each conflict message could otherwise list all of them.
    let looked_at = listeners.get(..limits::MAX_LISTENERS).unwrap_or(listeners);
    let mut listeners = listeners::check(&owner, 0, looked_at);
    let own = listeners.len();
    let sets = sets::check(&owner, allowed_listeners.as_ref(), sets, &mut listeners, cx);
    CheckedGateway {
        owner,
        metadata: &gateway.metadata,
        class: gateway_class_name,
        merged,
        listeners,
        sets,
        own,
        most_limits: LimitCounts::default(),
        filters: None,
        accepted,
        resolved,
        addresses,
        load_balancer_addresses,
        frontend,
        client_key,
        mesh,
        tracing: GatewayTracing::default(),
        log: GatewayLog::default(),
        settings,
        parameters_refused,
        not_understood,
        passed_over,
    }
}

pub(crate) fn uncovered(gateways: &[CheckedGateway<'_>]) -> UncoveredHostnames {
    let by_owner = gateways.iter().flat_map(CheckedGateway::listeners_by_owner);
    listeners::uncovered::collect(by_owner)
}

impl<'w> CheckedGateway<'w> {
    pub(crate) fn name(&self) -> NamespacedName {
        NamespacedName::new(self.owner.namespace, self.owner.name)
    }

    pub(crate) fn own_listeners(&self) -> &[CheckedListener<'w>] {
        self.listeners.get(..self.own).unwrap_or_default()
    }

    pub(crate) fn listener_sets(&self) -> impl Iterator<Item = &CheckedListenerSet<'w>> {
        let sets = self.sets.iter();
        sets.filter(|set| set.owner.kind == Kind::ListenerSet)
    }

    pub(crate) fn listeners_of(&self, set: &CheckedListenerSet<'_>) -> &[CheckedListener<'w>] {
        self.listeners.get(set.range.clone()).unwrap_or_default()
    }

    fn listeners_by_owner(&self) -> impl Iterator<Item = (ObjectKey, &[CheckedListener<'w>])> {
        let sets = self.sets.iter();
        let sets = sets.map(|set| (set.owner.key(), self.listeners_of(set)));
        std::iter::once((self.owner.key(), self.own_listeners())).chain(sets)
    }

    /// `None` selects the listeners in the Gateway's own spec.
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

    pub(crate) fn terminates_tls(&self, listener: usize) -> bool {
        let listener = self.listeners.get(listener);
        listener.is_some_and(|listener| listener.tls.is_some())
    }

    /// Returns the listeners that the Gateway's conditions summarize.
    pub(crate) fn summarized_listeners(&self) -> &[CheckedListener<'w>] {
        if self.own == 0 {
            &self.listeners
        } else {
            self.own_listeners()
        }
    }

    /// Returns the ports that the settings select for HTTP/3, each with the reason if it is served
    /// only over TCP.
    pub(crate) fn over_http3(&self) -> BTreeMap<u16, Result<(), &'static str>> {
        let accepted = self.listeners.iter().filter(|it| it.accepted.good());
        let listeners = accepted.filter_map(|listener| {
            Some(OnPort {
                port: listener.port?,
                protocol: listener.protocol?,
                tls: listener.tls.as_ref(),
            })
        });
        self.settings.over_http3(listeners)
    }

    fn report_http3(&mut self) {
        let ports = self.over_http3().into_iter();
        let faults = ports.filter_map(|(port, serves)| {
            let why = serves.err()?;
            Some(format!(
                "spec.edge.http3: port {port} is served only over TCP, because {why}"
            ))
        });
        self.not_understood.extend(faults);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let mut verdict = self.accepted.clone();
        let own = self.summarized_listeners();
        if !own.iter().any(|listener| listener.accepted.good()) {
            let message = if own.is_empty() {
                "spec.listeners is empty; at least one listener is required, here or in a ListenerSet"
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
