//! The handles and names that all tasks of one replica share. Contains no logic.

mod failures;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::changes::Changes;
use crate::serve::Metrics;

pub(crate) use self::failures::ApiFailures;

/// The handles and names of this replica.
#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) client: Client,
    /// Namespace of all published objects.
    pub(crate) namespace: String,
    /// Namespaces to watch.
    pub(crate) watched: WatchedNamespaces,
    /// `controllerName` of this controller's GatewayClasses.
    pub(crate) controller_name: String,
    /// Name that distinguishes this replica from all others.
    pub(crate) identity: String,
    /// True while this replica may write, i.e. holds the Lease.
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) failures: Arc<ApiFailures>,
    pub(crate) changes: Changes,
    /// URL of the collector to which the agents of managed fleets send spans.
    pub(crate) fleet_spans: Option<String>,
}

/// Namespaces whose objects are watched. Objects in other namespaces are treated as nonexistent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum WatchedNamespaces {
    /// All namespaces, including future ones.
    #[default]
    All,
    /// The listed namespaces.
    Only(BTreeSet<String>),
}

impl WatchedNamespaces {
    /// Returns true if this namespace is watched.
    pub(crate) fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }

    /// Adds a namespace to watch.
    pub(crate) fn add(&mut self, namespace: &str) {
        if let Self::Only(names) = self {
            names.insert(namespace.to_owned());
        }
    }

    /// Returns one value for each listed namespace, or a single value if all namespaces are
    /// watched.
    pub(crate) fn each<T>(&self, all: impl FnOnce() -> T, one: impl Fn(&str) -> T) -> Vec<T> {
        match self {
            Self::All => vec![all()],
            Self::Only(names) => names.iter().map(|name| one(name)).collect(),
        }
    }
}

/// Sends a value to the receivers if it differs from the current value. Returns true if the value
/// was sent.
pub(crate) fn replace<T: PartialEq>(known: &watch::Sender<T>, now: T) -> bool {
    known.send_if_modified(|known| {
        let differs = *known != now;
        *known = now;
        differs
    })
}

/// Returns a name for this replica. The name is unique even after a restart with the same host name
/// and process id.
pub(crate) fn identity() -> String {
    let name = std::env::var("POD_NAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_else(|_| "unknown".to_owned());
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{}_{}_{started:x}", name.trim(), std::process::id())
}
