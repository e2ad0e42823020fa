//! Explains how the last accepted configuration handles a request.

use std::path::Path;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::explain::{self, ExplainRequest, Explanation, ServedPlace};
use sesame_proto::schema::Snapshot;

use super::inspect;

/// Body of `POST /explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExplainOrder {
    /// `namespace/name`; if absent, the Gateway that listens on the request's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<String>,
    pub(crate) request: ExplainRequest,
}

pub(crate) fn explain_accepted(
    state_dir: &Path,
    order: &ExplainOrder,
) -> anyhow::Result<Explanation> {
    let accepted = inspect::accepted(state_dir);
    let snapshots = accepted
        .iter()
        .map(|it| (&it.gateway, &it.resolved.snapshot));
    explain_one(snapshots.collect(), order)
}

pub(crate) fn explain_one(
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
    Ok(explain::explain_any(&snapshots, request)?)
}

pub(crate) fn served_accepted(state_dir: &Path, object: &str) -> Vec<ServedPlace> {
    let accepted = inspect::accepted(state_dir);
    let places = accepted.iter();
    places
        .flat_map(|it| explain::served(&it.resolved.snapshot, object))
        .collect()
}

/// Handles `GET /served/KIND/NAMESPACE/NAME`. Returns `None` for any other path.
pub(super) fn answer(state_dir: &Path, path: &str) -> Option<anyhow::Result<Vec<u8>>> {
    let object = path.strip_prefix("/served/")?;
    let places = served_accepted(state_dir, object);
    Some(serde_json::to_vec(&places).map_err(Into::into))
}
