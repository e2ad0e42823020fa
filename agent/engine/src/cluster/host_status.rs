//! Builds this host's `GatewayAgent` status for one Gateway.

use jiff::Timestamp;
use sesame_kinds::status::AgentState;
use sesame_proto::digest::short;
use sesame_published::{
    GatewayAgentStatus, MAX_ENTRIES, MAX_REPORTED_ADDRESSES, MAX_RULES, MAX_TEXT, RefusedListener,
    RefusedObject, RefusedRoute, RefusedRule, UnshownCertificate, UnusableAddress,
};

use crate::observed::Observed;
use crate::report::GatewayReport;
use crate::report::compose::reachable;
use sesame_apply::quarantine::{AffectedRoute, Refused};
use sesame_sources::update::IncompleteRevision;

/// Reported when the agent stops and leaves Envoy running.
const LEFT: &str = "the agent was stopped, and Envoy keeps serving";

#[derive(Clone, Debug)]
pub(super) struct HostInventory {
    /// Reported for Gateways that listen on all addresses.
    pub(super) addresses: Vec<String>,
    /// Empty if not configured.
    pub(super) zone: String,
    pub(super) cores: u32,
    pub(super) memory_mib: u64,
    /// `None` means the default.
    pub(super) report_seconds: Option<u32>,
}

/// Leaves the heartbeat time unset.
pub(super) fn host_status(
    report: &GatewayReport,
    observed: &Observed,
    host: &HostInventory,
    before: Option<&GatewayAgentStatus>,
) -> GatewayAgentStatus {
    let GatewayReport {
        gateway: _,
        state: _,
        message: _,
        addresses,
        open_ports,
        // These digests include the endpoints, which differ between hosts.
        wanted: _,
        applied: _,
        wanted_revision,
        applied_revision,
        applied_at,
        stored: _,
        // Reported below, with locations from the snapshot.
        refused: _,
        unshown: _,
        refusal: _,
        // Only commands on the host show these values.
        retained: _,
        inline_backends: _,
        draining: _,
        envoy: _,
    } = report;
    let (wanted_revision, applied_revision) = (short(wanted_revision), short(applied_revision));
    let is_applied = !applied_revision.is_empty() && wanted_revision == applied_revision;
    let (state, message) = state_of(report, is_applied);
    // Endpoint changes must not affect this time.
    let applied_at = before
        .filter(|before| before.applied_revision == applied_revision)
        .map_or(*applied_at, |before| before.applied_at);
    GatewayAgentStatus {
        state,
        message: if_left(message, observed),
        wanted_revision: wanted_revision.to_owned(),
        applied_revision: applied_revision.to_owned(),
        applied_at: applied_at.and_then(whole_seconds),
        envoy_version: observed.envoy.version.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: host.zone.clone(),
        cores: host.cores,
        memory_mib: host.memory_mib,
        addresses: served_on(addresses, observed, host),
        open_ports: open_ports.iter().take(MAX_ENTRIES).cloned().collect(),
        draining: report.draining.is_some(),
        unusable_addresses: bounded(&observed.unusable_addresses, unusable_address),
        refused_listeners: bounded(&observed.all_refused(), |(name, reason)| RefusedListener {
            name: name.clone(),
            reason: text(reason),
        }),
        unshown_certificates: bounded(&observed.all_unshown(), |(listener, reason)| {
            UnshownCertificate {
                listener: listener.clone(),
                reason: text(reason),
            }
        }),
        refused_routes: bounded(&observed.affected.routes, refused_route),
        refused: bounded(&observed.affected.refused, refused_object),
        next_certificate_expiry: next_expiry(observed),
        report_seconds: host.report_seconds,
        traffic: observed.traffic.map(Into::into),
        envoy_deaths: observed.deaths(),
        held: observed.held.is_some(),
        heartbeat: None,
    }
}

pub(super) fn unserved_status(
    incomplete: &IncompleteRevision,
    host: &HostInventory,
) -> GatewayAgentStatus {
    GatewayAgentStatus {
        state: if incomplete.stuck {
            AgentState::Down
        } else {
            AgentState::Applying
        },
        message: text(&incomplete.to_string()),
        wanted_revision: short(&incomplete.revision).to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: host.zone.clone(),
        cores: host.cores,
        memory_mib: host.memory_mib,
        report_seconds: host.report_seconds,
        ..GatewayAgentStatus::default()
    }
}

/// Ignores endpoint changes that are not applied yet.
fn state_of(report: &GatewayReport, is_applied: bool) -> (AgentState, String) {
    if let Some(draining) = &report.draining {
        // Envoy still serves, but may stop soon.
        let message = format!("is being drained: {draining}");
        return (AgentState::Degraded, text(&message));
    }
    let plain = report.refused.is_empty() && report.refusal.is_empty();
    if report.state == AgentState::Applying && is_applied && plain {
        return (AgentState::Serving, String::new());
    }
    (report.state, text(&report.message))
}

fn if_left(message: String, observed: &Observed) -> String {
    // If no agent starts, the controller considers the host lost after a while.
    match (observed.left && observed.live, message.as_str()) {
        (false, _) => message,
        (true, "") => LEFT.to_owned(),
        (true, before) => text(&format!("{LEFT}; {before}")),
    }
}

fn served_on(addresses: &[String], observed: &Observed, host: &HostInventory) -> Vec<String> {
    if !observed.live {
        return Vec::new();
    }
    let listened = addresses.iter().filter_map(|ip| ip.parse().ok());
    let mut all = reachable(listened, &host.addresses);
    all.truncate(MAX_REPORTED_ADDRESSES);
    all
}

fn unusable_address((address, reason): (&String, &String)) -> UnusableAddress {
    UnusableAddress {
        address: address.clone(),
        reason: text(reason),
    }
}

fn refused_route((route, affected): (&String, &AffectedRoute)) -> RefusedRoute {
    RefusedRoute {
        route: route.clone(),
        rules: rules(&affected.rules),
        backends: rules(&affected.shares),
        works: affected.works,
    }
}

fn refused_object(refused: &Refused) -> RefusedObject {
    RefusedObject {
        object: refused.object.clone(),
        effect: text(&refused.effect),
        envoy_words: text(&refused.envoy_words),
        since: whole_seconds(refused.since),
    }
}

fn bounded<I: IntoIterator, T>(all: I, entry: impl Fn(I::Item) -> T) -> Vec<T> {
    all.into_iter().take(MAX_ENTRIES).map(entry).collect()
}

fn next_expiry(observed: &Observed) -> Option<Timestamp> {
    Timestamp::from_second(observed.applied.as_ref()?.encoded.first_expiry()?).ok()
}

fn rules(rules: &std::collections::BTreeMap<usize, String>) -> Vec<RefusedRule> {
    rules
        .iter()
        .take(MAX_RULES)
        .map(|(rule, reason)| RefusedRule {
            rule: *rule,
            reason: text(reason),
        })
        .collect()
}

fn text(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT - 1) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The API server does not store fractional seconds.
fn whole_seconds(time: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(time.as_second()).ok()
}
