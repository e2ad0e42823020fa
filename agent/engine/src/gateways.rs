//! Manages the instances of this host's Gateways.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sesame_kinds::api::NamespacedName;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tracing::Instrument as _;

use super::accepted;
use super::commands::QueuedCommand;
use super::directories::Directories;
use super::engine::SourceState;
use super::instance::{Instance, InstanceSettings};
use super::lifecycle::{self, LifecycleFacts, LifecyclePlan};
use super::observed::{AllObserved, Observed};
use super::server::CommandQueues;
use super::shutdown::Ending;
use super::target::Target;
use crate::passwords::PasswordSets;
use sesame_envoy::{Supervisor, SupervisorConfig};

/// How long to wait for a task on `Leave`. Restarting its Envoy can take a minute, which is too
/// long.
const LEAVING: Duration = Duration::from_secs(5);

pub(super) struct Gateways {
    settings: Arc<InstanceSettings>,
    directories: Directories,
    known: watch::Receiver<SourceState>,
    observed: watch::Sender<AllObserved>,
    queues: watch::Sender<CommandQueues>,
    running: BTreeMap<NamespacedName, RunningGateway>,
    /// Gateways of the previous agent that this one has not started, with their addresses. Their
    /// Envoys may be running.
    unclaimed: BTreeMap<NamespacedName, Vec<IpAddr>>,
    /// Gateways whose Envoy processes have not exited, with their addresses.
    draining: BTreeMap<NamespacedName, Vec<IpAddr>>,
    /// True if the Envoy is known to have exited.
    drains: JoinSet<(NamespacedName, bool)>,
    /// Maps each waiting Gateway to a Gateway that blocks it.
    waiting: BTreeMap<NamespacedName, NamespacedName>,
}

struct RunningGateway {
    observed: watch::Receiver<Observed>,
    commands: mpsc::Sender<QueuedCommand>,
    stop: watch::Sender<Option<Ending>>,
    task: JoinHandle<()>,
    addresses: Vec<IpAddr>,
}

impl Gateways {
    pub(super) fn new(
        settings: InstanceSettings,
        directories: Directories,
        known: watch::Receiver<SourceState>,
        unclaimed: BTreeMap<NamespacedName, Vec<IpAddr>>,
    ) -> Self {
        let draining = accepted::withdrawn(&directories);
        let mut gateways = Self {
            settings: Arc::new(settings),
            directories,
            known,
            observed: watch::Sender::default(),
            queues: watch::Sender::default(),
            running: BTreeMap::new(),
            unclaimed,
            draining,
            drains: JoinSet::new(),
            waiting: BTreeMap::new(),
        };
        for name in gateways.draining.keys().cloned().collect::<Vec<_>>() {
            gateways.end_leftover(name);
        }
        gateways
    }

    pub(super) fn observed(&self) -> watch::Receiver<AllObserved> {
        self.observed.subscribe()
    }

    pub(super) fn queues(&self) -> watch::Receiver<CommandQueues> {
        self.queues.subscribe()
    }

    pub(super) fn reconcile(&mut self, state: &SourceState) {
        let targets = &state.gateways;
        let is_read = state.available && state.held.is_none();
        let unclaimed = self.unclaimed.iter().filter(|_| is_read);
        let wanted = targets.iter();
        let running = self.running.iter();
        let draining = self.draining.iter();
        let LifecyclePlan {
            start,
            withdraw,
            wait,
        } = lifecycle::plan(&LifecycleFacts {
            wanted: wanted
                .map(|(name, target)| (name, target.addresses()))
                .collect(),
            running: running
                .map(|(name, running)| (name, running.addresses.as_slice()))
                .collect(),
            unclaimed: unclaimed.map(|(name, at)| (name, at.as_slice())).collect(),
            draining: draining.map(|(name, at)| (name, at.as_slice())).collect(),
        });
        for (name, running) in &mut self.running {
            if let Some(target) = targets.get(name) {
                running.addresses = target.addresses().to_vec();
            }
        }
        for name in start {
            if let Some(target) = targets.get(&name) {
                accepted::unmark_withdrawn(&self.directories, &name);
                self.unclaimed.remove(&name);
                let running = self.start(&name, target);
                self.running.insert(name, running);
            }
        }
        for name in withdraw {
            self.withdraw(name);
        }
        if wait != self.waiting {
            for (gateway, other) in &wait {
                tracing::info!(%gateway, "waiting for the Envoy of {other} to exit, because that Envoy is still draining on an address of this Gateway");
            }
            self.waiting = wait;
        }
        self.publish();
    }

