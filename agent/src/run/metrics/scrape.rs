//! The values in a response to `GET /metrics`, and their rendering as text.

use std::collections::BTreeMap;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use sesame_gateway_api::expiry::{Expiry, ExpiryOf};

use super::backends::BackendTraffic;
use super::budgets::Budgets;
use super::counts::ApplyCounts;
use super::traffic::EnvoyTraffic;
use crate::run::observed::Observed;
use crate::run::report::Report;

#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) report: Report,
    pub(super) budgets: Budgets,
    pub(super) gateways: BTreeMap<String, GatewayFacts>,
}

/// Values of one Gateway that are not in the report.
#[derive(Debug, Default)]
pub(super) struct GatewayFacts {
    pub(super) counts: ApplyCounts,
    pub(super) held: bool,
    /// The key pairs' names and expiry times (Unix timestamps), earliest first.
    pub(super) certificates: Vec<(String, i64)>,
    /// Earliest expiry in each trust bundle, as a Unix timestamp.
    pub(super) authorities: BTreeMap<String, i64>,
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
        let mut authorities: BTreeMap<String, i64> = BTreeMap::new();
        for Expiry {
            name,
            of,
            not_before: _,
            not_after,
        } in served
        {
            match of {
                ExpiryOf::Leaf => certificates.push((name.clone(), *not_after)),
                ExpiryOf::Authority(_) | ExpiryOf::RevocationList(_) => {
                    let first = authorities.entry(name.clone()).or_insert(*not_after);
                    *first = (*first).min(*not_after);
                }
                ExpiryOf::Staple { .. } => {}
            }
        }
        certificates.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
        certificates.dedup();
        Self {
            counts: observed.counts.clone(),
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
