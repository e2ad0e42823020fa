//! One real Envoy with hand-written resources, for tests of the layers below `sesame-agent run`.

mod resources;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use sesame_apply::{Applier, ApplyReport, Desired};
use sesame_envoy::process::Process;
use sesame_envoy::process::identity::Identity;
use sesame_envoy::{Admin, State, Supervisor, SupervisorConfig};
use sesame_render::Rendered;
use sesame_render::layout::XdsLayout;

pub use self::resources::{
    bad_listener, bootstrap, cluster, endpoints, key_pair, listener, pair_secret, route_table,
    static_cluster_without_eds,
};

use crate::agent::TEST_TIMEOUT;
use crate::backend::Backend;
use crate::client::Request;
use crate::envoy::envoy_binary;
use crate::load::{Load, Plan};
use crate::wait::eventually;

/// One Envoy's directories, whose paths are short enough for Unix sockets.
pub struct Host {
    /// Parent of the other directories.
    pub directory: tempfile::TempDir,
    /// Paths of the files that Envoy watches.
    pub layout: XdsLayout,
}

/// Kills Envoy, which would otherwise outlive its supervisor and the test.
impl Drop for Host {
    fn drop(&mut self) {
        let run = self.directory.path().join("run");
        let note = std::fs::read(run.join("envoy.pid.json")).unwrap_or_default();
        if let Ok(identity) = serde_json::from_slice::<Identity>(&note)
            && let Ok(Some(process)) = Process::adopt(identity.pid, identity.start_time)
        {
            process.kill();
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Environment variable that passes the directory to an agent in another process.
    pub const DIRECTORY: &str = "SESAME_TEST_DIRECTORY";

    /// Creates new directories.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("sx").tempdir().unwrap();
        let layout = XdsLayout::new(directory.path().join("xds"));
        Self { directory, layout }
    }

    /// Returns the path of the admin socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.directory.path().join("admin.sock")
    }

    /// Returns a supervisor configuration with short delays.
    pub fn config(&self) -> SupervisorConfig {
        let binary = envoy_binary();
        let mut config = SupervisorConfig::new(
            binary,
            self.directory.path().join("run"),
            self.admin_socket(),
            bootstrap(&self.layout, &self.admin_socket()),
        );
        config.concurrency = Some(1);
        config.drain_time = Duration::from_secs(2);
        // Long enough that a test on a busy machine observes the backoff.
        config.backoff.at_once = Duration::from_millis(500);
        config.backoff.first = Duration::from_millis(500);
        config
    }

    /// Writes Envoy's files, and waits until Envoy is live.
    pub async fn start(&self, rendered: &Rendered) -> (Applier, Supervisor) {
        let config = self.config();
        let (mut applier, _) = Applier::open(self.layout.clone(), config.log(), None)
            .await
            .unwrap();
        apply(&mut applier, rendered, None).await;
        let supervisor = Supervisor::start(config).unwrap();
        until_state(&supervisor, State::is_live).await;
        (applier, supervisor)
    }
}

/// Applies the given resources in one transaction.
pub async fn apply(
    applier: &mut Applier,
    rendered: &Rendered,
    envoy: Option<&Admin>,
) -> ApplyReport {
    let wanted = Desired {
        rendered,
        serials: &BTreeMap::new(),
        may_empty: false,
    };
    applier.apply(wanted, envoy).await.unwrap()
}

/// Polls the supervisor's state until `wanted` accepts it.
pub async fn until_state(supervisor: &Supervisor, wanted: impl FnMut(&State) -> bool) -> State {
    let mut state = supervisor.state();
    let seen = tokio::time::timeout(TEST_TIMEOUT, state.wait_for(wanted)).await;
    seen.expect("timed out waiting for the state")
        .unwrap()
        .clone()
}

/// Waits for a live Envoy, and returns its process ID.
pub fn live_pid(state: &State) -> u32 {
    match state {
        State::Live { pid, .. } => *pid,
        other => panic!("not live: {other:?}"),
    }
}

/// Returns an unused port on a loopback address that only this process uses. Other processes might
/// take free ports of 127.0.0.1.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | (a & 63), b, c);
    (own, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// Returns the address of a backend that runs until the test ends.
pub async fn backend(name: &str) -> SocketAddr {
    let backend = Backend::start(name).await;
    let address = backend.address();
    // Leak the backend, because dropping it would stop it.
    std::mem::forget(backend);
    address
}

/// Creates a GET request.
pub fn request(address: SocketAddr, path: &str) -> Request {
    Request::get(address, "example.com", path)
}

/// Sends one request. Returns the status, and the backend's name or Envoy's body.
pub async fn get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let reply = request(address, path).send().await?;
    let body = || String::from_utf8_lossy(&reply.body).into_owned();
    Ok((reply.status, reply.backend().unwrap_or_else(body)))
}

/// Waits for this response, because Envoy's workers apply accepted updates with a short delay.
pub async fn until_answered(address: SocketAddr, path: &str, expected: (u16, &str)) {
    until_answer(address, path, |status, body| (status, body) == expected).await;
}

/// Waits until the response has the given status.
pub async fn until_status(address: SocketAddr, path: &str, expected: u16) {
    until_answer(address, path, |status, _| status == expected).await;
}

async fn until_answer(address: SocketAddr, path: &str, good: impl Fn(u16, &str) -> bool) {
    eventually(path, TEST_TIMEOUT, async || {
        match get(address, path).await {
            Ok((status, body)) if good(status, &body) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
}

/// Starts load: each client requests the paths in turn on one connection.
pub fn load_of(address: SocketAddr, clients: usize, paths: &[String]) -> Load {
    let requests = paths.iter().map(|path| request(address, path)).collect();
    Load::start(&Plan {
        keep_alive: clients,
        share: true,
        fresh: 0,
        ..Plan::new(requests)
    })
}

/// Starts load on the path `/`.
pub fn load(address: SocketAddr, clients: usize) -> Load {
    load_of(address, clients, &["/".to_owned()])
}

/// Waits for a condition, and panics at the deadline.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, TEST_TIMEOUT, async || {
        condition().then_some(()).ok_or_else(String::new)
    })
    .await;
}
