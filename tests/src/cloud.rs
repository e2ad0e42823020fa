//! A stand-in for a cloud: it gives every Service of type LoadBalancer the ingresses that a test names.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Client, Failure, TestCluster, User};

const SERVICES: &str = "/api/v1/services";
/// Pause between two looks at the Services.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A cloud; it ends with this value.
pub struct StandInCloud {
    ingresses: watch::Sender<Value>,
    task: JoinHandle<()>,
}

impl StandInCloud {
    /// Starts one that gives nothing yet.
    pub async fn start(cluster: &TestCluster) -> Self {
        Self::of(cluster.client(&User::Admin).await)
    }

    /// Starts one that works as this client and gives nothing yet.
    pub fn of(client: Client) -> Self {
        let (ingresses, wanted) = watch::channel(json!([]));
        let task = tokio::spawn(async move {
            loop {
                let wanted = wanted.borrow().clone();
                if let Err(error) = give(&client, &wanted).await {
                    eprintln!("the cloud tries again: {error}");
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        Self { ingresses, task }
    }

    /// Gives all load balancers these ingresses from now on, in place of those before.
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

/// Returns true if these are the wanted ingresses, whatever the API server has added to them.
fn has(given: &Value, wanted: &Value) -> bool {
    let entries = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let (given, wanted) = (entries(given), entries(wanted));
    given.len() == wanted.len()
        && given.iter().zip(&wanted).all(|(given, wanted)| {
            let fields = wanted.as_object().into_iter().flatten();
            fields
                .into_iter()
                .all(|(name, value)| given[name] == *value)
        })
}
