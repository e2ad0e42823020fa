//! Watches the reports of hosts. Must not judge them.

use std::time::Duration;

use kube::Api;
use kube::core::ApiResource;
use tokio::sync::mpsc::UnboundedSender;

use super::FleetEvent;
use crate::replica::Replica;
use crate::report::trim::TrimmedReport;
use crate::watch::{ObjectWatch, PAGE, Received, watch_config};
use sesame_published::GatewayAgent;

/// Pause before the kind is looked for again while it is not installed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Watches the reports until the receiver is gone.
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
    watch.run(LOOK_AGAIN, keep, take).await;
}
