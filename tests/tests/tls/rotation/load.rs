//! A thousand rotations under load. Envoy must not drain connections or change listeners.

use std::time::Instant;

use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::client::Connection;
use sesame_tests::load::{Load, Plan};
use sesame_tests::seeded::count;

use super::site::{Site, admin, unmoved};

/// Number of certificates that are rotated within one second.
const NAMES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn thousand_rotations_drain_and_fail_nothing() {
    let rotations = count("SESAME_ROTATIONS", 60, 1000);
    let backend = Backend::start("app").await;
    let site = Site::with_names(NAMES);
    let agent = site
        .start(Setup::with_ports(&[443]), backend.address(), |it| it)
        .await;
    let admin = admin(&agent).await;
    let mut kept = Vec::new();
    for number in 0..NAMES {
        let request = site.get(&agent, number);
        let connection = Connection::open(&request).await.expect("a connection");
        kept.push((connection, request));
    }
    for (connection, request) in &mut kept {
        let reply = connection.send(request).await.expect("an answer");
        assert_eq!(reply.status, 200);
    }
    let before = unmoved(&admin).await;
    let all = (0..4).map(|number| site.get(&agent, number * NAMES / 4));
    let mut plan = Plan::new(all.collect());
    plan.requests
        .extend((0..2).map(|number| site.get(&agent, number * NAMES / 2).http2()));
    let load = Load::start(&plan);

    let rounds = rotations.div_ceil(NAMES);
    let mut longest = std::time::Duration::ZERO;
    for round in 0..rounds {
        // Odd rounds rotate the certificates one by one, even rounds all at once.
        let leaves: Vec<_> = (0..NAMES).map(|number| site.issue(number)).collect();
        let since = Instant::now();
        for (number, leaf) in leaves.iter().enumerate() {
            Site::write(&agent, number, leaf);
            if round % 2 == 1 {
                site.wait_shown(&agent, number, leaf).await;
            }
        }
        for (number, leaf) in leaves.iter().enumerate() {
            site.wait_shown(&agent, number, leaf).await;
        }
        if round % 2 == 0 {
            longest = longest.max(since.elapsed());
        }
    }
    let report = load.stop().await;
    report.clean(&format!(
        "{} certificate rotations ({NAMES} at once took at most {} ms)",
        rounds * NAMES,
        longest.as_millis()
    ));
    assert_eq!(unmoved(&admin).await, before, "nothing was drained");
    for (connection, request) in &mut kept {
        assert!(
            connection.is_open().await,
            "{request}: the connection must stay open"
        );
        let reply = connection.send(request).await.expect("an answer");
        assert_eq!(reply.status, 200, "{request}");
    }
    agent.wait_healthy().await;
}
