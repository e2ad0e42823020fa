//! The faults of a round: a pure function of the seed and the round's number. Every fault ends
//! before the round's quiet phase, and no two faults have the same target at the same time.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use sesame_tests::seeded::Moments;

/// Number of hosts, each with an agent and an Envoy.
pub(crate) const HOSTS: usize = 5;
/// Number of controller replicas.
pub(crate) const CONTROLLERS: usize = 2;
/// Number of kinds of invalid objects. See [`super::objects::bad`].
pub(crate) const BAD_OBJECTS: usize = 6;

const HOUR: i64 = 3600;
/// Offsets of a jumping clock, in seconds.
const JUMPS: [i64; 4] = [HOUR, -HOUR, 10 * 365 * 24 * HOUR, -365 * 24 * HOUR];
const FIRST_FAULT: u64 = 2000;
/// Time between the starts of two faults, in milliseconds.
const BETWEEN: RangeInclusive<u64> = 800..=4500;

/// How an Envoy is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    Hot,
    Handover,
    Auto,
}

impl Strategy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Handover => "handover",
            Self::Auto => "auto",
        }
    }
}

/// Why a certificate's Secret is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    OtherKey,
    Truncated,
    WithoutKey,
}

/// A server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Api,
    Etcd,
}

/// What happens to the connection between an agent and the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Connections are closed, and new ones fail.
    Closed,
    /// Connections stay open, but no byte arrives.
    Silent,
    /// Every chunk is delayed.
    Slow,
}

/// A disk of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    State,
    Runtime,
}

/// How a disk delays writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slowness {
    /// For five seconds.
    Hanging,
    /// For less than half a second.
    Slow,
}

/// A process that reads the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Host(usize),
    Controller(usize),
}

/// A fault, with the number of its host or controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    KillAgent(usize),
    FreezeAgent(usize),
    UpgradeAgent(usize),
    KillEnvoy(usize),
    FreezeEnvoy(usize),
    ReplaceEnvoy(usize, Strategy),
    UpgradeEnvoy(usize),
    Partition(usize, Cut),
    Fill(usize, Disk),
    SlowDisk(usize, Disk, Slowness),
    KillController(usize),
    FreezeController(usize),
    UpgradeController(usize),
    KillServer(Server),
    FreezeServer(Server),
    SwapCertificate,
    BreakCertificate(Defect),
    BadObject(usize),
    JumpClock(Machine, i64),
}

/// Faults with the same target never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Agent(usize),
    /// Its replacement. Kills have their own target, because they may hit a replacement.
    Envoy(usize),
    DyingEnvoy(usize),
    Link(usize),
    Disk(usize),
    Controller(usize),
    Servers,
    Certificate,
    Object(usize),
    Clock(Machine),
}

impl Fault {
    /// Returns the host whose Envoy this fault kills or freezes. Only these faults may fail
    /// requests over new connections.
    pub(crate) fn envoy(self) -> Option<usize> {
        match self {
            Self::KillEnvoy(host) | Self::FreezeEnvoy(host) => Some(host),
            _ => None,
        }
    }

    /// Returns the host on which this fault delays the return of a killed Envoy.
    pub(crate) fn delays(self) -> Option<usize> {
        match self {
            Self::KillAgent(host)
            | Self::FreezeAgent(host)
            | Self::UpgradeAgent(host)
            | Self::ReplaceEnvoy(host, _)
            | Self::UpgradeEnvoy(host)
            | Self::Fill(host, _)
            | Self::SlowDisk(host, ..) => Some(host),
            _ => None,
        }
    }

    /// Returns the host whose Envoy this fault may replace.
    pub(crate) fn replaces(self) -> Option<usize> {
        match self {
            // An upgraded agent restarts an Envoy with another bootstrap.
            Self::ReplaceEnvoy(host, _) | Self::UpgradeEnvoy(host) | Self::UpgradeAgent(host) => {
                Some(host)
            }
            _ => None,
        }
    }

    /// Returns the host whose agent this fault stops.
    pub(crate) fn agent(self) -> Option<usize> {
        match self {
            Self::KillAgent(host) | Self::FreezeAgent(host) | Self::UpgradeAgent(host) => {
                Some(host)
            }
            _ => None,
        }
    }

    fn target(self) -> Target {
        match self {
            Self::KillAgent(host) | Self::FreezeAgent(host) | Self::UpgradeAgent(host) => {
                Target::Agent(host)
            }
            Self::KillEnvoy(host) => Target::DyingEnvoy(host),
            Self::FreezeEnvoy(host) | Self::ReplaceEnvoy(host, _) | Self::UpgradeEnvoy(host) => {
                Target::Envoy(host)
            }
            Self::Partition(host, _) => Target::Link(host),
            Self::Fill(host, _) | Self::SlowDisk(host, ..) => Target::Disk(host),
            Self::KillController(number)
            | Self::FreezeController(number)
            | Self::UpgradeController(number) => Target::Controller(number),
            // An API server does not start without etcd.
            Self::KillServer(_) | Self::FreezeServer(_) => Target::Servers,
            Self::SwapCertificate | Self::BreakCertificate(_) => Target::Certificate,
            Self::BadObject(kind) => Target::Object(kind),
            Self::JumpClock(machine, _) => Target::Clock(machine),
        }
    }

