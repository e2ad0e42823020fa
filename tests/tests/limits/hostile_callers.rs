//! Malformed, endless or stalled requests to the agent's own sockets must not block other callers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, served, yaml};
use sesame_tests::ports::free_port;
use sesame_tests::processes::memory_mib;
use sesame_tests::seeded::{Moments, count};
use sesame_tests::wait::eventually;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// Memory allowed in addition to the usual 30 MiB.
const MORE_MEMORY_MIB: f64 = 64.0;

/// How long clients stay silent: longer than the agent's timeout.
const SILENCE: Duration = Duration::from_secs(8);

#[derive(Clone)]
enum Socket {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Socket {
    /// Returns `None` if the backlog is full.
    async fn connect(&self) -> Option<Box<dyn Stream>> {
        match self {
            Self::Tcp(address) => match TcpStream::connect(address).await {
                Ok(stream) => Some(Box::new(stream)),
                Err(_) => None,
            },
            Self::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Some(Box::new(stream)),
                Err(_) => None,
            },
        }
    }
}

/// Tests send prefixes of these requests.
const REQUESTS: [&str; 3] = [
    "GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /status HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /orders HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n{\"gateway\": ",
];

async fn garbage(door: Socket, moments: &mut Moments, rounds: usize) {
    let mut messages: Vec<Vec<u8>> = REQUESTS
        .iter()
        .flat_map(|request| (0..=request.len()).map(|end| request.as_bytes()[..end].to_vec()))
        .collect();
    for _ in 0..rounds {
        let length = moments.below(300);
        let byte = |_| u8::try_from(moments.below(256)).expect("a byte");
        messages.push((0..length).map(byte).collect());
    }
    for bytes in messages {
        if let Some(mut stream) = door.connect().await {
            // The agent may have closed the connection.
            let _ = stream.write_all(&bytes).await;
        }
    }
}

/// The agent must not buffer an endless line or chunk.
async fn endless(door: Socket, begin: &str) {
    let Some(mut stream) = door.connect().await else {
        return;
    };
    let _ = stream.write_all(begin.as_bytes()).await;
    let piece = [b'a'; 4096];
    for _ in 0..4096 {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    // The data exceeds the kernel's buffers, so the agent must have read it.
    panic!("the agent read 16 MiB after {begin:?}");
}

async fn silent(door: Socket, begin: &str, read: bool) {
    let Some(mut stream) = door.connect().await else {
        return;
    };
    let _ = stream.write_all(begin.as_bytes()).await;
    if read {
        let mut answer = Vec::new();
        let hangs_up = stream.read_to_end(&mut answer);
        // If the backlog is full, the kernel drops the connection, which a silent client does not
        // notice.
        let _ = tokio::time::timeout(SILENCE, hangs_up).await;
    } else {
        // Writing fails only after the agent has disconnected.
        let gone = async || match stream.write_all(b" ").await {
            Err(_) => Ok(()),
            Ok(()) => Err("still connected".to_owned()),
        };
        eventually("the agent closes the connection", 2 * TEST_TIMEOUT, gone).await;
    }
}

fn descriptors(pid: i32) -> usize {
    let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    listed.count()
}

/// Consecutive failures after which a kubelet gives up by default. At the connection limit, the agent
/// closes a connection whose request is late, which a busy machine can cause for any client.
const ATTEMPTS: usize = 3;

/// Returns the first success of several attempts.
async fn within_attempts(attempt: impl AsyncFn() -> Result<(), String>, agent: &AgentUnderTest) {
    let mut failures = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt().await {
            Ok(()) => return,
            Err(failure) => failures.push(failure),
        }
    }
    panic!("{failures:#?}\n{}", agent.log_tail());
}

/// Returns the number of responses.
async fn asks(agent: &AgentUnderTest, health: SocketAddr, stop: &AtomicBool) -> usize {
    let runtime = agent.runtime().to_string_lossy().into_owned();
    let ready = async || match Request::get(health, "health", "/readyz").send().await {
        Ok(ready) if ready.status == 200 => Ok(()),
        Ok(ready) => Err(format!("/readyz: {}", ready.status)),
        Err(error) => Err(format!("/readyz: {error:#}")),
    };
    let status = async || {
        let status = ["status", "--runtime-dir", &runtime];
        let output = agent.command_beside(&status).await;
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "status: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    };
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        within_attempts(ready, agent).await;
        within_attempts(status, agent).await;
        answered += 1;
    }
    answered
}

async fn besiege(door: &Socket, many: usize) {
    let callers = (0..many).map(|number| {
        let door = door.clone();
        async move {
            match number % 5 {
                0 => silent(door, "", true).await,
                1 => silent(door, REQUESTS[2], true).await,
                2 => silent(door, "GET /status HTTP/1.1\r\nx: ", false).await,
                3 => drop(door.connect().await),
                _ => {
                    silent(door, &REQUESTS[1].repeat(50), false).await;
                }
            }
        }
    });
    join_all(callers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_callers_block_no_other_callers() {
    let backend = Backend::start("a").await;
    let health = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.push(http_route("app", &["door.test"], &[rule_to("app", &[])]));
    let agent = Setup::with_ports(&[80])
        .flag(&format!("--health-address={health}"))
        .start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "door.test", "/");
    agent.wait_ok(&request).await;
    let status = agent.wait_healthy().await;
    let pid = status["agent"]["pid"].as_i64().expect("a process");
    let pid = i32::try_from(pid).expect("a process");
    let memory = || memory_mib(u32::try_from(pid).expect("a process")).0;
    let (descriptors_before, memory_before) = (descriptors(pid), memory());

    let load = Load::start(&Plan::new(vec![request]));
    let doors = [
        Socket::Tcp(health),
        Socket::Unix(agent.runtime().join("agent.sock")),
    ];
    let many = count("SESAME_CALLERS", 600, 3000);
    let stop = AtomicBool::new(false);
    let mut moments = Moments::new();
    let attack = async {
        for door in &doors {
            garbage(door.clone(), &mut moments, many).await;
            for begin in [
                "",
                "GET /",
                "GET / HTTP/1.1\r\nhost: ",
                "POST /orders HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffff\r\n",
            ] {
                endless(door.clone(), begin).await;
            }
            besiege(door, many).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (answered, ()) = tokio::join!(asks(&agent, health, &stop), attack);
    eprintln!("{answered} requests were answered during the attack");
    assert!(answered > 3, "{answered}");

    eventually(
        "the agent closes the descriptors",
        TEST_TIMEOUT,
        async || match descriptors(pid) {
            now if now <= descriptors_before + 2 => Ok(()),
            now => Err(format!("{now} descriptors, {descriptors_before} before")),
        },
    )
    .await;
    let more = memory() - memory_before;
    assert!(more < MORE_MEMORY_MIB, "memory grew by {more} MiB");
    let change = http_route("more", &["more.test"], &[rule_to("app", &[])]);
    agent.write("more.yaml", &yaml(&[change]));
    let request = agent.get(80, "more.test", "/");
    agent.wait_ok(&request).await;
    load.stop()
        .await
        .clean("garbage, endless lines and half-open connections at the agent's sockets");
}
