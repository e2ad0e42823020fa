//! What `status` shows, put together from what the engine knows and what the instances have seen. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::status::{
    AgentState, Programmed, RefusedRules, Statuses, program, program_listener_set, refuse_rules,
};
use sesame_gateway_api::world::{Kind, ObjectKey};

use super::engine::Known;
use super::expiry;
use super::objects::objects;
use super::report::{AgentReport, EnvoyReport, GatewayReport, RefusedReport, Report, SourceReport};
use super::seen::Seen;
use super::transitions::Transitions;
use crate::source::problem::Severity;

/// Everything that a report is made from.
pub(super) struct Facts<'a> {
    pub(super) agent: AgentReport,
    /// The source, but for how it is.
    pub(super) source: SourceReport,
    pub(super) known: &'a Known,
    pub(super) resolve: &'a sesame_gateway_api::resolve::Options,
    pub(super) transitions: &'a Transitions,
    pub(super) seen: &'a BTreeMap<NamespacedName, Seen>,
    /// The host's own addresses, for listeners on all of them.
    pub(super) host_addresses: &'a [String],
    /// Whether the kernel moves connections from a socket that closes to another one of its port.
    pub(super) moves_connections: bool,
    /// For certificates that expire.
    pub(super) now: Timestamp,
}

/// What could be better, though nothing is wrong.
const NOT_PARKED: &str = "if Envoy died, new connections would be refused until the next one listens; set net.ipv4.tcp_migrate_req to 1, and they wait for it";

/// Puts the report together. Without objects, which take long where they are many, their conditions do not
/// count for its health either.
pub(super) fn report(facts: &Facts<'_>, with_objects: bool) -> Report {
    let Facts {
        agent,
        source,
        known,
        resolve,
        transitions,
        seen,
        host_addresses,
        moves_connections,
        now,
    } = facts;
    let gateways: Vec<GatewayReport> = seen
        .iter()
        .map(|(name, seen)| gateway_report(name, seen, known))
        .collect();
    let mut reasons: Vec<String> = Vec::new();
    if let Some(held) = &known.held {
        reasons.push(held.clone());
    } else if !known.available {
        reasons.push("the source has not been read yet".to_owned());
    }
    if let Some(why) = &known.polling {
        reasons.push(format!(
            "changes of {} are looked for once a second, because inotify cannot be had: {why}",
            source.title()
        ));
    }
    let not_begun = known
        .gateways
        .keys()
        .filter(|name| !seen.contains_key(*name));
    reasons.extend(not_begun.map(|name| format!("Gateway {name} is only just begun with")));
    for gateway in &gateways {
        if gateway.state != AgentState::Serving {
            reasons.push(format!(
                "Gateway {} is {}: {}",
                gateway.gateway, gateway.state, gateway.message
            ));
        }
    }
    for (name, seen) in *seen {
        if let Some(why) = &seen.outdated {
            reasons.push(format!("Gateway {name}: {why}"));
        }
        if let Some(why) = &seen.unkept {
            reasons.push(format!(
                "what Gateway {name} serves cannot be kept for the next start: {why}"
            ));
        }
    }
    let expiring = expiry::warnings(*seen, *now);
    let (refused, warnings): (Vec<_>, Vec<_>) = expiring
        .into_iter()
        .map(|(name, warning)| {
            (
                warning.refused,
                format!("Gateway {name}: {}", warning.message),
            )
        })
        .partition(|(refused, _)| *refused);
    reasons.extend(refused.into_iter().map(|(_, message)| message));
    let errors = known
        .problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .count();
    if errors > 0 {
        let kind = match &source.manifests {
            Some(_) => "the manifests",
            None => "what is published",
        };
        let noun = if errors == 1 { "error" } else { "errors" };
        reasons.push(format!("{errors} {noun} in {kind}"));
    }
    let statuses = match &known.world {
        Some(world) if with_objects => {
            sesame_gateway_api::resolve::resolve(world, resolve).statuses
        }
        _ => Statuses::default(),
    };
    let programmed = with_hosts(statuses, seen, host_addresses);
    let bad = count_bad(&programmed);
    if bad > 0 {
        reasons.push(format!(
            "{bad} conditions of objects say that something is wrong"
        ));
    }
    Report {
        healthy: reasons.is_empty(),
        reasons,
        warnings: warnings.into_iter().map(|(_, message)| message).collect(),
        agent: agent.clone(),
        source: SourceReport {
            available: known.available,
            reason: known.held.clone().unwrap_or_default(),
            problems: known.problems.to_vec(),
            ..source.clone()
        },
        hints: if *moves_connections || gateways.is_empty() {
            Vec::new()
        } else {
            vec![NOT_PARKED.to_owned()]
        },
        gateways,
        objects: if with_objects {
            objects(&programmed, transitions, seen)
        } else {
            Vec::new()
        },
    }
}

