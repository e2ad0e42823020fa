//! One Gateway on this host: its Envoy, its files, its last accepted state.
//!
//! The task takes the newest wanted configuration, applies it as a transaction, keeps what Envoy accepted,
//! and says what it has seen. It never drops what is served because something new cannot be had.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sesame_controller::api::NamespacedName;
use tokio::sync::watch;

use super::directories::GatewayDirectories;
use super::keeper::Keeper;
use super::wanted::Wanted;
use crate::apply::{self, Applier, ApplyError, Outcome, Report};
use crate::envoy::{State, Supervisor, SupervisorConfig};

/// How long to wait before something that failed for no lasting reason is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What an instance is given.
pub(super) struct Instance {
    pub(super) gateway: NamespacedName,
    pub(super) directories: GatewayDirectories,
    pub(super) binary: PathBuf,
    pub(super) version: String,
    pub(super) concurrency: Option<u32>,
    pub(super) drain: Duration,
    pub(super) seen: watch::Sender<Seen>,
}

/// What an instance has seen, newest only.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Whether Envoy serves.
    pub(super) live: bool,
    /// Envoy's state in words.
    pub(super) envoy_state: String,
    /// Its process; 0 when there is none.
    pub(super) envoy_pid: u32,
    /// Its version.
    pub(super) envoy_version: String,
    /// Its admin socket.
    pub(super) admin: PathBuf,
    /// What it accepted last.
    pub(super) applied: Option<Arc<Wanted>>,
    /// When.
    pub(super) applied_at: Option<Timestamp>,
    /// What it refused of what is wanted now, in its own words.
    pub(super) refused: Vec<String>,
    /// Why what is wanted is not served, if it is not because of a refusal.
    pub(super) trouble: Option<String>,
    /// What is left out of what is served.
    pub(super) notes: Vec<String>,
    /// Where it listens.
    pub(super) addresses: Vec<IpAddr>,
    /// Addresses asked for that this host does not have.
    pub(super) unusable_addresses: BTreeMap<String, String>,
}

impl Seen {
    /// The accepted revision; empty when there is none.
    pub(super) fn applied_revision(&self) -> &str {
        self.applied.as_ref().map_or("", |wanted| wanted.revision())
    }

    /// What is wrong, or `otherwise`.
    pub(super) fn trouble_or(&self, otherwise: &str) -> String {
        self.trouble.clone().unwrap_or_else(|| otherwise.to_owned())
    }
}

