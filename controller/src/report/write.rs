//! Writes one status.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::connection::answer;
use crate::watch::{Received, StoredStatus, api_resource};
use sesame_kinds::world::ObjectKey;

const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum WriteOutcome {
    Stored {
        /// Status before the write.
        before: StoredStatus,
        /// Status after the write, which can differ from the sent status.
        stored: StoredStatus,
        /// Status that was sent to the API server.
        change: Value,
    },
    Gone,
    Changed,
    Failed,
}

/// Conditions use whole seconds.
pub(super) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Fails with a conflict if the object has changed since the patch was computed.
pub(super) async fn write(
    (client, manager): (Client, Cow<'static, str>),
    key: ObjectKey,
    stored: StoredStatus,
    status: Value,
) -> (ObjectKey, WriteOutcome) {
    let resource = api_resource(key.kind, &stored.api_version);
    let api: Api<Received> = if key.kind.cluster_scoped() {
        Api::all_with(client, &resource)
    } else {
        Api::namespaced_with(client, &key.name.namespace, &resource)
    };
    let body = json!({
        "metadata": {"resourceVersion": stored.version},
        "status": status,
    });
    let parameters = PatchParams::apply(&manager);
    let patch = Patch::Merge(&body);
    let written = api.patch_status(&key.name.name, &parameters, &patch);
    let outcome = match answer(TIMEOUT, written).await {
        Ok(received) => {
            match StoredStatus::of(key.kind, &stored.api_version, &received, &manager) {
                Some(now) => WriteOutcome::Stored {
                    before: stored,
                    stored: now,
                    change: status,
                },
                None => WriteOutcome::Failed,
            }
        }
        Err(kube::Error::Api(refusal)) if refusal.code == 404 => WriteOutcome::Gone,
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => WriteOutcome::Changed,
        Err(error) => {
            tracing::warn!(object = %key, %error, "cannot write the status; retrying");
            WriteOutcome::Failed
        }
    };
    (key, outcome)
}
