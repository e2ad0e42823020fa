//! The result of a comparison. Scripts read it as JSON, so never remove or rename fields.
//!
//! Never contains a query, or the value of a header that may be secret.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use sesame_proto::terminal::counted;

use super::differences::{AnswerDifference, DifferenceCause};
use super::requests::LeftOut;

/// Maximum number of groups while comparing, because gateways choose their texts.
const MAX_GROUPS: usize = 10_000;
/// Maximum number of groups in a report.
const MAX_LISTED: usize = 100;
const MAX_EXAMPLES: usize = 3;

/// Requests that two gateways answer differently.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompareReport {
    /// Number of requests that were sent to both gateways.
    pub(super) requests: u64,
    /// Number of requests with at least one difference.
    pub(super) different: u64,
    /// Number of requests with a difference that is not counted, because the old gateway's own
    /// answers differ in the same way.
    pub(super) unstable: u64,
    /// Number of requests that neither gateway answers.
    pub(super) unanswered: u64,
    /// Why the old gateway did not answer one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) example_failure: Option<String>,
    /// Logged requests that were not sent as they are.
    pub(super) left_out: LeftOut,
    /// Differences, the largest group first.
    pub(super) groups: Vec<DifferenceGroup>,
    /// Number of differences that are not in a listed group.
    pub(super) omitted: u64,
}

/// Requests whose answers differ in the same way.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DifferenceGroup {
    pub(super) cause: DifferenceCause,
    pub(super) requests: u64,
    pub(super) old: String,
    pub(super) new: String,
    /// Up to three requests, with both values if they may depend on the request.
    pub(super) examples: Vec<String>,
}

/// Counts differences. The result does not depend on the order in which answers arrive.
#[derive(Debug, Default)]
pub(super) struct DifferenceTally {
    groups: BTreeMap<(DifferenceCause, String, String), GroupTally>,
    pub(super) report: CompareReport,
}

#[derive(Debug, Default)]
struct GroupTally {
    requests: u64,
    /// By index of the request.
    examples: BTreeMap<usize, String>,
}

impl DifferenceTally {
    /// Adds the differences of the request with index `at`.
    pub(super) fn add(&mut self, at: usize, request: &str, differences: Vec<AnswerDifference>) {
        self.report.different += u64::from(!differences.is_empty());
        for difference in differences {
            let AnswerDifference {
                cause,
                header: _,
                old,
                new,
                values,
            } = difference;
            let key = (cause, old, new);
            if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
                self.report.omitted += 1;
                continue;
            }
            let GroupTally { requests, examples } = self.groups.entry(key).or_default();
            *requests += 1;
            let values = values.map(|it| format!(" ({it})")).unwrap_or_default();
            examples.insert(at, format!("{request}{values}"));
            if examples.len() > MAX_EXAMPLES {
                examples.pop_last();
            }
        }
    }

    pub(super) fn finish(self) -> CompareReport {
        let mut report = self.report;
        let groups = self.groups.into_iter();
        let groups = groups.map(|((cause, old, new), group)| DifferenceGroup {
            cause,
            requests: group.requests,
            old,
            new,
            examples: group.examples.into_values().collect(),
        });
        let mut groups: Vec<DifferenceGroup> = groups.collect();
        groups.sort_by_key(|it| std::cmp::Reverse(it.requests));
        let unlisted = groups.split_off(groups.len().min(MAX_LISTED));
        report.omitted += unlisted.iter().map(|it| it.requests).sum::<u64>();
        report.groups = groups;
        report
    }
}

pub(super) fn compare_text(report: &CompareReport) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for group in &report.groups {
        let DifferenceGroup {
            cause,
            requests,
            old,
            new,
            examples,
        } = group;
        let _ = writeln!(text, "{cause}: {}", counted(*requests, "request"));
        for example in examples {
            let _ = writeln!(text, "    for example {example}");
        }
        let _ = writeln!(text, "    - {old}\n    + {new}");
    }
    if report.omitted > 0 {
        let omitted = counted(report.omitted, "more difference");
        let _ = writeln!(text, "{omitted} in smaller groups");
    }
    let total = counted(report.requests, "different request");
    let _ = match report.different {
        0 => writeln!(text, "{total}: all are answered equally"),
        different => writeln!(text, "{total}: {different} answered differently"),
    };
    for note in notes(report) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn notes(report: &CompareReport) -> Vec<String> {
    let counts = [
        (
            report.unstable,
            "with a difference that is not counted: the old gateway's own answers vary",
        ),
        (report.unanswered, "without an answer from either gateway"),
    ];
    let mut notes = counted_notes(&counts);
    notes.extend(left_out_notes(&report.left_out));
    notes
}

/// Says which logged requests are not sent as they are.
pub(super) fn left_out_notes(left_out: &LeftOut) -> Vec<String> {
    let LeftOut {
        secret_headers,
        secret_parameters,
        unsafe_methods,
        other_scheme,
        beyond_limit,
        unreadable,
    } = left_out;
    let mut notes = counted_notes(&[
        (
            *secret_headers,
            "sent without headers that may be secret, such as Authorization and Cookie",
        ),
        (
            *secret_parameters,
            "sent without parameters that look like secrets",
        ),
        (
            *unsafe_methods,
            "not sent because of the method; --all-methods sends most of them",
        ),
        (
            *other_scheme,
            "not sent because the log has another scheme than the old URL",
        ),
        (*beyond_limit, "not sent because of --limit"),
    ]);
    notes.extend((unreadable.count > 0).then(|| unreadable.to_string()));
    notes
}

fn counted_notes(counts: &[(u64, &str)]) -> Vec<String> {
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let notes = counts.map(|(count, note)| format!("{} {note}", counted(*count, "request")));
    notes.collect()
}
