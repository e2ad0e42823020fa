//! Runs promtool, and a real Prometheus that scrapes a running system.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sesame_tests::agent::TEST_TIMEOUT;
use sesame_tests::client::Request;
use sesame_tests::ports::free_port;
use sesame_tests::wait::eventually;

/// Returns `None` unless `make test-dashboards` runs the test.
pub(crate) fn tools() -> Option<PathBuf> {
    std::env::var_os("PROMETHEUS_TOOLS").map(PathBuf::from)
}

pub(crate) fn check_rules(tools: &Path, rules: &Path) {
    let output = Command::new(tools.join("promtool"))
        .args(["check", "rules", "--lint-fatal"])
        .arg(rules)
        .output()
        .expect("promtool");
    assert!(output.status.success(), "{output:?}");
}

pub(crate) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    pub(crate) fn start(tools: &Path, targets: &[SocketAddr], rules: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let config = serde_json::json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "sesame", "static_configs": [{"targets": targets}]}],
        });
        let file = directory.path().join("prometheus.yaml");
        std::fs::write(&file, config.to_string()).expect("written");
        let child = Command::new(tools.join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus");
        Self {
            child,
            address,
            _directory: directory,
        }
    }

    async fn ask(&self, path: &str) -> Result<Value, String> {
        let reply = Request::get(self.address, "prometheus", path).send().await;
        let reply = reply.map_err(|error| format!("{error:#}"))?;
        serde_json::from_slice(&reply.body).map_err(|error| format!("{path}: {error}"))
    }

    pub(crate) async fn wait_value(&self, expression: &str) {
        let encoded = expression
            .bytes()
            .fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
        let path = format!("/api/v1/query?query={encoded}");
        eventually(expression, TEST_TIMEOUT, async || {
            let answer = self.ask(&path).await?;
            let result = answer["data"]["result"].as_array();
            let mut values = result.into_iter().flatten().map(|one| &one["value"][1]);
            let found = values.any(|value| value.as_str().is_some_and(|text| text != "NaN"));
            if found {
                Ok(())
            } else {
                Err(answer.to_string())
            }
        })
        .await;
    }

    pub(crate) async fn rule_errors(&self) -> Vec<String> {
        eventually("rules are evaluated", TEST_TIMEOUT, async || {
            let answer = self.ask("/api/v1/rules").await?;
            let groups = answer["data"]["groups"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let rules: Vec<Value> = groups
                .iter()
                .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
                .collect();
            if rules.is_empty() || rules.iter().any(|rule| rule["health"] == "unknown") {
                return Err(answer.to_string());
            }
            let bad = rules.iter().filter(|rule| rule["health"] != "ok");
            Ok(bad.map(ToString::to_string).collect())
        })
        .await
    }
}
