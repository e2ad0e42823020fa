//! Composes the report that `status` shows from the engine's state and the instances' observations.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_kinds::expiry::Warning;
use sesame_kinds::status::{AgentState, Statuses};
use sesame_resolver::{Resolution, resolve};

use super::expiry;
use super::inputs;
use super::objects::objects;
use super::scarcity;
use super::verdicts;
use super::{
    AgentReport, EnvoyReport, GatewayReport, KeySetReport, RefusedReport, Report, RetainedReport,
    SourceReport,
};
use crate::engine::SourceState;
use crate::observed::Observed;
use crate::orders::{self, AcmeReport};
use crate::target::{RetainedCertificate, Target};
use sesame_sources::problem::Severity;
use sesame_sources::update::IncompleteRevision;

pub(crate) struct ReportFacts<'a> {
    pub(crate) agent: AgentReport,
    /// Omits the source's current state, which is in `known`.
    pub(crate) source: SourceReport,
    pub(crate) known: &'a SourceState,
    pub(crate) resolve: &'a sesame_resolver::Options,
    pub(crate) observed: &'a BTreeMap<NamespacedName, Observed>,
    /// Reported for listeners on all addresses.
    pub(crate) host_addresses: &'a [String],
    pub(crate) hints: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// True if the kernel moves pending connections of a closing socket to another listener.
    pub(crate) moves_connections: bool,
    /// Determines which certificates count as expiring soon.
    pub(crate) now: Timestamp,
}

const NOT_PARKED: &str = "if Envoy died, new connections would be refused until the next Envoy listens; set net.ipv4.tcp_migrate_req to 1 to let them wait instead";

/// Computing the statuses of many objects is slow. Without `with_objects`, conditions do not affect
/// the reported health.
pub(crate) fn report(facts: &ReportFacts<'_>, with_objects: bool) -> Report {
    let ReportFacts {
        agent,
        source,
        known,
        resolve: options,
        observed,
        host_addresses,
        hints: hints_on_settings,
        warnings: warnings_of_settings,
        moves_connections,
        now,
    } = facts;
    let gateways: Vec<GatewayReport> = observed
        .iter()
        .map(|(name, observed)| gateway_report(name, observed, known))
        .collect();
    let all = known.gateways.keys();
    let not_begun = all.filter(|name| !observed.contains_key(*name));
    let starting: Vec<String> = not_begun.map(ToString::to_string).collect();
    let mut reasons = source_reasons(known, source);
    let being_started = starting.iter();
    reasons.extend(being_started.map(|name| format!("Gateway {name} is being started")));
    reasons.extend(gateway_reasons(&gateways, observed));
    let expiring = expiry::warnings(*observed, *now).into_iter();
    let (refused, warnings): (Vec<_>, Vec<_>) = expiring.partition(|(_, w)| w.refused);
    reasons.extend(refused.into_iter().map(expiry_message));
    reasons.extend(count_errors(known, source));
    let warnings: Vec<String> = warnings
        .into_iter()
        .map(expiry_message)
        .chain(warnings_of_settings.iter().cloned())
        .chain(unlogged(observed).chain(warnings_of_local_files(known)))
        .chain(scarcity::warnings(observed))
        .collect();
    let source = with_state(source, known);
    let inputs = inputs::digest(
        &(&reasons, &warnings, &starting, agent, &source, &gateways),
        facts,
    );
    let Resolution {
        statuses, merged, ..
    } = match &known.world {
        Some(world) if with_objects => expiry::with_expiry(resolve(world, options), *now),
        _ => Resolution::default(),
    };
    let programmed = verdicts::with_hosts(statuses, &merged, known, observed, host_addresses);
    reasons.extend(count_bad(&programmed));
    Report {
        healthy: reasons.is_empty(),
        reasons,
        warnings,
        starting,
        agent: agent.clone(),
        source,
        inputs,
        hints: hints(&gateways, *moves_connections, hints_on_settings),
        gateways,
        objects: if with_objects {
            objects(&programmed, &merged, &known.transitions, observed)
        } else {
            Vec::new()
        },
    }
}

fn hints(
    gateways: &[GatewayReport],
    moves_connections: bool,
    on_settings: &[String],
) -> Vec<String> {
    let not_parked = !moves_connections && !gateways.is_empty();
    not_parked
        .then(|| NOT_PARKED.to_owned())
        .into_iter()
        .chain(on_settings.iter().cloned())
        .chain(gateways.iter().filter_map(scarcity::hint))
        .collect()
}

