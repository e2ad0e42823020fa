mod signals;

use proptest::prelude::*;
use prost::Message as _;

use super::*;

const OLD: &str = "0000000000000000";
const NEW: &str = "1111111111111111";

fn stage(hosts: u32, bake_seconds: u32) -> RolloutStage {
    RolloutStage {
        hosts,
        bake_seconds,
        ..RolloutStage::default()
    }
}

fn rollout(stages: &[RolloutStage]) -> Rollout {
    Rollout {
        stages: stages.to_vec(),
        ..Rollout::default()
    }
}

fn hosts(count: usize) -> Vec<HostReport> {
    let host = |number: usize| HostReport {
        name: format!("host-{number}"),
        zone: if number < 2 { "a" } else { "b" }.to_owned(),
        ..HostReport::default()
    };
    // Reports arrive in any order.
    (0..count).rev().map(host).collect()
}

/// Hosts apply released revisions.
fn follow(record: &RolloutRecord, hosts: &mut [HostReport]) {
    for host in hosts {
        host.has_applied = record.releases(&host.name);
    }
}

fn started(rollout: &Rollout, hosts: &[HostReport]) -> RolloutRecord {
    let before = step(None, rollout, OLD, Some(hosts), 1).record;
    assert_eq!((before.verdict(), before.all), (Verdict::Done, true));
    step(Some(&before), rollout, NEW, Some(hosts), 10).record
}

fn requests((requests, errors): (u64, u64)) -> HostTraffic {
    HostTraffic {
        requests,
        errors,
        ..HostTraffic::default()
    }
}

#[test]
fn stages_bake_before_next_hosts_get_revision() {
    let zone = RolloutStage {
        zone: "a".to_owned(),
        bake_seconds: 60,
        ..RolloutStage::default()
    };
    let percent = RolloutStage {
        percent: 50,
        ..RolloutStage::default()
    };
    let rollout = rollout(&[stage(1, 60), zone, percent]);
    let mut hosts = hosts(5);
    let mut record = started(&rollout, &hosts);
    assert_eq!(record.hosts, ["host-0"]);
    let at = |record: &mut RolloutRecord, hosts: &[HostReport], now| {
        let Step { record: next, wake } = step(Some(record), &rollout, NEW, Some(hosts), now);
        *record = next;
        wake
    };
    assert_eq!(at(&mut record, &hosts, 1000), None, "not applied yet");
    follow(&record, &mut hosts);
    assert_eq!(at(&mut record, &hosts, 1000), Some(1060));
    assert_eq!(at(&mut record, &hosts, 1059), Some(1060));
    assert_eq!(record.hosts, ["host-0"]);
    assert_eq!(at(&mut record, &hosts, 1060), None);
    assert_eq!(record.hosts, ["host-0", "host-1"]);
    follow(&record, &mut hosts);
    assert_eq!(at(&mut record, &hosts, 2000), Some(2060));
    at(&mut record, &hosts, 2060);
    assert_eq!(record.hosts, ["host-0", "host-1", "host-2"]);
    assert_eq!(record.verdict(), Verdict::Baking);
    follow(&record, &mut hosts);
    at(&mut record, &hosts, 2061);
    assert_eq!((record.verdict(), record.all), (Verdict::Done, true));
    assert_eq!(record.base, OLD);
}

#[test]
fn failure_of_released_host_holds_revision() {
    let mut rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(5);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let rejects = "rejects HTTPRoute/ns/bad".to_owned();
    hosts[4].failures.insert(rejects.clone());
    let held = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!(held.verdict(), Verdict::Held);
    assert_eq!(held.reason, "host host-0: rejects HTTPRoute/ns/bad");
    assert_eq!(held.hosts, ["host-0"]);
    let later = step(Some(&held), &rollout, NEW, Some(&hosts), 9999);
    assert_eq!((later.record, later.wake), (held.clone(), None));

    rollout.command = Command::Resume { stage: 1 }.text(NEW);
    let resumed = step(Some(&held), &rollout, NEW, Some(&hosts), 9999).record;
    assert_eq!(resumed.verdict(), Verdict::Done);

    rollout.command.clear();
    rollout.return_on_failure = true;
    let undone = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!(undone.verdict(), Verdict::Undone);

    // Waiting hosts have the same problem, so the revision is not its cause.
    hosts[0].failures.insert(rejects);
    let baking = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!(baking.verdict(), Verdict::Baking);
}

