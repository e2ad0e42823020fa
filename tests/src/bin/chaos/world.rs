//! Changes the objects all the time. The changes are chosen by the seed; all of them leave the
//! requests of the load served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use sesame_tests::cluster::Client;
use sesame_tests::seeded::Moments;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::objects::{self, Backends};

/// A request to a dead API server must not stop the changes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(400);
const EXTRAS: u64 = 16;
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";
const POLICIES: &str = "/apis/projectsesame.io/v1alpha1/namespaces/default";

/// The running changes, which stop on drop.
pub(crate) struct World {
    gate: Arc<Mutex<()>>,
    made: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl World {
    /// Starts the changes.
    pub(crate) fn start(client: Arc<Client>, backends: Backends, seed: u64) -> Self {
        let gate = Arc::new(Mutex::new(()));
        let made = Arc::new(AtomicU64::new(0));
        let changes = Changes {
            client,
            backends,
            random: Moments::seeded(seed),
            made: Arc::clone(&made),
        };
        let task = tokio::spawn(changes.run(Arc::clone(&gate)));
        Self { gate, made, task }
    }

    /// Returns the number of accepted changes.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Waits for the change in flight, and pauses the changes until the guard is dropped.
    pub(crate) async fn pause(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.gate).lock_owned().await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Applies an object. Returns false if the API server refused it or did not respond.
pub(crate) async fn apply(client: &Client, object: &Value) -> bool {
    let applied = tokio::time::timeout(PATIENCE, client.apply_value(object));
    matches!(applied.await, Ok(Ok(_)))
}

/// Deletes the object at a path. Returns true if it is gone.
pub(crate) async fn delete(client: &Client, path: &str) -> bool {
    match tokio::time::timeout(PATIENCE, client.delete(path)).await {
        Ok(Ok(_)) => true,
        Ok(Err(failure)) => failure.is(404),
        Err(_) => false,
    }
}

struct Changes {
    client: Arc<Client>,
    backends: Backends,
    random: Moments,
    made: Arc<AtomicU64>,
}

impl Changes {
    async fn run(mut self, gate: Arc<Mutex<()>>) {
        loop {
            {
                let _gate = gate.lock().await;
                if self.change().await {
                    self.made.fetch_add(1, Ordering::Relaxed);
                }
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    async fn change(&mut self) -> bool {
        let kind = self.random.below(16);
        let number = self.random.below(EXTRAS);
        let flag = self.random.below(2) == 1;
        let service = usize::from(flag);
        match kind {
            0..4 => self.apply(&objects::extra(number, service)).await,
            4 | 5 => self.delete(&format!("{ROUTES}/extra-{number}")).await,
            6 | 7 => self.apply(&objects::moving(service)).await,
            8 | 9 => self.move_endpoint(service, number, flag).await,
            13 => {
                let slice = self.backends.slice(objects::ECHO, 1, flag);
                self.apply(&slice).await
            }
            14 => self.apply(&objects::over_http3(service)).await,
            10 => self.apply(&objects::edge_gateway(flag)).await,
            11 => {
                self.toggle(&objects::timeouts(number), "trafficpolicies/timeouts")
                    .await
            }
            12 => {
                let path = format!("backendpolicies/{}", objects::SERVICES[1]);
                self.toggle(&objects::connections(number), &path).await
            }
            _ => self.apply(&objects::guard(service)).await,
        }
    }

    /// Each Service keeps one endpoint, even if delayed requests arrive in another order.
    async fn move_endpoint(&self, service: usize, number: u64, used: bool) -> bool {
        let all = self.backends.http.len();
        let offset = usize::try_from(number).expect("a small number") % (all - 1);
        let index = (service + 1 + offset) % all;
        let slice = self.backends.slice(objects::SERVICES[service], index, used);
        self.apply(&slice).await
    }

    async fn toggle(&mut self, policy: &Value, path: &str) -> bool {
        if self.random.below(3) == 0 {
            return self.delete(&format!("{POLICIES}/{path}")).await;
        }
        self.apply(policy).await
    }

    async fn apply(&self, object: &Value) -> bool {
        apply(&self.client, object).await
    }

    async fn delete(&self, path: &str) -> bool {
        delete(&self.client, path).await
    }
}
