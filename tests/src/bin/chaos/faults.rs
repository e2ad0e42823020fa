//! Begins and ends faults. Nothing here blocks for long, because all faults share one task.

use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::task::JoinHandle;

use super::history::History;
use super::objects;
use super::schedule::{Event, Fault, Machine, Server};
use super::stage::{Replica, Stage};
use super::writes;

/// A slow API server must not delay the other faults.
const READY: Duration = Duration::from_millis(300);
/// Time after which a command that replaces Envoy is killed.
const LONGEST_COMMAND: Duration = Duration::from_secs(60);

/// The next condition that a fault waits for.
enum Step {
    /// Its planned end.
    Lasting(Option<JoinHandle<()>>),
    /// The exit of a program after SIGTERM.
    Leaving,
    /// The command that replaces an Envoy.
    Command(Child),
    /// A ready API server.
    Starting,
    /// Writes that undo the fault.
    Undoing(JoinHandle<()>),
    Done,
}

struct Active {
    number: usize,
    fault: Fault,
    until: Duration,
    step: Step,
}

/// The faults that have not ended.
#[derive(Default)]
pub(crate) struct Faults {
    active: Vec<Active>,
}

impl Faults {
    /// Returns true if all faults have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Returns the faults that have not ended.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self
            .active
            .iter()
            .map(|one| one.fault.to_string())
            .collect();
        names.join(", ")
    }

    /// Begins a fault, which lasts until `until`.
    pub(crate) fn begin(
        &mut self,
        event: Event,
        until: Duration,
        stage: &mut Stage,
        history: &mut History,
        now: Duration,
    ) -> anyhow::Result<()> {
        let number = history.begin(event.fault, now);
        let step = begin(event.fault, stage)?;
        self.active.push(Active {
            number,
            fault: event.fault,
            until,
            step,
        });
        Ok(())
    }

    /// Ends the faults that are due.
    pub(crate) async fn tick(
        &mut self,
        stage: &mut Stage,
        history: &mut History,
        clock: impl Fn() -> Duration,
    ) -> anyhow::Result<()> {
        for one in &mut self.active {
            one.advance(stage, clock()).await?;
            if matches!(one.step, Step::Done) {
                history.end(one.number, clock());
            }
        }
        self.active.retain(|one| !matches!(one.step, Step::Done));
        Ok(())
    }
}

impl Active {
    async fn advance(&mut self, stage: &mut Stage, now: Duration) -> anyhow::Result<()> {
        let is_due = now >= self.until;
        match &mut self.step {
            Step::Lasting(write) if is_due => {
                if let Some(write) = write.take() {
                    write.abort();
                }
                self.step = end(self.fault, stage);
            }
            Step::Leaving => {
                if has_left(self.fault, stage) || is_due {
                    upgrade(self.fault, stage)?;
                    self.step = Step::Done;
                }
            }
            Step::Command(child) => {
                if child.try_wait()?.is_some() {
                    self.step = Step::Done;
                } else if now >= self.until + LONGEST_COMMAND {
                    child.kill()?;
                }
            }
            Step::Starting if stage.cluster.is_ready(READY).await => self.step = Step::Done,
            Step::Undoing(writes) if writes.is_finished() => self.step = Step::Done,
            Step::Lasting(_) | Step::Starting | Step::Undoing(_) | Step::Done => {}
        }
        Ok(())
    }
}

fn begin(fault: Fault, stage: &mut Stage) -> anyhow::Result<Step> {
    match fault {
        Fault::KillAgent(host) => {
            stage.hosts[host].is_down = true;
            stage.hosts[host].agent.kill9();
        }
        Fault::FreezeAgent(host) => stage.hosts[host].agent.freeze(),
        Fault::UpgradeAgent(host) => {
            stage.hosts[host].is_down = true;
            stage.hosts[host].agent.begin_to_stop();
            return Ok(Step::Leaving);
        }
        Fault::KillEnvoy(host) => {
            stage.hosts[host].agent.kill9_envoy();
        }
        Fault::FreezeEnvoy(host) => stage.hosts[host].signal_envoys(Signal::SIGSTOP),
        Fault::ReplaceEnvoy(host, strategy) => {
            let command = stage.hosts[host].begin_to_replace_envoy(strategy.as_str())?;
            return Ok(Step::Command(command));
        }
        Fault::UpgradeEnvoy(host) => stage.hosts[host].exchange_envoy()?,
        Fault::Partition(host, cut) => stage.hosts[host].link.set(Some(cut)),
        Fault::Fill(host, disk) => stage.hosts[host].volume(disk).fill()?,
        Fault::SlowDisk(host, disk, slowness) => {
            stage.hosts[host].volume(disk).slow_down(slowness)?;
        }
        Fault::KillController(number) => {
            stage.replicas[number].is_down = true;
            stage.replicas[number].controller.kill9();
        }
        Fault::FreezeController(number) => signal(&stage.replicas[number], Signal::SIGSTOP),
        Fault::UpgradeController(number) => {
            stage.replicas[number].is_down = true;
            signal(&stage.replicas[number], Signal::SIGTERM);
            return Ok(Step::Leaving);
        }
        Fault::KillServer(server) => {
            stage.are_servers_down = true;
            match server {
                Server::Api => stage.cluster.stop_apiserver(),
                Server::Etcd => stage.cluster.stop_etcd(),
            }
        }
        Fault::FreezeServer(server) => match server {
            Server::Api => stage.cluster.freeze_apiserver(),
            Server::Etcd => stage.cluster.freeze_etcd(),
        },
        Fault::SwapCertificate => return Ok(end(fault, stage)),
        Fault::BreakCertificate(defect) => {
            let secret = objects::broken(&stage.authority, defect);
            let write = writes::spawn_apply(&stage.client, secret);
            return Ok(Step::Lasting(Some(write)));
        }
        Fault::BadObject(kind) => {
            let write = writes::spawn_apply(&stage.client, objects::bad(kind));
            return Ok(Step::Lasting(Some(write)));
        }
        Fault::JumpClock(machine, seconds) => set_clock(machine, seconds, stage),
    }
    Ok(Step::Lasting(None))
}

