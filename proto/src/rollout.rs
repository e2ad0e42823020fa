//! Decides which hosts may serve a new revision. Pure: the record is the only state, and the same
//! inputs always give the same record. Never releases a stage before the earlier one has baked,
//! unless an operator says so.

mod command;
mod signals;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use self::command::Command;
use self::signals::{Failure, failures, key};
use crate::schema::rollout_record::Verdict;
use crate::schema::{Rollout, RolloutRecord, RolloutStage};

/// Number of digits that identify a revision in a rollout.
pub const DIGITS: usize = 16;
/// Maximum number of stages.
pub const MAX_STAGES: usize = 16;
/// Maximum number of hosts that stages release by name. Further hosts are released at the end.
pub const MAX_HOSTS: usize = 2000;
/// Default for [`Rollout::max_error_increase`].
pub const MAX_ERROR_INCREASE: u32 = 5;
/// Requests or handshakes that hosts must have counted before a share of them counts.
pub const MIN_REQUESTS: u64 = 20;
/// Reason of a rollout that an operator paused. Such a rollout continues at the same stage.
pub const OPERATOR_PAUSED: &str = "an operator paused it";
/// Enough for each host's own failure, with 2,000 hosts.
const MAX_ACCEPTED: usize = MAX_HOSTS + 100;
/// Maximum number of failures in the reason of a verdict.
const MAX_SHOWN: usize = 5;
/// Later failures are added to the reason of a held rollout until it has this length in bytes.
const MAX_REASON: usize = 2048;

/// A host's report about a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostReport {
    /// Name of the host.
    pub name: String,
    /// Zone of the host. May be empty.
    pub zone: String,
    /// The host has not reported for too long.
    pub is_lost: bool,
    /// The host serves the newest revision.
    pub has_applied: bool,
    /// The host cannot serve the newest revision.
    pub has_refused: bool,
    /// Faults of the host, such as `rejects HTTPRoute/ns/cart`.
    pub failures: BTreeSet<String>,
    /// Envoy processes that died during the rollout since the host serves its revision.
    pub deaths: u64,
    /// Traffic in the last interval.
    pub traffic: HostTraffic,
}

/// A host's traffic in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTraffic {
    /// Completed requests.
    pub requests: u64,
    /// Responses with status 5xx.
    pub errors: u64,
    /// Requests to backends that timed out, or that the backend aborted. `None` if the host does not
    /// count them.
    pub resets: Option<u64>,
    /// TLS handshakes, including failed ones.
    pub handshakes: u64,
    /// Failed TLS handshakes.
    pub failed_handshakes: u64,
}

/// Result of [`step`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Record to store if it differs from the previous one.
    pub record: RolloutRecord,
    /// Unix timestamp of the next step, even if no input changes.
    pub wake: Option<u64>,
}

impl RolloutRecord {
    /// Returns true if the host may serve the revision.
    pub fn releases(&self, host: &str) -> bool {
        self.all || self.has(host)
    }

    fn has(&self, host: &str) -> bool {
        self.hosts
            .binary_search_by(|known| known.as_str().cmp(host))
            .is_ok()
    }

    /// Returns true if the host's failures may be newer than the base.
    fn may_differ(&self, host: &HostReport) -> bool {
        self.has(&host.name) || host.has_applied || self.reached.binary_search(&host.name).is_ok()
    }

    /// Returns the number of the current stage, starting at 1.
    pub fn number(&self) -> u32 {
        self.stage.saturating_add(1)
    }

    /// Returns true if a revision exists to which hosts could return.
    pub fn can_undo(&self) -> bool {
        !self.base.is_empty() && self.base != self.digest
    }
}