impl Instance {
    /// Serves until `stop` says so, then drains.
    pub(super) async fn run(
        self,
        mut wanted: watch::Receiver<Arc<Wanted>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let first = Arc::clone(&wanted.borrow_and_update());
        let (mut applier, supervisor) = loop {
            match self.start(&first).await {
                Ok(started) => break started,
                Err(error) => {
                    tracing::error!(gateway = %self.gateway, "{error:#}");
                    self.seen.send_modify(|seen| seen.trouble = Some(format!("{error:#}")));
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        _ = stop.wait_for(|stop| *stop) => return,
                    }
                }
            }
        };
        let keeper = Keeper::start(self.gateway.clone(), self.directories.state.clone());
        let mut state = supervisor.state();
        let mut pending = Some(first);
        loop {
            self.note_state(&state.borrow_and_update());
            let live = self.seen.borrow().live;
            let retry = match &pending {
                Some(wanted) if live => {
                    let done = self.apply(&mut applier, &supervisor, &keeper, wanted).await;
                    if done {
                        pending = None;
                    }
                    !done
                }
                _ => false,
            };
            tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => pending = Some(Arc::clone(&wanted.borrow_and_update())),
                    Err(_) => break,
                },
                changed = state.changed() => {
                    // A new process has read the files by itself; what it took of them is to be seen.
                    if changed.is_ok() && pending.is_none() {
                        pending.clone_from(&self.seen.borrow().applied);
                    }
                }
                _ = stop.wait_for(|stop| *stop) => break,
                () = tokio::time::sleep(RETRY), if retry => {}
            }
        }
        supervisor.stop(self.drain).await;
        keeper.finish().await;
        self.seen.send_modify(|seen| {
            seen.live = false;
            "Stopped".clone_into(&mut seen.envoy_state);
        });
    }

    /// Adopts the Envoy that an earlier agent left, or writes the files and starts one.
    async fn start(&self, first: &Arc<Wanted>) -> anyhow::Result<(Applier, Supervisor)> {
        let mut config = SupervisorConfig::new(
            &self.binary,
            &self.directories.runtime,
            self.directories.admin_socket(),
            first.bootstrap.clone(),
        );
        config.concurrency = self.concurrency;
        let running = Supervisor::finds_running(&config).await?;
        let (mut applier, opened) =
            Applier::open(self.directories.layout(), config.log(), running.as_ref()).await?;
        if opened.undone > 0 {
            tracing::warn!(gateway = %self.gateway, files = opened.undone, "an interrupted change was undone");
        }
        if running.is_some() {
            tracing::info!(gateway = %self.gateway, "an Envoy is already running; taking it over");
        } else {
            // Nobody reads the files yet: they can be written in any order.
            applier.apply(to_apply(first, &serials(first), true), None).await?;
        }
        self.seen.send_modify(|seen| {
            seen.admin = self.directories.admin_socket();
            seen.envoy_version.clone_from(&self.version);
            seen.trouble = None;
        });
        Ok((applier, Supervisor::start(config).await?))
    }

    fn note_state(&self, state: &State) {
        self.seen.send_modify(|seen| {
            seen.live = state.is_live();
            seen.envoy_pid = 0;
            let (words, trouble) = match state {
                State::Starting { pid } => {
                    seen.envoy_pid = pid.unwrap_or(0);
                    ("Starting", None)
                }
                State::Live { pid, .. } => {
                    seen.envoy_pid = *pid;
                    ("Live", None)
                }
                State::Backoff { deaths, reason, .. } => (
                    "Backoff",
                    Some(format!("Envoy died {deaths} times in a row: {reason}")),
                ),
                State::Stopping { pid } => {
                    seen.envoy_pid = *pid;
                    ("Stopping", None)
                }
                State::Stopped => ("Stopped", None),
            };
            words.clone_into(&mut seen.envoy_state);
            seen.trouble = trouble;
        });
    }

    /// Brings Envoy to `wanted`. `false`: to be tried again.
    async fn apply(
        &self,
        applier: &mut Applier,
        supervisor: &Supervisor,
        keeper: &Keeper,
        wanted: &Arc<Wanted>,
    ) -> bool {
        let admin = supervisor.admin();
        let serials = serials(wanted);
        let result = applier.apply(to_apply(wanted, &serials, false), Some(&admin)).await;
        let trouble = match result {
            Ok(report) => match report.outcome {
                Outcome::Unchanged | Outcome::Applied => {
                    self.accepted(wanted, &report);
                    keeper.keep(wanted);
                    return true;
                }
                Outcome::Refused(refusal) => {
                    return self.refused(refusal.envoy_words);
                }
                Outcome::Unseen { subscriptions, .. } => {
                    format!("Envoy does not react to {subscriptions:?}")
                }
                Outcome::Gone { reason, .. } => format!("Envoy does not answer: {reason}"),
                Outcome::NotRunning => "Envoy is not running".to_owned(),
            },
            Err(error @ ApplyError::Empties { .. }) => return self.refused(vec![error.to_string()]),
            Err(error) => error.to_string(),
        };
        tracing::warn!(gateway = %self.gateway, "a change is not applied yet: {trouble}");
        self.seen.send_modify(|seen| seen.trouble = Some(trouble));
        false
    }

    /// Nothing is gained by trying the same again: a newer configuration is waited for.
    fn refused(&self, words: Vec<String>) -> bool {
        tracing::error!(gateway = %self.gateway, "a change is refused; what was accepted last is served: {}", words.join("; "));
        self.seen.send_modify(|seen| seen.refused = words);
        true
    }

    fn accepted(&self, wanted: &Arc<Wanted>, report: &Report) {
        tracing::info!(gateway = %self.gateway, cause = wanted.cause, "Envoy serves the newest configuration");
        self.seen.send_modify(|seen| {
            let same = seen
                .applied
                .as_ref()
                .is_some_and(|applied| Arc::ptr_eq(applied, wanted));
            if !same {
                seen.applied_at = Some(Timestamp::now());
            }
            seen.applied = Some(Arc::clone(wanted));
            seen.refused.clear();
            seen.trouble = None;
            seen.addresses.clone_from(&wanted.assignment.addresses);
            seen.notes.clone_from(&wanted.assignment.problems);
            seen.notes
                .extend(wanted.rendered.problems.iter().map(ToString::to_string));
            seen.notes.extend(
                report
                    .still_warming
                    .iter()
                    .map(|cluster| format!("cluster {cluster} is still warming")),
            );
            seen.unusable_addresses = wanted
                .resolved
                .snapshot
                .addresses
                .iter()
                .filter(|asked| !wanted.assignment.addresses.iter().any(|ip| ip.to_string() == **asked))
                .map(|asked| (asked.clone(), "this host does not offer it".to_owned()))
                .collect();
        });
    }
}

/// The serial numbers that handshakes must show.
fn serials(wanted: &Wanted) -> BTreeMap<String, String> {
    let keys = &wanted.resolved.snapshot.keys;
    keys.iter()
        .map(|key| (key.name.clone(), key.serial.clone()))
        .collect()
}

fn to_apply<'a>(
    wanted: &'a Wanted,
    serials: &'a BTreeMap<String, String>,
    may_empty: bool,
) -> apply::Wanted<'a> {
    apply::Wanted {
        rendered: &wanted.rendered,
        serials,
        may_empty,
    }
}