/// Undoes a fault that has lasted long enough.
fn end(fault: Fault, stage: &mut Stage) -> Step {
    match fault {
        Fault::KillAgent(host) => {
            stage.hosts[host].agent.restart();
            stage.hosts[host].is_down = false;
        }
        Fault::FreezeAgent(host) => stage.hosts[host].agent.thaw(),
        Fault::FreezeEnvoy(host) => stage.hosts[host].signal_envoys(Signal::SIGCONT),
        Fault::Partition(host, _) => stage.hosts[host].link.set(None),
        Fault::Fill(host, disk) => stage.hosts[host].volume(disk).free(),
        Fault::SlowDisk(host, disk, _) => stage.hosts[host].volume(disk).speed_up(),
        Fault::KillController(number) => {
            stage.replicas[number].controller.restart();
            stage.replicas[number].is_down = false;
        }
        Fault::FreezeController(number) => signal(&stage.replicas[number], Signal::SIGCONT),
        Fault::KillServer(server) => {
            match server {
                Server::Api => stage.cluster.begin_apiserver(),
                Server::Etcd => stage.cluster.begin_etcd(),
            }
            stage.are_servers_down = false;
            return Step::Starting;
        }
        Fault::FreezeServer(server) => {
            match server {
                Server::Api => stage.cluster.thaw_apiserver(),
                Server::Etcd => stage.cluster.thaw_etcd(),
            }
            return Step::Starting;
        }
        Fault::SwapCertificate | Fault::BreakCertificate(_) => {
            let leaf = stage.authority.issue(&[objects::SECURE]);
            stage.secret = leaf.secret(objects::PAIR);
            let write = writes::spawn_apply(&stage.client, stage.secret.clone());
            return Step::Undoing(write);
        }
        Fault::BadObject(kind) => {
            let object = objects::bad(kind);
            return Step::Undoing(writes::spawn_delete(&stage.client, object));
        }
        Fault::JumpClock(machine, _) => set_clock(machine, 0, stage),
        // These end by themselves.
        Fault::KillEnvoy(_)
        | Fault::ReplaceEnvoy(..)
        | Fault::UpgradeEnvoy(_)
        | Fault::UpgradeAgent(_)
        | Fault::UpgradeController(_) => {}
    }
    Step::Done
}

fn has_left(fault: Fault, stage: &mut Stage) -> bool {
    match fault {
        Fault::UpgradeAgent(host) => stage.hosts[host].agent.ended().is_some(),
        Fault::UpgradeController(number) => stage.replicas[number].controller.has_exited(),
        _ => true,
    }
}

/// Starts the other version. Kills the program if it did not stop in time.
fn upgrade(fault: Fault, stage: &mut Stage) -> anyhow::Result<()> {
    let programs = &stage.programs;
    match fault {
        Fault::UpgradeAgent(host) => {
            let host = &mut stage.hosts[host];
            host.exchange_agent(programs)?;
            host.agent.restart();
            host.is_down = false;
        }
        Fault::UpgradeController(number) => {
            let replica = &mut stage.replicas[number];
            replica.is_older = !replica.is_older;
            let program = programs.controller(replica.is_older);
            replica.controller.replace(&program);
            replica.is_down = false;
        }
        _ => {}
    }
    Ok(())
}

fn signal(replica: &Replica, signal: Signal) {
    let pid = i32::try_from(replica.controller.pid()).expect("a process id");
    // It may have exited by itself, which another check reports.
    let _ = kill(Pid::from_raw(pid), signal);
}

fn set_clock(machine: Machine, seconds: i64, stage: &Stage) {
    match machine {
        Machine::Host(host) => stage.hosts[host].clock.set(seconds),
        Machine::Controller(number) => stage.replicas[number].clock.set(seconds),
    }
}
