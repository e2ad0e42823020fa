//! Other processes take all inotify instances. The host must keep serving, report the problem, and
//! recover. Each test has its own user namespace.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sesame_host::inotify::watched_by;
use sesame_host::reserve::{EnvoyInstances, InotifyReserve};
use sesame_render::MIN_SUBSCRIPTIONS;
use sesame_tests::agent::{AgentUnderTest, Setup, words};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::itself;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, path, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};

const LIMIT: &str = "/proc/sys/user/max_inotify_instances";

/// Paths start with `number`. Another route has the path `/always`.
fn round(number: usize, services: usize, backend: &Backend) -> String {
    round_at(&[http_listener("http", 80, "")], number, services, backend)
}

fn round_at(listeners: &[Value], number: usize, services: usize, backend: &Backend) -> String {
    let mut objects = edge(listeners);
    for index in 0..services {
        let name = format!("s-{index}");
        objects.extend(served(&name, &[backend.address()]));
        let paths = [path("Exact", &format!("/{number}/{index}"))];
        let host = ["full.test"];
        objects.push(http_route(&name, &host, &[rule_to(&name, &paths)]));
    }
    let always = [path("Exact", "/always")];
    objects.push(http_route(
        "always",
        &["full.test"],
        &[rule_to("s-0", &always)],
    ));
    yaml(&objects)
}

async fn wait_round(agent: &AgentUnderTest, number: usize, services: usize) {
    for index in 0..services {
        let request = agent.get(80, "full.test", &format!("/{number}/{index}"));
        agent.wait_ok(&request).await;
    }
}

fn allow(instances: usize) {
    std::fs::write(LIMIT, instances.to_string())
        .expect("root in a user namespace may set the limit");
}

fn has_reason(status: &Value, words: &[&str]) -> bool {
    let text = status["reasons"].to_string();
    status["healthy"] == false && words.iter().all(|word| text.contains(word))
}

const INOTIFY_SHORTAGE: &[&str] = &["inotify instances", "fs.inotify.max_user_instances"];

fn warns(status: &Value, words: &[&str]) -> bool {
    let text = status["warnings"].to_string();
    words.iter().all(|word| text.contains(word))
}

async fn wait_well(agent: &AgentUnderTest) {
    let is_well = |status: &Value| status["healthy"] == true && !warns(status, INOTIFY_SHORTAGE);
    agent.wait_status("the agent is healthy", is_well).await;
}

fn run_in_namespace(test: &str) {
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(itself::executable())
        .args(itself::only(test))
        .status()
        .expect("failed to run unshare; install util-linux");
    assert!(status.success(), "{status}");
}

