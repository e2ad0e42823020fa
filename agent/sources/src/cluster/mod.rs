//! Reads snapshots that a controller has published in a Kubernetes cluster.
//!
//! Writes nothing to the cluster. While the cluster is unreachable, complete revisions remain in
//! use. A Gateway is withdrawn only after a read by name shows that its manifest is gone or meant
//! for other hosts.

mod assembler;
pub mod backoff;
mod connect;
mod fetch;
mod fetch_state;
mod follow;
mod pieces;
mod problems;
mod store;
pub mod stored_token;

#[cfg(test)]
mod tests;

use kube::Client;
use sesame_kinds::api::NamespacedName;
use tokio::sync::{mpsc, watch};

pub use self::connect::ClusterSettings;
pub use self::connect::{connect, describe_error, fault, within};
use self::store::ClusterStore;
use super::update::SourceUpdate;

/// Runs until all update receivers are dropped. `known` contains the Gateways that the host already
/// served.
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
                Some(event) => store.handle(event),
                None => break,
            },
            () = store.work() => {}
            () = updates.closed() => break,
        }
        while let Ok(event) = events.try_recv() {
            store.handle(event);
        }
        if let Some(newest) = store.update() {
            updates.send_replace(newest);
        }
    }
    listing.abort();
}
