//! Reports the agent's readiness, status and liveness to a service manager.
//!
//! A host counts as started once it is ready (see `/readyz`) and serves the newest configuration.
//! The watchdog is fed unless the engine or an instance has been busy with one task for too long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::short;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::engine::SourceState;
use super::observed::Observed;
use super::report::health::unready;
use super::report::{GatewayReport, Report, SourceReport};
use sesame_host::service_manager;
use sesame_kinds::status::AgentState;

/// Time after which a host counts as started even if it is not ready.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between checks until the host is ready.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(5);
/// Time limit for a change. The engine is stuck if a change takes longer; the largest
/// configurations take seconds.
const LONGEST_RESOLUTION: Duration = Duration::from_secs(300);
/// Time limit for a task. An instance is stuck if a task takes longer; a search for rejected parts
/// can take minutes.
const LONGEST_WORK: Duration = Duration::from_secs(900);
/// Maximum length of the status in characters, about one screen line.
const STATUS_CHARS: usize = 200;

pub(super) struct Unit {
    started: Instant,
    /// True once the agent has reported readiness to the manager.
    ready: watch::Sender<bool>,
    status: String,
    ticks: Interval,
    /// Maximum time for connections to finish when Envoy is stopped.
    drain: Duration,
}

impl Unit {
    pub(super) fn new(drain: Duration) -> Self {
        Self {
            started: Instant::now(),
            ready: watch::Sender::new(false),
            status: String::new(),
            ticks: ticker(CHECK_INTERVAL),
            drain,
        }
    }

    /// Returns a value that becomes true once the agent has reported readiness to the manager.
    pub(super) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Waits forever without a service manager. Cancel-safe.
    pub(super) async fn due(&mut self) {
        if !service_manager::is_there() {
            std::future::pending::<()>().await;
        }
        self.ticks.tick().await;
    }

    /// Feeds the watchdog unless the engine or an instance is stuck.
    pub(super) fn update(
        &mut self,
        report: &Report,
        known: &SourceState,
        observed: &BTreeMap<NamespacedName, Observed>,
    ) {
        let status = status(report);
        if !*self.ready.borrow() && is_started(report, self.started.elapsed()) {
            service_manager::ready(&status);
            self.ready.send_replace(true);
            let watchdog = service_manager::watchdog().map(|longest| longest / 4);
            self.ticks = ticker(watchdog.unwrap_or(LATER).min(LATER));
        } else if self.status != status {
            service_manager::status(&status);
        }
        self.status = status;
        match stuck(known, observed, Instant::now(), self.drain) {
            None => service_manager::alive(),
            Some(why) => {
                tracing::error!("withholding the service manager's watchdog signal: {why}");
            }
        }
    }
}

