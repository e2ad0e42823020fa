//! The loop of an instance with a running Envoy.

mod clean_up;
mod notes;
mod traffic;
mod turns;

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

use self::clean_up::CleanUp;
use self::traffic::TrafficCounter;
use super::drain::Drain;
use super::drain_guard::HeldDrain;
use super::pacing::Pacing;
use super::publisher::Publisher;
use super::replacement::Replacement;
use super::start::Started;
use super::target_selector::TargetSelector;
use super::{Instance, RETRY};
use crate::commands::{InstanceCommand, QueuedCommand, ReplySink};
use crate::metrics::OpenConnections;
use crate::observed::{STOPPED, STOPPING};
use crate::reload::LiveSettings;
use crate::shutdown::Ending;
use sesame_envoy::{State, Supervisor};
use sesame_host::until;
use sesame_render::xds::tcp_addresses;

/// Timeout for Envoy's admin interface. Short, because a drain polls repeatedly.
const ADMIN_ANSWER: Duration = Duration::from_secs(2);

pub(super) struct Serving {
    instance: Instance,
    supervisor: Supervisor,
    publisher: Publisher,
    replacement: Replacement,
    drain: Option<Drain>,
    selector: TargetSelector,
    /// The held change, with the open connections when it was counted.
    held_drain: Option<(HeldDrain, Option<OpenConnections>)>,
    unpublished: bool,
    pacing: Pacing,
    /// True if the target is a change from the source, so it must wait for its turn.
    paced: bool,
    turn: Option<Instant>,
    /// True if Envoy did not accept the last part that was applied early.
    refused_ahead: bool,
    clean_up: CleanUp,
    traffic: TrafficCounter,
    states: watch::Receiver<State>,
    state: State,
    stop: watch::Receiver<Option<Ending>>,
    live: watch::Receiver<LiveSettings>,
}

enum InstanceEvent {
    Command(QueuedCommand),
    Round,
    Stop,
}

impl Serving {
    pub(super) fn new(
        instance: Instance,
        started: Started,
        selector: TargetSelector,
        stop: watch::Receiver<Option<Ending>>,
    ) -> Self {
        let supervisor = started.supervisor;
        let live = instance.settings.live.clone();
        let percent = live.borrow().apply_share;
        supervisor.park(tcp_addresses(&selector.selected().rendered));
        Self {
            publisher: Publisher::new(
                &instance,
                started.applier,
                supervisor.admin(),
                selector.selected(),
            ),
            replacement: Replacement::new(started.bootstrap),
            drain: None,
            // The files may be newer than the accepted target, so keep them until the source has
            // been read. Replace them if they may contain expired certificates.
            unpublished: !started.from_files || selector.has_overlap(),
            selector,
            held_drain: None,
            states: supervisor.state(),
            pacing: Pacing::new(percent, Instant::now()),
            paced: false,
            turn: None,
            refused_ahead: false,
            clean_up: CleanUp::default(),
            traffic: TrafficCounter::default(),
            state: State::Starting { pid: None },
            stop,
            live,
            instance,
            supervisor,
        }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<QueuedCommand>) {
        loop {
            self.follow_state().await;
            self.count_deaths();
            let retry = !self.publish().await;
            self.clean_up_if_due().await;
            if self.replace_if_due().await {
                continue;
            }
            self.record_held().await;
            self.count_traffic_if_due().await;
            self.instance.record_busy(false);
            let event = self.next(&mut commands, retry).await;
            self.instance.record_busy(true);
            match event {
                InstanceEvent::Command(command) => self.obey(command).await,
                InstanceEvent::Round => {}
                InstanceEvent::Stop => break,
            }
        }
        self.finish().await;
    }

    async fn follow_state(&mut self) {
        let now = self.states.borrow_and_update().clone();
        if now == self.state {
            return;
        }
        let observed = &self.instance.observed;
        observed.send_modify(|observed| observed.record_state(&now));
        if now.is_live() && pid_of(&now) != pid_of(&self.state) {
            self.record_version().await;
        }
        let target = self.selector.selected();
        if self.publisher.follow(&self.state, &now, target).await {
            self.publish_at_once();
        }
        self.state = now;
    }

    /// Returns false if the attempt must be repeated.
    async fn publish(&mut self) -> bool {
        if !self.unpublished || !self.state.is_live() {
            return true;
        }
        let Some(queue) = self.its_turn().await else {
            return true;
        };
        self.paced = false;
        self.turn = None;
        self.refused_ahead = false;
        let target = self.selector.selected();
        let start = self.begin();
        self.replacement.publishes(target);
        // Refuse connections to ports that the target closes.
        let addresses = tcp_addresses(&target.rendered);
        self.supervisor.park_only(&addresses);
        let (selector, stop) = (&self.selector, &self.stop);
        let newer = || selector.has_newer() || stop.borrow().is_some();
        self.publisher.set_removal(self.clean_up.removal(start.at));
        let revision = target.manifest_revision.as_deref();
        let span = revision.map_or_else(tracing::Span::none, |revision| {
            tracing::error_span!("publication", revision)
        });
        let publication = self.publisher.publish(target, newer);
        let done = publication.instrument(span).await;
        self.unpublished = !done;
        self.record_cost(queue, start);
        self.record_left_over();
        if let Some(applied) = &self.instance.observed.borrow().applied {
            self.supervisor.park(tcp_addresses(&applied.rendered));
        }
        done
    }

