//! The values in a response to `GET /metrics`, and their rendering as text.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use sesame_kinds::expiry::ExpiryOf;

use super::backends::BackendTraffic;
use super::budgets::Budgets;
use super::counts::ApplyCounts;
use super::traffic::EnvoyTraffic;
use crate::observed::Observed;
use crate::passwords::PasswordCounts;
use crate::report::Report;

#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) report: Report,
    pub(super) budgets: Budgets,
    pub(super) gateways: BTreeMap<String, GatewayFacts>,
}

/// Unix timestamps of an item that expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExpiryTimes {
    pub(super) end: i64,
    /// Warnings are due from this time on.
    pub(super) warning: i64,
}

/// Values of one Gateway that are not in the report.
#[derive(Debug, Default)]
pub(super) struct GatewayFacts {
    pub(super) counts: ApplyCounts,
    pub(super) passwords: Arc<PasswordCounts>,
    pub(super) held: bool,
    /// Times and names of the key pairs, earliest expiry first.
    pub(super) certificates: Vec<(ExpiryTimes, String)>,
    /// Earliest times in each trust bundle.
    pub(super) authorities: BTreeMap<String, ExpiryTimes>,
    /// Backends with their own series, and then the sum of all others.
    pub(super) backends: Vec<(String, BackendTraffic)>,
    /// `None` if the Envoy did not respond.
    pub(super) traffic: Option<EnvoyTraffic>,
}

impl GatewayFacts {
    pub(super) fn of(
        observed: &Observed,
        traffic: Option<EnvoyTraffic>,
        backends: Vec<(String, BackendTraffic)>,
    ) -> Self {
        let served = observed.applied.iter().flat_map(|served| served.expiries());
        let mut certificates = Vec::new();
        let mut authorities: BTreeMap<String, ExpiryTimes> = BTreeMap::new();
        for expiry in served {
            let times = ExpiryTimes {
                end: expiry.not_after,
                warning: expiry.warns_from(),
            };
            match expiry.of {
                ExpiryOf::Leaf => certificates.push((times, expiry.name.clone())),
                ExpiryOf::Authority(_) | ExpiryOf::RevocationList(_) => {
                    let first = authorities.entry(expiry.name.clone()).or_insert(times);
                    first.end = first.end.min(times.end);
                    first.warning = first.warning.min(times.warning);
                }
                ExpiryOf::Staple { .. } => {}
            }
        }
        certificates.sort();
        certificates.dedup();
        Self {
            counts: observed.counts.clone(),
            passwords: Arc::clone(&observed.passwords),
            held: observed.held.is_some(),
            certificates,
            authorities,
            backends,
            traffic,
        }
    }
}

impl Scrape {
    /// Returns OpenMetrics if `open` is true, or else the older Prometheus format.
    pub(super) fn text(self, open: bool) -> String {
        let mut registry = Registry::with_prefix("sesame");
        registry.register_collector(Box::new(self));
        let mut written = String::new();
        match text::encode(&mut written, &registry) {
            Ok(()) if open => written,
            Ok(()) => plain(&written),
            // Writing to a String cannot fail.
            Err(error) => format!("# {error}\n"),
        }
    }
}

/// The older format adds `_total` to counter names in `# HELP` and `# TYPE` lines, and has no end
/// marker.
fn plain(open: &str) -> String {
    let mut counters: Vec<&str> = open
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    counters.sort_unstable();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        let comment = line
            .strip_prefix("# ")
            .and_then(|rest| rest.split_once(' '))
            .and_then(|(word, rest)| Some((word, rest.split_once(' ')?)));
        match comment {
            Some((word, (name, rest))) if counters.binary_search(&name).is_ok() => {
                text.extend(["# ", word, " ", name, "_total ", rest, "\n"]);
            }
            _ => text.extend([line, "\n"]),
        }
    }
    text
}
