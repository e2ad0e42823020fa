//! Counts traffic while a rollout compares hosts. At other times, Envoy is not asked.
//!
//! Only counters that a bad configuration changes and clients rarely do:
//!
//! - Clients cause no `upstream_` counter of these. If a client aborts a request, Envoy counts that it
//!   closed the stream itself. These counters also show truncated responses and failed gRPC calls,
//!   which have status 200.
//! - Envoy counts a connection that ends without a handshake, such as a health check, in no `ssl.`
//!   counter. `connection_error` excludes rejected client certificates, and neither includes names
//!   for which no listener exists. `no_filter_chain_match` counts these, also if a scanner sends
//!   them.
//! - `upstream_cx_destroy_remote_with_active_rq` counts connections, not streams.
//! - Mirrored requests count too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{ADMIN_ANSWER, Serving};
use sesame_proto::rollout::HostTraffic;

const INTERVAL: Duration = Duration::from_secs(10);
/// The bootstrap configures which counters Envoy keeps.
const COUNTERS: &str = r"^http\.[a-z0-9]+-[0-9]+\.downstream_rq_[1-5]xx$|^cluster\..*/[^./]+\.upstream_(rq_rx_reset|rq_timeout|cx_destroy_remote_with_active_rq)$|^listener\.[^/]+\.(no_filter_chain_match|ssl\.(handshake|connection_error|fail_verify_[a-z_]+))$";

#[derive(Debug, Default)]
pub(super) struct TrafficCounter {
    due: Option<Instant>,
    last: Option<HashMap<String, u64>>,
}

impl Serving {
    pub(super) fn traffic_due(&self) -> Option<Instant> {
        self.traffic.due.filter(|_| self.state.is_live())
    }

    pub(super) async fn count_traffic_if_due(&mut self) {
        if !self.selector.is_compared() {
            if self.traffic.due.is_some() {
                self.traffic = TrafficCounter::default();
                self.record_traffic(None);
            }
            return;
        }
        let now = Instant::now();
        if !self.state.is_live() {
            // An old interval must not count as new traffic.
            self.record_traffic(None);
            return;
        }
        if self.traffic.due.is_some_and(|due| due > now) {
            return;
        }
        self.traffic.due = Some(now + INTERVAL);
        let admin = self.supervisor.admin().with_timeout(ADMIN_ANSWER);
        match admin.counters(COUNTERS).await {
            Ok(counters) => {
                let before = self.traffic.last.as_ref();
                let traffic = before.map(|before| since(before, &counters));
                self.traffic.last = Some(counters);
                self.record_traffic(traffic);
            }
            Err(error) => {
                tracing::debug!(%error, "Envoy did not report its traffic");
                self.record_traffic(None);
            }
        }
    }

    fn record_traffic(&self, traffic: Option<HostTraffic>) {
        self.instance.observed.send_if_modified(|observed| {
            let is_new = observed.traffic != traffic;
            observed.traffic = traffic;
            is_new
        });
    }
}

/// A new Envoy or cluster starts counting at zero.
fn since(before: &HashMap<String, u64>, now: &HashMap<String, u64>) -> HostTraffic {
    let mut traffic = HostTraffic::default();
    let mut resets = 0;
    for (name, total) in now {
        let before = before.get(name).copied().unwrap_or_default();
        let count = total.checked_sub(before).unwrap_or(*total);
        match name.rsplit('.').next().unwrap_or_default() {
            "downstream_rq_5xx" => {
                traffic.requests += count;
                traffic.errors += count;
            }
            name if name.starts_with("downstream_") => traffic.requests += count,
            name if name.starts_with("upstream_") => resets += count,
            "handshake" => traffic.handshakes += count,
            _ => {
                traffic.handshakes += count;
                traffic.failed_handshakes += count;
            }
        }
    }
    traffic.resets = Some(resets);
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(all: &[(&str, u64)]) -> HashMap<String, u64> {
        let all = all.iter();
        all.map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn interval_starts_anew_with_new_envoy() {
        let ok = "http.http-80.downstream_rq_2xx";
        let reset = "cluster.Service/ns/app/80.upstream_rq_rx_reset";
        let count = |before: &[_], now: &[_]| {
            let traffic = since(&counters(before), &counters(now));
            (traffic.requests, traffic.resets)
        };
        assert_eq!(count(&[(ok, 10)], &[(ok, 30), (reset, 3)]), (20, Some(3)));
        assert_eq!(count(&[(ok, 10), (reset, 3)], &[(ok, 4)]), (4, Some(0)));
    }

    /// The names are recorded from a real Envoy.
    #[test]
    fn counters_are_assigned_to_signals() {
        let now = counters(&[
            ("http.https-443.downstream_rq_2xx", 5),
            ("http.https-443.downstream_rq_5xx", 2),
            ("cluster.Service/ns/a/80.upstream_rq_rx_reset", 1),
            ("cluster.Service/ns/a/80.upstream_rq_timeout", 1),
            (
                "cluster.Service/ns/a/80.upstream_cx_destroy_remote_with_active_rq",
                1,
            ),
            ("listener.127.0.0.1_443.ssl.handshake", 9),
            ("listener.127.0.0.1_443.ssl.connection_error", 1),
            ("listener.127.0.0.1_443.ssl.fail_verify_no_cert", 1),
            ("listener.127.0.0.1_443.ssl.fail_verify_error", 1),
            ("listener.[__1]_443.no_filter_chain_match", 1),
        ]);
        let traffic = HostTraffic {
            requests: 7,
            errors: 2,
            resets: Some(3),
            handshakes: 13,
            failed_handshakes: 4,
        };
        assert_eq!(since(&HashMap::new(), &now), traffic);
    }
}
