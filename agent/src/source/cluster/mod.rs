//! Reads snapshots that a controller has published in a Kubernetes cluster.
//!
//! `follow` follows manifests and endpoint shards. `store` has an `assembler` for each Gateway,
//! which returns the missing pieces for `fetch` to read. `base_revision` builds the next revision
//! on a fast path. While the cluster is unreachable, complete revisions remain in use. A Gateway is
//! withdrawn only after reading its manifest by name has shown that the manifest is gone, or meant
//! for other hosts. This source writes nothing to the cluster.

mod assembler;
pub(crate) mod backoff;
mod base_revision;
mod connect;
mod fetch;
mod fetch_state;
mod follow;
mod pieces;
mod problems;
mod store;
pub(crate) mod stored_token;

#[cfg(test)]
mod tests;

use kube::Client;
use sesame_gateway_api::api::NamespacedName;
use tokio::sync::{mpsc, watch};

pub use self::connect::ClusterSettings;
pub(crate) use self::connect::{connect, describe_error, fault, within};
use self::store::ClusterStore;
use super::update::SourceUpdate;

/// Follows the cluster until the receivers of the updates are dropped. `known` contains the
/// Gateways that were served before.
pub async fn run(
    settings: ClusterSettings,
    known: Vec<NamespacedName>,
    updates: watch::Sender<SourceUpdate>,
    clients: watch::Sender<Option<Client>>,
) {
    let (sender, mut events) = mpsc::channel(64);
    let listing = tokio::spawn(follow::follow(settings.clone(), clients.clone(), sender));
    let mut store = ClusterStore::new(settings, clients, &known);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => store.take(event),
                None => break,
            },
            () = store.work() => {}
            () = updates.closed() => break,
        }
        while let Ok(event) = events.try_recv() {
            store.take(event);
        }
        if let Some(newest) = store.update() {
            updates.send_replace(newest);
        }
    }
    listing.abort();
}
