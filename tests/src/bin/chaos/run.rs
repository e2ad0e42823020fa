//! The rounds: faults, then a quiet phase in which the invariants must hold.

use std::time::{Duration, Instant};

use sesame_tests::manifests::GATEWAY;

use super::Args;
use super::faults::Faults;
use super::history::{History, REPLACEMENT_PAUSE};
use super::invariants::{self, Broken, Missing};
use super::load::Load;
use super::objects;
use super::programs::Programs;
use super::report::{Judged, Timed, Violation, judge};
use super::schedule::{BAD_OBJECTS, plan, quiet_from};
use super::stage::Stage;
use super::world::World;
use super::writes;

const TICK: Duration = Duration::from_millis(20);
const SUPERVISION: Duration = Duration::from_secs(1);
const PROGRESS: Duration = Duration::from_secs(30);
/// Time after which a fault that does not end, or hosts that do not converge, end the run.
const HOPELESS: Duration = Duration::from_secs(180);
/// Envoys must have been replaced, and the others must have exited, by then.
const LEFTOVERS: Duration = REPLACEMENT_PAUSE.saturating_add(Duration::from_secs(15));

/// The time in which something must become true.
struct Deadline {
    invariant: &'static str,
    limit: Duration,
    is_missed: bool,
    /// When it became true.
    met: Option<Duration>,
}

impl Deadline {
    fn new(invariant: &'static str, seconds: u64) -> Self {
        Self {
            invariant,
            limit: Duration::from_secs(seconds),
            is_missed: false,
            met: None,
        }
    }

    /// Returns the missing parts when the limit is first exceeded.
    fn check(&mut self, took: Duration, missing: Vec<Broken>) -> Vec<Broken> {
        let is_met = missing.is_empty();
        self.met = is_met.then(|| self.met.unwrap_or(took));
        if is_met || took <= self.limit || self.is_missed {
            return Vec::new();
        }
        self.is_missed = true;
        missing
    }
}

/// A run in progress.
pub(crate) struct Run {
    args: Args,
    load: Load,
    world: World,
    stage: Stage,
    faults: Faults,
    history: History,
    start: Instant,
    failures: Vec<Timed>,
    explained: usize,
    violations: usize,
    /// Times until all hosts served, had reported, and had the staged revision.
    converged: Vec<[Duration; 3]>,
    supervised: Instant,
    printed: Instant,
}

impl Run {
    /// Starts everything.
    pub(crate) async fn start(args: Args, programs: Programs) -> anyhow::Result<Self> {
        let stage = Stage::start(programs).await?;
        let load = Load::start(&stage.probes());
        let world = World::start(stage.client.clone(), stage.backends.clone(), args.seed);
        let history = History::new(Duration::from_secs(args.grace));
        Ok(Self {
            args,
            load,
            world,
            stage,
            faults: Faults::default(),
            history,
            start: Instant::now(),
            failures: Vec::new(),
            explained: 0,
            violations: 0,
            converged: Vec::new(),
            supervised: Instant::now(),
            printed: Instant::now(),
        })
    }

