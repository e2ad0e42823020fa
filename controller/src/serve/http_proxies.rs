//! Contour's metrics of HTTPProxies, because dashboards and alerts of its users contain their names.
//!
//! As in Contour, only the leader has values. The number of series is limited: further HTTPProxies
//! count for empty labels.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::Statuses;
use sesame_kinds::world::{Kind, World};

use super::metrics::add;

/// Per metric.
const MAX_SERIES: usize = 1000;
/// Further HTTPProxies in the namespace count for an empty `vhost`.
const MAX_HOSTS_PER_NAMESPACE: usize = 50;
const MAX_HOST_BYTES: usize = 253;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct HostLabels {
    namespace: String,
    /// Empty for an included HTTPProxy.
    vhost: String,
}

#[derive(Debug)]
struct Counts<L>(BTreeMap<L, i64>);

impl<L> Default for Counts<L> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<L: Clone + Default + Ord + Hash> Counts<L> {
    fn add(&mut self, labels: L) {
        let fits = self.0.len() < MAX_SERIES || self.0.contains_key(&labels);
        let labels = if fits { labels } else { L::default() };
        *self.0.entry(labels).or_default() += 1;
    }

    fn show(&self, family: &Family<L, Gauge>) {
        for (labels, count) in &self.0 {
            family.get_or_create(labels).set(*count);
        }
    }
}

#[derive(Debug, Default)]
struct ProxyCounts {
    all: Counts<NamespaceLabels>,
    roots: Counts<NamespaceLabels>,
    orphaned: Counts<NamespaceLabels>,
    valid: Counts<HostLabels>,
    invalid: Counts<HostLabels>,
}

impl ProxyCounts {
    fn new(statuses: &Statuses, world: &World) -> Self {
        let mut counts = Self::default();
        let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
        let proxies = statuses.routes.iter();
        for (key, status) in proxies.filter(|(key, _)| key.kind == Kind::HttpProxy) {
            let NamespacedName { namespace, name } = &key.name;
            let labels = NamespaceLabels {
                namespace: namespace.clone(),
            };
            let proxy = world.http_proxies.get(namespace, name);
            let root = proxy.and_then(|proxy| proxy.spec.virtualhost.as_ref());
            if root.is_some() {
                counts.roots.add(labels.clone());
            }
            let fqdn = root.map(|root| root.fqdn.as_str()).unwrap_or_default();
            let number = hosts.entry(namespace).or_default();
            *number += usize::from(!fqdn.is_empty());
            let fits = *number <= MAX_HOSTS_PER_NAMESPACE && fqdn.len() <= MAX_HOST_BYTES;
            let host = HostLabels {
                namespace: namespace.clone(),
                vhost: if fits { fqdn } else { "" }.to_owned(),
            };
            let mut errors = status.details.iter().filter(|detail| !detail.warning);
            if errors.clone().any(|error| error.type_ == "Orphaned") {
                counts.orphaned.add(labels.clone());
            } else if errors.next().is_some() {
                counts.invalid.add(host);
            } else {
                counts.valid.add(host);
            }
            counts.all.add(labels);
        }
        counts
    }
}

pub(super) struct ProxyMetrics {
    registry: Registry,
    all: Family<NamespaceLabels, Gauge>,
    roots: Family<NamespaceLabels, Gauge>,
    orphaned: Family<NamespaceLabels, Gauge>,
    valid: Family<HostLabels, Gauge>,
    invalid: Family<HostLabels, Gauge>,
    /// Kept for when this replica becomes the leader.
    counts: Mutex<ProxyCounts>,
}

impl ProxyMetrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("contour");
        let all = &mut registry;
        Self {
            all: add(all, "httpproxy", "HTTPProxies of this controller's classes"),
            roots: add(all, "httpproxy_root", "HTTPProxies with a virtualhost"),
            orphaned: add(
                all,
                "httpproxy_orphaned",
                "HTTPProxies that no root includes",
            ),
            valid: add(all, "httpproxy_valid", "HTTPProxies without errors"),
            invalid: add(all, "httpproxy_invalid", "HTTPProxies with errors"),
            counts: Mutex::default(),
            registry,
        }
    }

    pub(super) fn resolved(&self, statuses: &Statuses, world: &World, leader: &Gauge) {
        let counts = ProxyCounts::new(statuses, world);
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        self.show(leader);
    }

    /// Shows the last counts, or nothing if `leader` is 0. Reads `leader` under the lock, so that
    /// the last call sees its last value.
    pub(super) fn show(&self, leader: &Gauge) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let ProxyCounts {
            all,
            roots,
            orphaned,
            valid,
            invalid,
        } = &*counts;
        for family in [&self.all, &self.roots, &self.orphaned] {
            family.clear();
        }
        for family in [&self.valid, &self.invalid] {
            family.clear();
        }
        if leader.get() == 1 {
            all.show(&self.all);
            roots.show(&self.roots);
            orphaned.show(&self.orphaned);
            valid.show(&self.valid);
            invalid.show(&self.invalid);
        }
    }

    pub(super) fn encode(&self, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::status::{ProxyDetail, RouteStatus};

    #[test]
    fn series_beyond_limit_have_empty_labels() {
        let mut statuses = Statuses::default();
        for index in 0..MAX_SERIES + 5 {
            let name = NamespacedName::new(&format!("ns{index:04}"), "proxy");
            let detail = ProxyDetail {
                warning: false,
                type_: if index % 2 == 0 {
                    "Orphaned"
                } else {
                    "RouteError"
                },
                reason: "",
                message: String::new(),
            };
            let status = RouteStatus {
                details: vec![detail],
                ..RouteStatus::default()
            };
            statuses.routes.insert(Kind::HttpProxy.named(name), status);
        }
        let (metrics, leader) = (ProxyMetrics::new(), Gauge::default());
        let text = |leads| {
            let mut text = String::new();
            leader.set(leads);
            metrics.show(&leader);
            metrics.encode(&mut text).unwrap();
            text
        };
        metrics.resolved(&statuses, &World::default(), &leader);
        let shown = text(1);
        for line in [
            "contour_httpproxy{namespace=\"ns0999\"} 1\n",
            "contour_httpproxy{namespace=\"\"} 5\n",
            "contour_httpproxy_orphaned{namespace=\"ns0998\"} 1\n",
            "contour_httpproxy_invalid{namespace=\"ns0999\",vhost=\"\"} 1\n",
        ] {
            assert!(shown.contains(line), "{line}");
        }
        assert!(!shown.contains("contour_httpproxy_valid{"), "{shown}");
        assert!(!text(0).contains('{'));
    }
}
