//! Counts requests by route, backend and endpoint.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::processor::ProcessorUse;
use super::stages::StageTimes;
use super::{Grouping, RowOrder};
use sesame_envoy::access_log::LogEntry;

/// Maximum number of names. Further names are counted together as `OTHERS`.
const MAX_NAMES: usize = 10_000;
const OTHERS: &str = "other";
const NONE: &str = "none";

#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    counts: BTreeMap<Grouping, BTreeMap<String, TopCounts>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopCounts {
    /// Passed-through connections count as requests.
    pub(super) requests: u64,
    /// Indexed by the status code's first digit, or 0 if the client disconnected.
    pub(super) classes: [u64; 6],
    pub(super) retried: u64,
    /// Requests by duration in milliseconds, rounded down to three significant digits. Empty if
    /// unknown.
    pub(super) durations: BTreeMap<u64, u64>,
    pub(super) stages: StageTimes,
    /// Requests by Envoy's response flag, or by the failure reason in the metrics.
    pub(super) flags: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn record(&mut self, entry: &LogEntry, groupings: &[Grouping]) {
        for grouping in groupings {
            let name = match grouping {
                Grouping::Route => entry.route.as_deref().map(route),
                Grouping::Backend => entry.backend.as_deref(),
                Grouping::Endpoint => entry.backend_address.as_deref(),
            };
            let name = name.filter(|name| !name.is_empty() && *name != "-");
            self.entry(*grouping, name.unwrap_or(NONE)).record(entry);
        }
    }

    pub(super) fn entry(&mut self, grouping: Grouping, name: &str) -> &mut TopCounts {
        let names = self.counts.entry(grouping).or_default();
        let is_new = !names.contains_key(name);
        let name = if is_new && names.len() >= MAX_NAMES {
            OTHERS
        } else {
            name
        };
        names.entry(name.to_owned()).or_default()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (grouping, names) in &other.counts {
            for (name, counts) in names {
                self.entry(*grouping, name).add(counts);
            }
        }
    }

    pub(super) fn rows(&self, grouping: Grouping, seconds: f64, order: RowOrder) -> Vec<TopRow> {
        let names = self.counts.get(&grouping).into_iter().flatten();
        let mut rows: Vec<TopRow> = names
            .map(|(name, counts)| TopRow::of(name, counts, seconds))
            .collect();
        let rank = |row: &TopRow| match order {
            RowOrder::Requests => Some(row.requests),
            RowOrder::P99 => row.p99_ms,
            RowOrder::Longest => row.longest_ms,
        };
        rows.sort_by(|one, other| {
            let more = rank(other).cmp(&rank(one));
            let busier = more.then_with(|| other.requests.cmp(&one.requests));
            busier.then_with(|| one.name.cmp(&other.name))
        });
        rows
    }
}

impl TopCounts {
    fn record(&mut self, entry: &LogEntry) {
        self.requests += 1;
        self.retried += u64::from(entry.attempts.is_some_and(|attempts| attempts > 1));
        if let Some(status) = entry.status
            && let Some(class) = self.classes.get_mut(usize::from(status / 100))
        {
            *class += 1;
        }
        if let Some(took) = entry.duration_ms {
            *self.durations.entry(rounded(took)).or_default() += 1;
        }
        self.stages.record(entry);
        for flag in entry.flags() {
            // Limit the memory use in case the log is corrupt. Envoy has only a few dozen flags.
            if self.flags.len() < 100 || self.flags.contains_key(flag) {
                *self.flags.entry(flag.to_owned()).or_default() += 1;
            }
        }
    }

    fn add(&mut self, other: &Self) {
        let Self {
            requests,
            classes,
            retried,
            durations,
            stages,
            flags,
        } = other;
        self.requests += requests;
        self.retried += retried;
        for (sum, more) in self.classes.iter_mut().zip(classes) {
            *sum += more;
        }
        for (took, count) in durations {
            *self.durations.entry(*took).or_default() += count;
        }
        self.stages.add(stages);
        for (flag, count) in flags {
            *self.flags.entry(flag.clone()).or_default() += count;
        }
    }

    fn quantile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.durations.values().sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut up_to = 0;
        let mut durations = self.durations.iter();
        durations.find_map(|(took, count)| {
            up_to += count;
            (up_to >= rank).then_some(*took)
        })
    }
}

/// Rounds down to three significant digits, which limits the number of distinct values.
fn rounded(took: u64) -> u64 {
    let mut step = 1;
    while took / step >= 1000 {
        step *= 10;
    }
    took / step * step
}

