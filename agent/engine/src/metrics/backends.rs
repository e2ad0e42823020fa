//! Reads per-backend traffic from one Envoy's statistics. Only the busiest backends have their own
//! series, and all others share one.
//!
//! The counters of the shared series must never decrease while the agent is running, even if the
//! set of backends in it changes.

use std::collections::{BTreeMap, BTreeSet};

pub(super) const BACKEND_STATISTICS: &str = r"^cluster\..*\.upstream_";

/// Backend names contain slashes, so no backend has this name.
pub(super) const OTHERS: &str = "other";

/// Factor by which the weight of earlier requests decreases with each scrape.
const MEMORY: f64 = 0.9;
/// How many times as many requests a backend needs to displace another, so that series are stable.
const DISTANCE: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackendFamily {
    /// Labeled by status class.
    Requests,
    /// Labeled by reason.
    Failures,
    Retries,
    Sent,
    Received,
}

/// Family, label value, and suffixes of the Envoy counters to add up.
pub(super) const COUNTS: [(BackendFamily, &str, &[&str]); 13] = [
    (BackendFamily::Requests, "1xx", &["rq_1xx"]),
    (BackendFamily::Requests, "2xx", &["rq_2xx"]),
    (BackendFamily::Requests, "3xx", &["rq_3xx"]),
    (BackendFamily::Requests, "4xx", &["rq_4xx"]),
    (BackendFamily::Requests, "5xx", &["rq_5xx"]),
    (BackendFamily::Failures, "connect", &["cx_connect_fail"]),
    (
        BackendFamily::Failures,
        "timeout",
        &["rq_timeout", "rq_per_try_timeout"],
    ),
    (
        BackendFamily::Failures,
        "reset",
        &["rq_rx_reset", "cx_destroy_remote_with_active_rq"],
    ),
    (
        BackendFamily::Failures,
        "overflow",
        &["rq_pending_overflow"],
    ),
    (BackendFamily::Failures, "no_endpoint", &["cx_none_healthy"]),
    (BackendFamily::Retries, "", &["rq_retry"]),
    (BackendFamily::Sent, "", &["cx_tx_bytes_total"]),
    (BackendFamily::Received, "", &["cx_rx_bytes_total"]),
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackendTraffic {
    /// In the order of [`COUNTS`].
    pub(super) counts: [u64; COUNTS.len()],
    pub(super) requests_active: u64,
    pub(super) connections_active: u64,
}

impl BackendTraffic {
    /// Parses Envoy's response to `/stats`, and skips unrelated lines.
    pub(super) fn read(text: &str) -> BTreeMap<String, Self> {
        let mut all: BTreeMap<String, Self> = BTreeMap::new();
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(": ") else {
                continue;
            };
            let named = name
                .strip_prefix("cluster.")
                .and_then(|name| name.rsplit_once(".upstream_"));
            if let Some((cluster, counted)) = named
                && let Some(backend) = backend(cluster)
                && let Ok(value) = value.parse()
            {
                all.entry(backend).or_default().record(counted, value);
            }
        }
        all
    }

    fn record(&mut self, counted: &str, value: u64) {
        match counted {
            "rq_active" => self.requests_active += value,
            "cx_active" => self.connections_active += value,
            _ => {
                let position = COUNTS
                    .iter()
                    .position(|(_, _, endings)| endings.contains(&counted));
                if let Some(index) = position {
                    self.counts[index] += value;
                }
            }
        }
    }

    fn requests(counts: &[u64; COUNTS.len()]) -> u64 {
        let all = COUNTS.iter().zip(counts);
        all.filter(|((family, ..), _)| *family == BackendFamily::Requests)
            .map(|(_, count)| count)
            .sum()
    }

    /// A restarted Envoy counts from zero.
    fn since(&self, before: &[u64; COUNTS.len()]) -> [u64; COUNTS.len()] {
        std::array::from_fn(|index| {
            let now = self.counts[index];
            now.checked_sub(before[index]).unwrap_or(now)
        })
    }
}

/// A backend may have several clusters, for sessions or policies.
fn backend(cluster: &str) -> Option<String> {
    let mut parts = cluster.split('/');
    let first: Vec<&str> = parts.by_ref().take(4).collect();
    let [_, _, _, _] = first[..] else {
        return None;
    };
    let udp = parts.next().filter(|part| *part == "UDP");
    let all: Vec<&str> = first.into_iter().chain(udp).collect();
    Some(all.join("/"))
}

/// Persists across scrapes.
#[derive(Debug, Default)]
pub(super) struct BackendSeries {
    seen: BTreeMap<String, SeenBackend>,
    others: [u64; COUNTS.len()],
    begun: bool,
}

#[derive(Debug, Default)]
struct SeenBackend {
    counts: [u64; COUNTS.len()],
    /// Number of requests, weighted in favor of recent ones.
    weight: f64,
    /// True if the backend has its own series.
    shown: bool,
}

impl BackendSeries {
    /// Returns up to `most` backends, and one entry with the totals of all others.
    pub(super) fn update(
        &mut self,
        now: BTreeMap<String, BackendTraffic>,
        most: usize,
    ) -> Vec<(String, BackendTraffic)> {
        self.seen.retain(|name, _| now.contains_key(name));
        for (name, traffic) in &now {
            let seen = self.seen.entry(name.clone()).or_default();
            let new = traffic.since(&seen.counts);
            seen.counts = traffic.counts;
            seen.weight = seen.weight * MEMORY + weight(&new);
            // Requests before the first scrape are not added to the shared series.
            if self.begun && !seen.shown {
                for (sum, new) in self.others.iter_mut().zip(new) {
                    *sum += new;
                }
            }
        }
        self.begun = true;
        self.choose(most);
        let mut others = BackendTraffic {
            counts: self.others,
            ..BackendTraffic::default()
        };
        let mut series = Vec::new();
        let mut is_all = self.others == [0; COUNTS.len()];
        for (name, traffic) in now {
            if self.seen.get(&name).is_some_and(|seen| seen.shown) {
                series.push((name, traffic));
                continue;
            }
            is_all = false;
            others.requests_active += traffic.requests_active;
            others.connections_active += traffic.connections_active;
        }
        if !is_all {
            series.push((OTHERS.to_owned(), others));
        }
        series
    }