    /// Returns true if a replacement was attempted.
    async fn replace_if_due(&mut self) -> bool {
        let target = self.selector.selected();
        let Some(why) = self.replacement.due(&self.state, target) else {
            return false;
        };
        tracing::info!(why, "Envoy should be replaced");
        self.prepare_replacement().await;
        let target = self.selector.selected();
        let observed = self.instance.observed.borrow().clone();
        let replacing = self
            .replacement
            .by_itself(why, &self.supervisor, target, &observed);
        let replaced = replacing.await;
        self.record_replaced(replaced);
        true
    }

    /// If `retry` is true, also returns after a delay.
    async fn next(
        &mut self,
        commands: &mut mpsc::Receiver<QueuedCommand>,
        retry: bool,
    ) -> InstanceEvent {
        let replace = self.replacement.next(&self.state, self.selector.selected());
        let recheck = self.selector.next();
        let probe = self.publisher.quarantine.next_probe();
        let turn = self
            .turn
            .filter(|_| self.unpublished && self.state.is_live());
        let clean_up = self.clean_up.due().filter(|_| self.may_clean_up());
        let fit = self.publisher.next_fit();
        let traffic = self.traffic_due();
        let mut from_source = false;
        let unpublished = tokio::select! {
            Some(command) = commands.recv() => return InstanceEvent::Command(command),
            () = until(replace) => false,
            selected = self.selector.changed() => match selected {
                Some(selected) => {
                    from_source = selected;
                    false
                }
                None => return InstanceEvent::Stop,
            },
            () = until(turn) => false,
            () = until(clean_up) => false,
            _ = self.states.changed() => false,
            Ok(()) = self.live.changed() => {
                let (percent, now) = (self.live.borrow().apply_share, Instant::now());
                self.pacing.set_percent(percent, now);
                self.turn = self.turn.map(|_| now);
                apply_settings(&mut self.selector, &mut self.live)
            }
            () = until(recheck) => self.selector.recheck(),
            () = until(traffic) => false,
            _ = self.stop.wait_for(Option::is_some) => return InstanceEvent::Stop,
            () = tokio::time::sleep(RETRY), if retry => false,
            unproven = self.publisher.handshakes.finished() => {
                self.publisher.apply_handshakes(&unproven);
                false
            }
            () = until(probe) => self.publisher.quarantine.probe(),
            () = until(fit) => self.publisher.may_fit_more(),
        };
        if from_source {
            self.wait_for_turn();
        }
        if unpublished {
            self.publish_at_once();
        }
        InstanceEvent::Round
    }

    /// If an unpaced target is pending, its successor is not paced either.
    fn wait_for_turn(&mut self) {
        if !self.unpublished {
            self.paced = true;
        }
        self.unpublished = true;
    }

    fn publish_at_once(&mut self) {
        self.unpublished = true;
        self.paced = false;
        self.turn = None;
    }

    async fn obey(&mut self, command: QueuedCommand) {
        let QueuedCommand { command, replies } = command;
        match command {
            InstanceCommand::Restart { strategy } => {
                self.prepare_replacement().await;
                let observed = self.instance.observed.borrow().clone();
                let target = self.selector.selected();
                let replacing = self.replacement.on_command(
                    strategy,
                    &replies,
                    &self.supervisor,
                    target,
                    &observed,
                );
                if let Some(restarted) = replacing.await {
                    self.record_replaced(Ok(restarted));
                }
            }
            InstanceCommand::Accept if self.selector.is_withdrawn() => {
                let released = &self.instance.settings.released;
                released.send_modify(|count| *count += 1);
                replies.end(Ok(
                    "withdrawing Gateways that the source no longer contains".to_owned(),
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
            InstanceCommand::Drain(limits) => {
                let admin = self.supervisor.admin().with_timeout(ADMIN_ANSWER);
                let observed = self.instance.observed.clone();
                self.drain = Some(Drain::start(admin, observed, limits, replies));
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

    fn selected_anew(&mut self, outcome: Result<String, String>, replies: &ReplySink) {
        if outcome.is_ok() {
            self.publish_at_once();
        }
        replies.end(outcome);
    }

    async fn finish(self) {
        // If `stop` is unset, the engine stopped by itself.
        let ending = self.stop.borrow().unwrap_or(Ending::Leave);
        match ending {
            Ending::Leave => drop(self.supervisor),
            Ending::Drain(grace) => {
                // Load balancers should use other hosts while Envoy still serves.
                let draining = Some(STOPPING.to_owned());
                let observed = &self.instance.observed;
                observed.send_modify(|observed| observed.draining = draining);
                self.supervisor.stop(grace).await;
            }
        }
        if matches!(ending, Ending::Drain(_)) {
            self.instance.instances().forget();
        }
        self.publisher.finish().await;
        self.instance.observed.send_modify(|observed| match ending {
            Ending::Leave => observed.left = true,
            Ending::Drain(_) => {
                observed.live = false;
                observed.draining = None;
                STOPPED.clone_into(&mut observed.envoy.state);
                observed.trouble = None;
            }
        });
    }
}

/// Returns true if the selected target changes.
fn apply_settings(selector: &mut TargetSelector, live: &mut watch::Receiver<LiveSettings>) -> bool {
    let (most_removed, hold, overlap) = {
        let live = live.borrow_and_update();
        (live.most_removed, live.hold, live.bundle_overlap)
    };
    let others = [
        selector.hold_by(most_removed, hold),
        selector.overlap_by(overlap),
    ];
    others.contains(&true)
}

fn pid_of(state: &State) -> Option<u32> {
    match state {
        State::Live { pid, .. } => Some(*pid),
        _ => None,
    }
}