    fn start(&self, name: &NamespacedName, target: &Arc<Target>) -> RunningGateway {
        let (stop, stopped) = watch::channel(None);
        let (commands, queue) = mpsc::channel(1);
        let passwords = Arc::new(PasswordSets::default());
        let (sender, observed) = watch::channel(Observed {
            passwords: passwords.counts(),
            ..Observed::default()
        });
        let instance = Instance {
            gateway: name.clone(),
            directories: self.directories.gateway(name),
            settings: Arc::clone(&self.settings),
            observed: sender,
            passwords,
        };
        let (known, first) = (self.known.clone(), Arc::clone(target));
        // At the error level, no log filter drops this span.
        let span = tracing::error_span!("instance", gateway = %name);
        let instance = instance.run(known, first, queue, stopped);
        RunningGateway {
            observed,
            commands,
            stop,
            task: tokio::spawn(instance.instrument(span)),
            addresses: target.addresses().to_vec(),
        }
    }

    fn withdraw(&mut self, name: NamespacedName) {
        accepted::withdraw(&self.directories, &name);
        let Some(running) = self.running.remove(&name) else {
            // The source withdrew the Gateway before this agent took over its Envoy.
            let addresses = self.unclaimed.remove(&name).unwrap_or_default();
            self.draining.insert(name.clone(), addresses);
            self.end_leftover(name);
            return;
        };
        self.draining
            .insert(name.clone(), running.addresses.clone());
        let ending = Ending::Drain(self.settings.options.drain);
        self.drains.spawn(async move {
            let ended = running.stop(&name, ending).await;
            (name, ended)
        });
    }

    fn end_leftover(&mut self, name: NamespacedName) {
        let left = self.directories.gateway(&name);
        let (binary, socket) = (&self.settings.binary, left.admin_socket());
        let config = SupervisorConfig::new(binary, &left.runtime, socket, Bytes::new());
        let span = tracing::error_span!("leftover", gateway = %name);
        let ends = end_leftover(name, config, self.settings.options.drain);
        self.drains.spawn(ends.instrument(span));
    }

    fn publish(&self) {
        let observed = self.running.iter();
        let observed = observed.map(|(name, running)| (name.clone(), running.observed.clone()));
        self.observed.send_replace(observed.collect());
        let queues = self.running.iter();
        let queues = queues.map(|(name, running)| (name.to_string(), running.commands.clone()));
        self.queues.send_replace(queues.collect());
    }

    /// Waits forever while no Envoy is draining. Cancel-safe.
    pub(super) async fn drained(&mut self) {
        let Some(Ok((name, ended))) = self.drains.join_next().await else {
            return std::future::pending().await;
        };
        self.draining.remove(&name);
        accepted::forget(&self.directories, &name);
        if ended {
            self.directories.forget_runtime(&name);
        }
    }

    pub(super) async fn stop(mut self, ending: Ending) {
        let stops = self.running.into_iter().map(|(name, running)| async move {
            running.stop(&name, ending).await;
        });
        futures::future::join_all(stops).await;
        // On `Leave`, the next agent finishes draining withdrawn Gateways.
        while ending != Ending::Leave
            && let Some(ended) = self.drains.join_next().await
        {
            if let Ok((name, _)) = ended {
                accepted::forget(&self.directories, &name);
            }
        }
    }
}

impl RunningGateway {
    /// Returns false if the outcome is unknown.
    async fn stop(mut self, name: &NamespacedName, ending: Ending) -> bool {
        self.stop.send_replace(Some(ending));
        let ended = match ending {
            Ending::Drain(_) => (&mut self.task).await,
            Ending::Leave => {
                let Ok(ended) = timeout(LEAVING, &mut self.task).await else {
                    // The next agent completes the unfinished work.
                    self.task.abort();
                    return false;
                };
                ended
            }
        };
        if let Err(error) = ended {
            tracing::error!(gateway = %name, %error, "the Gateway's task has failed");
            return false;
        }
        true
    }
}

async fn end_leftover(
    name: NamespacedName,
    config: SupervisorConfig,
    drain: Duration,
) -> (NamespacedName, bool) {
    let ended = Supervisor::end_running(&config, drain).await;
    if let Err(error) = &ended {
        tracing::error!(%error, "cannot find the withdrawn Gateway's Envoy");
    }
    (name, ended.is_ok())
}
