//! Explains how the last accepted configuration handles a request.

use std::path::Path;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use sesame_explain::{ExplainRequest, Explanation, ServedPlace};
use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::Snapshot;

use super::inspect;

/// Body of `POST /explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainOrder {
    /// `namespace/name`; if absent, the Gateway that listens on the request's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The request to explain.
    pub request: ExplainRequest,
}

/// Explains the request with the accepted configurations in `state_dir`.
/// Fails in the same cases as [`explain_one`].
pub fn explain_accepted(state_dir: &Path, order: &ExplainOrder) -> anyhow::Result<Explanation> {
    let accepted = inspect::accepted(state_dir);
    let snapshots = accepted
        .iter()
        .map(|it| (&it.gateway, &it.resolved.snapshot));
    explain_one(snapshots.collect(), order)
}

/// Explains the request with the selected Gateway, or the only one that listens on its port.
/// Fails if no Gateway is served, or if several listen on the port.
pub fn explain_one(
    mut snapshots: Vec<(&NamespacedName, &Snapshot)>,
    order: &ExplainOrder,
) -> anyhow::Result<Explanation> {
    let ExplainOrder { gateway, request } = order;
    if let Some(gateway) = gateway {
        snapshots.retain(|(name, _)| name.to_string() == *gateway);
    }
    if snapshots.is_empty() {
        match gateway {
            Some(gateway) => bail!("no Gateway {gateway} is served"),
            None => bail!("no Gateway is served"),
        }
    }
    let snapshots: Vec<&Snapshot> = snapshots.into_iter().map(|(_, it)| it).collect();
    Ok(sesame_explain::explain_any(&snapshots, request)?)
}

/// Lists where the accepted configurations serve or use `object` (`Kind/namespace/name`).
pub fn served_accepted(state_dir: &Path, object: &str) -> Vec<ServedPlace> {
    let accepted = inspect::accepted(state_dir);
    let places = accepted.iter();
    places
        .flat_map(|it| sesame_explain::served(&it.resolved.snapshot, object))
        .collect()
}

/// Handles `GET /served/KIND/NAMESPACE/NAME`. Returns `None` for any other path.
pub(super) fn answer(state_dir: &Path, path: &str) -> Option<anyhow::Result<Vec<u8>>> {
    let object = path.strip_prefix("/served/")?;
    let places = served_accepted(state_dir, object);
    Some(serde_json::to_vec(&places).map_err(Into::into))
}
