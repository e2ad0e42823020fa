//! Everything that the tasks of one replica share: handles and names, and nothing that any of them decides.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::serve::Metrics;

/// Handles and names of this replica.
#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) client: Client,
    /// Namespace of everything that is published.
    pub(crate) namespace: String,
    /// Name that GatewayClasses of ours have.
    pub(crate) controller_name: String,
    /// Name of this replica, unique among all.
    pub(crate) identity: String,
    /// True while this replica is the one that writes.
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Hands over a value unless it is the one that is known; returns true if it is another.
pub(crate) fn replace<T: PartialEq>(known: &watch::Sender<T>, now: T) -> bool {
    known.send_if_modified(|known| {
        let differs = *known != now;
        *known = now;
        differs
    })
}
