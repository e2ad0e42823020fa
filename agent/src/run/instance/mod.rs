//! One Gateway on this host: its Envoy, its files, its last accepted state.
//!
//! The task takes the newest wanted configuration and has it published, again when Envoy is a new process or when a
//! port has become free. It never drops what is served because something new cannot be had.

mod drain;
mod persister;
mod publisher;
mod removal_guard;
mod replacement;
mod target_receiver;
mod target_selector;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sesame_gateway_api::api::NamespacedName;
use tokio::sync::{mpsc, watch};

use self::drain::{Drain, Until};
use self::publisher::Publisher;
use self::replacement::Replacement;
use self::target_receiver::{Ended, TargetReceiver};
use self::target_selector::TargetSelector;
use super::commands::{InstanceCommand, QueuedCommand};
use super::directories::GatewayDirectories;
use super::engine::Known;
use super::observed::{Observed, STOPPED};
use super::shutdown::Ending;
use super::target::Target;
use crate::apply::{self, Applier};
use crate::envoy::{State, Supervisor, SupervisorConfig, launch::Launcher, locate};
use crate::quarantine::tcp_addresses;

/// How long to wait before something that failed for no lasting reason is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A drain asks again and again; it need not wait long.
const DRAIN_ANSWER: Duration = Duration::from_secs(2);
/// Envoy spreads the end of connections over the time it drains.
const SHORTEST_DRAIN: Duration = Duration::from_secs(1);

/// What an instance is given.
pub(super) struct Instance {
    pub(super) gateway: NamespacedName,
    pub(super) directories: GatewayDirectories,
    pub(super) binary: PathBuf,
    pub(super) version: String,
    pub(super) concurrency: Option<u32>,
    pub(super) drain: Duration,
    pub(super) takeover: Duration,
    pub(super) launcher: Launcher,
    pub(super) most_removed: u8,
    pub(super) hold: Duration,
    /// Counts how often somebody has said that it is meant that no Gateway is left.
    pub(super) released: watch::Sender<u64>,
    pub(super) observed: watch::Sender<Observed>,
}

/// A configuration on disk and an Envoy that reads it.
struct Started {
    applier: Applier,
    supervisor: Supervisor,
    /// Whether the files that were there are used as they were.
    from_files: bool,
    /// What the Envoy is started with.
    bootstrap: Bytes,
}

