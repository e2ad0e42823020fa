use super::*;

#[test]
fn errors_count_against_hosts_not_reached() {
    let rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let mut verdict = |released: (u64, u64), waiting: (u64, u64)| {
        hosts[2].traffic = requests(released);
        hosts[1].traffic = requests(waiting);
        step(Some(&record), &rollout, NEW, Some(&hosts), 20)
            .record
            .verdict()
    };
    assert_eq!(verdict((100, 6), (100, 0)), Verdict::Held);
    assert_eq!(verdict((100, 5), (100, 0)), Verdict::Baking);
    assert_eq!(verdict((100, 6), (100, 2)), Verdict::Baking);
    assert_eq!(verdict((19, 19), (100, 0)), Verdict::Baking);
    assert_eq!(verdict((0, 0), (0, 0)), Verdict::Baking);
}

#[test]
fn resets_and_failed_handshakes_are_compared() {
    let mut rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let traffic = |resets, failed_handshakes| HostTraffic {
        requests: 100,
        resets: Some(resets),
        handshakes: 50,
        failed_handshakes,
        ..HostTraffic::default()
    };
    let mut reason = |most, released: HostTraffic, waiting: HostTraffic| {
        rollout.max_error_increase = most;
        (hosts[2].traffic, hosts[1].traffic) = (released, waiting);
        step(Some(&record), &rollout, NEW, Some(&hosts), 20)
            .record
            .reason
    };
    let resets = "6.0 % of requests are aborted by backends or time out on hosts with the revision, \
                  0.0 % on the others";
    assert_eq!(reason(None, traffic(6, 0), traffic(0, 0)), resets);
    assert_eq!(reason(None, traffic(6, 0), traffic(2, 0)), "");
    let handshakes = "8.0 % of TLS handshakes fail on hosts with the revision, 2.0 % on the others";
    assert_eq!(reason(None, traffic(0, 4), traffic(0, 1)), handshakes);
    assert_eq!(reason(Some(6), traffic(0, 4), traffic(0, 1)), "");
    // Retries reset more often than clients ask.
    assert_eq!(reason(Some(100), traffic(300, 50), traffic(0, 0)), "");
    let huge = HostTraffic {
        handshakes: u64::MAX,
        requests: u64::MAX,
        ..traffic(u64::MAX, u64::MAX)
    };
    assert_eq!(reason(None, huge, huge), "");
}

#[test]
fn unknown_baseline_excuses_resets_and_handshakes() {
    let rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    hosts[2].traffic = HostTraffic {
        requests: 100,
        resets: Some(50),
        handshakes: 100,
        failed_handshakes: 50,
        ..HostTraffic::default()
    };
    let mut verdict = |waiting: HostTraffic| {
        hosts[1].traffic = waiting;
        let next = step(Some(&record), &rollout, NEW, Some(&hosts), 20);
        next.record.verdict()
    };
    // A standby host has no traffic, and an older agent counts no resets or handshakes.
    assert_eq!(verdict(HostTraffic::default()), Verdict::Baking);
    assert_eq!(verdict(requests((100, 0))), Verdict::Baking);
    let resets = Some(0);
    let counted = HostTraffic {
        resets,
        ..requests((100, 0))
    };
    assert_eq!(verdict(counted), Verdict::Held);
}

#[test]
fn death_counts_unless_waiting_hosts_die_too() {
    let rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    hosts[2].deaths = 1;
    let then = |hosts: &[HostReport]| step(Some(&record), &rollout, NEW, Some(hosts), 20).record;
    assert_eq!(then(&hosts).verdict(), Verdict::Baking, "an older report");
    follow(&record, &mut hosts);
    assert_eq!(then(&hosts).reason, "host host-0: its Envoy died");
    // One of two waiting hosts does not excuse all released ones.
    hosts[0].deaths = 1;
    assert_eq!(then(&hosts).verdict(), Verdict::Held);
    hosts[1].deaths = 1;
    assert_eq!(then(&hosts).verdict(), Verdict::Baking);
    hosts[1].deaths = 0;
    hosts[2].has_applied = false;
    hosts[2].has_refused = true;
    assert_eq!(then(&hosts).verdict(), Verdict::Baking, "serves the base");
}

#[test]
fn older_failure_of_first_host_does_not_count() {
    let rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    hosts[2].failures.insert("port 80 is not open".to_owned());
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let baking = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!((baking.verdict(), baking.since), (Verdict::Baking, 20));
}

#[test]
fn later_change_keeps_failures_of_held_revision() {
    let rollout = rollout(&[stage(1, 60)]);
    let mut hosts = hosts(3);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    hosts[2].failures.insert("fails".to_owned());
    let held = step(Some(&record), &rollout, NEW, Some(&hosts), 20).record;
    assert_eq!(held.verdict(), Verdict::Held);
    let mut before = held;
    // Until it serves the newest revision, the host serves the held one.
    hosts[2].has_applied = false;
    for digest in ["2222222222222222", "3333333333333333"] {
        let begun = step(Some(&before), &rollout, digest, Some(&hosts), 30).record;
        assert_eq!(
            (begun.base.as_str(), &*begun.reached),
            (OLD, &["host-0".to_owned()][..])
        );
        let waits = step(Some(&begun), &rollout, digest, Some(&hosts), 40).record;
        assert_eq!(waits, begun, "the failure may be the held revision's");
        let mut refusing = hosts.clone();
        refusing[2].has_refused = true;
        let refused = step(Some(&begun), &rollout, digest, Some(&refusing), 40).record;
        assert_eq!(refused.verdict(), Verdict::Held);
        let mut following = hosts.clone();
        follow(&begun, &mut following);
        let again = step(Some(&begun), &rollout, digest, Some(&following), 40).record;
        assert_eq!(again.verdict(), Verdict::Held);
        assert_eq!(again.reason, "host host-0: fails");
        before = again;
    }
}

#[test]
fn hosts_of_held_revision_excuse_no_failure() {
    let rollout = rollout(&[stage(2, 0), stage(1, 60)]);
    let mut hosts = hosts(4);
    let record = started(&rollout, &hosts);
    follow(&record, &mut hosts);
    let mut next = step(Some(&record), &rollout, "2222222222222222", None, 20).record;
    assert_eq!(next.reached, ["host-0", "host-1"]);
    next.hosts = vec!["host-0".to_owned()];
    for host in &mut hosts[2..] {
        host.failures.insert("fails".to_owned());
    }
    hosts[2].has_applied = false;
    let held = |hosts: &[HostReport]| {
        let next = step(Some(&next), &rollout, "2222222222222222", Some(hosts), 30);
        next.record.verdict()
    };
    assert_eq!(held(&hosts), Verdict::Held);
    hosts[0].failures.insert("fails".to_owned());
    assert_eq!(held(&hosts), Verdict::Baking);
}
