//! Traefik's routes, middlewares and services, and Ingresses with its annotations.
//!
//! Traefik orders the rules of all objects by priority, which is their length by default. The order
//! is kept with more specific matches. Entry points `web` and `websecure` are ports 80 and 443.

mod auth;
mod certificates;
mod classes;
mod headers;
mod hosts;
mod ingresses;
mod matches;
mod middlewares;
mod paths;
mod routes;
mod rule;
mod services;
mod streams;
mod traffic;
mod transports;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use self::hosts::ServedHosts;
use super::draft::{self, Draft, ObjectId};
use super::routing::order::{self, HostUnit};
use super::routing::{self, ServiceSettings};
use super::verdicts::VerdictLog;

/// Annotations with this prefix are settings.
const ANNOTATIONS: &str = "traefik.ingress.kubernetes.io/";
const CLASS: &str = "traefik";
const GROUPS: [&str; 2] = ["traefik.io/", "traefik.containo.us/"];
const ORDER: &str =
    "rules are ordered by specificity, and Traefik's order is kept with more matches";
/// Of all rules, and of one.
const MAX_REFERENCES: [usize; 2] = [100_000, 256];
const TOO_MANY: &str = "the rule, or all rules, refer to too many middlewares and services";
const FEWER: &str = "convert fewer objects at once, and repeat fewer references";

/// What all objects share.
#[derive(Default)]
struct Routers<'i> {
    inputs: BTreeMap<ObjectId, &'i Value>,
    logs: BTreeMap<ObjectId, VerdictLog>,
    metadata: BTreeMap<ObjectId, Map<String, Value>>,
    /// ListenerSets with the certificate of each host.
    certificates: BTreeMap<String, ObjectId>,
    /// Rules with their priority, before they are ordered.
    units: Vec<(i64, HostUnit)>,
    hosts: ServedHosts,
    /// Classes of Traefik that objects name.
    classes: BTreeSet<String>,
    /// References to middlewares and services that may still be followed: in all, and of a rule.
    budget: [usize; 2],
    /// Routes that use a middleware, an option or a service.
    users: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    services: ServiceSettings,
}

impl<'i> Routers<'i> {
    fn log(&mut self, id: &ObjectId) -> VerdictLog {
        self.logs.entry(id.clone()).or_default().clone()
    }

    fn of_kind(&self, kind: &str) -> Vec<(ObjectId, &'i Value)> {
        draft::of_kind(&self.inputs, kind)
    }

    /// Records that a route uses an object, and returns the object.
    fn using(&mut self, user: &ObjectId, id: &ObjectId) -> Option<&'i Value> {
        let object = self.inputs.get(id).copied()?;
        self.users
            .entry(id.clone())
            .or_default()
            .insert(user.clone());
        Some(object)
    }

    fn start_rule(&mut self) {
        self.budget[1] = MAX_REFERENCES[1];
    }

    /// Returns false if too many references were followed. Repeated ones multiply.
    fn follow(&mut self) -> bool {
        let is_left = !self.budget.contains(&0);
        self.budget = self.budget.map(|it| it.saturating_sub(1));
        is_left
    }
}

fn is_own(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    GROUPS.iter().any(|group| version.starts_with(group))
}

pub(super) fn convert(draft: &mut Draft) {
    let inputs = draft.inputs();
    let by_id = inputs.iter().cloned().collect();
    let mut routers = Routers {
        classes: classes::used(&by_id),
        inputs: by_id,
        budget: MAX_REFERENCES,
        ..Routers::default()
    };
    certificates::convert(draft, &mut routers);
    for (id, object) in routers.of_kind("IngressRoute") {
        routes::convert(draft, &mut routers, &id, object);
    }
    for (id, object) in routers.of_kind("Ingress") {
        ingresses::convert(draft, &mut routers, &id, object);
    }
    for kind in ["IngressRouteTCP", "IngressRouteUDP"] {
        for (id, object) in routers.of_kind(kind) {
            streams::convert(draft, &mut routers, &id, object);
        }
    }
    finish(draft, &mut routers);
    for (id, object) in &inputs {
        other(draft, &routers, id, object);
    }
    for (id, log) in std::mem::take(&mut routers.logs) {
        log.remove_duplicates();
        let users = routers.users.get(&id).cloned().unwrap_or_default();
        let users = users.into_iter().chain([id.clone()]).collect();
        draft.record(&id, &log, routers.hosts.sharing(&users));
    }
    routers.services.add_to(draft);
}

/// Orders the rules of all objects, and adds the HTTPRoutes.
fn finish(draft: &mut Draft, routers: &mut Routers) {
    let mut ranked = std::mem::take(&mut routers.units);
    // Rules of the same priority keep their order.
    ranked.sort_by_key(|(priority, _)| Reverse(*priority));
    let mut units: Vec<HostUnit> = Vec::new();
    let mut known: BTreeMap<(ObjectId, String, String), usize> = BTreeMap::new();
    for (index, (_, mut unit)) in ranked.into_iter().enumerate() {
        for rule in &mut unit.rules {
            rule.place = index + 1;
        }
        let key = (
            unit.owner.clone(),
            unit.host.clone(),
            unit.parent.to_string(),
        );
        let position = *known.entry(key).or_insert(units.len());
        match units.get_mut(position) {
            Some(known) => known.rules.append(&mut unit.rules),
            None => units.push(unit),
        }
    }
    for (earlier, later) in order::keep_order(&mut units, false) {
        let reason = format!(
            "a rule of {earlier} has a higher priority in Traefik, but its host or expression is \
            less specific, so this object would get its requests"
        );
        let remedy = "name the host in both rules, or use prefixes";
        let log = routers.log(&later);
        log.refuse("spec.routes.priority", &reason, remedy);
    }
    let mut owners: BTreeMap<ObjectId, Vec<&HostUnit>> = BTreeMap::new();
    for unit in &units {
        owners.entry(unit.owner.clone()).or_default().push(unit);
    }
    for (owner, units) in owners {
        let metadata = routers.metadata.get(&owner).cloned().unwrap_or_default();
        let drafts = order::routes(&owner.name, &units);
        routing::add_routes(draft, &[owner.clone()].into(), &metadata, drafts);
    }
}

/// Records verdicts on objects that no route uses, or that become nothing.
fn other(draft: &mut Draft, routers: &Routers, id: &ObjectId, object: &Value) {
    const KNOWN: [&str; 8] = [
        "Middleware",
        "MiddlewareTCP",
        "ServersTransport",
        "ServersTransportTCP",
        "TLSOption",
        "TLSStore",
        "TraefikService",
        "IngressRouteUDP",
    ];
    if routers.logs.contains_key(id) || draft.verdicts.contains_key(id) {
        return;
    }
    let reason = match id.kind.as_str() {
        kind if is_own(object) && KNOWN.contains(&kind) => "no route in the input uses it",
        _ if is_own(object) => {
            let reason = "Sesame has no counterpart of this kind";
            draft.refuse(id, "kind", reason, "remove the object, or accept the loss");
            return;
        }
        "Service" => {
            services::annotations(draft, id, object);
            return;
        }
        _ => "not an object of Traefik; keep it as it is",
    };
    draft.unneeded(id, reason);
}