impl Instance {
    /// Serves until `stop` says so, then leaves its Envoy or ends it.
    pub(super) async fn run(
        self,
        known: watch::Receiver<Known>,
        first: Arc<Target>,
        mut orders: mpsc::Receiver<QueuedCommand>,
        mut stop: watch::Receiver<Option<Ending>>,
    ) {
        let mut feed = TargetReceiver::new(self.gateway.clone(), known, first);
        let state = self.directories.state.clone();
        let mut desire = TargetSelector::new(feed.newest(), state, self.most_removed, self.hold);
        let mut newest = Arc::clone(desire.pursued());
        let Started {
            applier,
            supervisor,
            from_files,
            bootstrap,
        } = loop {
            match self.start(&newest).await {
                Ok(started) => break started,
                Err(error) => {
                    tracing::error!(gateway = %self.gateway, "{error:#}");
                    self.observed
                        .send_modify(|observed| observed.trouble = Some(format!("{error:#}")));
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        _ = stop.wait_for(Option::is_some) => return,
                    }
                }
            }
        };
        supervisor.park(tcp_addresses(&newest.rendered));
        let mut state = supervisor.state();
        let mut publisher = Publisher::new(&self, applier, supervisor.admin());
        let mut drain: Option<Drain> = None;
        let mut replacement = Replacement::new(bootstrap);
        // What was accepted before may be older than the files: those serve until the source has been read.
        let mut pending = (!from_files).then(|| Arc::clone(&newest));
        let mut before = State::Starting { pid: None };
        loop {
            let now = state.borrow_and_update().clone();
            if now != before {
                self.observed
                    .send_modify(|observed| observed.note_state(&now));
                if publisher.follow(&before, &now, &newest).await {
                    pending = Some(Arc::clone(&newest));
                }
                before = now;
            }
            let mut retry = false;
            if let (Some(next), true) = (&pending, before.is_live()) {
                // What is closed is to refuse connections.
                supervisor.park_only(&tcp_addresses(&next.rendered));
                let newer = || feed.has_newer() || stop.borrow().is_some();
                retry = !publisher.publish(next, newer).await;
                if !retry {
                    pending = None;
                }
                if let Some(applied) = &self.observed.borrow().applied {
                    supervisor.park(tcp_addresses(&applied.rendered));
                }
            }
            if let Some(why) = replacement.due(&before, &newest) {
                tracing::info!(gateway = %self.gateway, why, "Envoy is to be replaced");
                let observed = self.observed.borrow().clone();
                let replaced = replacement
                    .by_itself(why, &supervisor, &newest, &observed)
                    .await;
                self.note_replaced(replaced).await;
                continue;
            }
            self.note_held(&desire);
            let again = replacement.next(&before, &newest);
            let probe = publisher.next_probe();
            let held = desire.next();
            let mut ordered = None;
            let mut moved = false;
            tokio::select! {
                Some(order) = orders.recv() => ordered = Some(order),
                () = until(again), if again.is_some() => {}
                changed = feed.changed() => match changed {
                    Ok(other) => {
                        moved = desire.follow(other);
                    }
                    Err(Ended) => break,
                },
                _ = state.changed() => {}
                () = until(held), if held.is_some() => moved = desire.recheck(),
                _ = stop.wait_for(Option::is_some) => break,
                () = tokio::time::sleep(RETRY), if retry => {}
                () = until(probe), if probe.is_some() => {
                    if publisher.probe() {
                        pending = Some(Arc::clone(&newest));
                    }
                }
            }
            if let Some(QueuedCommand { what, listener }) = ordered {
                let observed = self.observed.borrow().clone();
                match what {
                    InstanceCommand::Restart { strategy } => {
                        let done = replacement
                            .ordered(strategy, &listener, &supervisor, &newest, &observed)
                            .await;
                        if done {
                            self.note_replaced(Ok(())).await;
                        }
                    }
                    InstanceCommand::Accept if feed.is_withdrawn() => {
                        self.released.send_modify(|count| *count += 1);
                        listener.end(Ok("what is not wanted any more is let go".to_owned()));
                    }
                    InstanceCommand::Accept => {
                        listener.end(changed(Ok(desire.accept().to_owned()), &mut moved));
                    }
                    InstanceCommand::Rollback { generation } => {
                        listener.end(changed(desire.roll_back(generation), &mut moved));
                    }
                    InstanceCommand::Resume => listener.end(changed(desire.resume(), &mut moved)),
                    InstanceCommand::Drain {
                        timeout_seconds,
                        lame_duck_seconds,
                        until_connections,
                    } => {
                        let until = Until {
                            lame_duck: Duration::from_secs(lame_duck_seconds),
                            timeout: Duration::from_secs(timeout_seconds),
                            connections: until_connections,
                        };
                        let admin = supervisor.admin().with_timeout(DRAIN_ANSWER);
                        drain = Some(Drain::start(admin, self.observed.clone(), until, listener));
                    }
                    InstanceCommand::Undrain => match drain.take() {
                        Some(drain) => {
                            let undone = drain.undo().await;
                            listener.end(undone.map(|()| "ready again".to_owned()));
                        }
                        None => listener.end(Ok("not drained; nothing to take back".to_owned())),
                    },
                }
            }
            if moved {
                newest = Arc::clone(desire.pursued());
                pending = Some(Arc::clone(&newest));
            }
        }
        // An agent without its engine knows nothing any more that would be a reason to end anything.
        let ending = stop.borrow().unwrap_or(Ending::Leave);
        match ending {
            Ending::Leave => drop(supervisor),
            Ending::Drain(grace) => supervisor.stop(grace).await,
        }
        publisher.finish().await;
        self.observed.send_modify(|observed| match ending {
            Ending::Leave => observed.left = true,
            Ending::Drain(_) => {
                observed.live = false;
                observed.draining = None;
                STOPPED.clone_into(&mut observed.envoy_state);
                observed.trouble = None;
            }
        });
    }

    /// Says which Envoy runs now, or why it is still the one of before.
    async fn note_replaced(&self, replaced: Result<(), String>) {
        let version = match &replaced {
            Ok(()) => locate::version(&self.binary).await.ok(),
            Err(error) => {
                tracing::error!(gateway = %self.gateway, "{error}");
                None
            }
        };
        self.observed.send_modify(|observed| {
            observed.outdated = replaced.err();
            if let Some(version) = version {
                observed.envoy_version = version.to_string();
            }
        });
    }

    /// Says why what the source wants is not tried, if it is not.
    fn note_held(&self, desire: &TargetSelector) {
        let held = desire.held();
        self.observed.send_if_modified(|observed| {
            let new = observed.held != held;
            if new {
                if let Some(why) = &held {
                    tracing::warn!(gateway = %self.gateway, "{why}");
                }
                observed.held = held;
            }
            new
        });
    }

    /// Adopts the Envoy that an earlier agent left, or writes the files and starts one.
    async fn start(&self, first: &Arc<Target>) -> anyhow::Result<Started> {
        let mut config = SupervisorConfig::new(
            &self.binary,
            &self.directories.runtime,
            self.directories.admin_socket(),
            first.bootstrap.clone(),
        );
        config.concurrency = self.concurrency;
        config.drain_time = self.drain.max(SHORTEST_DRAIN);
        config.takeover = self.takeover;
        config.launcher = Some(self.launcher.clone());
        let running = Supervisor::finds_running(&config)?;
        let (mut applier, opened) =
            Applier::open(self.directories.layout(), config.log(), running.as_ref()).await?;
        if opened.undone > 0 {
            tracing::warn!(gateway = %self.gateway, files = opened.undone, "an interrupted change was undone");
        }
        if !opened.junk.is_empty() {
            tracing::warn!(gateway = %self.gateway, files = ?opened.junk, "files for Envoy were damaged or not ours; they are written anew");
        }
        // Others may have damaged them since, or this agent may open more or fewer files than the last.
        applier.share_out(&first.rendered.shares)?;
        let from_files = first.restored && opened.junk.is_empty() && has_files(&applier);
        if running.is_some() {
            tracing::info!(gateway = %self.gateway, "an Envoy is already running; taking it over");
        } else if from_files {
            // The files are what Envoy accepted last; what was kept on disk may be one change older.
            tracing::info!(gateway = %self.gateway, "starting Envoy from the files that are there");
        } else {
            // Nobody reads the files yet: they can be written in any order.
            let wanted = apply::Wanted {
                rendered: &first.rendered,
                serials: &std::collections::BTreeMap::new(),
                may_empty: true,
            };
            applier.apply(wanted, None).await?;
        }
        self.observed.send_modify(|observed| {
            observed.admin = self.directories.admin_socket();
            observed.envoy_version.clone_from(&self.version);
            observed.trouble = None;
        });
        Ok(Started {
            applier,
            bootstrap: config.bootstrap.clone(),
            supervisor: Supervisor::start(config)?,
            from_files,
        })
    }
}

/// Whatever was done, what is pursued may be another one now.
fn changed(result: Result<String, String>, moved: &mut bool) -> Result<String, String> {
    *moved = result.is_ok();
    result
}

fn has_files(applier: &Applier) -> bool {
    let on_disk = applier.on_disk();
    on_disk.has_listeners && on_disk.has_clusters && !on_disk.content.listeners.is_empty()
}

/// Until then, if ever.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
