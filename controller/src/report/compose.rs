//! Composes an object's status from the resolution result and from reports.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::fleet::{FOREIGN_ADDRESS, FleetSummary};
use crate::publish::RolloutNotes;
use crate::statuses::{GatewayProblems, ProvisionReport, ResolvedStatuses, ServiceAddresses};
use crate::watch::is_layered;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::Warning;
use sesame_kinds::status::{
    self, Condition, ConditionStatus, ConditionType, GatewayClassStatus, GatewayStatus,
    GatewayStatusAddress, ListenerSetStatus, ListenerStatus, PolicyStatus, Programmed, ProxyDetail,
    Reason, RouteStatus, program, program_listener_set, program_policy, refuse_rules,
};
use sesame_kinds::world::{Kind, ObjectKey};

/// Keeps the condition's message readable and within its maximum length.
const MAX_EXPIRING: usize = 20;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Status {
    Class(GatewayClassStatus),
    Gateway(GatewayStatus),
    ListenerSet(ListenerSetStatus),
    Route(RouteStatus),
    Policy(PolicyStatus),
    Ingress(IngressStatus),
    HttpProxy(ProxyStatus),
    Extension(ExtensionStatus),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExtensionStatus {
    pub(super) valid: Condition,
    pub(super) details: Vec<ProxyDetail>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProxyStatus {
    pub(super) valid: Condition,
    pub(super) details: Vec<ProxyDetail>,
    pub(super) addresses: Vec<GatewayStatusAddress>,
}

/// The Ingress API has no conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct IngressStatus {
    pub(super) addresses: Vec<GatewayStatusAddress>,
    pub(super) ports: Vec<u16>,
    pub(super) fault: Option<Reason>,
}

pub(super) struct Reports<'a> {
    pub(super) fleets: &'a BTreeMap<NamespacedName, FleetSummary>,
    pub(super) failures: &'a GatewayProblems,
    pub(super) provisioned: &'a ProvisionReport,
    /// `None` until all Services are known.
    pub(super) service_addresses: Option<&'a BTreeMap<NamespacedName, ServiceAddresses>>,
    pub(super) rollouts: &'a RolloutNotes,
}

impl Reports<'_> {
    /// Returns true while Service addresses or settings are unknown, because a write could remove
    /// valid addresses or errors.
    pub(super) fn leave_open(&self, key: &ObjectKey, resolved: &ResolvedStatuses) -> bool {
        if resolved.layers_unknown && is_layered(key.kind) {
            return true;
        }
        let gateway = match key.kind {
            Kind::Gateway => Some(key.name.clone()),
            kind if is_layered(kind) => resolved.gateway_of_layered(key),
            _ => None,
        };
        let kept = &resolved.kept_layers;
        if is_layered(key.kind) && gateway.as_ref().is_some_and(|name| kept.contains(name)) {
            return true;
        }
        let is_by_service =
            |name: &NamespacedName| resolved.by_service.contains(resolved.published_as(name));
        gateway.as_ref().is_some_and(is_by_service) && self.service_addresses.is_none()
    }

    /// Returns `None` without a report.
    fn gateway_report(&self, key: &ObjectKey, resolved: &ResolvedStatuses) -> Option<Programmed> {
        let fleet = self.fleets.get(&key.name);
        let host_report = fleet.map(|fleet| programmed(fleet, key));
        let name = resolved.published_as(&key.name);
        if !resolved.by_service.contains(name) {
            return host_report;
        }
        let mut all = host_report.unwrap_or_default();
        let known_addresses = self.service_addresses.and_then(|known| known.get(name));
        let ServiceAddresses {
            addresses,
            awaited,
            unusable,
            notes,
        } = known_addresses.cloned().unwrap_or_default();
        let nowhere = all.hosts_ready > 0
            && fleet.is_some_and(|fleet| fleet.endpoints.is_empty() && !fleet.pods);
        all.awaited = match awaited {
            // The provisioner has not handled this Gateway yet.
            None if addresses.is_empty() => Some("its Service does not exist yet".to_owned()),
            None if nowhere => Some("no host reported an address".to_owned()),
            awaited => awaited,
        };
        all.addresses = addresses;
        all.unusable_addresses.extend(unusable);
        all.notes.extend(notes);
        Some(all)
    }
}

