//! What `status` shows, put together from what the engine knows and what the instances have seen. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Value, json};
use sesame_controller::api::NamespacedName;
use sesame_controller::status::{
    Condition, GatewayStatus, Programmed, RefusedRules, Statuses, program, refuse_rules,
};
use sesame_controller::world::Kind;

use super::engine::Known;
use super::report::{
    AgentReport, EnvoyReport, GatewayReport, GatewayState, ObjectReport, RefusedReport, Report,
    SourceReport,
};
use super::seen::Seen;
use super::transitions::{Section, Transitions};

/// Everything that a report is made from.
pub(super) struct Facts<'a> {
    pub(super) agent: AgentReport,
    pub(super) manifests: PathBuf,
    pub(super) known: &'a Known,
    pub(super) resolve: &'a sesame_controller::resolve::Options,
    pub(super) transitions: &'a Transitions,
    pub(super) seen: &'a BTreeMap<NamespacedName, Seen>,
    /// The host's own addresses, for listeners on all of them.
    pub(super) host_addresses: &'a [String],
}

/// Puts the report together. Without objects, which take long where they are many, their conditions do not
/// count for its health either.
pub(super) fn report(facts: &Facts<'_>, with_objects: bool) -> Report {
    let Facts {
        agent,
        manifests,
        known,
        resolve,
        transitions,
        seen,
        host_addresses,
    } = facts;
    let gateways: Vec<GatewayReport> = seen
        .iter()
        .map(|(name, seen)| gateway_report(name, seen, known))
        .collect();
    let mut reasons: Vec<String> = Vec::new();
    if let Some(held) = &known.held {
        reasons.push(held.clone());
    }
    for gateway in &gateways {
        if gateway.state != GatewayState::Serving {
            reasons.push(format!(
                "Gateway {} is {}: {}",
                gateway.gateway,
                gateway.state.as_str(),
                gateway.message
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
    let errors = known
        .problems
        .iter()
        .filter(|problem| problem.severity == "error")
        .count();
    if errors > 0 {
        reasons.push(format!("{errors} errors in the manifests"));
    }
    let statuses = match &known.world {
        Some(world) if with_objects => sesame_controller::resolve::resolve(world, resolve).statuses,
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
        agent: agent.clone(),
        source: SourceReport {
            manifests: manifests.clone(),
            available: known.available,
            problems: known.problems.to_vec(),
        },
        gateways,
        objects: if with_objects {
            objects(&programmed, transitions, seen)
        } else {
            Vec::new()
        },
    }
}

fn gateway_report(name: &NamespacedName, seen: &Seen, known: &Known) -> GatewayReport {
    let wanted = known
        .gateways
        .get(name)
        .map(|wanted| wanted.revision().to_owned())
        .unwrap_or_default();
    let applied = seen.applied_revision().to_owned();
    let answered = seen.answered_revision() == wanted;
    let refused: Vec<RefusedReport> = seen.affected.refused.iter().map(Into::into).collect();
    let (state, message) = if !seen.live {
        (
            GatewayState::Down,
            seen.trouble_or("Envoy is not running yet"),
        )
    } else if let Some(held) = &seen.held {
        (GatewayState::Degraded, held.clone())
    } else if let Some(held) = known.held.as_ref().filter(|_| answered) {
        (GatewayState::Degraded, held.clone())
    } else if let (true, [first, ..]) = (answered, refused.as_slice()) {
        (
            GatewayState::Degraded,
            format!(
                "the rest is served, but this is refused by Envoy ({} in all): {first}",
                refused.len()
            ),
        )
    } else if answered {
        (GatewayState::Serving, seen.notes.join("; "))
    } else if seen.refusal.is_empty() && seen.trouble.is_none() {
        (
            GatewayState::Applying,
            "the newest change is on its way".to_owned(),
        )
    } else {
        (
            GatewayState::Degraded,
            seen.trouble_or("Envoy refused the newest change; what it accepted last is served"),
        )
    };
    GatewayReport {
        gateway: name.to_string(),
        state,
        message,
        addresses: seen.addresses.iter().map(ToString::to_string).collect(),
        wanted,
        applied,
        applied_at: seen.applied_at,
        refused,
        refusal: seen.refusal.clone(),
        draining: seen.draining.clone(),
        envoy: EnvoyReport {
            serves: seen.live && (seen.loaded || seen.applied.is_some()),
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
        let Some(seen) = seen.get(name) else {
            continue;
        };
        let mut addresses: Vec<String> = Vec::new();
        for ip in &seen.addresses {
            if ip.is_unspecified() {
                addresses.extend(host_addresses.iter().cloned());
            } else {
                addresses.push(ip.to_string());
            }
        }
        addresses.dedup();
        program(
            status,
            &Programmed {
                addresses,
                hosts_ready: u32::from(seen.live && seen.applied.is_some()),
                hosts: 1,
                refused_listeners: refused_listeners(name, seen),
                unusable_addresses: seen.unusable_addresses.clone(),
            },
        );
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

/// The Gateway's own listeners that are not open, by their names in it.
fn refused_listeners(gateway: &NamespacedName, seen: &Seen) -> BTreeMap<String, String> {
    let prefix = format!("Gateway/{gateway}/listeners/");
    seen.affected
        .listeners
        .iter()
        .filter_map(|(name, why)| {
            let name = name.strip_prefix(&prefix)?;
            Some((name.to_owned(), why.clone()))
        })
        .collect()
}

/// Conditions whose status is not the good one.
fn count_bad(statuses: &Statuses) -> usize {
    let bad = |conditions: &[Condition]| {
        conditions
            .iter()
            .filter(|condition| condition.is_fault())
            .count()
    };
    let classes = statuses
        .gateway_classes
        .values()
        .map(|s| bad(&s.conditions));
    let gateways = statuses.gateways.values().map(|s: &GatewayStatus| {
        bad(&s.conditions)
            + s.listeners
                .iter()
                .map(|l| bad(&l.conditions))
                .sum::<usize>()
    });
    let routes = statuses
        .routes
        .values()
        .map(|s| s.parents.iter().map(|p| bad(&p.conditions)).sum::<usize>());
    classes.chain(gateways).chain(routes).sum()
}

fn objects(
    statuses: &Statuses,
    transitions: &Transitions,
    seen: &BTreeMap<NamespacedName, Seen>,
) -> Vec<ObjectReport> {
    let mut objects = Vec::new();
    for (name, status) in &statuses.gateway_classes {
        let mut value = value(status);
        stamp(&mut value, &status.conditions, |condition| {
            transitions.since(Kind::GatewayClass, name, Section::Object, condition)
        });
        objects.push(object(Kind::GatewayClass, name, value));
    }
    for (name, status) in &statuses.gateways {
        let applied_at = seen.get(name).and_then(|seen| seen.applied_at);
        let mut value = value(status);
        stamp(&mut value, &status.conditions, |condition| {
            transitions
                .since(Kind::Gateway, name, Section::Object, condition)
                .or(applied_at)
        });
        for (index, listener) in status.listeners.iter().enumerate() {
            let section = Section::Listener(&listener.name);
            stamp(
                &mut value["listeners"][index],
                &listener.conditions,
                |condition| {
                    transitions
                        .since(Kind::Gateway, name, section, condition)
                        .or(applied_at)
                },
            );
        }
        objects.push(object(Kind::Gateway, name, value));
    }
    // What resolution did not say was said when something was applied.
    let applied_at = seen.values().filter_map(|seen| seen.applied_at).max();
    for (key, status) in &statuses.routes {
        let mut value = value(status);
        for (index, parent) in status.parents.iter().enumerate() {
            stamp(
                &mut value["parents"][index],
                &parent.conditions,
                |condition| {
                    transitions
                        .since(key.kind, &key.name, Section::Parent(index), condition)
                        .or(applied_at)
                },
            );
        }
        objects.push(object(key.kind, &key.name, value));
    }
    objects
}

fn value(status: &impl serde::Serialize) -> Value {
    // The statuses are plain data; were one not, an empty status is the honest answer.
    serde_json::to_value(status).unwrap_or_default()
}

/// Adds `lastTransitionTime` to the serialised conditions.
fn stamp(
    holder: &mut Value,
    conditions: &[Condition],
    since: impl Fn(&Condition) -> Option<Timestamp>,
) {
    for (index, condition) in conditions.iter().enumerate() {
        let Some(time) = since(condition) else {
            continue;
        };
        if let Some(Value::Object(fields)) = holder["conditions"].get_mut(index) {
            // Kubernetes writes whole seconds.
            let seconds = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            fields.insert("lastTransitionTime".to_owned(), json!(seconds));
        }
    }
}

fn object(kind: Kind, name: &NamespacedName, status: Value) -> ObjectReport {
    ObjectReport {
        kind: kind.to_string(),
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        status,
    }
}
