//! Every way to replace Envoy, under load. Streams must last until the drain ends.

use std::net::{Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use sesame_render::limits::Limits;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::mixed::{Mixed, Traffic};
use sesame_tests::seeded::count;

const DRAIN: Duration = Duration::from_secs(1);

fn rounds() -> usize {
    count("SESAME_RESTARTS", 3, 20)
}

fn setup() -> Setup {
    Setup::with_ports(&Mixed::PORTS)
}

async fn restarts(agent: &AgentUnderTest, traffic: &mut Traffic, strategy: &str, by: &str) {
    let before = agent.wait_live().await;
    let begin = Instant::now();
    let text = agent.envoy_is_replaced(strategy, by).await;
    traffic.replaced(begin);
    eprintln!("{}", text.lines().last().unwrap_or_default());
    assert_ne!(agent.wait_live().await, before, "{text}");
    traffic.load.pass(100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_restarts_in_a_row_drop_nothing() {
    let mixed = Mixed::start(setup(), 0).await;
    let mut traffic = mixed.traffic();
    for _ in 0..rounds() {
        restarts(&mixed.agent, &mut traffic, "hot", "hot restart").await;
    }
    let scenario = format!("{} hot restarts in a row", rounds());
    traffic.end(&scenario, DRAIN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handovers_in_a_row_drop_nothing() {
    let mixed = Mixed::start(setup(), 0).await;
    let mut traffic = mixed.traffic();
    for _ in 0..rounds() {
        restarts(&mixed.agent, &mut traffic, "handover", "handover").await;
    }
    let scenario = format!("{} handovers in a row", rounds());
    traffic.end(&scenario, DRAIN).await;
}

/// The load must be high enough for connections to arrive while an Envoy closes its ports.
#[tokio::test(flavor = "multi_thread")]
async fn handovers_reset_no_new_connections_under_load() {
    crowd(setup().everywhere(), "").await;
}

/// Containers deny access to sockets of other processes by default.
const DENY_PIDFD_GETFD: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
LOAD, IF_NOT, RETURN, PIDFD_GETFD, EPERM, ALLOW = 0x20, 0x15, 0x06, 438, 0x50001, 0x7fff0000
code = [(LOAD, 0, 0, 0), (IF_NOT, 0, 1, PIDFD_GETFD), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
";

#[tokio::test(flavor = "multi_thread")]
async fn handovers_reset_no_new_connections_without_pidfd_getfd() {
    let setup = setup().wrapper(&["python3", "-c", DENY_PIDFD_GETFD]);
    crowd(setup.everywhere(), " without pidfd_getfd").await;
}

async fn crowd(setup: Setup, how: &str) {
    let mixed = Mixed::start(setup, 0).await;
    let agent = &mixed.agent;
    let mut requests = vec![agent.get(80, "nobody.test", "/")];
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        let address = (Ipv6Addr::LOCALHOST, agent.address(80).port()).into();
        requests.push(Request::get(address, "nobody.test", "/"));
    }
    let load = Load::start(&Plan {
        keep_alive: 0,
        fresh: 64,
        // No route matches, because a backend would reduce the request rate.
        good: |reply| reply.status == 404,
        ..Plan::new(requests)
    });
    let mut stdout = String::new();
    for _ in 0..rounds() {
        let output = agent.replace_envoy("handover").await;
        stdout.push_str(&String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{stdout}{}", agent.log_tail());
        agent.wait_envoys(1).await;
        load.pass(100).await;
    }
    let report = load.stop().await;
    report.clean(&format!("{} handovers under load{how}", rounds()));
    assert!(!stdout.contains("tcp_migrate_req"), "{stdout}");
}

/// Envoy must allow 16 connections per cluster, or streams would block requests.
fn most_clusters() -> usize {
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).expect("a process has limits");
    let limits = Limits::new(files, 1 << 30).expect("an Envoy can serve");
    usize::try_from(limits.to_backends / 16).expect("a number of clusters")
}

#[tokio::test(flavor = "multi_thread")]
async fn alternating_restarts_drop_nothing_with_many_clusters() {
    let clusters = count("SESAME_CLUSTERS", 300, 3000).min(most_clusters());
    let turns = count("SESAME_TURNS", 1, 4);
    let mixed = Mixed::start(setup().flag("--subscription-budget=16"), clusters).await;
    let mut traffic = mixed.traffic();
    for _ in 0..turns {
        for (strategy, by) in [
            ("auto", "hot restart"),
            ("handover", "handover"),
            ("hot", "hot restart"),
        ] {
            restarts(&mixed.agent, &mut traffic, strategy, by).await;
        }
    }
    let scenario = format!(
        "{} alternating restarts with {clusters} clusters",
        3 * turns
    );
    traffic.end(&scenario, DRAIN).await;
}
