//! While Envoy is down, new connections wait in the backlog of the agent's socket. In each test's
//! network namespace, the kernel may migrate connections between a port's sockets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};
use sesame_tests::network::inside_own;
use sesame_tests::seeded::count;
use sesame_tests::wait::{eventually, holds};

const HOST: &str = "parked.test";
const MIGRATE: &str = "/proc/sys/net/ipv4/tcp_migrate_req";
/// Number of workers per address.
const WORKERS: usize = 2;

fn config(backend: &Backend, ports: &[u16], routes: usize) -> String {
    let listeners: Vec<_> = ports
        .iter()
        .map(|port| http_listener(&format!("http-{port}"), *port, ""))
        .collect();
    let mut objects = edge(&listeners);
    objects.extend(served("app", &[backend.address()]));
    for number in 0..routes {
        let host = if number == 0 {
            HOST.to_owned()
        } else {
            format!("parked-{number}.test")
        };
        let rule = rule_to("app", &[path("PathPrefix", "/")]);
        objects.push(http_route(&format!("app-{number}"), &[&host], &[rule]));
    }
    yaml(&objects)
}

async fn start(backend: &Backend, ports: &[u16], routes: usize) -> AgentUnderTest {
    let agent = Setup::with_ports(&[80, 81])
        .flag(&format!("--concurrency={WORKERS}"))
        .start(&[("all.yaml", &config(backend, ports, routes))]);
    for port in ports {
        wait_served(&agent, *port).await;
    }
    agent
}

async fn wait_served(agent: &AgentUnderTest, port: u16) {
    let request = agent.get(port, HOST, "/");
    agent.wait_ok(&request).await;
}

fn listening(agent: &AgentUnderTest, port: u16) -> usize {
    let local = format!(":{:04X}", agent.address(port).port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
    let fields = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|fields| fields.len() > 3 && fields[1].ends_with(&local) && fields[3] == "0A")
        .count()
}

async fn wait_listening(agent: &AgentUnderTest, port: u16, expected: usize) {
    eventually("sockets listen on the port", TEST_TIMEOUT, async || {
        let found = listening(agent, port);
        holds(found == expected, || {
            format!("{found} of {expected}\n{}", agent.log_tail())
        })
    })
    .await;
}

/// A failed request, which had its own connection.
#[derive(Debug)]
struct Failed {
    begun: Instant,
    cause: String,
}

struct Visitors {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<Failed>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Visitors {
    fn start(request: &Request, count: usize) -> Self {
        let mut all = Self {
            stop: Arc::default(),
            served: Arc::default(),
            failed: Arc::default(),
            tasks: Vec::new(),
        };
        for _ in 0..count {
            let (stop, served) = (Arc::clone(&all.stop), Arc::clone(&all.served));
            let (failed, request) = (Arc::clone(&all.failed), request.clone());
            all.tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let cause = match request.send().await {
                        Ok(reply) if reply.status == 200 => {
                            served.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        Ok(reply) => format!("status {}", reply.status),
                        Err(error) => format!("{error:#}"),
                    };
                    let mut failed = failed.lock().expect("no panic while holding this lock");
                    failed.push(Failed { begun, cause });
                }
            }));
        }
        all
    }

    async fn stop(self) -> (u64, Vec<Failed>) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no panic");
        }
        let failed = std::mem::take(
            &mut *self
                .failed
                .lock()
                .expect("no panic while holding this lock"),
        );
        (self.served.load(Ordering::Relaxed), failed)
    }
}