    /// Returns how long the fault lasts, in milliseconds.
    fn span(self) -> RangeInclusive<u64> {
        match self {
            Self::KillAgent(_) | Self::FreezeAgent(_) => 500..=12_000,
            Self::KillEnvoy(_) | Self::SwapCertificate => 0..=0,
            Self::FreezeEnvoy(_) => 500..=5000,
            // The time in which the replacement must have succeeded.
            Self::UpgradeAgent(_) | Self::UpgradeController(_) => 10_000..=10_000,
            Self::ReplaceEnvoy(..) | Self::UpgradeEnvoy(_) => 15_000..=15_000,
            Self::Partition(..) => 1000..=25_000,
            Self::Fill(..) | Self::SlowDisk(..) | Self::BreakCertificate(_) => 3000..=20_000,
            Self::KillController(_) | Self::FreezeController(_) => 500..=15_000,
            Self::KillServer(_) | Self::FreezeServer(_) => 500..=10_000,
            Self::BadObject(_) => 3000..=25_000,
            Self::JumpClock(..) => 3000..=15_000,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A planned fault. Times are relative to the start of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    pub(crate) fault: Fault,
}

/// Returns when the faults of a round of this length have ended. The rest of the round is quiet.
pub(crate) fn quiet_from(length: Duration) -> Duration {
    length * 5 / 6
}

/// Returns the faults of a round, ordered by their start.
pub(crate) fn plan(seed: u64, round: u64, length: Duration) -> Vec<Event> {
    let mut random = Moments::seeded(seed.wrapping_mul(1_000_003).wrapping_add(round));
    let end = quiet_from(length);
    let mut events: Vec<Event> = Vec::new();
    let mut now = FIRST_FAULT;
    loop {
        let at = Duration::from_millis(now);
        if at >= end {
            return events;
        }
        now += within(&mut random, BETWEEN);
        let fault = draw(&mut random);
        let until = at + Duration::from_millis(within(&mut random, fault.span()));
        let overlaps = |event: &Event| event.fault.target() == fault.target() && event.until >= at;
        if until <= end && !events.iter().any(overlaps) {
            events.push(Event { at, until, fault });
        }
    }
}

fn within(random: &mut Moments, range: RangeInclusive<u64>) -> u64 {
    range.start() + random.below(range.end() - range.start() + 1)
}

fn index(random: &mut Moments, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).expect("below a usize")
}

fn draw(random: &mut Moments) -> Fault {
    let kind = random.below(26);
    let host = index(random, HOSTS);
    let controller = index(random, CONTROLLERS);
    let choice = index(random, 12);
    match kind {
        0 | 1 => Fault::KillAgent(host),
        2 => Fault::FreezeAgent(host),
        3 => Fault::UpgradeAgent(host),
        4 | 5 => Fault::KillEnvoy(host),
        6 => Fault::FreezeEnvoy(host),
        7 | 8 => {
            let all = [Strategy::Hot, Strategy::Handover, Strategy::Auto];
            Fault::ReplaceEnvoy(host, all[choice % 3])
        }
        9 => Fault::UpgradeEnvoy(host),
        10 | 11 => Fault::Partition(host, [Cut::Closed, Cut::Silent, Cut::Slow][choice % 3]),
        12 | 13 => Fault::Fill(host, [Disk::State, Disk::Runtime][choice % 2]),
        14 => Fault::KillController(controller),
        15 => Fault::FreezeController(controller),
        16 => Fault::UpgradeController(controller),
        17 => Fault::KillServer([Server::Api, Server::Etcd][choice % 2]),
        18 => Fault::FreezeServer([Server::Api, Server::Etcd][choice % 2]),
        19 => Fault::SwapCertificate,
        20 => {
            let all = [Defect::OtherKey, Defect::Truncated, Defect::WithoutKey];
            Fault::BreakCertificate(all[choice % 3])
        }
        21 | 22 => Fault::BadObject(choice % BAD_OBJECTS),
        23 | 24 => {
            let disk = [Disk::State, Disk::Runtime][choice % 2];
            let slowness = [Slowness::Hanging, Slowness::Slow][choice % 4 / 2];
            Fault::SlowDisk(host, disk, slowness)
        }
        _ => {
            let machine = match choice % 3 {
                0 => Machine::Controller(controller),
                _ => Machine::Host(host),
            };
            Fault::JumpClock(machine, JUMPS[choice % 4])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(120);

    fn all(seed: u64) -> Vec<Event> {
        (0..30)
            .flat_map(|round| plan(seed, round, LENGTH))
            .collect()
    }

    #[test]
    fn same_seed_gives_same_faults() {
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
        assert_ne!(plan(7, 0, LENGTH), plan(7, 1, LENGTH));
    }

    #[test]
    fn every_fault_ends_before_quiet_phase() {
        for event in (0..50).flat_map(all) {
            assert!(event.at <= event.until, "{event:?}");
            assert!(event.until <= quiet_from(LENGTH), "{event:?}");
        }
    }

    #[test]
    fn faults_with_same_target_never_overlap() {
        for round in 0..200 {
            let events = plan(3, round, LENGTH);
            for (index, event) in events.iter().enumerate() {
                for later in &events[index + 1..] {
                    let is_apart = later.at > event.until;
                    let same = event.fault.target() == later.fault.target();
                    assert!(is_apart || !same, "{event:?} {later:?}");
                }
            }
        }
    }

    #[test]
    fn an_hour_contains_every_kind() {
        let name = |event: &Event| {
            let text = event.fault.to_string();
            text.split('(').next().map(str::to_owned)
        };
        for seed in 1..=3 {
            let kinds: BTreeSet<_> = all(seed).iter().map(name).collect();
            assert_eq!(kinds.len(), 19, "{kinds:?}");
        }
    }
}