/// What is said of one Gateway.
pub(super) fn gateway_report(name: &NamespacedName, seen: &Seen, known: &Known) -> GatewayReport {
    let newest = known.gateways.get(name);
    let awaited = known.awaited.get(name);
    let wanted = newest
        .map(|wanted| wanted.revision().to_owned())
        .unwrap_or_default();
    let applied = seen.applied_revision().to_owned();
    // After a start from the files that are there nothing is published until the source has something newer.
    let restored = newest.filter(|wanted| wanted.restored && seen.applied.is_none());
    let answered = restored.is_some() || seen.answered_revision() == wanted;
    let serves = seen.live && (seen.loaded || seen.applied.is_some());
    let refused: Vec<RefusedReport> = seen.affected.refused.iter().map(Into::into).collect();
    let (state, message) = if !seen.live {
        (AgentState::Down, seen.trouble_or(seen.why_not_running()))
    } else if !serves && seen.refusal.is_empty() && seen.trouble.is_none() {
        (
            AgentState::Applying,
            "Envoy has not taken its first configuration yet".to_owned(),
        )
    } else if let Some(held) = &seen.held {
        (AgentState::Degraded, held.clone())
    } else if let Some(held) = known.held(name).filter(|_| answered) {
        (AgentState::Degraded, held.clone())
    } else if let Some(awaited) = awaited.filter(|_| answered) {
        (
            if awaited.stuck {
                AgentState::Degraded
            } else {
                AgentState::Applying
            },
            awaited.to_string(),
        )
    } else if let (true, [first, ..]) = (answered, refused.as_slice()) {
        (
            AgentState::Degraded,
            format!(
                "the rest is served, but this is refused by Envoy ({} in all): {first}",
                refused.len()
            ),
        )
    } else if answered && seen.leaves_out() {
        (AgentState::Degraded, seen.notes.join("; "))
    } else if answered {
        (AgentState::Serving, seen.notes.join("; "))
    } else if seen.refusal.is_empty() && seen.trouble.is_none() {
        (
            AgentState::Applying,
            "the newest change is on its way".to_owned(),
        )
    } else {
        (
            AgentState::Degraded,
            seen.trouble_or("Envoy refused the newest change; what it accepted last is served"),
        )
    };
    GatewayReport {
        gateway: name.to_string(),
        state,
        message,
        addresses: restored
            .map_or(&seen.addresses, |wanted| &wanted.assignment.addresses)
            .iter()
            .map(ToString::to_string)
            .collect(),
        wanted,
        applied,
        wanted_revision: awaited
            .map(|awaited| awaited.revision.clone())
            .filter(|revision| !revision.is_empty())
            .or_else(|| newest.and_then(|wanted| wanted.manifest_revision.clone()))
            .unwrap_or_default(),
        applied_revision: seen
            .applied
            .as_ref()
            .and_then(|wanted| wanted.manifest_revision.clone())
            .unwrap_or_default(),
        applied_at: seen.applied_at,
        refused,
        refusal: seen.refusal.clone(),
        draining: seen.draining.clone(),
        envoy: EnvoyReport {
            serves,
            state: seen.envoy_state.clone(),
            pid: seen.envoy_pid,
            version: seen.envoy_version.clone(),
            admin: seen.admin.clone(),
        },
    }
}

/// Adds to the statuses what the Envoys of this host have said.
fn with_hosts(
    mut statuses: Statuses,
    seen: &BTreeMap<NamespacedName, Seen>,
    host_addresses: &[String],
) -> Statuses {
    for (name, status) in &mut statuses.gateways {
        if let Some(seen) = seen.get(name) {
            let object = ObjectKey {
                kind: Kind::Gateway,
                name: name.clone(),
            };
            program(status, &programmed(seen, host_addresses).of_object(&object));
        }
    }
    for (name, status) in &mut statuses.listener_sets {
        if let Some(seen) = seen.get(&status.gateway) {
            let object = ObjectKey {
                kind: Kind::ListenerSet,
                name: name.clone(),
            };
            program_listener_set(status, &programmed(seen, host_addresses).of_object(&object));
        }
    }
    for (gateway, seen) in seen {
        for (route, affected) in &seen.affected.routes {
            let found = statuses
                .routes
                .iter_mut()
                .find(|(key, _)| key.to_string() == *route);
            if let Some((key, status)) = found {
                let refused = RefusedRules {
                    rules: affected.rules.clone(),
                    backends: affected.shares.clone(),
                    works: affected.works,
                };
                refuse_rules(status, &key.name.namespace, gateway, &refused);
            }
        }
    }
    statuses
}

/// Where others reach the Gateway: the host's own addresses in place of all.
pub(super) fn reachable(
    listened: impl IntoIterator<Item = IpAddr>,
    host_addresses: &[String],
) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for ip in listened {
        if ip.is_unspecified() {
            addresses.extend(host_addresses.iter().cloned());
        } else {
            addresses.push(ip.to_string());
        }
    }
    addresses.dedup();
    addresses
}

fn programmed(seen: &Seen, host_addresses: &[String]) -> Programmed {
    Programmed {
        addresses: reachable(seen.addresses.iter().copied(), host_addresses),
        hosts_ready: u32::from(seen.live && seen.applied.is_some()),
        hosts: 1,
        refused_listeners: seen.affected.listeners.clone(),
        unusable_addresses: seen.unusable_addresses.clone(),
        notes: Vec::new(),
    }
}

/// Conditions whose status is not the good one.
fn count_bad(statuses: &Statuses) -> usize {
    statuses
        .objects()
        .flat_map(|(_, _, status)| status.sections())
        .flat_map(|(_, conditions)| conditions)
        .filter(|condition| condition.is_fault())
        .count()
}
