//! Requests that policies rejected, or would reject if they did not only report.

use std::collections::BTreeMap;
use std::fmt;

use super::scrape::Scrape;
use super::writer::{Families, gateway_labels};
use sesame_envoy::admin::Sample;

/// Maximum number of policies per Gateway, in the order of their names.
const MAX_POLICIES: usize = 256;

/// Counted since the Envoy started, by policy and mode.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeniedRequests(BTreeMap<(String, &'static str), f64>);

impl DeniedRequests {
    /// `name` is the suffix of Envoy's metric name.
    pub(super) fn record(&mut self, name: &str, sample: &Sample<'_>) {
        let mode = match name {
            "policy_denied" => "Enforce",
            "reported__policy_shadow_denied" => "Report",
            _ => return,
        };
        let Some(rule) = sample.label("sesame_policy") else {
            return;
        };
        // Parts of a policy count together.
        let policy: Vec<&str> = rule.split('/').take(3).collect();
        *self.0.entry((policy.join("/"), mode)).or_default() += sample.value;
    }

    pub(super) fn series(&self) -> impl Iterator<Item = (&str, &'static str, f64)> {
        let series = self.0.iter().take(MAX_POLICIES);
        series.map(|((policy, mode), counted)| (policy.as_str(), *mode, *counted))
    }
}

impl Scrape {
    pub(super) fn denied(&self, families: &mut Families<'_>) -> fmt::Result {
        let denied = self.counted().flat_map(|(name, traffic)| {
            traffic.denied.series().map(|(policy, mode, counted)| {
                let mut labels = gateway_labels(name);
                labels.push(("policy", policy.to_owned()));
                labels.push(("mode", mode.to_owned()));
                (labels, counted)
            })
        });
        let help = "Requests that a policy's addresses or rules rejected, or would reject if its \
                    mode were not Report; for at most 256 policies per Gateway";
        families.counter("gateway_policy_denied_requests", help, denied)
    }
}