#[test]
fn one_resume_accepts_all_failures() {
    let mut rollout = rollout(&[stage(1, 60), stage(2, 60)]);
    let mut hosts = hosts(5);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    hosts[4].failures = ["one", "two"].map(str::to_owned).into();
    hosts[4].traffic = requests((100, 100));
    let held = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    let reason = "host host-0: one; host host-0: two; 100.0 % of requests get 5xx on hosts with \
                  the revision, 0.0 % on the others";
    assert_eq!(held.reason, reason);
    // Reported after the rollout was held.
    hosts[4].failures.insert("three".to_owned());
    let held = step(Some(&held), &rollout, NEW, Some(&hosts), 25).record;
    assert!(held.reason.ends_with("; host host-0: three"));
    rollout.command = Command::Resume { stage: 1 }.text(NEW);
    let unknown = step(Some(&held), &rollout, NEW, None, 30).record;
    assert_eq!(unknown, held, "the failures are unknown");
    let mut record = held;
    for (now, stage) in [(30, 1), (40, 1), (99, 1), (100, 2)] {
        let next = step(Some(&record), &rollout, NEW, Some(&hosts), now).record;
        assert_ne!(next.verdict(), Verdict::Held, "{}", next.reason);
        assert_eq!(next.stage, stage, "at {now}");
        record = next;
        follow(&record, &mut hosts);
    }
}

#[test]
fn resume_accepts_only_shown_failures() {
    let mut rollout = rollout(&[stage(1, 60), stage(2, 60)]);
    let mut hosts = hosts(5);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let long = |number| format!("{number} {}", "x".repeat(100));
    hosts[4].failures = (0..150).map(long).collect();
    let held = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert!(held.reason.ends_with("; 145 more"));
    let mut record = held;
    hosts[4].failures.insert("new".to_owned());
    rollout.command = Command::Resume { stage: 1 }.text(NEW);
    for _ in 0..2 {
        record = step(Some(&record), &rollout, NEW, Some(&hosts), 30).record;
        assert_eq!(record.verdict(), Verdict::Held);
        assert_eq!(record.reason, "host host-0: new");
        assert_eq!(record.hosts, ["host-0", "host-1"]);
    }
    hosts[4].failures.insert("newer".to_owned());
    rollout.command = Command::Resume { stage: 2 }.text(NEW);
    record = step(Some(&record), &rollout, NEW, Some(&hosts), 40).record;
    assert_eq!(record.verdict(), Verdict::Held, "not done over a failure");
    rollout.command = Command::Resume { stage: 3 }.text(NEW);
    record = step(Some(&record), &rollout, NEW, Some(&hosts), 50).record;
    assert_eq!(record.verdict(), Verdict::Done);
}

#[test]
fn commands_apply_to_their_revision_and_stage() {
    let gate = RolloutStage {
        pause: true,
        ..stage(1, 0)
    };
    let mut rollout = rollout(&[gate.clone(), RolloutStage { hosts: 2, ..gate }]);
    let mut hosts = hosts(5);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let mut then = |record: &RolloutRecord, command: &str| {
        command.clone_into(&mut rollout.command);
        step(Some(record), &rollout, NEW, Some(&hosts), 20).record
    };
    let paused = then(&record, "");
    assert_eq!(paused.verdict(), Verdict::Paused);
    let of_other = Command::Resume { stage: 1 }.text(OLD);
    assert_eq!(then(&paused, &of_other), paused);
    let second = then(&paused, &Command::Resume { stage: 1 }.text(NEW));
    assert_eq!((second.stage, second.hosts.len()), (1, 2));
    assert_eq!(
        then(&second, &Command::Resume { stage: 1 }.text(NEW)),
        second
    );
    let stopped = then(&second, &Command::Pause.text(NEW));
    assert_eq!(stopped.verdict(), Verdict::Paused);
    let undone = then(&second, &Command::Undo.text(NEW));
    assert_eq!(undone.verdict(), Verdict::Undone);
    assert_eq!(then(&undone, ""), undone);
    let done = then(&undone, &Command::Resume { stage: 2 }.text(NEW));
    assert_eq!(done.verdict(), Verdict::Done);
    // A completed rollout can be undone too.
    assert_eq!(
        then(&done, &Command::Undo.text(NEW)).verdict(),
        Verdict::Undone
    );
}

#[test]
fn reverted_change_reaches_all_hosts_at_once() {
    let rollout = rollout(&[stage(1, 60)]);
    let hosts = hosts(5);
    let record = started(&rollout, &hosts);
    let back = step(Some(&record), &rollout, OLD, Some(&hosts), 20).record;
    assert_eq!((back.verdict(), back.all), (Verdict::Done, true));
    assert!(!back.can_undo());
    let other = step(Some(&record), &rollout, "2222222222222222", None, 20).record;
    assert_eq!((other.base.as_str(), other.hosts.len()), (OLD, 0));
}

#[test]
fn malformed_commands_are_ignored() {
    for text in [
        "",
        "pause",
        "pause/1",
        "pause/1111111111111111/1",
        "resume/1111111111111111",
        "resume/1111111111111111/0",
        "resume/1111111111111111/1/1",
        "undo/111111111111111G",
    ] {
        assert_eq!(Command::parse(text), None, "{text}");
    }
}