/// Returns when Envoy was killed, and when its last thread exited.
async fn kill_envoy(agent: &AgentUnderTest) -> (Instant, Instant) {
    let envoys = agent.envoys();
    let [envoy] = envoys.as_slice() else {
        panic!("{envoys:?}");
    };
    let threads = format!("/proc/{}/task", envoy.pid);
    let stat = format!("/proc/{}/stat", envoy.pid);
    let killed = Instant::now();
    agent.kill9_envoy();
    eventually("Envoy has exited", TEST_TIMEOUT, async || {
        let others = std::fs::read_dir(&threads).map_or(0, Iterator::count);
        match std::fs::read_to_string(&stat) {
            Ok(text) if others > 1 || !text.contains(") Z") => Err(text),
            _ => Ok(()),
        }
    })
    .await;
    (killed, Instant::now())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_killed_envoy_refuses_no_new_connection() {
    if !inside_own("repeatedly_killed_envoy_refuses_no_new_connection") {
        return;
    }
    std::fs::write(MIGRATE, "1").expect("a private network namespace");
    let backend = Backend::start("a").await;
    let routes = count("SESAME_PARKED_ROUTES", 20, 1000);
    let agent = start(&backend, &[80], routes).await;
    let request = agent.get(80, HOST, "/");
    let visitors = Visitors::start(&request, 8);
    let rounds = count("SESAME_ENVOY_DEATHS", 10, 50);
    let (mut deaths, mut outages) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        wait_listening(&agent, 80, WORKERS + 1).await;
        // If Envoy died sooner, the agent would assume a crash loop and delay the next start.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let (killed, dead) = kill_envoy(&agent).await;
        let reply = request.send().await;
        let reply = reply.unwrap_or_else(|error| panic!("{error:#}\n{}", agent.log_tail()));
        assert_eq!(reply.status, 200);
        deaths.push((killed, dead));
        outages.push(killed.elapsed());
        agent.wait_envoys(1).await;
    }
    let (served, failed) = visitors.stop().await;
    outages.sort();
    eprintln!(
        "Envoy killed {rounds} times with {routes} routes: {served} requests, {} in flight lost; from kill to first response: median {:?}, longest {:?}",
        failed.len(),
        outages[rounds / 2],
        outages[rounds - 1]
    );
    assert!(served > 0);
    for Failed { begun, cause } in &failed {
        // Envoy may accept connections until its last thread exits.
        let in_flight = deaths.iter().any(|(killed, dead)| {
            *begun <= *dead && killed.saturating_duration_since(*begun) < Duration::from_secs(20)
        });
        assert!(
            in_flight && !cause.contains("refused"),
            "{cause}\n{}",
            agent.log_tail()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_sockets_do_not_disturb_serving() {
    if !inside_own("parked_sockets_do_not_disturb_serving") {
        return;
    }
    std::fs::write(MIGRATE, "1").expect("a private network namespace");
    let backend = Backend::start("a").await;
    let mut agent = start(&backend, &[80, 81], 1).await;
    for port in [80, 81] {
        wait_listening(&agent, port, WORKERS + 1).await;
    }
    let load = Load::start(&Plan::new(vec![agent.get(80, HOST, "/")]));
    // A re-added listener must receive all connections.
    for _ in 0..3 {
        agent.write("all.yaml", &config(&backend, &[80], 1));
        wait_listening(&agent, 81, 0).await;
        agent.write("all.yaml", &config(&backend, &[80, 81], 1));
        wait_served(&agent, 81).await;
        wait_listening(&agent, 81, WORKERS + 1).await;
        let again = Load::start(&Plan::new(vec![agent.get(81, HOST, "/")]));
        again.pass(100).await;
        again.stop().await.assert_clean();
    }
    for (strategy, by) in [("handover", "handover"), ("hot", "hot restart")] {
        agent.envoy_is_replaced(strategy, by).await;
        load.pass(50).await;
        agent.wait_envoys(1).await;
        wait_listening(&agent, 80, WORKERS + 1).await;
    }
    assert!(agent.stop().success(), "{}", agent.log_tail());
    assert_eq!(listening(&agent, 80), WORKERS);
    load.pass(50).await;
    agent.restart();
    wait_listening(&agent, 80, WORKERS + 1).await;
    agent.kill9();
    load.pass(50).await;
    agent.restart();
    wait_listening(&agent, 80, WORKERS + 1).await;
    load.stop()
        .await
        .clean("agent with parked sockets restarted and killed");
    assert!(agent.end().success(), "{}", agent.log_tail());
    assert_eq!(listening(&agent, 80), 0);
}

/// Clients must get an error instead of waiting forever.
#[tokio::test(flavor = "multi_thread")]
async fn parked_sockets_close_if_no_envoy_takes_over() {
    if !inside_own("parked_sockets_close_if_no_envoy_takes_over") {
        return;
    }
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let envoy = directory.path().join("envoy");
    std::os::unix::fs::symlink(sesame_tests::envoy::envoy_binary(), &envoy).expect("a link");
    let agent = Setup::with_ports(&[80])
        .flag(&format!("--concurrency={WORKERS}"))
        .envoy(&envoy)
        .start(&[("all.yaml", &config(&backend, &[80], 1))]);
    wait_served(&agent, 80).await;
    agent
        .wait_status("healthy, with a hint", |status| {
            let hints = status["hints"].to_string();
            status["healthy"] == true && hints.contains("tcp_migrate_req")
        })
        .await;
    assert_eq!(listening(&agent, 80), WORKERS);

    std::fs::write(MIGRATE, "1").expect("a private network namespace");
    wait_listening(&agent, 80, WORKERS + 1).await;
    agent
        .wait_status("no hint is needed", |status| {
            !status["hints"].to_string().contains("tcp_migrate_req")
        })
        .await;
    std::fs::remove_file(&envoy).expect("the link");
    kill_envoy(&agent).await;
    wait_listening(&agent, 80, 1).await;
    wait_listening(&agent, 80, 0).await;
    std::os::unix::fs::symlink(sesame_tests::envoy::envoy_binary(), &envoy).expect("a link");
    wait_served(&agent, 80).await;
}
