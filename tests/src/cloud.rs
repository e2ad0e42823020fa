//! A fake cloud, which sets the addresses of LoadBalancer Services.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Client, Failure, TestCluster, User};

const SERVICES: &str = "/api/v1/services";
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A running fake cloud, which stops on drop.
pub struct StandInCloud {
    ingresses: watch::Sender<Value>,
    task: JoinHandle<()>,
}

impl StandInCloud {
    /// Starts a cloud that assigns no addresses yet.
    pub async fn start(cluster: &TestCluster) -> Self {
        Self::with_client(cluster.client(&User::Admin).await)
    }

    /// Like [`Self::start`], but uses the given client.
    pub fn with_client(client: Client) -> Self {
        let (ingresses, wanted) = watch::channel(json!([]));
        let task = tokio::spawn(async move {
            loop {
                let wanted = wanted.borrow().clone();
                if let Err(error) = give(&client, &wanted).await {
                    eprintln!("the fake cloud retries: {error}");
                }
                tokio::time::sleep(RECHECK_INTERVAL).await;
            }
        });
        Self { ingresses, task }
    }

    /// Sets the `ingress` list of all load balancers.
    pub fn give(&self, ingresses: Value) {
        self.ingresses.send_replace(ingresses);
    }
}

impl Drop for StandInCloud {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn give(client: &Client, wanted: &Value) -> Result<(), Failure> {
    let services = client.get(SERVICES).await?;
    for service in services["items"].as_array().into_iter().flatten() {
        let ingress = &service["status"]["loadBalancer"]["ingress"];
        let given = match ingress {
            Value::Null => json!([]),
            given => given.clone(),
        };
        if service["spec"]["type"] != "LoadBalancer" || has(&given, wanted) {
            continue;
        }
        let metadata = &service["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}/status");
        let status = json!({"status": {"loadBalancer": {"ingress": wanted}}});
        client.merge(&path, &status).await?;
    }
    Ok(())
}

/// Ignores fields that only `given` has, because the API server adds defaults.
fn has(given: &Value, wanted: &Value) -> bool {
    let entries = |object: &Value| object.as_array().cloned().unwrap_or_default();
    let (given, wanted) = (entries(given), entries(wanted));
    given.len() == wanted.len()
        && given.iter().zip(&wanted).all(|(given, wanted)| {
            let fields = wanted.as_object().into_iter().flatten();
            fields
                .into_iter()
                .all(|(name, value)| given[name] == *value)
        })
}