/// Returns `HTTPRoute/shop/cart` for `HTTPRoute/shop/cart/rules/0/matches/0`.
fn route(name: &str) -> &str {
    let end = name.match_indices('/').nth(2).map(|(end, _)| end);
    end.map_or(name, |end| &name[..end])
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopReport {
    /// `accessLog` or `metrics`.
    pub(super) source: &'static str,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) seconds: f64,
    pub(super) envoys: Vec<ProcessorUse>,
    pub(super) rows: BTreeMap<Grouping, Vec<TopRow>>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopRow {
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) per_second: f64,
    /// Excludes passed-through connections and disconnected clients, which have no status.
    pub(super) classes: BTreeMap<String, u64>,
    pub(super) retried: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) longest_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stages_ms: Option<StageTimes>,
    pub(super) flags: BTreeMap<String, u64>,
}

impl TopRow {
    fn of(name: &str, counts: &TopCounts, seconds: f64) -> Self {
        let classes = (1..).zip(&counts.classes[1..]);
        let classes = classes.filter(|(_, count)| **count > 0);
        Self {
            name: name.to_owned(),
            requests: counts.requests,
            per_second: rate(counts.requests, seconds),
            classes: classes
                .map(|(class, count)| (format!("{class}xx"), *count))
                .collect(),
            retried: counts.retried,
            p50_ms: counts.quantile(50),
            p99_ms: counts.quantile(99),
            longest_ms: counts.durations.keys().next_back().copied(),
            stages_ms: counts.stages.longest().map(|_| counts.stages),
            flags: counts.flags.clone(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a displayed rate need not be exact"
)]
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        (count as f64 / seconds * 1000.0).round() / 1000.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(route: &str, status: u16, took: u64) -> LogEntry {
        LogEntry {
            route: Some(route.to_owned()),
            status: Some(status),
            duration_ms: Some(took),
            attempts: Some(u64::from(status == 503) + 1),
            response_flags: Some(if status == 503 { "UO" } else { "-" }.to_owned()),
            ..LogEntry::default()
        }
    }

    #[test]
    fn route_matches_are_summed_and_sorted_busiest_first() {
        let mut tally = Tally::default();
        for took in 1..=99 {
            tally.record(
                &entry("HTTPRoute/a/b/rules/0/matches/1", 200, took),
                &[Grouping::Route],
            );
        }
        let mut later = Tally::default();
        later.record(
            &entry("HTTPRoute/a/b/rules/1", 503, 12_345),
            &[Grouping::Route],
        );
        later.record(&entry("-", 404, 0), &[Grouping::Route]);
        tally.add(&later);
        let rows = tally.rows(Grouping::Route, 10.0, RowOrder::Requests);
        let names =
            |rows: &[TopRow]| -> Vec<String> { rows.iter().map(|row| row.name.clone()).collect() };
        assert_eq!(names(&rows), ["HTTPRoute/a/b", NONE]);
        let mut slow = tally.clone();
        slow.record(
            &entry("HTTPRoute/slow/c/rules/0", 200, 20_000),
            &[Grouping::Route],
        );
        let slow = slow.rows(Grouping::Route, 10.0, RowOrder::P99);
        assert_eq!(names(&slow), ["HTTPRoute/slow/c", "HTTPRoute/a/b", NONE]);
        let row = &rows[0];
        let quantiles = (row.p50_ms, row.p99_ms, row.longest_ms);
        assert_eq!(quantiles, (Some(50), Some(99), Some(12_300)));
        assert_eq!(row.per_second.to_string(), "10");
        assert_eq!((row.classes["2xx"], row.classes["5xx"]), (99, 1));
        assert_eq!((row.retried, row.flags["UO"]), (1, 1));
        assert!(
            tally
                .rows(Grouping::Backend, 10.0, RowOrder::Requests)
                .is_empty()
        );
    }

    #[test]
    fn names_are_bounded() {
        let mut tally = Tally::default();
        for number in 0..MAX_NAMES + 5 {
            tally
                .entry(Grouping::Endpoint, &number.to_string())
                .requests += 1;
        }
        let rows = tally.rows(Grouping::Endpoint, 1.0, RowOrder::Requests);
        assert_eq!(rows.len(), MAX_NAMES + 1);
        assert_eq!((rows[0].name.as_str(), rows[0].requests), (OTHERS, 5));
    }
}
