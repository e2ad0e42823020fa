//! The loop of an instance whose Envoy was started: one event after the other, and in between Envoy is brought to what
//! it is to serve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::drain::{Drain, Until};
use super::publisher::Publisher;
use super::replacement::Replacement;
use super::start::Started;
use super::target_receiver::{EngineGone, TargetReceiver};
use super::target_selector::TargetSelector;
use super::{Instance, RETRY};
use crate::envoy::{State, Supervisor, locate};
use crate::run::commands::{InstanceCommand, QueuedCommand, ReplySink};
use crate::run::observed::{Observed, STOPPED};
use crate::run::reload::LiveSettings;
use crate::run::shutdown::Ending;
use crate::run::target::Target;
use crate::xds::tcp_addresses;

/// A drain asks again and again; it need not wait long.
const DRAIN_ANSWER: Duration = Duration::from_secs(2);

/// An instance with its Envoy.
pub(super) struct Serving {
    instance: Instance,
    supervisor: Supervisor,
    publisher: Publisher,
    replacement: Replacement,
    drain: Option<Drain>,
    targets: TargetReceiver,
    selector: TargetSelector,
    /// True if the selected target is to be published.
    unpublished: bool,
    states: watch::Receiver<State>,
    /// State of Envoy that was followed last.
    state: State,
    stop: watch::Receiver<Option<Ending>>,
    /// Settings that may change while the agent runs.
    live: watch::Receiver<LiveSettings>,
}

/// Something that an instance waits for.
enum Event {
    Command(QueuedCommand),
    /// The source wants another target.
    Target(Arc<Target>),
    /// The time of a target that is held is over.
    Recheck,
    /// Time to look whether a port has become free.
    Probe,
    /// Settings have changed.
    Settings,
    /// Anything that the next round sees by itself.
    Round,
    Stop,
}

impl Serving {
    pub(super) fn new(
        instance: Instance,
        started: Started,
        selector: TargetSelector,
        targets: TargetReceiver,
        stop: watch::Receiver<Option<Ending>>,
    ) -> Self {
        let Started {
            applier,
            supervisor,
            from_files,
            bootstrap,
        } = started;
        supervisor.park(tcp_addresses(&selector.selected().rendered));
        Self {
            publisher: Publisher::new(&instance, applier, supervisor.admin(), selector.selected()),
            replacement: Replacement::new(bootstrap),
            drain: None,
            targets,
            selector,
            // What was accepted before may be older than the files: those serve until the source has been read.
            unpublished: !from_files,
            states: supervisor.state(),
            state: State::Starting { pid: None },
            stop,
            live: instance.settings.live.clone(),
            instance,
            supervisor,
        }
    }

