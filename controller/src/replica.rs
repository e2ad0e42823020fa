//! Shared by all tasks of one replica: handles and names, but no decisions.

mod failures;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::changes::Changes;
use crate::serve::Metrics;

pub(crate) use self::failures::ApiFailures;

/// Handles and names of this replica.
#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) client: Client,
    /// Namespace of everything that is published.
    pub(crate) namespace: String,
    /// Namespaces that are read.
    pub(crate) watched: WatchedNamespaces,
    /// Controller name in GatewayClasses of this controller.
    pub(crate) controller_name: String,
    /// Name of this replica, unique among all.
    pub(crate) identity: String,
    /// True while this replica may write.
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) failures: Arc<ApiFailures>,
    pub(crate) changes: Changes,
    /// URL of the collector that agents of managed fleets send spans to.
    pub(crate) fleet_spans: Option<String>,
}

/// Namespaces whose objects are read. Objects in other namespaces count as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum WatchedNamespaces {
    /// All, including future ones.
    #[default]
    All,
    /// Only these.
    Only(BTreeSet<String>),
}

impl WatchedNamespaces {
    /// Returns true if this namespace is one of them.
    pub(crate) fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }

    /// Adds a namespace.
    pub(crate) fn add(&mut self, namespace: &str) {
        if let Self::Only(names) = self {
            names.insert(namespace.to_owned());
        }
    }

    /// Returns one value for all of them, or one for each.
    pub(crate) fn each<T>(&self, all: impl FnOnce() -> T, one: impl Fn(&str) -> T) -> Vec<T> {
        match self {
            Self::All => vec![all()],
            Self::Only(names) => names.iter().map(|name| one(name)).collect(),
        }
    }
}

/// Publishes a value unless it equals the current one. Returns true if it is new.
pub(crate) fn replace<T: PartialEq>(known: &watch::Sender<T>, now: T) -> bool {
    known.send_if_modified(|known| {
        let differs = *known != now;
        *known = now;
        differs
    })
}

/// Returns the name of this replica, which is unique even after a restart with the same host name and process id.
pub(crate) fn identity() -> String {
    let name = std::env::var("POD_NAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_else(|_| "unknown".to_owned());
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{}_{}_{started:x}", name.trim(), std::process::id())
}
