//! Snapshots from a Kubernetes cluster, as a controller publishes them.
//!
//! `listing` follows manifests and endpoint shards, `store` has a `assembler` for each Gateway, which says what is missing
//! of it, and `fetch` reads that; `origin` is the short way from one revision to the next. A cluster that cannot be
//! reached changes nothing: what was complete stays. A Gateway is let go of only when the API server, asked for its
//! manifest by name, says that there is none. It writes nothing.

mod assembler;
pub(crate) mod backoff;
mod connect;
mod fetch;
mod fetch_state;
mod listing;
mod origin;
mod pieces;
mod problems;
mod store;

#[cfg(test)]
mod tests;

use kube::Client;
use sesame_gateway_api::api::NamespacedName;
use tokio::sync::{mpsc, watch};

pub use self::connect::Settings;
pub(crate) use self::connect::describe_error;
use self::store::ClusterStore;
use super::update::SourceUpdate;

/// Follows the cluster until nobody wants to know. `known` are the Gateways that were served before.
pub async fn run(
    settings: Settings,
    known: Vec<NamespacedName>,
    supply: watch::Sender<SourceUpdate>,
    clients: watch::Sender<Option<Client>>,
) {
    let (sender, mut events) = mpsc::channel(64);
    let listing = tokio::spawn(listing::follow(settings.clone(), clients.clone(), sender));
    let mut store = ClusterStore::new(settings, clients, &known);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => store.take(event),
                None => break,
            },
            () = store.work() => {}
            () = supply.closed() => break,
        }
        while let Ok(event) = events.try_recv() {
            store.take(event);
        }
        if let Some(newest) = store.supply() {
            supply.send_replace(newest);
        }
    }
    listing.abort();
}