/// Returns the next record. `before` is `None` if the Gateway had no rollout yet; its revision then
/// counts as rolled out. `hosts` is `None` while reports are unknown; nothing is then released.
/// `now` is a Unix timestamp.
pub fn step(
    before: Option<&RolloutRecord>,
    rollout: &Rollout,
    digest: &str,
    hosts: Option<&[HostReport]>,
    now: u64,
) -> Step {
    let mut record = match before {
        None => done(digest, digest),
        Some(before) if before.digest == digest => before.clone(),
        Some(before) => begin(before, digest),
    };
    let order = obey(&mut record, rollout, hosts);
    let wake = match (hosts, record.verdict()) {
        (Some(hosts), Verdict::Baking | Verdict::Paused) => {
            progress(&mut record, rollout, hosts, order, now)
        }
        (Some(hosts), Verdict::Held) => {
            let later = failures(&record, rollout, hosts);
            show(&mut record, &later);
            None
        }
        _ => None,
    };
    Step { record, wake }
}

fn done(digest: &str, base: &str) -> RolloutRecord {
    RolloutRecord {
        digest: digest.to_owned(),
        base: base.to_owned(),
        all: true,
        verdict: Verdict::Done.into(),
        ..RolloutRecord::default()
    }
}

fn begin(before: &RolloutRecord, digest: &str) -> RolloutRecord {
    let completed = match before.verdict() {
        Verdict::Done => &before.digest,
        _ => &before.base,
    };
    // All hosts have served this revision, so that a reverted change needs no stages.
    if digest == completed {
        return done(digest, digest);
    }
    RolloutRecord {
        digest: digest.to_owned(),
        base: completed.clone(),
        verdict: Verdict::Baking.into(),
        reached: reached(before),
        ..RolloutRecord::default()
    }
}

fn reached(before: &RolloutRecord) -> Vec<String> {
    if before.verdict() == Verdict::Done {
        return Vec::new();
    }
    let all: BTreeSet<&String> = before.reached.iter().chain(&before.hosts).collect();
    all.into_iter().take(MAX_HOSTS).cloned().collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    None,
    Pause,
    /// The stage began because of a command in this step.
    Resumed,
}

/// Follows the operator's command.
fn obey(record: &mut RolloutRecord, rollout: &Rollout, hosts: Option<&[HostReport]>) -> Order {
    let command = Command::parse(&rollout.command);
    let command = command.filter(|(_, digest)| *digest == record.digest);
    match command.map(|(command, _)| command) {
        Some(Command::Pause) => Order::Pause,
        Some(Command::Undo) if record.can_undo() => {
            if record.verdict() != Verdict::Undone {
                record.set_verdict(Verdict::Undone);
                "an operator undid it".clone_into(&mut record.reason);
            }
            Order::None
        }
        // Accepts only failures in the record, because the operator has not seen others.
        Some(Command::Resume { stage })
            if stage == record.number() && record.verdict() != Verdict::Done && hosts.is_some() =>
        {
            next_stage(record);
            Order::Resumed
        }
        Some(Command::Undo | Command::Resume { .. }) | None => Order::None,
    }
}

fn next_stage(record: &mut RolloutRecord) {
    record.stage = record.stage.saturating_add(1);
    record.since = 0;
    record.set_verdict(Verdict::Baking);
    record.reason.clear();
}