fn ticker(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn is_started(report: &Report, since: Duration) -> bool {
    let applies = |gateway: &GatewayReport| gateway.state == AgentState::Applying;
    let serves = unready(report).is_empty() && !report.gateways.iter().any(applies);
    since >= TIMEOUT || serves || has_no_bundle(report)
}

/// Returns true if the bundle directory has no usable bundle yet. The first one may arrive much
/// later.
fn has_no_bundle(report: &Report) -> bool {
    let SourceReport {
        bundle_dir, reason, ..
    } = &report.source;
    let nothing = report.gateways.is_empty() && report.starting.is_empty();
    nothing && bundle_dir.is_some() && !reason.is_empty()
}

/// Describes a task that has taken too long.
fn stuck(
    known: &SourceState,
    observed: &BTreeMap<NamespacedName, Observed>,
    now: Instant,
    drain: Duration,
) -> Option<String> {
    let too_long = |since: Option<Instant>, longest: Duration| {
        since
            .map(|since| now.saturating_duration_since(since))
            .filter(|spent| *spent > longest)
    };
    if let Some(spent) = too_long(known.busy_since, LONGEST_RESOLUTION) {
        return Some(format!(
            "the engine has been working on one change for {spent:?}"
        ));
    }
    observed.iter().find_map(|(gateway, observed)| {
        let spent = too_long(observed.busy_since, LONGEST_WORK + drain)?;
        Some(format!(
            "the instance of Gateway {gateway} has been working on one task for {spent:?}"
        ))
    })
}

fn status(report: &Report) -> String {
    let reasons = unready(report);
    let mut text = if !reasons.is_empty() {
        format!("not ready: {}", reasons.join("; "))
    } else if report.gateways.is_empty() {
        format!("no Gateway for this host in {}", report.source.title())
    } else {
        let gateways = report.gateways.iter().map(|gateway| {
            let revision = if gateway.applied_revision.is_empty() {
                &gateway.applied
            } else {
                &gateway.applied_revision
            };
            let revision = match short(revision) {
                "" => "the last accepted configuration",
                revision => revision,
            };
            format!("{} {} with {revision}", gateway.gateway, gateway.state)
        });
        gateways.collect::<Vec<_>>().join("; ")
    };
    // The warnings include rejected settings.
    for warning in &report.warnings {
        text = format!("{text}; {warning}");
    }
    let line = text.replace(char::is_control, " ");
    match line.char_indices().nth(STATUS_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{AgentReport, EnvoyReport};
    use jiff::Timestamp;

    fn report(serves: Option<bool>) -> Report {
        let gateway = |serves| GatewayReport {
            gateway: "default/edge".to_owned(),
            state: AgentState::Serving,
            message: "as ever".to_owned(),
            addresses: Vec::new(),
            open_ports: Vec::new(),
            wanted: String::new(),
            applied: "0123456789abcdef".to_owned(),
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
                serves,
                ..EnvoyReport::default()
            },
        };
        Report {
            healthy: true,
            reasons: Vec::new(),
            hints: Vec::new(),
            warnings: Vec::new(),
            starting: Vec::new(),
            agent: AgentReport {
                version: String::new(),
                pid: 1,
                started: Timestamp::UNIX_EPOCH,
                stopping: false,
                keys_at_rest: String::new(),
            },
            source: SourceReport {
                available: true,
                manifests: Some("/etc/m".into()),
                ..SourceReport::default()
            },
            gateways: serves.map(gateway).into_iter().collect(),
            objects: Vec::new(),
            inputs: String::new(),
        }
    }

    #[test]
    fn unit_is_ready_when_serving_or_idle() {
        assert!(is_started(&report(Some(true)), Duration::ZERO));
        assert!(!is_started(&report(Some(false)), Duration::ZERO));
        assert!(is_started(&report(None), Duration::ZERO));
        let mut starting = report(None);
        starting.starting.push("default/edge".to_owned());
        assert!(!is_started(&starting, Duration::ZERO));
    }

    #[test]
    fn a_host_starts_with_its_newest_configuration() {
        let mut applying = report(Some(true));
        applying.gateways[0].state = AgentState::Applying;
        assert!(!is_started(&applying, TIMEOUT / 2));
        assert!(is_started(&applying, TIMEOUT));
    }

    #[test]
    fn empty_bundle_directory_does_not_delay_start() {
        let mut empty = report(None);
        empty.source.available = false;
        empty.source.bundle_dir = Some("/var/lib/sesame-bundles".into());
        assert!(!is_started(&empty, Duration::ZERO), "the source is unread");
        "it holds no bundle".clone_into(&mut empty.source.reason);
        assert!(is_started(&empty, Duration::ZERO));
    }

    #[test]
    fn unready_host_counts_as_started_after_timeout() {
        let mut away = report(None);
        away.source.available = false;
        assert!(!is_started(&away, TIMEOUT / 2));
        assert!(is_started(&away, TIMEOUT));
        assert_eq!(status(&away), "not ready: the source has not been read yet");
    }

    #[test]
    fn the_status_names_the_generation() {
        assert_eq!(
            status(&report(Some(true))),
            "default/edge Serving with 0123456789ab"
        );
        assert_eq!(
            status(&report(None)),
            "no Gateway for this host in the manifests in /etc/m"
        );
        let mut refused = report(Some(true));
        refused
            .warnings
            .push("the settings were rejected".to_owned());
        assert_eq!(
            status(&refused),
            "default/edge Serving with 0123456789ab; the settings were rejected"
        );
        let mut long = report(Some(true));
        long.gateways[0].gateway = "x\n".repeat(STATUS_CHARS);
        let line = status(&long);
        assert_eq!(line.chars().count(), STATUS_CHARS + 1);
        assert!(!line.contains('\n'));
    }

    #[test]
    fn loop_busy_for_too_long_is_stuck() {
        let begun = Instant::now();
        let drain = Duration::from_secs(30);
        let mut known = SourceState {
            busy_since: Some(begun),
            ..SourceState::default()
        };
        let mut observed = BTreeMap::new();
        assert_eq!(
            stuck(&known, &observed, begun + LONGEST_RESOLUTION, drain),
            None
        );
        let late = begun + LONGEST_RESOLUTION + CHECK_INTERVAL;
        let why = stuck(&known, &observed, late, drain).unwrap();
        assert!(why.starts_with("the engine"), "{why}");

        known.busy_since = None;
        let instance = Observed {
            busy_since: Some(begun),
            ..Observed::default()
        };
        observed.insert(NamespacedName::new("default", "edge"), instance);
        assert_eq!(
            stuck(&known, &observed, begun + LONGEST_WORK + drain, drain),
            None
        );
        let late = begun + LONGEST_WORK + drain + CHECK_INTERVAL;
        let why = stuck(&known, &observed, late, drain).unwrap();
        assert!(why.contains("default/edge"), "{why}");
    }
}