fn source_reasons(known: &SourceState, source: &SourceReport) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(held) = &known.held {
        reasons.push(held.clone());
    } else if !known.available {
        reasons.push("the source has not been read yet".to_owned());
    }
    let local = known.local.problems.iter();
    let errors = local.filter(|problem| problem.severity == Severity::Error);
    reasons.extend(errors.map(ToString::to_string));
    if let Some(why) = &known.polling {
        reasons.push(format!(
            "changes to {} are polled once a second, because inotify is not available: {why}",
            source.title()
        ));
    }
    reasons
}

/// Returns `None` if there are no errors.
fn count_errors(known: &SourceState, source: &SourceReport) -> Option<String> {
    let errors = known.problems.iter();
    let errors = errors.filter(|p| p.severity == Severity::Error).count();
    let kind = match (&source.manifests, &source.bundle_dir) {
        (Some(_), _) => "the manifests",
        (None, Some(_)) => "the bundles",
        (None, None) => "the published configuration",
    };
    let noun = if errors == 1 { "error" } else { "errors" };
    (errors > 0).then(|| format!("{errors} {noun} in {kind}"))
}

fn with_state(source: &SourceReport, known: &SourceState) -> SourceReport {
    SourceReport {
        available: known.available,
        reason: known.held.clone().unwrap_or_default(),
        problems: [
            &known.problems[..],
            &known.local.problems,
            &orders::problems(&known.acme),
        ]
        .concat(),
        uncovered_hostnames: known.uncovered_hostnames,
        bundles: known.bundles.to_vec(),
        requested: known.local.open.keys().cloned().collect(),
        key_sets: known.key_sets.values().map(KeySetReport::of).collect(),
        acme: AcmeReport::of(&known.acme),
        ..source.clone()
    }
}

fn expiry_message((name, warning): (NamespacedName, Warning)) -> String {
    format!("Gateway {name}: {}", warning.message)
}

fn gateway_reasons(
    gateways: &[GatewayReport],
    observed: &BTreeMap<NamespacedName, Observed>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for gateway in gateways {
        if gateway.state != AgentState::Serving {
            reasons.push(format!(
                "Gateway {} is {}: {}",
                gateway.gateway, gateway.state, gateway.message
            ));
        }
    }
    for (name, observed) in observed {
        let unshown = observed.unshown.iter();
        reasons.extend(unshown.map(|(listener, why)| {
            format!("Gateway {name}: {listener} does not present its newest certificate: {why}")
        }));
        let without = observed.without_files.iter();
        reasons.extend(without.map(|(listener, why)| {
            format!("Gateway {name}: {listener} lacks a certificate: {why}")
        }));
        if let Some(why) = &observed.outdated {
            reasons.push(format!("Gateway {name}: {why}"));
        }
        if let Some(why) = &observed.unkept {
            reasons.push(format!(
                "the configuration of Gateway {name} cannot be stored for the next start: {why}"
            ));
        }
    }
    reasons
}

fn unlogged(observed: &BTreeMap<NamespacedName, Observed>) -> impl Iterator<Item = String> {
    observed.iter().filter_map(|(name, observed)| {
        let why = observed.unlogged.as_ref()?;
        Some(format!("Gateway {name}: access logs are off: {why}"))
    })
}

fn warnings_of_local_files(known: &SourceState) -> impl Iterator<Item = String> {
    let problems = known.local.problems.iter();
    let warnings = problems.filter(|problem| problem.severity == Severity::Warning);
    warnings.map(ToString::to_string)
}

