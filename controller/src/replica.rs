//! The handles and names that all tasks of one replica share.

mod failures;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

use crate::changes::Changes;
use crate::serve::Metrics;
use crate::watch::field_manager;
use sesame_kinds::world::Kind;

pub(crate) use self::failures::ApiFailures;

#[derive(Clone)]
pub(crate) struct Replica {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) watched: WatchedNamespaces,
    pub(crate) layers: WatchedLayers,
    pub(crate) controller_name: String,
    /// Unique among all replicas.
    pub(crate) identity: String,
    /// Only the holder of the Lease may write.
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) failures: Arc<ApiFailures>,
    pub(crate) changes: Changes,
    pub(crate) fleet_spans: Option<String>,
    /// Program that changes DNS records.
    pub(crate) acme_dns_hook: Option<PathBuf>,
}

impl Replica {
    /// Returns the name under which statuses are written.
    pub(crate) fn field_manager(&self) -> Cow<'static, str> {
        field_manager(&self.controller_name, &self.namespace)
    }
}

/// Objects in other namespaces are treated as nonexistent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum WatchedNamespaces {
    /// Includes future namespaces.
    #[default]
    All,
    Only(BTreeSet<String>),
}

/// The kinds beside the Gateway API that the controller may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchedLayers {
    pub(crate) ingresses: bool,
    pub(crate) http_proxies: bool,
}

impl WatchedLayers {
    /// Returns false if the kind counts as empty, so no permission is needed.
    pub(crate) fn holds(self, kind: Kind) -> bool {
        match kind {
            Kind::Ingress => self.ingresses,
            // HTTPProxies also have classes, and Ingresses can use delegated Secrets.
            Kind::IngressClass | Kind::TlsCertificateDelegation => {
                self.ingresses || self.http_proxies
            }
            kind => self.http_proxies || !kind.is_contour(),
        }
    }
}

impl WatchedNamespaces {
    pub(crate) fn holds(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }

    pub(crate) fn add(&mut self, namespace: &str) {
        if let Self::Only(names) = self {
            names.insert(namespace.to_owned());
        }
    }

    /// Returns one value per watched namespace, or a single value if all are watched.
    pub(crate) fn each<T>(&self, all: impl FnOnce() -> T, one: impl Fn(&str) -> T) -> Vec<T> {
        match self {
            Self::All => vec![all()],
            Self::Only(names) => names.iter().map(|name| one(name)).collect(),
        }
    }
}

/// Returns true if the value differed and was sent.
pub(crate) fn replace<T: PartialEq>(known: &watch::Sender<T>, now: T) -> bool {
    known.send_if_modified(|known| {
        let differs = *known != now;
        *known = now;
        differs
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_layers_leave_shared_and_other_kinds() {
        let held = |ingresses, http_proxies| {
            let layers = WatchedLayers {
                ingresses,
                http_proxies,
            };
            let layered = |kind: &Kind| {
                matches!(kind, Kind::Ingress | Kind::IngressClass) || kind.is_contour()
            };
            let held = Kind::ALL.iter().filter(|kind| layers.holds(**kind));
            assert!(held.clone().filter(|kind| !layered(kind)).count() > 20);
            held.copied().filter(layered).collect::<Vec<_>>()
        };
        assert_eq!(held(false, false), []);
        assert_eq!(
            held(true, false),
            [
                Kind::IngressClass,
                Kind::Ingress,
                Kind::TlsCertificateDelegation
            ]
        );
        assert_eq!(held(false, true).len(), 4);
        assert_eq!(held(true, true).len(), 5);
    }
}
