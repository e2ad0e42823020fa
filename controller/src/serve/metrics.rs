//! Defines the controller's metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use super::http_proxies::ProxyMetrics;
use sesame_acme_client::AcmeState;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::{Expiry, ExpiryOf};
use sesame_kinds::status::Statuses;
use sesame_kinds::world::{Kind, World};
use sesame_proto::key_sets::KeySetCopies;
use sesame_resolver::UncoveredHostnames;

/// Maximum number of series for ordered certificates.
const MAX_ORDERED: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    part: String,
    verb: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    gateway: String,
    key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecretLabels {
    secret: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IssuerLabels {
    uri: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    revision: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    objects: Family<KindLabels, Gauge>,
    skipped: Gauge,
    lists: Family<KindLabels, Counter>,
    watch_failures: Family<KindLabels, Counter>,
    resolutions: Histogram,
    gateways: Gauge,
    certificates: Family<CertificateLabels, Gauge>,
    uncovered: Gauge,
    key_sets: Family<IssuerLabels, Gauge>,
    acme_expiries: Family<SecretLabels, Gauge>,
    acme_orders: Gauge,
    acme_failures: Gauge,
    published: Family<PartLabels, Counter>,
    statuses: Family<KindLabels, Counter>,
    reports_refused: Gauge,
    hosts_lost: Gauge,
    leader: Gauge,
    api_server: Gauge,
    build: Family<BuildLabels, Gauge>,
    proxies: ProxyMetrics,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("sesame_controller");
        let all = &mut registry;
        let resolutions = Histogram::new(exponential_buckets(0.001, 2.0, 13));
        let help = "Time to resolve all objects";
        all.register("resolution_seconds", help, resolutions.clone());
        let help = "Expiry of each served certificate, in seconds since 1970";
        let certificates = add(all, "certificate_expiry_timestamp_seconds", help);
        let help = "Hostnames not covered by any certificate of their listener, so clients reject \
            the connection";
        let uncovered = add(all, "uncovered_hostnames", help);
        let help = "Time of the last successful fetch of each key set, in seconds since 1970, \
            accurate to an hour; 0 before the first fetch";
        let key_sets = add(all, "key_set_fetched_timestamp_seconds", help);
        let help = "When each certificate by ACME expires, in seconds since 1970; 0 before it is \
            issued; at most a thousand";
        let acme_expiries = add(all, "acme_expiry_timestamp_seconds", help);
        let help = "Certificate orders by ACME of this replica, including failed ones";
        let acme_orders = add(all, "acme_orders", help);
        let help = "Failed certificate orders by ACME of this replica";
        let acme_failures = add(all, "acme_failures", help);
        let help = "GatewayAgents that are ignored because their name does not match their \
            content, or because their host reports on too many Gateways";
        let reports_refused = add(all, "reports_refused", help);
        let help = "Lost hosts, whose addresses are removed from their \
            Gateways";
        let hosts_lost = add(all, "hosts_lost", help);
        let help = "Watches that failed and were restarted";
        let watch_failures = add(all, "watch_failures", help);
        let help = "1 while the API server responds to this replica";
        let api_server = add(all, "api_server_answers", help);
        let help = "Always 1, with this program's version and source revision as labels";
        let build = add(all, "build_info", help);
        Self {
            objects: add(all, "objects", "Objects in use, by kind"),
            skipped: add(all, "skipped_objects", "Objects that cannot be decoded"),
            lists: add(all, "lists", "Full lists that were fetched, by kind"),
            watch_failures,
            resolutions,
            gateways: add(
                all,
                "gateways",
                "Gateways whose GatewayClass belongs to this controller",
            ),
            certificates,
            uncovered,
            key_sets,
            acme_expiries,
            acme_orders,
            acme_failures,
            published: add(all, "publish_writes", "ConfigMap and Secret writes"),
            statuses: add(all, "status_writes", "Status writes, by kind"),
            reports_refused,
            hosts_lost,
            leader: add(all, "leader", "1 while this replica writes"),
            api_server,
            build,
            proxies: ProxyMetrics::new(),
            registry,
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let proxies = self.proxies.encode(&mut text);
        match proxies.and_then(|()| encode(&mut text, &self.registry)) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }

    pub(crate) fn built_from(&self, revision: &'static str) {
        let version = env!("CARGO_PKG_VERSION");
        let labels = BuildLabels { version, revision };
        self.build.get_or_create(&labels).set(1);
    }

    pub(crate) fn listed(&self, kind: &str) {
        // Create the error counter early, because `rate` misses the first error of a new counter.
        self.watch_failures
            .get_or_create(&kind_labels(kind))
            .inc_by(0);
        self.lists.get_or_create(&kind_labels(kind)).inc();
    }

    pub(crate) fn watch_failed(&self, kind: &str) {
        self.watch_failures.get_or_create(&kind_labels(kind)).inc();
    }

    pub(crate) fn resolved(&self, took: Duration, world: &World, gateways: usize, skipped: usize) {
        self.resolutions.observe(took.as_secs_f64());
        self.gateways.set(count(gateways));
        self.skipped.set(count(skipped));
        for kind in Kind::ALL {
            let objects = self.objects.get_or_create(&kind_labels(kind.as_str()));
            objects.set(count(world.count(*kind)));
        }
    }

    /// Replaces all values.
    pub(crate) fn certificates(&self, expiries: &BTreeMap<NamespacedName, Vec<Expiry>>) {
        self.certificates.clear();
        for (gateway, expiries) in expiries {
            for Expiry {
                name,
                of,
                not_before: _,
                not_after,
            } in expiries
            {
                if *of != ExpiryOf::Leaf {
                    continue;
                }
                let labels = CertificateLabels {
                    gateway: gateway.to_string(),
                    key: name.clone(),
                };
                self.certificates.get_or_create(&labels).set(*not_after);
            }
        }
    }

    pub(crate) fn uncovered(&self, hostnames: &UncoveredHostnames) {
        self.uncovered
            .set(count(hostnames.values().map(Vec::len).sum()));
    }

    pub(crate) fn http_proxies(&self, statuses: &Statuses, world: &World) {
        self.proxies.resolved(statuses, world, &self.leader);
    }

    /// Replaces all values.
    pub(crate) fn key_sets(&self, copies: &KeySetCopies) {
        self.key_sets.clear();
        for copy in copies.values() {
            let fetched_at = copy.fetched_at.parse::<Timestamp>();
            let fetched_at = fetched_at.map_or(0, Timestamp::as_second);
            let uri = copy.uri.clone();
            self.key_sets
                .get_or_create(&IssuerLabels { uri })
                .set(fetched_at);
        }
    }

    /// Replaces all values.
    pub(crate) fn orders(&self, state: &AcmeState) {
        let AcmeState {
            certificates,
            orders,
            failures,
        } = state;
        self.acme_orders
            .set(i64::try_from(*orders).unwrap_or(i64::MAX));
        self.acme_failures
            .set(i64::try_from(*failures).unwrap_or(i64::MAX));
        self.acme_expiries.clear();
        for (secret, certificate) in certificates.iter().take(MAX_ORDERED) {
            let secret = secret.to_string();
            let expires = certificate.expires.map_or(0, Timestamp::as_second);
            let labels = SecretLabels { secret };
            self.acme_expiries.get_or_create(&labels).set(expires);
        }
    }

    pub(crate) fn resolved_routes(&self, took: Duration) {
        self.resolutions.observe(took.as_secs_f64());
    }

    pub(crate) fn published(&self, part: &str, verb: &str) {
        let labels = PartLabels {
            part: part.to_owned(),
            verb: verb.to_owned(),
        };
        self.published.get_or_create(&labels).inc();
    }

    pub(crate) fn status_written(&self, kind: &str) {
        self.statuses.get_or_create(&kind_labels(kind)).inc();
    }

    pub(crate) fn reports_refused(&self, now: usize) {
        self.reports_refused.set(count(now));
    }

    pub(crate) fn hosts_lost(&self, now: usize) {
        self.hosts_lost.set(count(now));
    }

    pub(crate) fn leads(&self, now: bool) {
        self.leader.set(now.into());
        self.proxies.show(&self.leader);
    }

    pub(crate) fn does_api_server_answer(&self) -> bool {
        self.api_server.get() == 1
    }

    pub(crate) fn api_server_answers(&self, now: bool) {
        self.api_server.set(now.into());
    }
}

pub(super) fn add<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn kind_labels(kind: &str) -> KindLabels {
    KindLabels {
        kind: kind.to_owned(),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_page_lists_each_metric() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        let metrics = Metrics::new().text();
        let families = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        for (name, kind) in families {
            let ending = if kind == "counter" { "_total" } else { "" };
            let item = format!("- `{name}{ending}` ({kind}");
            assert!(page.contains(&item), "docs/metrics.md lacks {item:?}");
        }
    }
}
