//! Metrics of the controller.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use sesame_gateway_api::api::NamespacedName;
use sesame_gateway_api::expiry::Expiry;
use sesame_gateway_api::world::{Kind, World};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPart {
    part: String,
    verb: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCertificate {
    gateway: String,
    key: String,
}

/// All metrics of the process.
pub(crate) struct Metrics {
    registry: Registry,
    objects: Family<OfKind, Gauge>,
    skipped: Gauge,
    lists: Family<OfKind, Counter>,
    watch_failures: Family<OfKind, Counter>,
    resolutions: Histogram,
    gateways: Gauge,
    certificates: Family<OfCertificate, Gauge>,
    published: Family<OfPart, Counter>,
    statuses: Family<OfKind, Counter>,
    reports_refused: Gauge,
    hosts_lost: Gauge,
    leader: Gauge,
    api_server: Gauge,
}

impl Metrics {
    /// Returns the metrics, all at zero.
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("sesame_controller");
        let metrics = Self {
            objects: Family::default(),
            skipped: Gauge::default(),
            lists: Family::default(),
            watch_failures: Family::default(),
            resolutions: Histogram::new(exponential_buckets(0.001, 2.0, 13)),
            gateways: Gauge::default(),
            certificates: Family::default(),
            published: Family::default(),
            statuses: Family::default(),
            reports_refused: Gauge::default(),
            hosts_lost: Gauge::default(),
            leader: Gauge::default(),
            api_server: Gauge::default(),
            registry: Registry::default(),
        };
        let objects = metrics.objects.clone();
        registry.register("objects", "Objects in use, by kind", objects);
        let skipped = metrics.skipped.clone();
        registry.register("skipped_objects", "Objects that cannot be decoded", skipped);
        let lists = metrics.lists.clone();
        registry.register("lists", "Whole lists of a kind that were read", lists);
        let failures = metrics.watch_failures.clone();
        registry.register(
            "watch_failures",
            "Watches that failed and were started again",
            failures,
        );
        let resolutions = metrics.resolutions.clone();
        registry.register(
            "resolution_seconds",
            "Time to resolve the whole world",
            resolutions,
        );
        let gateways = metrics.gateways.clone();
        registry.register("gateways", "Gateways that are ours", gateways);
        let certificates = metrics.certificates.clone();
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When each certificate that is to be served expires, in seconds since 1970",
            certificates,
        );
        let published = metrics.published.clone();
        registry.register(
            "publish_writes",
            "Writes of ConfigMaps and Secrets",
            published,
        );
        let statuses = metrics.statuses.clone();
        registry.register("status_writes", "Writes of statuses, by kind", statuses);
        let refused = metrics.reports_refused.clone();
        registry.register(
            "reports_refused",
            "GatewayAgents that count for nothing: no host may have written them",
            refused,
        );
        let lost = metrics.hosts_lost.clone();
        registry.register(
            "hosts_lost",
            "Hosts that have been silent for too long: their addresses have left their Gateways",
            lost,
        );
        let leader = metrics.leader.clone();
        registry.register("leader", "1 while this replica writes", leader);
        let api_server = metrics.api_server.clone();
        registry.register(
            "api_server_answers",
            "1 while the API server answers this replica",
            api_server,
        );
        Self {
            registry,
            ..metrics
        }
    }

    /// Returns the metrics in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a String cannot fail.
            Err(error) => format!("# {error}\n"),
        }
    }

    /// Counts a list of a kind.
    pub(crate) fn listed(&self, kind: &str) {
        self.lists.get_or_create(&of_kind(kind)).inc();
    }

    /// Counts a watch that failed.
    pub(crate) fn watch_failed(&self, kind: &str) {
        self.watch_failures.get_or_create(&of_kind(kind)).inc();
    }

    /// Notes that the world was resolved.
    pub(crate) fn resolved(&self, took: Duration, world: &World, gateways: usize, skipped: usize) {
        self.resolutions.observe(took.as_secs_f64());
        self.gateways.set(count(gateways));
        self.skipped.set(count(skipped));
        for kind in Kind::ALL {
            let objects = self.objects.get_or_create(&of_kind(kind.as_str()));
            objects.set(count(world.count(*kind)));
        }
    }

    /// Replaces the certificates that are to be served.
    pub(crate) fn certificates(&self, expiries: &BTreeMap<NamespacedName, Vec<Expiry>>) {
        self.certificates.clear();
        for (gateway, expiries) in expiries {
            for Expiry {
                name,
                not_before: _,
                not_after,
            } in expiries
            {
                let labels = OfCertificate {
                    gateway: gateway.to_string(),
                    key: name.clone(),
                };
                self.certificates.get_or_create(&labels).set(*not_after);
            }
        }
    }

    /// Counts an incremental resolution of routes.
    pub(crate) fn resolved_routes(&self, took: Duration) {
        self.resolutions.observe(took.as_secs_f64());
    }

    /// Counts an object that was published or removed.
    pub(crate) fn published(&self, part: &str, verb: &str) {
        let labels = OfPart {
            part: part.to_owned(),
            verb: verb.to_owned(),
        };
        self.published.get_or_create(&labels).inc();
    }

    /// Counts a write of a status, before its outcome is known.
    pub(crate) fn status_written(&self, kind: &str) {
        self.statuses.get_or_create(&of_kind(kind)).inc();
    }

    /// Replaces the number of GatewayAgents that are ignored.
    pub(crate) fn reports_refused(&self, now: usize) {
        self.reports_refused.set(count(now));
    }

    /// Replaces the number of hosts that are lost.
    pub(crate) fn hosts_lost(&self, now: usize) {
        self.hosts_lost.set(count(now));
    }

    /// Notes whether this replica leads.
    pub(crate) fn leads(&self, now: bool) {
        self.leader.set(now.into());
    }

    /// Notes whether the API server answered the last read or write of the Lease.
    pub(crate) fn api_server_answers(&self, now: bool) {
        self.api_server.set(now.into());
    }
}

fn of_kind(kind: &str) -> OfKind {
    OfKind {
        kind: kind.to_owned(),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