/// Returns `None` if the object is not ours.
pub(super) fn compose(
    key: &ObjectKey,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) -> Option<Status> {
    let Reports {
        fleets,
        failures,
        provisioned,
        service_addresses: _,
        rollouts: _,
    } = reports;
    let all = &resolved.statuses;
    Some(match key.kind {
        Kind::GatewayClass => Status::Class(all.gateway_classes.get(&key.name)?.clone()),
        Kind::Gateway => {
            let mut status = all.gateways.get(&key.name)?.clone();
            let name = resolved.published_as(&key.name);
            if let Some(mut reported) = reports.gateway_report(key, resolved) {
                let note = reports.rollouts.get(name);
                reported.notes.extend(note.map(|note| note.text.clone()));
                program(&mut status, &reported);
            }
            let unpublishable = resolved.unpublishable.get(name);
            if let Some(why) = unpublishable.or_else(|| failures.get(name)) {
                set_unpublished(&mut status.conditions, why);
            }
            add_provisioned(&mut status.conditions, provisioned, name);
            add_expiry(&mut status.conditions, &resolved.warnings(&key.name, now));
            add_listener_expiry(key, &mut status.listeners, resolved, now);
            status::report_lapsed(&mut status.conditions, now);
            Status::Gateway(status)
        }
        Kind::ListenerSet => {
            let mut status = all.listener_sets.get(&key.name)?.clone();
            if let Some(fleet) = fleets.get(&status.gateway) {
                let mut programmed = programmed(fleet, key);
                let without = fleet.without_set.get(&key.name).copied();
                let without = without.unwrap_or_default();
                programmed.hosts_ready = programmed.hosts_ready.saturating_sub(without);
                program_listener_set(&mut status, &programmed);
            }
            add_listener_expiry(key, &mut status.listeners, resolved, now);
            Status::ListenerSet(status)
        }
        Kind::Ingress => Status::Ingress(ingress(key, resolved, reports, now)?),
        Kind::HttpProxy => Status::HttpProxy(http_proxy(key, resolved, reports, now)?),
        Kind::ExtensionService => Status::Extension(extension(all.routes.get(key)?)?),
        _ if all.policies.contains_key(key) => policy(all.policies.get(key)?, reports, now),
        _ => Status::Route(route(key, resolved, fleets)?),
    })
}

/// The status of a route of any kind, with the parts that the hosts' Envoys reject.
pub(super) fn route(
    key: &ObjectKey,
    resolved: &ResolvedStatuses,
    fleets: &BTreeMap<NamespacedName, FleetSummary>,
) -> Option<RouteStatus> {
    let mut status = resolved.statuses.routes.get(key)?.clone();
    let name = key.to_string();
    for (gateway, fleet) in fleets {
        if let Some(refused) = fleet.refused.get(&name) {
            refuse_rules(&mut status, &key.name.namespace, gateway, refused);
        }
    }
    Some(status)
}

/// Takes the addresses from the Gateway of the Ingress's class. They stay even if Envoys reject all
/// rules, because `ports[].error` belongs to an address.
fn ingress(
    key: &ObjectKey,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) -> Option<IngressStatus> {
    let parent = resolved.statuses.routes.get(key)?.parents.first()?;
    let with_reports = route(key, resolved, reports.fleets)?;
    let mut conditions = with_reports.parents.first()?.conditions.iter();
    let mut status = IngressStatus {
        fault: conditions
            .find(|condition| condition.is_fault())
            .map(|condition| condition.reason),
        ports: parent.ports.clone(),
        ..IngressStatus::default()
    };
    let is_served = parent.conditions.iter().any(|condition| {
        condition.type_ == ConditionType::Accepted && condition.status == ConditionStatus::True
    });
    if is_served {
        status.addresses = addresses(key, resolved, reports, now);
    }
    Some(status)
}

fn http_proxy(
    key: &ObjectKey,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) -> Option<ProxyStatus> {
    let status = route(key, resolved, reports.fleets)?;
    let parent = status.parents.first()?;
    // An orphan, which no root HTTPProxy includes, has no ports.
    let is_served = !parent.ports.is_empty();
    Some(ProxyStatus {
        valid: parent.conditions.first()?.clone(),
        details: status.details,
        addresses: if is_served {
            addresses(key, resolved, reports, now)
        } else {
            Vec::new()
        },
    })
}

fn extension(status: &RouteStatus) -> Option<ExtensionStatus> {
    let parent = status.parents.first()?;
    Some(ExtensionStatus {
        valid: parent.conditions.first()?.clone(),
        details: status.details.clone(),
    })
}

fn addresses(
    key: &ObjectKey,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) -> Vec<GatewayStatusAddress> {
    let gateway = resolved.gateway_of_layered(key);
    let gateway = gateway.map(|name| Kind::Gateway.named(name));
    let gateway = gateway.and_then(|gateway| compose(&gateway, resolved, reports, now));
    match gateway {
        Some(Status::Gateway(gateway)) => gateway.addresses,
        _ => Vec::new(),
    }
}

