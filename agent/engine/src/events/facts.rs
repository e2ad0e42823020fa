//! Derives events by comparing a host's facts at two points in time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sesame_proto::digest::short;

use super::{HostEvent, HostEventKind};
use crate::report::{GatewayReport, Report};
use sesame_sources::problem::Severity;

/// Maximum number of events from one comparison.
const MAX_EVENTS: usize = 100;
const MAX_CHARACTERS: usize = 500;

/// Messages by kind, Gateway and subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventFacts(BTreeMap<FactKey, String>);

type FactKey = (HostEventKind, String, String);

pub(super) type ServedCertificates = BTreeMap<(String, String), String>;

impl EventFacts {
    pub(super) fn after(events: &[HostEvent]) -> Self {
        let mut facts = BTreeMap::new();
        for event in events {
            let key = (event.event, event.gateway.clone(), event.about.clone());
            if event.ended {
                facts.remove(&key);
            } else {
                facts.insert(key, event.message.clone());
            }
        }
        Self(facts)
    }

    /// Keeps a Gateway's previous facts until its Envoy has accepted a revision.
    pub(super) fn of(report: &Report, certificates: &ServedCertificates, before: &Self) -> Self {
        let mut facts = Self::default();
        let Report {
            agent,
            source,
            gateways,
            starting,
            warnings,
            ..
        } = report;
        let started = format!("version {}, process {}", agent.version, agent.pid);
        facts.record(HostEventKind::AgentStarted, "", "", &started);
        if !source.available {
            let why = match source.reason.as_str() {
                "" => "it cannot be read",
                why => why,
            };
            facts.record(HostEventKind::SourceLost, "", "", why);
        }
        let errors = source.problems.iter();
        for problem in errors.filter(|problem| problem.severity == Severity::Error) {
            let about = problem.to_string();
            facts.record(HostEventKind::SourceProblem, "", &cut(&about), "");
        }
        for warning in warnings {
            facts.record(HostEventKind::Warning, "", &cut(warning), "");
        }
        let mut waiting: BTreeSet<&str> = starting.iter().map(String::as_str).collect();
        for gateway in gateways {
            facts.gateway(gateway);
            if gateway.applied.is_empty() {
                waiting.insert(&gateway.gateway);
            }
        }
        for ((gateway, name), expires) in certificates {
            facts.record(HostEventKind::CertificateChanged, gateway, name, expires);
        }
        for (key, message) in &before.0 {
            let has_envoy = matches!(key.0, HostEventKind::EnvoyStarted)
                && gateways.iter().any(|gateway| gateway.gateway == key.1);
            if waiting.contains(key.1.as_str()) || has_envoy {
                facts
                    .0
                    .entry(key.clone())
                    .or_insert_with(|| message.clone());
            }
        }
        facts
    }

    fn gateway(&mut self, gateway: &GatewayReport) {
        let name = gateway.gateway.as_str();
        let mut record = |kind, about: &str, message: &str| self.record(kind, name, about, message);
        record(HostEventKind::GatewayServed, "", "");
        if gateway.envoy.pid > 0 {
            let envoy = format!(
                "process {}, Envoy {}",
                gateway.envoy.pid, gateway.envoy.version
            );
            record(HostEventKind::EnvoyStarted, "", &envoy);
        }
        if gateway.envoy.state == "Backoff" {
            record(HostEventKind::EnvoyDown, "", &gateway.message);
        }
        if !gateway.applied.is_empty() {
            let revision = match gateway.applied_revision.as_str() {
                "" => short(&gateway.applied),
                revision => revision,
            };
            record(HostEventKind::RevisionApplied, "", revision);
        }
        if !gateway.refusal.is_empty() {
            record(
                HostEventKind::RevisionRefused,
                "",
                &gateway.refusal.join("; "),
            );
        }
        for refused in &gateway.refused {
            let parts = [
                refused.kind.as_str(),
                &refused.namespace,
                &refused.name,
                &refused.section,
            ];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let words = format!("{}; {}", refused.envoy_words, refused.effect);
            record(HostEventKind::PartRefused, &parts.join("/"), &words);
        }
        for (listener, why) in &gateway.unshown {
            record(HostEventKind::CertificateUnshown, listener, why);
        }
        if let Some(progress) = &gateway.draining {
            record(HostEventKind::Draining, "", progress);
        }
    }

    pub(super) fn held(&mut self, gateway: &str, why: &str) {
        self.record(HostEventKind::RevisionHeld, gateway, "", why);
    }

    fn record(&mut self, kind: HostEventKind, gateway: &str, about: &str, message: &str) {
        let key = (kind, gateway.to_owned(), about.to_owned());
        self.0.insert(key, cut(message));
    }

    /// Numbers the events from `last + 1`.
    pub(super) fn since(&self, before: &Self, last: u64, now: Timestamp) -> Vec<HostEvent> {
        let mut changes: Vec<(&FactKey, &str, bool)> = Vec::new();
        for (key, message) in &before.0 {
            if !self.0.contains_key(key) && key.0.ends() {
                changes.push((key, message, true));
            }
        }
        for (key, message) in &self.0 {
            let is_new = match before.0.get(key) {
                Some(previous) => previous != message && key.0.changes(),
                None => key.0.begins(),
            };
            if is_new {
                changes.push((key, message, false));
            }
        }
        let omitted = changes.len().saturating_sub(MAX_EVENTS);
        let events = changes.into_iter().take(MAX_EVENTS);
        let events = events.map(|((event, gateway, about), message, ended)| HostEvent {
            number: 0,
            time: now,
            event: *event,
            gateway: gateway.clone(),
            about: about.clone(),
            message: message.to_owned(),
            ended,
        });
        let more = (omitted > 0).then(|| HostEvent {
            number: 0,
            time: now,
            event: HostEventKind::MoreOmitted,
            gateway: String::new(),
            about: String::new(),
            message: format!("{omitted} more events at the same time were omitted"),
            ended: false,
        });
        (last + 1..)
            .zip(events.chain(more))
            .map(|(number, event)| HostEvent { number, ..event })
            .collect()
    }
}

