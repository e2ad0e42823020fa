//! Compares successive reports of the agent, and stores the differences as events.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use sesame_files::open::Rule;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::ExpiryOf;
use tokio::sync::watch;

use super::facts::{EventFacts, ServedCertificates};
use super::store::EventStore;
use crate::engine::SourceState;
use crate::following::FollowedInstances;
use crate::observed::{AllObserved, Observed, newest};
use crate::report::ReportSource;

/// Changes within this time are compared together, so shorter conditions may be missed.
const GATHER: Duration = Duration::from_secs(1);
/// Maximum time between comparisons, because certificates may expire without any other change.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct Recorder {
    report: ReportSource,
    known: watch::Receiver<SourceState>,
    all: watch::Receiver<AllObserved>,
    followed: FollowedInstances,
    store: EventStore,
    facts: EventFacts,
    last: u64,
    failing: bool,
    /// True once the source has been read.
    read: bool,
}

impl Recorder {
    /// Continues after the last event in this state directory.
    pub(crate) fn new(
        state_dir: &Path,
        report: ReportSource,
        known: watch::Receiver<SourceState>,
        all: watch::Receiver<AllObserved>,
    ) -> Self {
        let store = EventStore::new(state_dir);
        let events = store.read(Rule::Own).unwrap_or_else(|error| {
            tracing::warn!("cannot read the events of this host: {error}");
            Vec::new()
        });
        Self {
            report,
            known,
            followed: FollowedInstances::new(all.clone()),
            all,
            store,
            last: events.last().map_or(0, |event| event.number),
            facts: EventFacts::after(&events),
            failing: false,
            read: false,
        }
    }

    /// Never returns.
    pub(crate) async fn run(mut self) {
        loop {
            self.record_changes();
            self.followed.follow();
            tokio::select! {
                () = self.followed.changed() => {}
                _ = self.known.changed() => {}
                () = tokio::time::sleep(MAX_INTERVAL) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    fn record_changes(&mut self) {
        let report = (self.report)(false);
        self.read |= report.source.available;
        // Before the first read of the source, missing facts do not mean that conditions have
        // ended.
        if !self.read && report.source.reason.is_empty() {
            return;
        }
        let observed = newest(&self.all);
        let mut facts = EventFacts::of(&report, &certificates(&observed), &self.facts);
        for (name, observed) in &observed {
            let held = self.known.borrow().held(name).cloned();
            if let Some(why) = observed.held.clone().or(held) {
                facts.held(&name.to_string(), &why);
            }
        }
        let events = facts.since(&self.facts, self.last, Timestamp::now());
        match self.store.append(&events) {
            Ok(()) => {
                self.failing = false;
                self.last += events.len() as u64;
                self.facts = facts;
            }
            // The next comparison produces these events again.
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!("cannot store the events of this host: {error}");
                }
            }
        }
    }
}

fn certificates(observed: &BTreeMap<NamespacedName, Observed>) -> ServedCertificates {
    let mut certificates = ServedCertificates::new();
    for (gateway, observed) in observed {
        let served = observed.applied.iter().flat_map(|served| served.expiries());
        for expiry in served.filter(|expiry| matches!(expiry.of, ExpiryOf::Leaf)) {
            let words = match Timestamp::from_second(expiry.not_after) {
                Ok(end) => format!("expires at {end}"),
                Err(_) => "expires at an unknown time".to_owned(),
            };
            certificates.insert((gateway.to_string(), expiry.name.clone()), words);
        }
    }
    certificates
}
