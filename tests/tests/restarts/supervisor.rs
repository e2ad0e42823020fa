//! Supervises a real Envoy that crashes, loses its agent, is replaced, and is stopped.

use std::net::SocketAddr;
use std::time::Duration;

use sesame_apply::{Applier, Outcome};
use sesame_envoy::process::Process;
use sesame_envoy::restart::{Request, RestartMethod};
use sesame_envoy::{State, Supervisor, SupervisorConfig};
use sesame_render::xds::{Subscription, XdsKind};
use sesame_render::{Rendered, Resource};
use sesame_tests::client::Connection;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::envoy_files::{
    self, Host, apply, backend, cluster, endpoints, free_address, get, listener, live_pid, load,
    request, route_table, until, until_answered, until_state,
};
use sesame_tests::itself;

async fn serving(host: &Host, at: SocketAddr) -> Rendered {
    Rendered {
        listeners: [listener(&host.layout, at, "t", None)].into(),
        route_tables: [route_table("t", "c")].into(),
        clusters: [cluster(&host.layout, "c")].into(),
        endpoints: [endpoints("c", &[backend("hello").await])].into(),
        secrets: [].into(),
        ..Rendered::default()
    }
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn kill(pid: u32) {
    let start_time = sesame_host::processes::start_time(pid);
    let process = start_time.and_then(|start| Process::adopt(pid, start).ok().flatten());
    if let Some(process) = process {
        process.kill();
    }
}

#[tokio::test]
async fn a_killed_envoy_is_started_again_and_serves() {
    let host = Host::new();
    let at = free_address();
    let (mut applier, supervisor) = host.start(&serving(&host, at).await).await;
    let before = live_pid(&supervisor.state().borrow());
    kill(before);
    let state = until_state(&supervisor, |s| matches!(s, State::Backoff { .. })).await;
    let State::Backoff { deaths, reason, .. } = state else {
        unreachable!();
    };
    assert_eq!(deaths, 1);
    assert!(reason.starts_with("signal 9"), "{reason}");
    let after = live_pid(&until_state(&supervisor, State::is_live).await);
    assert_ne!(before, after);
    assert_eq!(get(at, "/").await.unwrap(), (200, "hello".to_owned()));
    let mut wanted = applier.on_disk().content.clone();
    wanted.endpoints = [endpoints("c", &[backend("other").await])].into();
    let report = apply(&mut applier, &wanted, Some(&supervisor.admin())).await;
    assert_eq!(report.outcome, Outcome::Applied);
    until_answered(at, "/", (200, "other")).await;
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn transaction_is_rolled_back_if_envoy_is_dead() {
    let host = Host::new();
    let at = free_address();
    let accepted = serving(&host, at).await;
    let (mut applier, supervisor) = host.start(&accepted).await;
    let admin = supervisor.admin();
    supervisor.stop(Duration::ZERO).await;
    let mut wanted = accepted.clone();
    wanted.route_tables = [route_table("t", "other")].into();
    let report = apply(&mut applier, &wanted, Some(&admin)).await;
    assert!(matches!(report.outcome, Outcome::Gone { .. }), "{report:?}");
    assert_eq!(applier.on_disk().content, accepted);
    let report = apply(&mut applier, &wanted, None).await;
    assert_eq!(report.outcome, Outcome::NotRunning);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_agent_adopts_envoy_of_previous_agent() {
    let host = Host::new();
    let at = free_address();
    let wanted = serving(&host, at).await;
    let (applier, supervisor) = host.start(&wanted).await;
    let pid = live_pid(&supervisor.state().borrow());
    let load = load(at, 2);
    drop((applier, supervisor));
    load.pass(50).await;

    // Even without a state file, Envoy must be adopted.
    for note_is_lost in [false, true] {
        if note_is_lost {
            std::fs::remove_file(host.directory.path().join("run/envoy.pid.json")).unwrap();
        }
        let supervisor = Supervisor::start(host.config()).unwrap();
        let state = until_state(&supervisor, State::is_live).await;
        let State::Live {
            adopted, loaded, ..
        } = state
        else {
            unreachable!();
        };
        assert!(adopted && loaded);
        assert_eq!(live_pid(&state), pid);
        let (mut applier, _) = Applier::open(
            host.layout.clone(),
            host.config().log(),
            Some(&supervisor.admin()),
        )
        .await
        .unwrap();
        let report = apply(&mut applier, &wanted, Some(&supervisor.admin())).await;
        assert_eq!(report.outcome, Outcome::Unchanged);
        load.pass(50).await;
        drop(supervisor);
    }
    load.stop().await.assert_clean();

    let supervisor = Supervisor::start(host.config()).unwrap();
    until_state(&supervisor, State::is_live).await;
    // An adopted Envoy is not a child process.
    kill(pid);
    until_state(&supervisor, |s| matches!(s, State::Backoff { .. })).await;
    until_state(&supervisor, State::is_live).await;
    supervisor.stop(Duration::ZERO).await;
}

/// The next test runs this test in a separate process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs until it is killed; started by another test"]
async fn as_an_agent() {
    let directory = std::path::PathBuf::from(std::env::var_os(Host::DIRECTORY).unwrap());
    let layout = sesame_render::layout::XdsLayout::new(directory.join("xds"));
    let socket = directory.join("admin.sock");
    let config = SupervisorConfig {
        concurrency: Some(1),
        drain_time: Duration::from_secs(2),
        ..SupervisorConfig::new(
            envoy_binary(),
            directory.join("run"),
            &socket,
            envoy_files::bootstrap(&layout, &socket),
        )
    };
    let supervisor = Supervisor::start(config).unwrap();
    until_state(&supervisor, State::is_live).await;
    std::fs::write(directory.join("live"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_keeps_serving_after_agent_is_killed() {
    let host = Host::new();
    let at = free_address();
    let config = host.config();
    let wanted = serving(&host, at).await;
    let (mut applier, _) = Applier::open(host.layout.clone(), config.log(), None)
        .await
        .unwrap();
    apply(&mut applier, &wanted, None).await;
    let mut agent = std::process::Command::new(itself::executable())
        .args(itself::only("as_an_agent"))
        .env(Host::DIRECTORY, host.directory.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let live = host.directory.path().join("live");
    until("the other agent's Envoy is live", || live.exists()).await;
    let load = load(at, 2);
    load.pass(50).await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    load.pass(200).await;
    let supervisor = Supervisor::start(config).unwrap();
    let state = until_state(&supervisor, State::is_live).await;
    assert!(
        matches!(state, State::Live { adopted: true, .. }),
        "{state:?}"
    );
    load.pass(50).await;
    load.stop().await.assert_clean();
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn an_envoy_with_another_bootstrap_is_replaced() {
    let host = Host::new();
    let at = free_address();
    let (applier, supervisor) = host.start(&serving(&host, at).await).await;
    let pid = live_pid(&supervisor.state().borrow());
    drop((applier, supervisor));
    let mut config = host.config();
    // Concatenated protobuf messages merge.
    let mut bootstrap = config.bootstrap.to_vec();
    bootstrap.extend_from_slice(&[0x0a, 3, 0x0a, 1, b'n']);
    config.bootstrap = bootstrap.into();
    let load = load(at, 2);
    let supervisor = Supervisor::start(config).unwrap();
    let state = until_state(&supervisor, State::is_live).await;
    assert_eq!(live_pid(&state), pid);
    assert!(
        matches!(state, State::Live { outdated: Some(why), .. } if why.contains("bootstrap")),
        "{state:?}"
    );
    let replaced = supervisor.restart(Request::default()).await.unwrap();
    assert_eq!(
        (replaced.before, replaced.way),
        (pid, RestartMethod::Handover)
    );
    let state = until_state(&supervisor, State::is_live).await;
    assert_eq!(live_pid(&state), replaced.now);
    assert!(
        matches!(state, State::Live { outdated: None, .. }),
        "{state:?}"
    );
    until("the previous Envoy has exited", || !is_running(pid)).await;
    load.pass(50).await;
    load.stop().await.assert_clean();
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_lets_connections_finish() {
    let host = Host::new();
    let at = free_address();
    let (_applier, supervisor) = host.start(&serving(&host, at).await).await;
    let state = supervisor.state();
    let pid = live_pid(&state.borrow());
    let request = request(at, "/");
    let mut client = Connection::open(&request).await.unwrap();
    client.send(&request).await.unwrap();
    let stop = tokio::spawn(supervisor.stop(Duration::from_secs(20)));
    // The open connection delays the stop.
    while client.is_open().await {
        assert_eq!(client.send(&request).await.unwrap().status, 200);
    }
    drop(client);
    stop.await.unwrap();
    assert_eq!(*state.borrow(), State::Stopped);
    assert!(!is_running(pid));
}

#[tokio::test]
async fn failing_envoy_reports_reason_and_backs_off() {
    let host = Host::new();
    let supervisor = Supervisor::start(host.config()).unwrap();
    let state = until_state(&supervisor, |s| {
        matches!(s, State::Backoff { deaths: 2, .. })
    })
    .await;
    let State::Backoff { reason, .. } = state else {
        unreachable!();
    };
    assert!(
        reason.contains("exit code 1") && reason.contains("cds.pb"),
        "{reason}"
    );
    let pids = host.directory.path().join("run/envoy.pid.json");
    until("a pid file", || pids.exists()).await;
    supervisor.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn envoy_validates_bootstrap() {
    use sesame_envoy::validate::{Validity, validate};
    let host = Host::new();
    let config = host.config();
    let directory = host.directory.path().join("judge");
    // The bootstrap's files must exist, but may be empty.
    for path in [host.layout.cds(), host.layout.lds()] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let judge = async |bytes: &[u8]| validate(&config.binary, &directory, bytes).await.unwrap();
    assert_eq!(judge(&config.bootstrap).await, Validity::Valid);
    let mut bad = config.bootstrap.to_vec();
    bad.extend(envoy_files::static_cluster_without_eds("broken"));
    let Validity::Invalid { envoy_words } = judge(&bad).await else {
        panic!("Envoy accepted an EDS cluster without EDS");
    };
    assert!(
        envoy_words.contains("cannot create an EDS cluster without an EDS config"),
        "{envoy_words}"
    );
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[tokio::test]
async fn envoy_binary_reports_version() {
    let config = Host::new().config();
    let version = sesame_envoy::locate::version(&config.binary).await.unwrap();
    assert!(version.number >= (1, 40, 0), "{version:?}");
    let other = std::path::Path::new("/bin/sh");
    assert!(sesame_envoy::locate::version(other).await.is_err());
}

/// One format has route table names as labels, which requires Envoy's tag extraction.
#[tokio::test]
async fn both_statistics_formats_report_same_versions() {
    let host = Host::new();
    let tables = ["https/443/Gateway/ns/a.b/listeners/x-1_y", "not*a*label"];
    let addresses = [free_address(), free_address()];
    let to = |name: &str| {
        let listeners = addresses.iter().zip(tables);
        let mut listeners: Vec<Resource> = listeners
            .map(|(at, table)| listener(&host.layout, *at, table, None))
            .collect();
        listeners.sort_by(|a, b| a.name.cmp(&b.name));
        Rendered {
            listeners: listeners.into(),
            route_tables: tables.map(|table| route_table(table, name)).into(),
            clusters: [cluster(&host.layout, name)].into(),
            endpoints: [endpoints(name, &addresses[..1])].into(),
            ..Rendered::default()
        }
    };
    let (mut applier, supervisor) = host.start(&to("one")).await;
    let envoy = supervisor.admin();
    let report = apply(&mut applier, &to("two"), Some(&envoy)).await;
    assert_eq!(report.outcome, Outcome::Applied, "{report:?}");
    assert!(report.unverified.is_empty(), "{report:?}");
    let whole = envoy.version_texts().await.expect("Envoy answers");
    let labelled = envoy.versions_of_lists_and_route_tables().await;
    let labelled = labelled.expect("Envoy answers");
    for (kind, name) in [
        (XdsKind::Listeners, ""),
        (XdsKind::Clusters, ""),
        (XdsKind::RouteTable, tables[0]),
    ] {
        let subscription = Subscription::new(kind, name);
        let version = whole.of(&subscription, "").expect("a version");
        assert_eq!(version.len(), 32, "{subscription}");
        assert_eq!(labelled.of(&subscription, ""), Some(version));
    }
    let odd = Subscription::new(XdsKind::RouteTable, tables[1]);
    assert_eq!(whole.of(&odd, "").map(str::len), Some(32));
    assert_eq!(labelled.of(&odd, ""), None);
    supervisor.stop(Duration::ZERO).await;
}
