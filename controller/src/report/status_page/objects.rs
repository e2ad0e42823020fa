//! Shows Gateways, listeners and conditions on the status page.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sesame_http_server::page::{Cell, Page, Rows};
use sesame_kinds::api::{NamespacedName, ParentRef};
use sesame_kinds::status::{
    Condition, ConditionStatus, ConditionType, GatewayStatus, ListenerStatus, ObjectStatus,
    PolicyStatus, RouteStatus,
};
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::digest::short;

use crate::report::compose::{Reports, Status, compose};
use crate::statuses::ResolvedStatuses;
use crate::watch::is_layered;

pub(super) fn gateways(
    page: &mut Page,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) {
    let mut rows = Rows::default();
    for name in resolved.statuses.gateways.keys() {
        let key = Kind::Gateway.named(name.clone());
        if let Some(Status::Gateway(status)) = compose(&key, resolved, reports, now) {
            let faults: Vec<&Condition> = faults(&status.conditions).collect();
            let row = || gateway(name, &status, &faults, resolved, reports);
            rows.add(!faults.is_empty(), row);
        }
    }
    let headings = [
        "Gateway",
        "Programmed",
        "Addresses",
        "Revision",
        "Hosts",
        "Problem",
    ];
    page.table("Gateways", headings, rows);
}

fn gateway(
    name: &NamespacedName,
    status: &GatewayStatus,
    faults: &[&Condition],
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
) -> [Cell; 6] {
    let published_as = resolved.published_as(name);
    let shown = if published_as == name {
        name.to_string()
    } else {
        format!("{name}, published as {published_as}")
    };
    let mut programmed = status.conditions.iter();
    let programmed = programmed.find(|it| it.type_ == ConditionType::Programmed);
    let programmed = programmed.map_or(Cell::Bad("Unknown".to_owned()), |it| {
        let text = it.status.to_string();
        Cell::good_unless(it.status != ConditionStatus::True, text)
    });
    let addresses = status.addresses.iter().map(|it| it.value.as_str());
    let addresses: Vec<&str> = addresses.collect();
    let revision = resolved.revisions.get(published_as);
    let problems = faults
        .iter()
        .map(|it| format!("{}: {}", it.reason, it.message));
    let problems: Vec<String> = problems.collect();
    [
        shown.into(),
        programmed,
        addresses.join(", ").into(),
        revision.map_or("", |revision| short(revision)).into(),
        hosts(name, reports),
        Cell::Bad(problems.join("; ")),
    ]
}

fn hosts(name: &NamespacedName, reports: &Reports<'_>) -> Cell {
    let Some(fleet) = reports.fleets.get(name) else {
        return "none".into();
    };
    let (ready, all) = (fleet.programmed.hosts_ready, fleet.programmed.hosts);
    match fleet.lost.len() {
        0 => format!("{ready} of {all}").into(),
        lost => Cell::Bad(format!("{ready} of {all}, {lost} lost")),
    }
}

pub(super) fn listeners(
    page: &mut Page,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) {
    let mut rows = Rows::default();
    let all = &resolved.statuses;
    let gateways = all.gateways.keys().map(|name| (Kind::Gateway, name));
    let sets = all
        .listener_sets
        .keys()
        .map(|name| (Kind::ListenerSet, name));
    for (kind, name) in gateways.chain(sets) {
        let key = kind.named(name.clone());
        let listeners = match compose(&key, resolved, reports, now) {
            Some(Status::Gateway(status)) => status.listeners,
            Some(Status::ListenerSet(status)) => status.listeners,
            _ => Vec::new(),
        };
        for ListenerStatus {
            name,
            supported_kinds: _,
            attached_routes,
            conditions,
        } in &listeners
        {
            let problems = faults(conditions).map(|it| format!("{}: {}", it.reason, it.message));
            let problems: Vec<String> = problems.collect();
            rows.add(!problems.is_empty(), || {
                [
                    key.to_string().into(),
                    name.as_str().into(),
                    attached_routes.to_string().into(),
                    if problems.is_empty() {
                        Cell::Good("open".to_owned())
                    } else {
                        Cell::Bad(problems.join("; "))
                    },
                ]
            });
        }
    }
    let headings = ["Object", "Listener", "Attached routes", "State"];
    page.table("Listeners", headings, rows);
}

fn faults(conditions: &[Condition]) -> impl Iterator<Item = &Condition> {
    conditions.iter().filter(|condition| condition.is_fault())
}

pub(super) fn conditions(
    page: &mut Page,
    resolved: &ResolvedStatuses,
    reports: &Reports<'_>,
    now: Timestamp,
) {
    let mut rows = Rows::default();
    let statuses = &resolved.statuses;
    let others = statuses
        .objects()
        .filter(|(.., status)| !matches!(status, ObjectStatus::Route(_)));
    for (kind, name, _) in others {
        let key = kind.named(name.clone());
        if let Some(status) = compose(&key, resolved, reports, now) {
            add_status(&mut rows, &key, &status);
        }
    }
    let fleets = reports.fleets.values();
    let refused: BTreeSet<&String> = fleets.flat_map(|fleet| fleet.refused.keys()).collect();
    for (key, status) in &statuses.routes {
        // There may be thousands of routes, so compose statuses only for routes that hosts reject.
        let is_layered = is_layered(key.kind);
        if refused.is_empty() || is_layered || !refused.contains(&key.to_string()) {
            add_route(&mut rows, key, status);
        } else if let Some(status) = compose(key, resolved, reports, now) {
            add_status(&mut rows, key, &status);
        }
    }
    let headings = ["Object", "Part", "Condition", "Reason", "Message"];
    page.table("Objects", headings, rows);
}

type ConditionRows = Rows<5>;

fn add_status(rows: &mut ConditionRows, key: &ObjectKey, status: &Status) {
    match status {
        Status::Class(status) => add_conditions(rows, key, None, &status.conditions),
        Status::Gateway(status) => add_conditions(rows, key, None, &status.conditions),
        Status::ListenerSet(status) => add_conditions(rows, key, None, &status.conditions),
        Status::Route(status) => add_route(rows, key, status),
        Status::Policy(PolicyStatus { ancestors }) => {
            for ancestor in ancestors {
                let of = Some(&ancestor.ancestor_ref);
                add_conditions(rows, key, of, &ancestor.conditions);
            }
        }
        Status::Ingress(_) | Status::HttpProxy(_) | Status::Extension(_) => {}
    }
}

fn add_route(rows: &mut ConditionRows, key: &ObjectKey, status: &RouteStatus) {
    for parent in &status.parents {
        add_conditions(rows, key, Some(&parent.parent_ref), &parent.conditions);
    }
}

fn add_conditions(
    rows: &mut ConditionRows,
    key: &ObjectKey,
    part: Option<&ParentRef>,
    conditions: &[Condition],
) {
    for condition in conditions {
        let is_fault = condition.is_fault();
        rows.add(is_fault, || {
            let state = format!("{}={}", condition.type_, condition.status);
            [
                key.to_string().into(),
                part.map(reference).unwrap_or_default().into(),
                Cell::good_unless(is_fault, state),
                condition.reason.to_string().into(),
                condition.message.as_str().into(),
            ]
        });
    }
}

fn reference(reference: &ParentRef) -> String {
    let ParentRef {
        group: _,
        kind: _,
        namespace,
        name,
        section_name,
        port,
    } = reference;
    let port = port.map(|port| port.to_string());
    let parts = [
        namespace.as_deref(),
        Some(name.as_str()),
        section_name.as_deref(),
        port.as_deref(),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join("/")
}
