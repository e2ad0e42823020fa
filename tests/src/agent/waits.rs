//! Waits until an agent under test serves the expected traffic or reports the expected status.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{AgentUnderTest, TEST_TIMEOUT};
use crate::client::{Reply, Request};
use crate::wait::{eventually, holds};

impl AgentUnderTest {
    /// Repeats `request` until `good` accepts the response.
    pub async fn wait_served(&self, request: &Request, good: impl Fn(&Reply) -> bool) -> Reply {
        let start = Instant::now();
        loop {
            let last = match request.send().await {
                Ok(reply) if good(&reply) => return reply,
                Ok(reply) => {
                    format!(
                        "status {}: {}",
                        reply.status,
                        String::from_utf8_lossy(&reply.body)
                    )
                }
                Err(error) => format!("{error:#}"),
            };
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "not served within {TEST_TIMEOUT:?}: {request:?}\nlast: {last}\n{}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Polls `sesame-agent status` until `good` accepts its output.
    pub async fn wait_status(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        eventually(what, TEST_TIMEOUT, async || match self.status() {
            Some(status) if good(&status) => Ok(status),
            Some(status) => Err(format!("{status:#}\n{}", self.log_tail())),
            None => Err(format!("no status\n{}", self.log_tail())),
        })
        .await
    }

    /// Repeats `request` until the response has status 200.
    pub async fn wait_ok(&self, request: &Request) {
        let good = |reply: &Reply| reply.status == 200;
        self.wait_served(request, good).await;
    }

    /// Repeats `request` until `backend` responds with status 200.
    pub async fn wait_backend(&self, request: &Request, name: &str) {
        let good = |reply: &Reply| reply.status == 200 && reply.backend().as_deref() == Some(name);
        self.wait_served(request, good).await;
    }

    /// Waits until the agent reports that it is healthy.
    pub async fn wait_healthy(&self) -> Value {
        let healthy = |status: &Value| status["healthy"] == true;
        self.wait_status("the agent is healthy", healthy).await
    }

    /// Waits until Envoy has accepted the latest change and the agent has stored it.
    pub async fn wait_stored(&self) {
        let stored = |gateway: &Value| {
            // Envoy may serve the change before the status is up to date.
            let is_noted = gateway["state"] != "Applying" && gateway["state"] != "Down";
            is_noted && gateway["stored"].as_str().unwrap_or("") == gateway["applied"]
        };
        self.wait_status("accepted versions are stored", |status| {
            let gateways = status["gateways"].as_array();
            gateways.is_some_and(|all| !all.is_empty() && all.iter().all(stored))
        })
        .await;
    }

    /// Waits until the first Gateway's Envoy serves the latest configuration. Returns its PID.
    pub async fn wait_live(&self) -> i32 {
        let live = |status: &Value| {
            let gateway = &status["gateways"][0];
            gateway["envoy"]["state"] == "Live" && gateway["state"] == "Serving"
        };
        let status = self.wait_status("an Envoy is live", live).await;
        let pid = status["gateways"][0]["envoy"]["pid"].as_i64();
        i32::try_from(pid.unwrap_or(0)).expect("a process number")
    }

    /// Waits until exactly `count` Envoy processes are running.
    pub async fn wait_envoys(&self, count: usize) {
        let what = format!("{count} Envoys are running");
        eventually(&what, TEST_TIMEOUT, async || {
            let envoys = self.envoys();
            holds(envoys.len() == count, || {
                format!("{envoys:?}\n{}", self.log_tail())
            })
        })
        .await;
    }

    /// Returns the process IDs of the agent's Envoy processes.
    pub fn envoy_pids(&self) -> Vec<i32> {
        self.envoys().iter().map(|envoy| envoy.pid).collect()
    }

    /// Waits until port 80 serves version `number` of [`crate::manifests::numbered`].
    pub async fn wait_numbered(&self, host: &str, number: usize) {
        let request = self.get(80, host, &format!("/{number}"));
        self.wait_ok(&request).await;
    }
}
