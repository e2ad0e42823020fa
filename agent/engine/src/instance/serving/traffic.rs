//! Counts requests while a rollout compares hosts. At other times, Envoy is not asked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{ADMIN_ANSWER, Serving};
use crate::observed::CountedTraffic;

const INTERVAL: Duration = Duration::from_secs(10);
const COUNTERS: &str = r"^http\.[a-z0-9]+-[0-9]+\.downstream_rq_[1-5]xx$";

#[derive(Debug, Default)]
pub(super) struct TrafficCounter {
    due: Option<Instant>,
    last: Option<CountedTraffic>,
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
        let is_due = self.traffic.due.is_none_or(|due| due <= now);
        if !is_due || !self.state.is_live() {
            return;
        }
        self.traffic.due = Some(now + INTERVAL);
        let admin = self.supervisor.admin().with_timeout(ADMIN_ANSWER);
        match admin.counters(COUNTERS).await {
            Ok(counters) => {
                let total = total(&counters);
                let before = self.traffic.last.replace(total);
                self.record_traffic(before.map(|before| since(before, total)));
            }
            Err(error) => tracing::debug!(%error, "Envoy did not report its requests"),
        }
    }

    fn record_traffic(&self, traffic: Option<CountedTraffic>) {
        self.instance.observed.send_if_modified(|observed| {
            let is_new = observed.traffic != traffic;
            observed.traffic = traffic;
            is_new
        });
    }
}

fn total(counters: &HashMap<String, u64>) -> CountedTraffic {
    let errors = counters.iter().filter(|(name, _)| name.ends_with("_5xx"));
    CountedTraffic {
        requests: counters.values().sum(),
        errors: errors.map(|(_, count)| count).sum(),
    }
}

/// A new Envoy starts counting at zero.
fn since(before: CountedTraffic, now: CountedTraffic) -> CountedTraffic {
    if now.requests < before.requests {
        return now;
    }
    CountedTraffic {
        requests: now.requests - before.requests,
        errors: now.errors.saturating_sub(before.errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_starts_anew_with_new_envoy() {
        let traffic = |requests, errors| CountedTraffic { requests, errors };
        assert_eq!(since(traffic(10, 1), traffic(30, 4)), traffic(20, 3));
        assert_eq!(since(traffic(10, 1), traffic(3, 2)), traffic(3, 2));
        let counters = [("http.http-80.downstream_rq_2xx", 5), ("x_5xx", 2)];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(total(&counters.into()), traffic(7, 2));
    }
}
