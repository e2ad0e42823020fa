//! Transactions against a real Envoy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sesame_apply::plan::Phase;
use sesame_apply::{Applier, Desired, OnDisk, Outcome, Patience, Removal};
use sesame_render::xds::{Subscription, XdsKind};
use sesame_render::{Rendered, Resource};
use sesame_tests::envoy_files::{
    self, Host, apply, backend, cluster, endpoints, free_address, get, listener, load, route_table,
    until_answered,
};

const TABLE: &str = "http/80";

fn with(list: &[Resource], more: Resource) -> Arc<[Resource]> {
    let mut list = [list, &[more]].concat();
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list.into()
}

fn to_backend(host: &Host, at: SocketAddr, name: &str, endpoint: SocketAddr) -> Rendered {
    Rendered {
        listeners: [listener(&host.layout, at, TABLE, None)].into(),
        route_tables: [route_table(TABLE, name)].into(),
        clusters: [cluster(&host.layout, name)].into(),
        endpoints: [endpoints(name, &[endpoint])].into(),
        secrets: [].into(),
        ..Rendered::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_switches_backend_under_load_without_failure() {
    let host = Host::new();
    let at = free_address();
    let backends = [backend("one").await, backend("two").await];
    let names = ["Service/ns/one:80/0a1b.c", "Service/ns/two:80/9f.e"];
    let (mut applier, supervisor) = host
        .start(&to_backend(&host, at, names[0], backends[0]))
        .await;
    let envoy = supervisor.admin();
    let load = load(at, 4);
    load.pass(50).await;
    for round in 1..=20 {
        let to = round % 2;
        let wanted = to_backend(&host, at, names[to], backends[to]);
        let report = apply(&mut applier, &wanted, Some(&envoy)).await;
        assert_eq!(report.outcome, Outcome::Applied, "{report:?}");
        let phases: Vec<Phase> = report.steps.iter().map(|s| s.phase).collect();
        assert_eq!(
            phases,
            [
                Phase::Leaves,
                Phase::ClustersUnion,
                Phase::RouteTables,
                Phase::Clusters,
                Phase::Orphans
            ]
        );
        assert!(
            report.unverified.is_empty() && report.renamed_again.is_empty(),
            "{report:?}"
        );
        until_answered(at, "/", (200, ["one", "two"][to])).await;
        load.pass(20).await;
    }
    load.stop().await.assert_clean();
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_cluster_is_removed_by_next_switch() {
    let host = Host::new();
    let at = free_address();
    let backends = [backend("a").await, backend("b").await, backend("c").await];
    let names = ["a", "b", "c"];
    let (mut applier, supervisor) = host.start(&to_backend(&host, at, "a", backends[0])).await;
    let envoy = supervisor.admin();
    applier.set_removal(Removal::Later);
    let load = load(at, 4);
    load.pass(50).await;
    let phases = |report: &sesame_apply::ApplyReport| -> Vec<Phase> {
        assert_eq!(report.outcome, Outcome::Applied, "{report:?}");
        report.steps.iter().map(|step| step.phase).collect()
    };
    let two_steps = [Phase::Leaves, Phase::ClustersUnion, Phase::RouteTables];
    let mut wanted = Rendered::default();
    for round in 1..=20 {
        let to = round % 3;
        wanted = to_backend(&host, at, names[to], backends[to]);
        let report = apply(&mut applier, &wanted, Some(&envoy)).await;
        let actual = phases(&report);
        assert_eq!(actual[..3], two_steps, "{report:?}");
        let cleanup: &[Phase] = if round == 1 { &[] } else { &[Phase::Orphans] };
        assert_eq!(&actual[3..], cleanup, "{report:?}");
        until_answered(at, "/", (200, names[to])).await;
        let on_disk = OnDisk::load(&host.layout).unwrap();
        assert_eq!(on_disk.content, applier.on_disk().content);
        assert_eq!(on_disk.content.clusters.len(), 2);
        load.pass(20).await;
    }
    applier.set_removal(Removal::AtOnce);
    let report = apply(&mut applier, &wanted, Some(&envoy)).await;
    assert_eq!(phases(&report), [Phase::ClustersUnion, Phase::Orphans]);
    assert_eq!(OnDisk::load(&host.layout).unwrap().content, wanted);
    load.pass(20).await;
    load.stop().await.assert_clean();
    supervisor.stop(Duration::ZERO).await;
}

/// The agent is killed at each await point, while unused resources still exist.
#[tokio::test]
async fn next_agent_removes_unused_resources_after_kill() {
    let host = Host::new();
    let at = free_address();
    let [one, two, three] = [
        to_backend(&host, at, "one", backend("one").await),
        to_backend(&host, at, "two", backend("two").await),
        to_backend(&host, at, "three", backend("three").await),
    ];
    let (mut applier, supervisor) = host.start(&one).await;
    let envoy = supervisor.admin();
    for polls in 1.. {
        applier.set_removal(Removal::AtOnce);
        apply(&mut applier, &one, Some(&envoy)).await;
        assert_eq!(OnDisk::load(&host.layout).unwrap().content, one);
        applier.set_removal(Removal::Later);
        apply(&mut applier, &two, Some(&envoy)).await;
        let with_unused = applier.on_disk().content.clone();
        assert_eq!(with_unused.clusters.len(), 2);
        let done = limit_polls(apply(&mut applier, &three, Some(&envoy)), polls).await;
        if let Some(report) = done {
            assert_eq!(report.outcome, Outcome::Applied, "{report:?}");
            assert!(polls > 2, "the change was never interrupted");
            break;
        }
        let (next, opened) = Applier::open(host.layout.clone(), host.config().log(), Some(&envoy))
            .await
            .unwrap();
        applier = next;
        assert_eq!(opened.junk, Vec::<std::path::PathBuf>::new());
        assert_eq!(OnDisk::load(&host.layout).unwrap().content, with_unused);
        assert_eq!(get(at, "/").await.unwrap().1, "two");
    }
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn unchanged_content_is_confirmed_not_rewritten_after_start() {
    let host = Host::new();
    let at = free_address();
    let wanted = to_backend(&host, at, "c", backend("c").await);
    let (mut applier, supervisor) = host.start(&wanted).await;
    let report = apply(&mut applier, &wanted, Some(&supervisor.admin())).await;
    assert_eq!(report.outcome, Outcome::Unchanged);
    let (mut applier, opened) = Applier::open(
        host.layout.clone(),
        host.config().log(),
        Some(&supervisor.admin()),
    )
    .await
    .unwrap();
    assert_eq!((opened.undone, opened.junk), (0, vec![]));
    let report = apply(&mut applier, &wanted, Some(&supervisor.admin())).await;
    assert_eq!(report.outcome, Outcome::Unchanged);
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn rejected_listener_changes_nothing() {
    let host = Host::new();
    let at = free_address();
    let accepted = to_backend(&host, at, "one", backend("one").await);
    let (mut applier, supervisor) = host.start(&accepted).await;
    let envoy = supervisor.admin();

    let mut bad = to_backend(&host, at, "two", backend("two").await);
    bad.route_tables = with(&bad.route_tables, route_table("other", "two"));
    let good = Arc::clone(&bad.listeners);
    bad.listeners = with(&good, envoy_files::bad_listener(free_address()));
    let report = apply(&mut applier, &bad, Some(&envoy)).await;
    let Outcome::Refused(refusal) = &report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(refusal.phase, Phase::ListenersUnion);
    assert_eq!(
        refusal.subscriptions,
        [Subscription::new(XdsKind::Listeners, "")]
    );
    let message = refusal.envoy_words.join("\n");
    assert!(message.contains("StatPrefix"), "{message}");

    assert_eq!(OnDisk::load(&host.layout).unwrap().content, accepted);
    assert_eq!(applier.on_disk().content, accepted);
    assert_eq!(get(at, "/").await.unwrap(), (200, "one".to_owned()));
    let report = apply(&mut applier, &accepted, Some(&envoy)).await;
    assert_eq!(report.outcome, Outcome::Unchanged);
    bad.listeners = good;
    let report = apply(&mut applier, &bad, Some(&envoy)).await;
    assert_eq!(report.outcome, Outcome::Applied);
    until_answered(at, "/", (200, "two")).await;
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn rejected_route_table_is_named_in_its_step() {
    let host = Host::new();
    let (at, other) = (free_address(), free_address());
    let mut accepted = to_backend(&host, at, "one", backend("one").await);
    let second = listener(&host.layout, other, "other", None);
    accepted.listeners = with(&accepted.listeners, second);
    accepted.route_tables = with(&accepted.route_tables, route_table("other", "one"));
    let (mut applier, supervisor) = host.start(&accepted).await;
    let mut bad = accepted.clone();
    Arc::make_mut(&mut bad.route_tables)[0] = route_table(TABLE, "two");
    // Envoy rejects an empty cluster name.
    Arc::make_mut(&mut bad.route_tables)[1] = route_table("other", "");
    let report = apply(&mut applier, &bad, Some(&supervisor.admin())).await;
    let Outcome::Refused(refusal) = &report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(
        refusal.subscriptions,
        [Subscription::new(XdsKind::RouteTable, "other")]
    );
    assert_eq!(OnDisk::load(&host.layout).unwrap().content, accepted);
    assert_eq!(get(at, "/").await.unwrap().1, "one");
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn certificate_rotates_and_bad_pair_is_rejected_twice() {
    let host = Host::new();
    let (at, tls) = (free_address(), free_address());
    let name = "Secret/ns/na.me:x";
    let (first, first_serial) = envoy_files::key_pair(name, 1);
    let (second, second_serial) = envoy_files::key_pair(name, 2);
    let mut rendered = to_backend(&host, at, "one", backend("one").await);
    let (mut applier, supervisor) = host.start(&rendered).await;
    let envoy = supervisor.admin();
    let mut step = async |rendered: &Rendered, serial: &str| {
        let serials = BTreeMap::from([(name.to_owned(), serial.to_owned())]);
        let wanted = Desired {
            rendered,
            serials: &serials,
            may_empty: false,
        };
        applier.apply(wanted, Some(&envoy)).await.unwrap()
    };

    let over_tls = listener(&host.layout, tls, TABLE, Some(name));
    rendered.listeners = with(&rendered.listeners, over_tls);
    rendered.secrets = [first].into();
    let report = step(&rendered, &first_serial).await;
    assert_eq!(
        (report.outcome, report.unverified),
        (Outcome::Applied, vec![])
    );

    rendered.secrets = [second].into();
    let report = step(&rendered, &second_serial).await;
    assert_eq!(report.outcome, Outcome::Applied);
    assert_eq!(report.steps.len(), 1);

    let mut bad = rendered.clone();
    bad.secrets = [envoy_files::pair_secret(name, "nonsense", "nonsense")].into();
    for attempt in ["first", "second"] {
        // On the second attempt, Envoy wrongly reports success.
        let report = step(&bad, "4e03").await;
        let Outcome::Refused(refusal) = report.outcome else {
            panic!("{attempt}: {report:?}");
        };
        assert_eq!(
            refusal.subscriptions,
            [Subscription::new(XdsKind::Secret, name)]
        );
        assert_eq!(OnDisk::load(&host.layout).unwrap().content, rendered);
    }
    let serials = envoy.certificate_serials().await.unwrap();
    assert_eq!(serials, ["4e02"]);
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn file_unseen_by_envoy_is_reported_and_reverted() {
    let host = Host::new();
    let at = free_address();
    let accepted = to_backend(&host, at, "one", backend("one").await);
    let (applier, supervisor) = host.start(&accepted).await;
    let mut applier = applier.with_patience(Patience {
        unseen: Duration::from_millis(100),
        ..Patience::default()
    });
    // Envoy keeps watching the directory that was moved aside.
    let path = host.layout.eds("one");
    let watched = path.parent().unwrap();
    let aside = watched.with_extension("aside");
    std::fs::rename(watched, &aside).unwrap();
    std::fs::create_dir(watched).unwrap();
    std::fs::rename(aside.join("eds.pb"), &path).unwrap();

    let wanted = to_backend(&host, at, "one", backend("other").await);
    let report = apply(&mut applier, &wanted, Some(&supervisor.admin())).await;
    let Outcome::Unseen { subscriptions, .. } = &report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(
        subscriptions,
        &[Subscription::new(XdsKind::Endpoints, "one")]
    );
    assert_eq!(OnDisk::load(&host.layout).unwrap().content, accepted);
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn next_agent_recovers_from_kill_in_transaction() {
    let host = Host::new();
    let at = free_address();
    let accepted = to_backend(&host, at, "one", backend("one").await);
    let (mut applier, supervisor) = host.start(&accepted).await;
    let envoy = supervisor.admin();
    let mut wanted = to_backend(&host, at, "two", backend("two").await);
    wanted.listeners = [envoy_files::bad_listener(at)].into();
    // Drop the transaction at every await point in turn.
    for polls in 1.. {
        let done = {
            let transaction = apply(&mut applier, &wanted, Some(&envoy));
            limit_polls(transaction, polls).await
        };
        let Some(report) = done else {
            let (next, opened) =
                Applier::open(host.layout.clone(), host.config().log(), Some(&envoy))
                    .await
                    .unwrap();
            applier = next;
            assert_eq!(opened.junk, Vec::<std::path::PathBuf>::new());
            assert_eq!(OnDisk::load(&host.layout).unwrap().content, accepted);
            assert_eq!(get(at, "/").await.unwrap().1, "one");
            continue;
        };
        assert!(matches!(report.outcome, Outcome::Refused(_)), "{report:?}");
        assert!(polls > 2, "the change was never interrupted");
        break;
    }
    supervisor.stop(Duration::ZERO).await;
}

async fn limit_polls<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending if left == 1 => std::task::Poll::Ready(None),
        std::task::Poll::Pending => {
            left -= 1;
            std::task::Poll::Pending
        }
    })
    .await
}
