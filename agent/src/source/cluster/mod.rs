//! Snapshots from a Kubernetes cluster, as a controller publishes them.
//!
//! `listing` follows manifests and endpoint shards, `stock` has a `shelf` for each Gateway, which says what is missing
//! of it, and `fetch` reads that; `base_revision` is the fast path from one revision to the next. A cluster that cannot be
//! reached changes nothing: what was complete stays. A Gateway is let go of only when the API server, asked for its
//! manifest by name, says that there is none. It writes nothing.

mod base_revision;
mod connect;
mod entry;
mod fetch;
mod listing;
pub(crate) mod pause;
mod pieces;
mod problems;
mod shelf;
mod stock;

#[cfg(test)]
mod tests;

use kube::Client;
use sesame_gateway_api::api::NamespacedName;
use tokio::sync::{mpsc, watch};

pub use self::connect::Settings;
pub(crate) use self::connect::words;
use self::stock::Stock;
use super::supply::Supply;

/// Follows the cluster until nobody wants to know. `known` are the Gateways that were served before.
pub async fn run(
    settings: Settings,
    known: Vec<NamespacedName>,
    supply: watch::Sender<Supply>,
    clients: watch::Sender<Option<Client>>,
) {
    let (sender, mut events) = mpsc::channel(64);
    let listing = tokio::spawn(listing::follow(settings.clone(), clients.clone(), sender));
    let mut stock = Stock::new(settings, clients, &known);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => stock.take(event),
                None => break,
            },
            () = stock.work() => {}
            () = supply.closed() => break,
        }
        while let Ok(event) = events.try_recv() {
            stock.take(event);
        }
        if let Some(newest) = stock.supply() {
            supply.send_replace(newest);
        }
    }
    listing.abort();
}
