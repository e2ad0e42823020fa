//! Resource usage of the processes, read from kernel and API server counters.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use sesame_tests::cluster::TestCluster;
use sesame_tests::processes::{cpu_seconds, written_bytes};

/// Since the processes started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) apiserver_cpu: f64,
    /// Written to clients, etcd and the log.
    pub(crate) apiserver_bytes: f64,
    pub(crate) etcd_cpu: f64,
    /// Written to the disk and the API server.
    pub(crate) etcd_bytes: f64,
    pub(crate) controller_cpu: f64,
    pub(crate) clients_cpu: f64,
    /// Excludes watches.
    pub(crate) requests: f64,
    pub(crate) reports: f64,
    /// Rejected with 429.
    pub(crate) too_many: f64,
    pub(crate) seconds: f64,
}

impl Usage {
    /// Subtracts the cost of reading the metrics.
    pub(crate) async fn now(
        cluster: &TestCluster,
        controller: u32,
        clients_cpu: f64,
        start: Instant,
    ) -> anyhow::Result<Self> {
        let page = Page::read(cluster).await?;
        let (apiserver, etcd) = cluster.pids();
        let (pages_cpu, pages_bytes) = PAGES.cost();
        Ok(Self {
            apiserver_cpu: cpu_seconds(apiserver) - pages_cpu,
            apiserver_bytes: written_bytes(apiserver) - pages_bytes,
            etcd_cpu: cpu_seconds(etcd),
            etcd_bytes: written_bytes(etcd),
            controller_cpu: cpu_seconds(controller),
            clients_cpu,
            requests: page.sum("apiserver_request_total", &[])
                - page.sum("apiserver_request_total", &["verb=\"WATCH\""]),
            reports: page.reports(),
            too_many: page.sum("apiserver_request_total", &["code=\"429\""]),
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            apiserver_cpu: self.apiserver_cpu - before.apiserver_cpu,
            apiserver_bytes: self.apiserver_bytes - before.apiserver_bytes,
            etcd_cpu: self.etcd_cpu - before.etcd_cpu,
            etcd_bytes: self.etcd_bytes - before.etcd_bytes,
            controller_cpu: self.controller_cpu - before.controller_cpu,
            clients_cpu: self.clients_cpu - before.clients_cpu,
            requests: self.requests - before.requests,
            reports: self.reports - before.reports,
            too_many: self.too_many - before.too_many,
            seconds: self.seconds - before.seconds,
        }
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            apiserver_cpu: self.apiserver_cpu * factor,
            apiserver_bytes: self.apiserver_bytes * factor,
            etcd_cpu: self.etcd_cpu * factor,
            etcd_bytes: self.etcd_bytes * factor,
            controller_cpu: self.controller_cpu * factor,
            clients_cpu: self.clients_cpu * factor,
            requests: self.requests * factor,
            reports: self.reports * factor,
            too_many: self.too_many * factor,
            seconds: self.seconds * factor,
        }
    }
}

/// Number and cost of the metrics pages that the benchmark has read.
static PAGES: Pages = Pages {
    number: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    micros_each: AtomicU64::new(0),
};

struct Pages {
    number: AtomicU64,
    bytes: AtomicU64,
    micros_each: AtomicU64,
}

impl Pages {
    #[expect(clippy::cast_precision_loss, reason = "sums of hours")]
    fn cost(&self) -> (f64, f64) {
        let micros = self.number.load(Relaxed) * self.micros_each.load(Relaxed);
        (micros as f64 / 1e6, self.bytes.load(Relaxed) as f64)
    }
}

pub(crate) struct Page(String);

impl Page {
    pub(crate) async fn read(cluster: &TestCluster) -> anyhow::Result<Self> {
        let page = cluster.admin().get_text("/metrics").await;
        let page = page.map_err(|error| anyhow::anyhow!("{error}"))?;
        PAGES.number.fetch_add(1, Relaxed);
        PAGES.bytes.fetch_add(page.len() as u64, Relaxed);
        Ok(Self(page))
    }

    /// Measures the cost of reading the metrics. The API server must be otherwise idle.
    pub(crate) async fn weigh(cluster: &TestCluster) -> anyhow::Result<()> {
        Self::forget();
        let before = cpu_seconds(cluster.pids().0);
        for _ in 0..20 {
            Self::read(cluster).await?;
        }
        let took = Duration::from_secs_f64((cpu_seconds(cluster.pids().0) - before) / 20.0);
        let micros = u64::try_from(took.as_micros())?;
        PAGES.micros_each.store(micros, Relaxed);
        Ok(())
    }

    pub(crate) fn forget() {
        PAGES.number.store(0, Relaxed);
        PAGES.bytes.store(0, Relaxed);
    }

    /// Sums the series whose labels contain all strings in `with`.
    pub(crate) fn sum(&self, name: &str, with: &[&str]) -> f64 {
        let lines = self.0.lines().filter_map(|line| line.rsplit_once(' '));
        let matching = lines.filter(|(series, _)| {
            let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
            metric == name && with.iter().all(|text| labels.contains(text))
        });
        matching
            .filter_map(|(_, value)| value.parse::<f64>().ok())
            .sum()
    }

    pub(crate) fn reports(&self) -> f64 {
        let labels = [
            "resource=\"gatewayagents\"",
            "subresource=\"status\"",
            "code=\"200\"",
        ];
        self.sum("apiserver_request_total", &labels)
    }

    /// Returns the maximum number of executing and of queued requests in the previous second.
    pub(crate) fn in_flight(&self) -> (f64, f64) {
        (
            self.sum("apiserver_current_inflight_requests", &[]),
            self.sum("apiserver_current_inqueue_requests", &[]),
        )
    }
}