/// Returns when the current stage has baked, if that is known.
fn progress(
    record: &mut RolloutRecord,
    rollout: &Rollout,
    hosts: &[HostReport],
    order: Order,
    now: u64,
) -> Option<u64> {
    loop {
        let index = usize::try_from(record.stage).unwrap_or(usize::MAX);
        let stage = rollout.stages.get(index);
        let failures = failures(record, rollout, hosts);
        if !failures.is_empty() {
            // The next resume would otherwise skip the hosts of this stage.
            if let Some(stage) = stage.filter(|_| order == Order::Resumed) {
                release(record, stage, hosts);
            }
            fail(record, rollout, &failures);
            return None;
        }
        let Some(stage) = stage else {
            let RolloutRecord { digest, base, .. } = &*record;
            let stage = record.stage;
            *record = RolloutRecord {
                stage,
                ..done(digest, base)
            };
            return None;
        };
        if order == Order::Pause {
            record.set_verdict(Verdict::Paused);
            OPERATOR_PAUSED.clone_into(&mut record.reason);
            return None;
        }
        record.set_verdict(Verdict::Baking);
        record.reason.clear();
        release(record, stage, hosts);
        let released = hosts.iter().filter(|host| record.has(&host.name));
        let released: Vec<&HostReport> = released.collect();
        // Without reports, nothing shows that the revision works.
        if released.is_empty() || released.iter().any(|host| host.is_lost) {
            record.since = 0;
            return None;
        }
        if !released.iter().all(|host| host.has_applied) {
            return None;
        }
        if record.since == 0 {
            record.since = now.max(1);
        }
        let end = record.since.saturating_add(stage.bake_seconds.into());
        if now < end {
            return Some(end);
        }
        if stage.pause {
            record.set_verdict(Verdict::Paused);
            record.reason = format!("stage {} waits for an operator", record.number());
            return None;
        }
        next_stage(record);
    }
}

fn fail(record: &mut RolloutRecord, rollout: &Rollout, failures: &[Failure]) {
    let returns = rollout.return_on_failure && record.can_undo();
    record.set_verdict(if returns {
        Verdict::Undone
    } else {
        Verdict::Held
    });
    let shown = failures.iter().take(MAX_SHOWN);
    let shown: Vec<&str> = shown.map(|failure| failure.message.as_str()).collect();
    record.reason = shown.join("; ");
    let more = failures.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        record.reason = format!("{}; {more} more", record.reason);
    }
    // If an operator resumes, the same failures must not hold the revision again.
    for Failure { key, .. } in failures {
        accept(record, key);
    }
}

/// Adds failures that were reported after the rollout was held.
fn show(record: &mut RolloutRecord, later: &[Failure]) {
    const MORE: &str = "; and more";
    for Failure { key, message } in later {
        accept(record, key);
        if record.reason.len().saturating_add(message.len()) <= MAX_REASON {
            record.reason.push_str("; ");
            record.reason.push_str(message);
        } else if !record.reason.ends_with(MORE) {
            record.reason.push_str(MORE);
        }
    }
}

fn accept(record: &mut RolloutRecord, key: &str) {
    if record.accepted.len() < MAX_ACCEPTED
        && let Err(place) = record.accepted.binary_search_by(|it| it.as_str().cmp(key))
    {
        record.accepted.insert(place, key.to_owned());
    }
}

/// Adds the stage's hosts. Lost hosts cannot show whether the revision works.
fn release(record: &mut RolloutRecord, stage: &RolloutStage, hosts: &[HostReport]) {
    let RolloutStage {
        hosts: count,
        percent,
        zone,
        bake_seconds: _,
        pause: _,
    } = stage;
    let mut waiting: Vec<&HostReport> = hosts
        .iter()
        .filter(|host| !host.is_lost && !record.has(&host.name))
        .filter(|host| zone.is_empty() || host.zone == *zone)
        .collect();
    waiting.sort_by(|one, other| one.name.cmp(&other.name));
    // A host that no longer reports is not replaced, because the revision may have broken it.
    let released = record.hosts.len();
    let share = hosts
        .len()
        .saturating_mul(usize::try_from(*percent).unwrap_or(100))
        .div_ceil(100);
    let count = usize::try_from(*count).unwrap_or(usize::MAX);
    let room = if zone.is_empty() {
        count.max(share).saturating_sub(released)
    } else {
        usize::MAX
    };
    let room = room.min(MAX_HOSTS.saturating_sub(record.hosts.len()));
    for host in waiting.into_iter().take(room) {
        // The revision did not cause older failures.
        if record.reached.binary_search(&host.name).is_err() {
            let older = host.failures.iter();
            older.for_each(|failure| accept(record, &key(failure)));
        }
        record.hosts.push(host.name.clone());
        // All hosts of a stage bake together.
        record.since = 0;
    }
    record.hosts.sort_unstable();
}