    fn choose(&mut self, most: usize) {
        let by_weight = |shown: bool| {
            let matching = self.seen.iter().filter(|(_, seen)| seen.shown == shown);
            let mut all: Vec<(f64, String)> = matching
                .map(|(name, seen)| (seen.weight, name.clone()))
                .collect();
            all.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
            all
        };
        let (mut shown, waiting) = (by_weight(true), by_weight(false));
        for (weight, name) in waiting {
            if shown.len() < most {
                shown.push((weight, name));
                shown.sort_by(|one, other| other.0.total_cmp(&one.0));
                continue;
            }
            match shown.last() {
                Some((least, _)) if weight > DISTANCE * least => {
                    shown.pop();
                    shown.insert(0, (weight, name));
                    shown.sort_by(|one, other| other.0.total_cmp(&one.0));
                }
                // The remaining backends have even fewer requests.
                _ => break,
            }
        }
        shown.truncate(most);
        let shown: BTreeSet<String> = shown.into_iter().map(|(_, name)| name).collect();
        for (name, seen) in &mut self.seen {
            seen.shown = shown.contains(name);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "weights are only compared, so they need not be exact"
)]
fn weight(counts: &[u64; COUNTS.len()]) -> f64 {
    BackendTraffic::requests(counts) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(requests: u64) -> BackendTraffic {
        let mut traffic = BackendTraffic::default();
        traffic.record("rq_2xx", requests);
        traffic.record("rq_active", 1);
        traffic
    }

    fn of(all: &[(&str, u64)]) -> BTreeMap<String, BackendTraffic> {
        let all = all.iter();
        all.map(|(name, requests)| ((*name).to_owned(), with(*requests)))
            .collect()
    }

    fn requests(series: &[(String, BackendTraffic)]) -> Vec<(&str, u64)> {
        let series = series.iter();
        series
            .map(|(name, traffic)| (name.as_str(), BackendTraffic::requests(&traffic.counts)))
            .collect()
    }

    #[test]
    fn clusters_of_envoy_become_backends() {
        let text = "cluster.Service/shop/cart/80.upstream_rq_2xx: 5\n\
                    cluster.Service/shop/cart/80/0a1b.upstream_rq_2xx: 2\n\
                    cluster.Service/shop/cart/80/endpoint-of-session.upstream_rq_per_try_timeout: 1\n\
                    cluster.Service/shop/cart/80.upstream_rq_timeout: 3\n\
                    cluster.Service/shop/cart/80.upstream_cx_active: 4\n\
                    cluster.Service/shop/dns/53/UDP.upstream_cx_tx_bytes_total: 9\n\
                    cluster.Service/shop/a.b/80.upstream_rq_retry: 7\n\
                    cluster.Service/shop/cart/80.upstream_rq_other: 9\n\
                    cluster.other.upstream_rq_2xx: 9\ncluster.Service/shop/cart/80.upstream_rq_2xx: x\n";
        let all = BackendTraffic::read(text);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "Service/shop/a.b/80",
                "Service/shop/cart/80",
                "Service/shop/dns/53/UDP"
            ]
        );
        let cart = &all["Service/shop/cart/80"];
        assert_eq!(cart.counts, [0, 7, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(cart.connections_active, 4);
        assert_eq!(all["Service/shop/dns/53/UDP"].counts[11], 9);
        assert_eq!(all["Service/shop/a.b/80"].counts[10], 7);
    }

    #[test]
    fn busiest_backends_have_series_and_others_never_decrease() {
        let mut series = BackendSeries::default();
        let shown = series.update(of(&[("a", 10), ("b", 30), ("c", 20), ("d", 1)]), 2);
        assert_eq!(requests(&shown), [("b", 30), ("c", 20), (OTHERS, 0)]);
        assert_eq!(shown[2].1.requests_active, 2);
        let shown = series.update(of(&[("a", 15), ("b", 30), ("c", 20), ("d", 2)]), 2);
        assert_eq!(requests(&shown), [("b", 30), ("c", 20), (OTHERS, 6)]);
        // `a` is now far busier than `c`.
        let shown = series.update(of(&[("a", 99), ("b", 30), ("c", 20), ("d", 2)]), 2);
        assert_eq!(requests(&shown), [("a", 99), ("b", 30), (OTHERS, 90)]);
        let shown = series.update(of(&[("a", 99), ("b", 30), ("c", 25), ("d", 2)]), 2);
        assert_eq!(requests(&shown), [("a", 99), ("b", 30), (OTHERS, 95)]);
        // A restarted Envoy counts from zero.
        let shown = series.update(of(&[("a", 3), ("c", 4), ("d", 1)]), 2);
        assert_eq!(requests(&shown), [("a", 3), ("c", 4), (OTHERS, 100)]);
    }

    #[test]
    fn without_places_all_are_others() {
        let mut series = BackendSeries::default();
        assert_eq!(requests(&series.update(of(&[("a", 10)]), 0)), [(OTHERS, 0)]);
        assert_eq!(requests(&series.update(of(&[("a", 12)]), 0)), [(OTHERS, 2)]);
        assert!(
            BackendSeries::default()
                .update(BTreeMap::new(), 5)
                .is_empty()
        );
    }
}
