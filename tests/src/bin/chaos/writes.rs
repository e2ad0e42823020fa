//! Writes that are repeated until the API server accepts or refuses them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sesame_tests::cluster::{Client, Failure};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::world::PATIENCE;

const PAUSE: Duration = Duration::from_millis(200);

/// Applies an object, and retries while the API server is unavailable.
pub(crate) fn spawn_apply(client: &Arc<Client>, object: Value) -> JoinHandle<()> {
    let client = Arc::clone(client);
    tokio::spawn(async move {
        while !is_answered(&timeout(PATIENCE, client.apply_value(&object)).await) {
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Deletes an object, and retries while the API server is unavailable.
pub(crate) fn spawn_delete(client: &Arc<Client>, object: Value) -> JoinHandle<()> {
    let client = Arc::clone(client);
    tokio::spawn(async move {
        let delete = async || {
            let path = client.path_of(&object).await?;
            client.delete(&path).await
        };
        while !is_answered(&timeout(PATIENCE, delete()).await) {
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Returns true if the API server has processed a request.
fn is_answered(result: &Result<Result<Value, Failure>, Elapsed>) -> bool {
    match result {
        Ok(Ok(_)) => true,
        // The object is gone, or invalid. A starting API server may answer 404, too, but the quiet
        // phase repeats the writes.
        Ok(Err(failure)) => [400, 404, 422].iter().any(|code| failure.is(*code)),
        Err(_) => false,
    }
}