    /// Serves until it is told to stop, or the engine is gone.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<QueuedCommand>) {
        loop {
            self.follow_state().await;
            let retry = !self.publish().await;
            if self.replace_if_due().await {
                continue;
            }
            self.note_held();
            self.instance.note_busy(false);
            let event = self.next(&mut commands, retry).await;
            self.instance.note_busy(true);
            match event {
                Event::Command(command) => self.obey(command).await,
                Event::Target(target) => self.unpublished |= self.selector.follow(target),
                Event::Recheck => self.unpublished |= self.selector.recheck(),
                Event::Probe => self.unpublished |= self.publisher.probe(),
                Event::Settings => self.unpublished |= self.take_settings(),
                Event::Round => {}
                Event::Stop => break,
            }
        }
        self.finish().await;
    }

    /// Takes note of Envoy's state, and of whether a new process is to be told again.
    async fn follow_state(&mut self) {
        let now = self.states.borrow_and_update().clone();
        if now == self.state {
            return;
        }
        let observed = &self.instance.observed;
        observed.send_modify(|observed| observed.note_state(&now));
        let target = self.selector.selected();
        self.unpublished |= self.publisher.follow(&self.state, &now, target).await;
        self.state = now;
    }

    /// Publishes the selected target, if it is not published and Envoy is live. Returns false if it is to be tried again.
    async fn publish(&mut self) -> bool {
        if !self.unpublished || !self.state.is_live() {
            return true;
        }
        let target = self.selector.selected();
        // What is closed is to refuse connections.
        let addresses = tcp_addresses(&target.rendered);
        self.supervisor.park_only(&addresses);
        let (targets, stop) = (&self.targets, &self.stop);
        let newer = || targets.has_newer() || stop.borrow().is_some();
        let done = self.publisher.publish(target, newer).await;
        self.unpublished = !done;
        if let Some(applied) = &self.instance.observed.borrow().applied {
            self.supervisor.park(tcp_addresses(&applied.rendered));
        }
        done
    }

    /// Replaces an Envoy that is no longer what it should be. Returns whether that was tried.
    async fn replace_if_due(&mut self) -> bool {
        let target = self.selector.selected();
        let Some(why) = self.replacement.due(&self.state, target) else {
            return false;
        };
        tracing::info!(gateway = %self.instance.gateway, why, "Envoy is to be replaced");
        let observed = self.instance.observed.borrow().clone();
        let replacing = self
            .replacement
            .by_itself(why, &self.supervisor, target, &observed);
        let replaced = replacing.await;
        self.note_replaced(replaced).await;
        true
    }

    /// Waits for the next event. `retry` says that something failed which may work after a while.
    async fn next(&mut self, commands: &mut mpsc::Receiver<QueuedCommand>, retry: bool) -> Event {
        let replace = self.replacement.next(&self.state, self.selector.selected());
        tokio::select! {
            Some(command) = commands.recv() => Event::Command(command),
            () = until(replace) => Event::Round,
            target = self.targets.changed() => match target {
                Ok(target) => Event::Target(target),
                Err(EngineGone) => Event::Stop,
            },
            _ = self.states.changed() => Event::Round,
            Ok(()) = self.live.changed() => Event::Settings,
            () = until(self.selector.next()) => Event::Recheck,
            _ = self.stop.wait_for(Option::is_some) => Event::Stop,
            () = tokio::time::sleep(RETRY), if retry => Event::Round,
            () = until(self.publisher.next_probe()) => Event::Probe,
        }
    }

    /// Judges what is held by the settings that there are now. Returns whether another target was selected.
    fn take_settings(&mut self) -> bool {
        let (most_removed, hold) = {
            let live = self.live.borrow_and_update();
            (live.most_removed, live.hold)
        };
        self.selector.hold_by(most_removed, hold)
    }

    /// Carries out a command.
    async fn obey(&mut self, command: QueuedCommand) {
        let QueuedCommand { command, replies } = command;
        match command {
            InstanceCommand::Restart { strategy } => {
                let observed = self.instance.observed.borrow().clone();
                let target = self.selector.selected();
                let replacing = self.replacement.on_command(
                    strategy,
                    &replies,
                    &self.supervisor,
                    target,
                    &observed,
                );
                if replacing.await {
                    self.note_replaced(Ok(())).await;
                }
            }
            InstanceCommand::Accept if self.targets.is_withdrawn() => {
                let released = &self.instance.settings.released;
                released.send_modify(|count| *count += 1);
                replies.end(Ok(
                    "Gateways that the source no longer has are withdrawn".to_owned()
                ));
            }
            InstanceCommand::Accept => {
                let accepted = self.selector.accept().to_owned();
                self.selected_anew(Ok(accepted), &replies);
            }
            InstanceCommand::Rollback { generation } => {
                let outcome = self.selector.roll_back(generation);
                self.selected_anew(outcome, &replies);
            }
            InstanceCommand::Resume => {
                let outcome = self.selector.resume();
                self.selected_anew(outcome, &replies);
            }
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
                let admin = self.supervisor.admin().with_timeout(DRAIN_ANSWER);
                let observed = self.instance.observed.clone();
                self.drain = Some(Drain::start(admin, observed, until, replies));
            }
            InstanceCommand::Undrain => match self.drain.take() {
                Some(drain) => {
                    let undone = drain.undo().await;
                    replies.end(undone.map(|()| "ready again".to_owned()));
                }
                None => replies.end(Ok("not drained; nothing to undo".to_owned())),
            },
        }
    }

    /// Replies with the outcome of a command that may have selected another target.
    fn selected_anew(&mut self, outcome: Result<String, String>, replies: &ReplySink) {
        self.unpublished |= outcome.is_ok();
        replies.end(outcome);
    }

    /// Leaves the Envoy or ends it, and keeps what it accepted.
    async fn finish(self) {
        // An agent without its engine knows of no reason to end anything.
        let ending = self.stop.borrow().unwrap_or(Ending::Leave);
        match ending {
            Ending::Leave => drop(self.supervisor),
            Ending::Drain(grace) => self.supervisor.stop(grace).await,
        }
        self.publisher.finish().await;
        self.instance.observed.send_modify(|observed| match ending {
            Ending::Leave => observed.left = true,
            Ending::Drain(_) => {
                observed.live = false;
                observed.draining = None;
                STOPPED.clone_into(&mut observed.envoy_state);
                observed.trouble = None;
            }
        });
    }

    /// Takes note of the Envoy that runs now, or of why it is still the one of before.
    async fn note_replaced(&self, replaced: Result<(), String>) {
        let Instance {
            gateway,
            settings,
            observed,
            ..
        } = &self.instance;
        let version = match &replaced {
            Ok(()) => locate::version(&settings.binary).await.ok(),
            Err(error) => {
                tracing::error!(%gateway, "{error}");
                None
            }
        };
        observed.send_modify(|observed| {
            observed.outdated = replaced.err();
            if let Some(version) = version {
                observed.envoy_version = version.to_string();
            }
        });
    }

    /// Takes note of why the target is not what the source wants, if it is not.
    fn note_held(&self) {
        let held = self.selector.held();
        self.instance
            .observed
            .send_if_modified(|observed: &mut Observed| {
                let changed = observed.held != held;
                if changed {
                    if let Some(why) = &held {
                        tracing::warn!(gateway = %self.instance.gateway, "{why}");
                    }
                    observed.held = held;
                }
                changed
            });
    }
}

/// Sleeps until `instant`; for ever if there is none.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
