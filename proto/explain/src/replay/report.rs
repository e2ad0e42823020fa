//! The result of a replay. Scripts read it as JSON, so never remove or rename fields.
//!
//! Never contains a header value or a query.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use sesame_proto::terminal::counted;

/// Maximum number of groups in a report.
const MAX_LISTED: usize = 100;
/// Maximum number of unreadable lines that a report lists.
const MAX_UNREADABLE: usize = 5;
pub(super) const MAX_EXAMPLES: usize = 3;

/// Requests of a log that two configurations handle differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// Number of requests in the log.
    pub requests: u64,
    /// Number of requests that are handled differently.
    pub changed: u64,
    /// Number of requests whose responses are described alike, although settings of the route, a
    /// policy or a backend differ.
    #[serde(default)]
    pub other_settings: u64,
    /// Number of requests whose responses are described alike, although checks or limits differ.
    #[serde(default)]
    pub other_protection: u64,
    /// Number of requests that get no response from either configuration.
    pub unanswered: u64,
    /// Number of requests for which neither configuration has a route.
    #[serde(default)]
    pub unrouted: u64,
    /// Number of requests that the old configuration does not send to the route that the log names.
    pub rerouted: u64,
    /// Number of lines about TCP, TLS and UDP connections, which are not compared.
    pub connections: u64,
    /// Lines that cannot be read.
    pub unreadable: UnreadableLines,
    /// Requests that are handled differently, by outcome; the largest group first.
    pub groups: Vec<ReplayedGroup>,
    /// Number of changed requests that are not in a listed group.
    pub omitted: u64,
    /// Parts of requests that affect responses, but are missing from the log.
    pub notes: Vec<String>,
}

/// Requests with the same old and the same new outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedGroup {
    /// Number of requests.
    pub requests: u64,
    /// The old response to the first example.
    pub before: String,
    /// The new response to the first example.
    pub after: String,
    /// Up to three different requests, without their queries.
    pub examples: Vec<String>,
}

/// Lines that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadableLines {
    /// Number of lines.
    pub count: u64,
    /// The first of these lines.
    pub first: Vec<UnreadableLine>,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadableLine {
    /// Number of the line, or of the entry of a HAR document. The first is 1.
    pub line: u64,
    /// The reason.
    pub reason: String,
}

impl UnreadableLines {
    /// Adds a line.
    pub fn record(&mut self, line: u64, reason: &str) {
        self.count += 1;
        if self.first.len() < MAX_UNREADABLE {
            let reason = reason.to_owned();
            self.first.push(UnreadableLine { line, reason });
        }
    }

    fn add(&mut self, other: Self) {
        let Self { count, first } = other;
        self.count += count;
        self.first.extend(first);
        self.first.sort_by_key(|it| it.line);
        self.first.truncate(MAX_UNREADABLE);
    }
}

impl ReplayReport {
    /// Returns true if no request is handled or protected differently, as far as it is compared.
    pub fn is_same(&self) -> bool {
        self.changed == 0 && self.other_protection == 0
    }

    /// Adds the counts of another part of the log. Neither report has groups yet.
    pub(super) fn add(&mut self, other: Self) {
        let Self {
            requests,
            changed,
            other_settings,
            other_protection,
            unanswered,
            unrouted,
            rerouted,
            connections,
            unreadable,
            groups: _,
            omitted: _,
            notes: _,
        } = other;
        self.requests += requests;
        self.changed += changed;
        self.other_settings += other_settings;
        self.other_protection += other_protection;
        self.unanswered += unanswered;
        self.unrouted += unrouted;
        self.rerouted += rerouted;
        self.connections += connections;
        self.unreadable.add(unreadable);
    }

    pub(super) fn list(&mut self, mut groups: Vec<ReplayedGroup>) {
        groups.sort_by(|a, b| {
            let by_size = b.requests.cmp(&a.requests);
            by_size.then_with(|| (&a.before, &a.after).cmp(&(&b.before, &b.after)))
        });
        groups.truncate(MAX_LISTED);
        let listed: u64 = groups.iter().map(|it| it.requests).sum();
        self.omitted = self.changed.saturating_sub(listed);
        self.groups = groups;
    }
}

/// Formats a report. `plain` must remove control characters that terminals would interpret.
pub fn replay_text(report: &ReplayReport, plain: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for group in &report.groups {
        let ReplayedGroup {
            requests,
            before,
            after,
            examples,
        } = group;
        let _ = writeln!(text, "{}", counted(*requests, "request"));
        for example in examples {
            let _ = writeln!(text, "    for example {}", plain(example));
        }
        let _ = writeln!(text, "    - {}\n    + {}", plain(before), plain(after));
    }
    if report.omitted > 0 {
        let omitted = counted(report.omitted, "more request");
        let _ = writeln!(text, "{omitted} in smaller groups");
    }
    let total = counted(report.requests, "request");
    let _ = match report.changed {
        0 if report.other_settings + report.other_protection > 0 => {
            writeln!(text, "{total}: found no different response")
        }
        0 => writeln!(text, "{total}: none is handled differently"),
        changed => writeln!(text, "{total}: {changed} handled differently"),
    };
    for note in all_notes(report) {
        let _ = writeln!(text, "note: {}", plain(&note));
    }
    text
}

fn all_notes(report: &ReplayReport) -> Vec<String> {
    let ReplayReport {
        requests: _,
        changed: _,
        other_settings,
        other_protection,
        unanswered,
        unrouted,
        rerouted,
        connections,
        unreadable,
        groups: _,
        omitted: _,
        notes,
    } = report;
    let counts = [
        (
            *other_protection,
            "request",
            "whose checks or limits differ, such as authorization rules or rate limits",
        ),
        (
            *other_settings,
            "request",
            "whose route, policies or backends have other settings that are not compared, such as \
             keys or load balancing",
        ),
        (
            *unanswered,
            "request",
            "without a response from either configuration",
        ),
        (
            *unrouted,
            "request",
            "without a route in either configuration",
        ),
        (
            *rerouted,
            "request",
            "for which the log names another route than the old configuration; the log may be \
             older, or lack what selected the route",
        ),
        (
            *connections,
            "line",
            "about connections, which are not compared",
        ),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts = counts.map(|(count, what, note)| format!("{} {note}", counted(count, what)));
    let unreadable = (unreadable.count > 0).then(|| unreadable.to_string());
    counts
        .chain(notes.iter().cloned())
        .chain(unreadable)
        .collect()
}

impl fmt::Display for UnreadableLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, first } = self;
        let reasons = first.iter();
        let reasons =
            reasons.map(|UnreadableLine { line, reason }| format!("line {line}: {reason}"));
        let reasons: Vec<String> = reasons.collect();
        let more = if *count > first.len() as u64 {
            "; …"
        } else {
            ""
        };
        let lines = counted(*count, "line");
        write!(f, "{lines} unreadable: {}{more}", reasons.join("; "))
    }
}