pub(crate) fn gateway_report(
    name: &NamespacedName,
    observed: &Observed,
    known: &SourceState,
) -> GatewayReport {
    let newest = known.gateways.get(name);
    let incomplete = known.incomplete.get(name);
    let wanted = newest.map_or_else(String::new, |wanted| wanted.revision().to_owned());
    let applied = observed.applied_revision().to_owned();
    // The files of a restored Envoy count as applied.
    let restored = newest.filter(|wanted| wanted.restored && observed.applied.is_none());
    let target = restored.or(observed.applied.as_ref());
    let answered = restored.is_some() || observed.answered_revision() == wanted;
    let serves = observed.live && (observed.loaded || observed.applied.is_some());
    let refused: Vec<RefusedReport> = observed.affected.refused.iter().map(Into::into).collect();
    let (state, message) = if !observed.live {
        let why = observed.trouble_or(observed.why_not_running());
        (AgentState::Down, why)
    } else if !serves && !observed.is_in_trouble() {
        let why = "Envoy has not accepted its first configuration yet";
        (AgentState::Applying, why.to_owned())
    } else if let Some(held) = &observed.held {
        (AgentState::Degraded, held.clone())
    } else if let Some(waiting) = observed
        .waiting
        .as_ref()
        .filter(|_| !observed.is_in_trouble())
    {
        let held = known.held(name);
        let state = held.map_or(AgentState::Serving, |_| AgentState::Degraded);
        (state, held.unwrap_or(waiting).clone())
    } else if answered {
        let held = known.held(name).map(String::as_str);
        answered_state(held, incomplete, &refused, observed)
    } else if observed.is_in_trouble() {
        let refused = "Envoy rejected the newest change; the last accepted configuration is served";
        (AgentState::Degraded, observed.trouble_or(refused))
    } else {
        let why = "the newest change is being applied";
        (AgentState::Applying, why.to_owned())
    };
    GatewayReport {
        gateway: name.to_string(),
        state,
        message,
        addresses: restored
            .map_or(&observed.addresses, |wanted| &wanted.assignment.addresses)
            .iter()
            .map(ToString::to_string)
            .collect(),
        open_ports: open_ports(target.filter(|_| observed.live)),
        wanted,
        applied,
        wanted_revision: incomplete
            .map(|incomplete| incomplete.revision.clone())
            .filter(|revision| !revision.is_empty())
            .or_else(|| newest.and_then(|wanted| wanted.manifest_revision.clone()))
            .unwrap_or_default(),
        applied_revision: observed
            .applied
            .as_ref()
            .and_then(|wanted| wanted.manifest_revision.clone())
            .unwrap_or_default(),
        applied_at: observed.applied_at,
        stored: observed.stored.clone(),
        refused,
        unshown: observed.all_unshown(),
        refusal: observed.refusal.clone(),
        retained: retained(observed),
        inline_backends: target.map_or(0, |target| target.rendered.inline),
        draining: observed.draining.clone(),
        envoy: EnvoyReport {
            serves,
            ..observed.envoy.clone()
        },
    }
}

fn open_ports(served: Option<&Arc<Target>>) -> Vec<String> {
    let ports = served.map(|served| served.open_ports()).unwrap_or_default();
    let named = |(transport, port)| format!("{transport}/{port}");
    ports.into_iter().map(named).collect()
}

fn retained(observed: &Observed) -> Vec<RetainedReport> {
    let certificates = observed.applied.iter().flat_map(|target| &target.retained);
    let reports = certificates.flat_map(|RetainedCertificate { bundle, pem, until }| {
        let facts = CertificateFacts::from_pem(pem.as_bytes()).into_iter();
        facts.map(|facts| RetainedReport {
            bundle: bundle.clone(),
            subject: facts.subject,
            serial: facts.serial,
            until: *until,
        })
    });
    reports.collect()
}

fn answered_state(
    held: Option<&str>,
    incomplete: Option<&IncompleteRevision>,
    refused: &[RefusedReport],
    observed: &Observed,
) -> (AgentState, String) {
    if let Some(held) = held {
        return (AgentState::Degraded, held.to_owned());
    }
    if let Some(incomplete) = incomplete {
        let state = if incomplete.stuck {
            AgentState::Degraded
        } else {
            AgentState::Applying
        };
        return (state, incomplete.to_string());
    }
    if let [first, ..] = refused {
        let all = refused.len();
        let why = format!("the rest is served, but Envoy rejects this ({all} in total): {first}");
        return (AgentState::Degraded, why);
    }
    let state = if observed.leaves_out() {
        AgentState::Degraded
    } else {
        AgentState::Serving
    };
    (state, observed.notes.join("; "))
}

/// Replaces an unspecified address with the host's addresses.
pub(crate) fn reachable(
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

/// Returns `None` if no condition reports a problem.
fn count_bad(statuses: &Statuses) -> Option<String> {
    let bad = statuses
        .objects()
        .flat_map(|(_, _, status)| status.sections())
        .flat_map(|(_, conditions)| conditions)
        .filter(|condition| condition.is_fault())
        .count();
    (bad > 0).then(|| format!("{bad} object conditions report problems"))
}