impl HostEventKind {
    /// A Gateway's first certificates do not cause events.
    fn begins(self) -> bool {
        self != Self::CertificateChanged
    }

    fn changes(self) -> bool {
        matches!(
            self,
            Self::AgentStarted
                | Self::EnvoyStarted
                | Self::RevisionApplied
                | Self::CertificateChanged
        )
    }

    fn ends(self) -> bool {
        !self.changes() && self != Self::MoreOmitted
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{AgentReport, EnvoyReport, SourceReport};
    use sesame_kinds::status::AgentState;

    fn report(pid: u32, applied: &str) -> Report {
        Report {
            healthy: true,
            reasons: Vec::new(),
            hints: Vec::new(),
            warnings: Vec::new(),
            starting: Vec::new(),
            agent: AgentReport::default(),
            source: SourceReport {
                available: true,
                ..SourceReport::default()
            },
            gateways: vec![GatewayReport {
                gateway: "a/b".to_owned(),
                state: AgentState::Serving,
                message: String::new(),
                addresses: Vec::new(),
                open_ports: Vec::new(),
                wanted: applied.to_owned(),
                applied: applied.to_owned(),
                wanted_revision: String::new(),
                applied_revision: String::new(),
                applied_at: None,
                stored: String::new(),
                refused: Vec::new(),
                unshown: BTreeMap::new(),
                refusal: Vec::new(),
                retained: Vec::new(),
                inline_backends: 0,
                draining: None,
                envoy: EnvoyReport {
                    pid,
                    ..EnvoyReport::default()
                },
            }],
            objects: Vec::new(),
            inputs: String::new(),
        }
    }

    fn names(events: &[HostEvent]) -> Vec<String> {
        let names = events.iter().map(|event| {
            let end = if event.ended { " ended" } else { "" };
            format!("{}{end}", event.event)
        });
        names.collect()
    }

    #[test]
    fn changed_facts_become_events_once() {
        let none = ServedCertificates::new();
        let mut facts = EventFacts::default();
        let mut kept = Vec::new();
        let mut observe = |report: &Report, certificates: &ServedCertificates| {
            let now = EventFacts::of(report, certificates, &facts);
            let events = now.since(&facts, kept.len() as u64, Timestamp::UNIX_EPOCH);
            kept.extend(events.clone());
            facts = now;
            names(&events)
        };
        let first = [
            "AgentStarted",
            "GatewayServed",
            "EnvoyStarted",
            "RevisionApplied",
        ];
        let one = |expires: &str| {
            ServedCertificates::from([(("a/b".into(), "k".into()), expires.into())])
        };
        assert_eq!(observe(&report(7, "1"), &one("1")), first);
        assert!(observe(&report(7, "1"), &one("1")).is_empty());
        assert_eq!(
            observe(&report(8, "2"), &one("2")),
            ["EnvoyStarted", "RevisionApplied", "CertificateChanged"]
        );
        assert!(observe(&report(0, ""), &none).is_empty());
        let mut lost = report(8, "2");
        lost.source.available = false;
        lost.gateways[0].refusal = vec!["no".to_owned()];
        assert_eq!(observe(&lost, &one("2")), ["SourceLost", "RevisionRefused"]);
        assert_eq!(
            observe(&report(8, "2"), &one("2")),
            ["SourceLost ended", "RevisionRefused ended"]
        );
        let mut gone = report(8, "2");
        gone.gateways.clear();
        assert_eq!(observe(&gone, &none), ["GatewayServed ended"]);
        let numbers: Vec<u64> = kept.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn next_agent_knows_events_already_reported() {
        let none = ServedCertificates::new();
        let facts = EventFacts::of(&report(7, "1"), &none, &EventFacts::default());
        let events = facts.since(&EventFacts::default(), 0, Timestamp::UNIX_EPOCH);
        let known = EventFacts::after(&events);
        assert_eq!(known, facts);
        let mut next = report(7, "1");
        next.agent.pid = 5;
        let now = EventFacts::of(&next, &none, &known);
        assert_eq!(
            names(&now.since(&known, 9, Timestamp::UNIX_EPOCH)),
            ["AgentStarted"]
        );
    }

    #[test]
    fn many_at_once_are_bounded() {
        let mut many = report(7, "1");
        many.warnings = (0..1000).map(|number| format!("{number}")).collect();
        let facts = EventFacts::of(&many, &ServedCertificates::new(), &EventFacts::default());
        let events = facts.since(&EventFacts::default(), 0, Timestamp::UNIX_EPOCH);
        assert_eq!(events.len(), MAX_EVENTS + 1);
        assert_eq!(events[MAX_EVENTS].event, HostEventKind::MoreOmitted);
        assert_eq!(cut(&"ä".repeat(600)).chars().count(), MAX_CHARACTERS + 1);
    }
}