#[test]
fn stage_without_reporting_host_does_not_pass() {
    let rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let baking = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!(baking.since, 20);
    for is_removed in [false, true] {
        let mut hosts = hosts.clone();
        hosts[2].is_lost = true;
        hosts.truncate(if is_removed { 2 } else { 3 });
        let next = step(Some(&baking), &rollout, NEW, Some(&hosts), 9999);
        assert_eq!((next.record.since, next.wake), (0, None));
        assert_eq!(next.record.hosts, ["host-0"]);
        assert_eq!(next.record.verdict(), Verdict::Baking);
    }
    let alone = step(Some(&record), &rollout, NEW, Some(&[]), 9999).record;
    assert_eq!(alone.verdict(), Verdict::Baking);
}

#[test]
fn added_host_restarts_bake_of_stage() {
    let half = RolloutStage {
        percent: 50,
        bake_seconds: 60,
        ..RolloutStage::default()
    };
    let rollout = rollout(&[half]);
    let mut few = hosts(2);
    let record = started(&rollout, &few);
    follow(&record, &mut few);
    let baking = step(Some(&record), &rollout, NEW, Some(&few), 20).record;
    assert_eq!((baking.hosts.len(), baking.since), (1, 20));
    let mut more = hosts(4);
    follow(&baking, &mut more);
    let grown = step(Some(&baking), &rollout, NEW, Some(&more), 90).record;
    assert_eq!((grown.hosts.len(), grown.since), (2, 0));
    assert_eq!(grown.verdict(), Verdict::Baking);
}

#[test]
fn ended_pause_continues_same_stage() {
    let mut rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    rollout.command = Command::Pause.text(NEW);
    let paused = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!(paused.verdict(), Verdict::Paused);
    assert_eq!(paused.reason, OPERATOR_PAUSED);
    rollout.command.clear();
    let next = step(Some(&paused), &rollout, NEW, Some(&hosts), 30);
    assert_eq!(
        (next.record.verdict(), next.record.stage),
        (Verdict::Baking, 0)
    );
    assert_eq!(next.wake, Some(90));
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Apply(usize),
    Lose(usize),
    Fail(usize),
    Revision(u8),
    Resume,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..50_u64).prop_map(Event::Pass),
        (0..5_usize).prop_map(Event::Apply),
        (0..5_usize).prop_map(Event::Lose),
        (0..20_usize).prop_map(Event::Fail),
        (0..3_u8).prop_map(Event::Revision),
        Just(Event::Resume),
    ]
}

proptest! {
    #[test]
    fn no_stage_is_skipped_or_repeated(events in prop::collection::vec(event(), 1..60)) {
        let mut rollout = rollout(&[stage(1, 30), stage(3, 20)]);
        let (mut hosts, mut now, mut digest) = (hosts(5), 1000, OLD.to_owned());
        let mut record = step(None, &rollout, &digest, Some(&hosts), now).record;
        for event in events {
            rollout.command.clear();
            match event {
                Event::Pass(seconds) => now += seconds,
                Event::Apply(index) => {
                    hosts[index].is_lost = false;
                    hosts[index].has_applied = record.releases(&hosts[index].name);
                }
                Event::Lose(index) => hosts[index].is_lost = true,
                Event::Fail(index) => {
                    if let Some(host) = hosts.get_mut(index) {
                        host.failures.insert(format!("fails at {now}"));
                    }
                }
                Event::Revision(number) => {
                    digest = format!("{number:016x}");
                    for host in &mut hosts {
                        host.has_applied = false;
                    }
                }
                Event::Resume => {
                    rollout.command = Command::Resume { stage: record.number() }.text(&digest);
                }
            }
            let next = step(Some(&record), &rollout, &digest, Some(&hosts), now).record;
            if next.digest == record.digest {
                let passed = (record.stage..next.stage).count();
                let baked = |stage: u32| {
                    let bake = rollout.stages.get(stage as usize).map_or(0, |it| it.bake_seconds);
                    record.since > 0 && now >= record.since + u64::from(bake)
                };
                let resumed = !rollout.command.is_empty();
                prop_assert!(passed <= 1 || resumed, "{record:?} {next:?}");
                prop_assert!(passed == 0 || resumed || baked(record.stage), "{record:?} {next:?}");
                prop_assert!(record.hosts.iter().all(|host| next.releases(host)));
            }
            // A restarted controller reads the stored record, and changes nothing.
            let stored = RolloutRecord::decode(&*next.encode_to_vec()).unwrap();
            let again = step(Some(&stored), &rollout, &digest, Some(&hosts), now).record;
            if rollout.command.is_empty() {
                prop_assert_eq!(&again, &next);
            }
            prop_assert_eq!(step(Some(&stored), &rollout, &digest, None, now).record.hosts, next.hosts.clone());
            record = next;
        }
    }
}
