//! Watches the GatewayAgents, which contain the agents' reports, and deletes stale ones.

use std::time::Duration;

use kube::Api;
use kube::api::DeleteParams;
use kube::core::ApiResource;
use tokio::sync::mpsc::UnboundedSender;

use super::agents::FleetEvent;
use super::trim::TrimmedReport;
use crate::replica::Replica;
use crate::watch::{ObjectWatch, PAGE, Received, watch_config};
use sesame_published::GatewayAgent;

/// Delay before retrying a kind that is not installed.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// `None` if the report cannot be decoded.
pub(super) type NamedReport = (String, Option<GatewayAgent>);

pub(super) fn readable(
    found: &[NamedReport],
) -> impl Iterator<Item = (&str, &GatewayAgent)> + Clone {
    let agents = found.iter();
    agents.filter_map(|found| Some((found.0.as_str(), found.1.as_ref()?)))
}

pub(super) async fn watch(replica: Replica, events: UnboundedSender<FleetEvent>) {
    let resource = ApiResource::erase::<GatewayAgent>(&());
    let api = Api::namespaced_with(replica.client.clone(), &replica.namespace, &resource);
    let watch = ObjectWatch::new(
        &replica,
        "GatewayAgent",
        api,
        watch_config().page_size(PAGE),
    );
    let keep = |found: Received<TrimmedReport>| (found.name().name, found.kept.0);
    let take = |event: Result<_, _>| events.send(FleetEvent::Agents(event.map(Box::new))).is_ok();
    watch.run(RECHECK_INTERVAL, keep, take).await;
}

pub(super) async fn remove(api: Api<GatewayAgent>, name: String, why: String) {
    tracing::info!(agent = name, "deleting a GatewayAgent: {why}");
    match api.delete(&name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => {
            tracing::warn!(agent = name, %error, "cannot delete a GatewayAgent");
        }
    }
}