/// Conditions that depend on lapsed trust become `False`.
fn policy(resolved: &PolicyStatus, reports: &Reports<'_>, now: Timestamp) -> Status {
    let mut status = resolved.clone();
    for ancestor in &mut status.ancestors {
        if let Some(gateway) = ancestor.gateway()
            && let Some(fleet) = reports.fleets.get(&gateway)
        {
            let mut programmed = programmed(fleet, &Kind::Gateway.named(gateway));
            // These hosts do not have the policy yet.
            programmed.hosts_ready = programmed.hosts_ready.saturating_sub(fleet.waiting);
            program_policy(&mut ancestor.conditions, &programmed);
        }
        status::report_lapsed(&mut ancestor.conditions, now);
    }
    Status::Policy(status)
}

fn programmed(fleet: &FleetSummary, key: &ObjectKey) -> Programmed {
    let FleetSummary {
        programmed,
        lost,
        // Statuses report lost hosts.
        live: _,
        lost_after,
        foreign_addresses,
        endpoints: _,
        pods: _,
        behind,
        without_set: _,
        waiting: _,
        refused: _,
    } = fleet;
    let mut notes = Vec::new();
    if let [(first, why), more @ ..] = behind.as_slice() {
        let hosts = match more.len() {
            0 => first.clone(),
            more => format!("{first} and {more} more"),
        };
        notes.push(format!("{hosts} cannot apply the newest revision: {why}"));
    }
    if let [first, more @ ..] = lost.as_slice() {
        let hosts = match more.len() {
            0 => first.clone(),
            more => format!("{first} and {more} more"),
        };
        let silence = match (lost_after.as_secs() / 60, lost_after.as_secs() % 60) {
            (minutes, 0) => format!("{minutes} minutes"),
            _ => format!("{} seconds", lost_after.as_secs()),
        };
        notes.push(format!("no report for {silence} from {hosts}"));
    }
    if key.kind == Kind::Gateway && !foreign_addresses.is_empty() {
        let all = foreign_addresses.join(", ");
        notes.push(format!("addresses {all} are ignored: {FOREIGN_ADDRESS}"));
    }
    Programmed {
        notes,
        ..programmed.of_object(key)
    }
}

fn find(conditions: &mut [Condition], type_: ConditionType) -> Option<&mut Condition> {
    let mut all = conditions.iter_mut();
    all.find(|condition| condition.type_ == type_)
}

/// These problems do not affect routing. `name` is the Gateway's published name.
fn add_provisioned(
    conditions: &mut Vec<Condition>,
    provisioned: &ProvisionReport,
    name: &NamespacedName,
) {
    let ProvisionReport {
        without_service,
        without_fleet,
        // Reported together with the addresses.
        without_upstream: _,
        released,
    } = provisioned;
    let generation = conditions.first();
    let generation = generation.map_or(0, |first| first.observed_generation);
    let (no, yes) = (ConditionStatus::False, ConditionStatus::True);
    let mut add = |type_, status, reason, all: &GatewayProblems| {
        if let Some(why) = all.get(name) {
            conditions.push(Condition::new(type_, status, reason, why, generation));
        }
    };
    let taken = Reason::NameTaken;
    add(ConditionType::GatewayService, no, taken, without_service);
    add(
        ConditionType::GatewayFleet,
        no,
        Reason::FleetIncomplete,
        without_fleet,
    );
    add(
        ConditionType::FleetReleased,
        yes,
        Reason::Released,
        released,
    );
}

/// `ResolvedRefs` stays True, because expiry does not invalidate a reference.
fn add_expiry(conditions: &mut [Condition], warnings: &[Warning]) {
    if let Some(condition) = find(conditions, ConditionType::ResolvedRefs) {
        for warning in warnings.iter().take(MAX_EXPIRING) {
            condition.message.push_str("; ");
            condition.message.push_str(&warning.message);
        }
    }
}

fn add_listener_expiry(
    key: &ObjectKey,
    listeners: &mut [ListenerStatus],
    resolved: &ResolvedStatuses,
    now: Timestamp,
) {
    if let Some(expiries) = resolved.listener_expiries.get(&key.to_string()) {
        status::report_expiry(listeners, expiries, now);
    }
}

/// If the Gateway cannot be published, replaces its `Programmed` condition.
fn set_unpublished(conditions: &mut [Condition], why: &str) {
    if let Some(condition) = find(conditions, ConditionType::Programmed) {
        condition.status = ConditionStatus::False;
        condition.reason = Reason::Invalid;
        condition.message =
            format!("cannot be published, the previous publication is served: {why}");
    }
}