#[test]
fn host_serves_and_finds_changes_without_inotify() {
    run_in_namespace("without_inotify");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test in this file runs it in its own user namespace"]
async fn without_inotify() {
    allow(128);
    let backend = Backend::start("a").await;
    let mut agent = Setup::with_ports(&[80]).start(&[("all.yaml", &round(0, 2, &backend))]);
    wait_round(&agent, 0, 2).await;
    wait_well(&agent).await;
    let before = agent.envoy_pids();
    let load = Load::start(&Plan::new(vec![agent.get(80, "full.test", "/always")]));

    // Envoy would abort if it had to watch another file.
    allow(0);
    agent.write("all.yaml", &round(1, 3, &backend));
    wait_round(&agent, 1, 3).await;
    let scarce = ["Envoy watches", "files instead of"];
    agent
        .wait_status("the shortage is reported", |status| {
            warns(status, INOTIFY_SHORTAGE) && warns(status, &scarce)
        })
        .await;
    load.pass(100).await;
    agent.write("all.yaml", &round(2, 2, &backend));
    wait_round(&agent, 2, 2).await;
    agent.write("all.yaml", &round(3, 3, &backend));
    wait_round(&agent, 3, 3).await;
    allow(128);
    wait_well(&agent).await;

    // Without change notifications, the agent must poll.
    agent.kill9();
    allow(0);
    agent.restart();
    agent
        .wait_status("the status reports polling", |status| {
            has_reason(status, &["once a second", "fs.inotify.max_user_instances"])
        })
        .await;
    agent.write("all.yaml", &round(4, 3, &backend));
    wait_round(&agent, 4, 3).await;
    allow(128);
    wait_well(&agent).await;
    agent.write("all.yaml", &round(5, 4, &backend));
    wait_round(&agent, 5, 4).await;
    wait_well(&agent).await;
    assert_eq!(agent.envoy_pids(), before, "Envoy was not replaced");
    load.stop()
        .await
        .clean("no inotify instances, at runtime and at startup");

    // Without inotify, a new Envoy cannot start.
    agent.kill9();
    agent.kill9_envoy();
    allow(0);
    agent.restart();
    agent
        .wait_status("the reason why Envoy is down is reported", |status| {
            status["gateways"][0]["state"] == "Down"
                && has_reason(status, INOTIFY_SHORTAGE)
                && has_reason(status, &["Envoy is not started"])
        })
        .await;
    assert!(!agent.log().contains("Envoy died"), "{}", agent.log_tail());
    allow(128);
    wait_round(&agent, 5, 4).await;
    wait_well(&agent).await;
}

#[derive(Clone, Default)]
struct Others(Arc<Mutex<Vec<EnvoyInstances>>>);

impl Others {
    fn take_all(&self) {
        let mut held = self.0.lock().expect("no thread in this test panics");
        let one = || {
            let one = InotifyReserve::default().envoy("one");
            (one.free(1) == 1).then_some(one)
        };
        held.extend(std::iter::from_fn(one));
    }

    /// Takes every free instance until the returned value is dropped.
    fn keep_taking(&self) -> Taking {
        let taking = Taking(Arc::default());
        let (others, ended) = (self.clone(), Arc::clone(&taking.0));
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                others.take_all();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        taking
    }

    fn let_go(&self, count: usize) {
        let mut held = self.0.lock().expect("no thread in this test panics");
        let left = held.len().saturating_sub(count);
        held.truncate(left);
    }
}

struct Taking(Arc<AtomicBool>);

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn watched(agent: &AgentUnderTest) -> usize {
    let envoys = agent.envoy_pids().into_iter();
    envoys
        .map(|pid| watched_by(u32::try_from(pid).expect("a process number")))
        .sum()
}

/// Commands find this agent only through its configuration file.
fn config(agent: &AgentUnderTest) -> String {
    let content = format!(
        "manifests: {}\nruntime-dir: {}\nstate-dir: {}\naddress: [127.0.0.1]\n",
        agent.manifests().display(),
        agent.runtime().display(),
        agent.state().display()
    );
    let path = agent.manifests().with_file_name("agent.yaml");
    std::fs::write(&path, content).expect("our own directory");
    path.to_string_lossy().into_owned()
}

#[test]
fn envoys_are_replaced_without_free_instances() {
    run_in_namespace("with_others");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test in this file runs it in its own user namespace"]
async fn with_others() {
    const SERVICES: usize = 6;
    allow(64);
    let backend = Backend::start("a").await;
    let setup = Setup::with_ports(&[80]).flag("--drain-seconds=1");
    let agent = setup.start(&[("all.yaml", &round(0, SERVICES, &backend))]);
    wait_round(&agent, 0, SERVICES).await;
    wait_well(&agent).await;
    let files = watched(&agent);
    // The last one is a route table.
    let expected = MIN_SUBSCRIPTIONS + SERVICES + 1;
    assert_eq!(files, expected, "every resource has a file");

    // The agent holds some instances in reserve.
    let others = Others::default();
    others.take_all();
    let load = Load::start(&Plan::new(vec![agent.get(80, "full.test", "/always")]));
    let begun = std::time::Instant::now();
    agent.envoy_is_replaced("hot", "hot restart").await;
    println!(
        "Envoy was replaced without a free instance after {:?}",
        begun.elapsed()
    );
    let taking = others.keep_taking();
    agent.wait_envoys(1).await;
    assert_eq!(
        watched(&agent),
        files,
        "the next Envoy watches as many files"
    );
    let lacks = |status: &Value| warns(status, INOTIFY_SHORTAGE);
    agent
        .wait_status("the status reports the shortage", lacks)
        .await;
    let doctor = words(&agent.command(&["doctor", "--config", &config(&agent)]));
    assert!(doctor.contains("the agent has reserved"), "{doctor}");

    // The listener's route table has priority over endpoints.
    drop(taking);
    let listeners = [
        http_listener("http", 80, ""),
        http_listener("full", 80, "full.test"),
    ];
    agent.write("all.yaml", &round_at(&listeners, 1, SERVICES, &backend));
    wait_round(&agent, 1, SERVICES).await;
    let after = watched(&agent);
    println!("watched files: {files} before, {after} after");
    assert!(after > 5 && after <= files, "{after} of {files}");
    let taking = others.keep_taking();

    // Without free instances, Envoy must not be replaced.
    let refused = words(&agent.replace_envoy("auto").await);
    assert!(
        refused.contains("not replaced") && refused.contains("fs.inotify.max_user_instances"),
        "{refused}"
    );
    load.pass(100).await;
    drop(taking);
    // With fewer files, there are enough instances for two Envoy processes.
    others.let_go(files);
    agent.envoy_is_replaced("hot", "hot restart").await;
    agent.wait_envoys(1).await;
    load.stop().await.clean("restarts without a free instance");

    // Other processes take the instances before the next Envoy starts.
    let before = agent.envoy_pids();
    tokio::time::sleep(Duration::from_secs(6)).await;
    others.take_all();
    agent.kill9_envoy();
    others.take_all();
    let begun = std::time::Instant::now();
    agent.wait_ok(&agent.get(80, "full.test", "/always")).await;
    println!("served again {:?} after Envoy was killed", begun.elapsed());
    assert_ne!(agent.envoy_pids(), before);
    agent
        .wait_status("the status reports the shortage", lacks)
        .await;
    agent.write("all.yaml", &round(2, SERVICES + 1, &backend));
    wait_round(&agent, 2, SERVICES + 1).await;

    others.let_go(usize::MAX);
    wait_well(&agent).await;
    // The host is healthy before Envoy watches all files again.
    eventually(
        "every resource has a file again",
        Duration::from_secs(60),
        async || {
            let seen = watched(&agent);
            holds(seen == files + 1, || format!("{seen} of {}", files + 1))
        },
    )
    .await;
    let aborts = agent.log().matches("Envoy died").count();
    assert!(aborts <= 2, "{}", agent.log_tail());
}

#[test]
fn inline_certificates_and_routes_change_under_load() {
    run_in_namespace("with_fewest_files");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test in this file runs it in its own user namespace"]
async fn with_fewest_files() {
    const HOST: &str = "full.test";
    // Enough for the agent, and for two Envoy processes that watch the minimum number of files.
    allow(64);
    let others = Others::default();
    others.take_all();
    others.let_go(2 * MIN_SUBSCRIPTIONS + 3);
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let objects = |number: usize| {
        let mut objects = edge(&[https_listener("https", 443, HOST, "pair")]);
        objects.extend(served("app", &[backend.address()]));
        let paths = ["/always".to_owned(), format!("/{number}")];
        let paths = paths.map(|exact| path("Exact", &exact));
        objects.push(http_route("app", &[HOST], &[rule_to("app", &paths)]));
        objects.push(authority.issue(&[HOST]).secret("pair"));
        yaml(&objects)
    };
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &objects(0))]);
    let get = |path: &str| {
        let trust = authority.trust();
        agent.get(443, HOST, path).tls(HOST, &trust)
    };
    agent.wait_ok(&get("/0")).await;
    let few = format!("Envoy watches {MIN_SUBSCRIPTIONS} files instead of");
    agent
        .wait_status("the problem is reported", |status| warns(status, &[&few]))
        .await;
    assert_eq!(watched(&agent), MIN_SUBSCRIPTIONS);
    // Old connections may take a second to drain.
    let always = get("/always");
    let load = Load::start(&Plan::new(vec![always.clone(), always.http2()]));
    for number in 1..6 {
        let begun = std::time::Instant::now();
        agent.write("all.yaml", &objects(number));
        agent.wait_ok(&get(&format!("/{number}"))).await;
        println!(
            "a route and a certificate changed within {:?}",
            begun.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(1300)).await;
    }
    agent.envoy_is_replaced("hot", "hot restart").await;
    agent.wait_ok(&get("/always")).await;
    load.stop().await.clean("inline certificates and routes");
}