    /// Returns true if no invariant was violated.
    pub(crate) async fn all_rounds(&mut self) -> anyhow::Result<bool> {
        let rounds = self.args.rounds();
        println!(
            "everything serves; {} rounds begin",
            rounds.end - rounds.start
        );
        for round in rounds {
            let before = self.violations;
            let is_hopeless = !self.round(round).await?;
            if self.violations > before {
                let Args {
                    seed,
                    round: length,
                    ..
                } = self.args;
                println!(
                    "replay: SESAME_SEED={seed} CHAOS_SECONDS={length} make chaos CHAOS_FLAGS='--round {length} --first-round {round}'"
                );
                self.keep_logs(round)?;
            }
            if is_hopeless {
                break;
            }
        }
        self.summarize();
        Ok(self.violations == 0)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns false if another round would be pointless.
    async fn round(&mut self, round: u64) -> anyhow::Result<bool> {
        let began = self.now();
        let length = self.args.length();
        let mut events = plan(self.args.seed, round, length).into_iter().peekable();
        loop {
            let start = self.start;
            let now = self.now();
            while let Some(event) = events.next_if(|event| began + event.at <= now) {
                let until = began + event.until;
                let Self {
                    faults,
                    stage,
                    history,
                    ..
                } = self;
                faults.begin(event, until, stage, history, start.elapsed())?;
            }
            let Self {
                faults,
                stage,
                history,
                ..
            } = self;
            faults.tick(stage, history, || start.elapsed()).await?;
            self.watch();
            if now >= began + quiet_from(length) && self.faults.is_empty() {
                break;
            }
            if now >= began + length + HOPELESS {
                let names = self.faults.names();
                let what = Broken {
                    place: "chaos".to_owned(),
                    what: format!("these faults do not end: {names}"),
                };
                self.violated("faults", what);
                return Ok(false);
            }
            tokio::time::sleep(TICK).await;
        }
        let is_converged = self.quiet(round).await;
        while self.now() < began + length {
            self.watch();
            tokio::time::sleep(TICK).await;
        }
        let judged = judge(std::mem::take(&mut self.failures), &self.history);
        let Judged {
            explained,
            violations,
        } = judged;
        self.explained += explained;
        for violation in violations {
            self.print(&violation);
        }
        Ok(is_converged)
    }

    /// Returns false if the hosts did not converge.
    async fn quiet(&mut self, round: u64) -> bool {
        let paused = self.world.pause().await;
        let since = self.now();
        let version = format!("round-{round}");
        // If the API server no longer responds, the hosts do not converge.
        let _ = tokio::time::timeout(HOPELESS, self.settle(&version)).await;
        let is_converged = self.converge(round, &version, since).await;
        self.check_leftovers().await;
        for broken in invariants::leaked_keys(&self.stage).await {
            self.violated("private keys", broken);
        }
        drop(paused);
        is_converged
    }

    /// Waits until all hosts serve the newest configuration, and all statuses say so.
    async fn converge(&mut self, round: u64, version: &str, since: Duration) -> bool {
        let mut served = Deadline::new("convergence", self.args.converge);
        let mut reported = Deadline::new("statuses", self.args.report);
        let mut rolled_out = Deadline::new("staged rollout", self.args.rollout);
        loop {
            let Missing { serving, statuses } =
                invariants::missing(&self.stage, GATEWAY, version).await;
            let took = self.now().saturating_sub(since);
            let mut broken = vec![
                (served.invariant, served.check(took, serving)),
                (reported.invariant, reported.check(took, statuses)),
            ];
            let staged = invariants::missing(&self.stage, objects::SECOND, version).await;
            let staged = [staged.serving, staged.statuses].concat();
            let took = self.now().saturating_sub(since);
            broken.push((rolled_out.invariant, rolled_out.check(took, staged)));
            for (invariant, broken) in broken {
                for broken in broken {
                    self.violated(invariant, broken);
                }
            }
            if let (Some(served), Some(reported), Some(rolled_out)) =
                (served.met, reported.met, rolled_out.met)
            {
                let times = [served, reported, rolled_out];
                let [served, reported, rolled_out] = times.map(|time| time.as_secs_f64());
                println!(
                    "round {round}: served after {served:.1} s, reported after {reported:.1} s, \
                     rolled out after {rolled_out:.1} s"
                );
                self.converged.push(times);
                return true;
            }
            if took > HOPELESS {
                let seconds = HOPELESS.as_secs();
                println!("round {round} did not converge within {seconds} s");
                return false;
            }
            self.watch();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn check_leftovers(&mut self) {
        let started = Instant::now();
        loop {
            let left = invariants::processes(&self.stage);
            if left.is_empty() {
                break;
            }
            if started.elapsed() > LEFTOVERS {
                for broken in left {
                    self.violated("processes", broken);
                }
                break;
            }
            self.watch();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Writes the objects of a quiet phase. Delayed writes of a fault may have undone them.
    async fn settle(&self, version: &str) {
        let client = &self.stage.client;
        let mut writes = vec![writes::spawn_apply(client, self.stage.secret.clone())];
        let markers = objects::markers(version);
        writes.extend(markers.map(|marker| writes::spawn_apply(client, marker)));
        for kind in 0..BAD_OBJECTS {
            writes.push(writes::spawn_delete(client, objects::bad(kind)));
        }
        for write in writes {
            // A task that was not aborted ends.
            let _ = write.await;
        }
    }

    /// Collects failures, restarts exited programs, and prints the progress.
    fn watch(&mut self) {
        let start = self.start;
        let failures = self.load.failures().into_iter().map(|failure| Timed {
            from: failure.from.saturating_duration_since(start),
            until: failure.until.saturating_duration_since(start),
            failure,
        });
        self.failures.extend(failures);
        if self.supervised.elapsed() >= SUPERVISION {
            self.supervised = Instant::now();
            self.supervise();
        }
        if self.printed.elapsed() >= PROGRESS {
            self.printed = Instant::now();
            self.progress();
        }
    }

    fn supervise(&mut self) {
        let mut exited = Vec::new();
        for host in &mut self.stage.hosts {
            if !host.is_down
                && let Some(code) = host.agent.ended()
            {
                exited.push((host.name.clone(), format!("the agent exited with {code}")));
                host.agent.restart();
            }
        }
        for (number, replica) in self.stage.replicas.iter_mut().enumerate() {
            if !replica.is_down && replica.controller.has_exited() {
                let place = format!("controller-{number}");
                exited.push((place, "the controller exited by itself".to_owned()));
                replica.controller.restart();
            }
        }
        if !self.stage.are_servers_down {
            for name in self.stage.cluster.revive() {
                println!("{name} exited by itself, and was restarted");
            }
        }
        for (place, what) in exited {
            self.violated("exits", Broken { place, what });
        }
    }

    fn violated(&mut self, invariant: &'static str, broken: Broken) {
        let Broken { place, what } = broken;
        let now = self.now();
        let from = now.saturating_sub(Duration::from_secs(30));
        self.print(&Violation {
            at: now,
            invariant,
            place,
            what,
            faults: self.history.active(from, now),
        });
    }

    fn print(&mut self, violation: &Violation) {
        self.violations += 1;
        // On an overloaded machine, a late recovery may not be Sesame's fault.
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default();
        println!("{violation} | load average {load}");
    }

    fn progress(&self) {
        let active = self.faults.names();
        println!(
            "{:.0} s: {} requests, {} failed, {} changes, {} faults, {} violations; active: {}",
            self.now().as_secs_f64(),
            self.load.sent(),
            self.explained + self.failures.len(),
            self.world.made(),
            self.history.len(),
            self.violations,
            if active.is_empty() { "none" } else { &active }
        );
    }

    fn summarize(&self) {
        let slowest = [0, 1, 2].map(|index| {
            let times = self.converged.iter().map(|times| times[index]);
            times.max().unwrap_or_default().as_secs_f64()
        });
        let [served, reported, rolled_out] = slowest;
        println!(
            "seed {}: {} rounds, {} requests, {} failures explained by faults, {} changes, {} faults, slowest convergence {served:.1} s, slowest statuses {reported:.1} s, slowest staged rollout {rolled_out:.1} s, {} violations",
            self.args.seed,
            self.converged.len(),
            self.load.sent(),
            self.explained,
            self.world.made(),
            self.history.len(),
            self.violations
        );
    }

    fn keep_logs(&self, round: u64) -> anyhow::Result<()> {
        let directory = self
            .args
            .logs
            .join(format!("seed-{}-round-{round}", self.args.seed));
        std::fs::create_dir_all(&directory)?;
        for host in &self.stage.hosts {
            let path = directory.join(format!("{}.log", host.name));
            std::fs::write(path, host.agent.log())?;
        }
        for (number, replica) in self.stage.replicas.iter().enumerate() {
            let path = directory.join(format!("controller-{number}.log"));
            std::fs::write(path, replica.controller.log())?;
        }
        println!("logs: {}", directory.display());
        Ok(())
    }
}
