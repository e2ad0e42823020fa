//! Formats the status as text. The `output` module strips colors if standard output is not a
//! terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{Table, presets};

use super::conditions::{conditions, is_wrong};
use super::selection::Selection;
use super::summary::{self, counted};
use sesame_engine::report::{ObjectReport, Report, RetainedReport};
use sesame_kinds::status::AgentState;
use sesame_proto::digest::short;
use sesame_sources::problem::Severity;

/// Maximum number of objects with problems to list per kind, unless the kind is selected.
const MAX_LISTED: usize = 20;

pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(super) const WRONG: Style = AnsiColor::Red.on_default();

/// Ignores write errors, because writing to a String cannot fail.
pub(super) fn text(report: &Report, selection: &Selection) -> String {
    let mut text = String::new();
    if selection.is_everything() {
        headline(report, &mut text);
    }
    let wrong = wrong(report, selection);
    if !wrong.is_empty() {
        let _ = writeln!(text, "{wrong}");
    }
    if selection.is_everything() {
        advice(report, &mut text);
    }
    if !selection.names_objects() {
        let _ = writeln!(text, "{}", gateways(report));
        let available = if report.source.available {
            "available"
        } else {
            "not available"
        };
        let _ = writeln!(text, "source: {}, {available}\n", report.source.title());
    }
    let shown = report.objects.iter();
    let shown: Vec<_> = shown.filter(|o| selection.shows_all_of(o)).collect();
    if !shown.is_empty() {
        let _ = writeln!(text, "{}", objects(&shown));
    }
    if report.objects.is_empty() {
        text.push_str("no objects\n");
    }
    for line in summary::lines(report) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn headline(report: &Report, text: &mut String) {
    if report.healthy {
        let _ = writeln!(text, "{GOOD}healthy{GOOD:#}\n");
        return;
    }
    let _ = writeln!(text, "{WRONG}not healthy:{WRONG:#}");
    for reason in &report.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    text.push('\n');
}

fn advice(report: &Report, text: &mut String) {
    for warning in &report.warnings {
        let _ = writeln!(text, "{WARNING}warning:{WARNING:#} {warning}");
    }
    for hint in &report.hints {
        let _ = writeln!(text, "hint: {hint}");
    }
    let mut retained = false;
    for gateway in &report.gateways {
        for RetainedReport {
            bundle,
            subject,
            serial,
            until,
        } in &gateway.retained
        {
            retained = true;
            let name = &gateway.gateway;
            let _ = writeln!(
                text,
                "in rotation: Gateway {name}: {subject} (serial {serial}) was removed from {bundle}, but is trusted until {until}"
            );
        }
    }
    if !report.warnings.is_empty() || !report.hints.is_empty() || retained {
        text.push('\n');
    }
}

fn wrong(report: &Report, selection: &Selection) -> String {
    let mut text = String::new();
    let problems = report.source.problems.iter();
    for problem in problems.filter(|problem| selection.concerns(problem, report)) {
        let place = match (problem.file.as_str(), problem.line) {
            ("", _) => String::new(),
            (file, 0) => format!("{file}: "),
            (file, line) => format!("{file}:{line}: "),
        };
        let object = problem.object.as_deref();
        let object = object.map_or_else(String::new, |object| format!("{object}: "));
        let severity = problem.severity;
        let style = match severity {
            Severity::Error => WRONG,
            Severity::Warning => WARNING,
        };
        let message = &problem.message;
        let _ = writeln!(text, "{style}{severity}{style:#}: {place}{object}{message}");
    }
    if !selection.names_objects() {
        for gateway in &report.gateways {
            for refused in &gateway.refused {
                let since = refused.since;
                let _ = writeln!(
                    text,
                    "{WRONG}error{WRONG:#}: Envoy rejects {refused} (since {since})"
                );
            }
            for words in &gateway.refusal {
                let name = &gateway.gateway;
                let _ = writeln!(
                    text,
                    "{WRONG}error{WRONG:#}: Envoy rejects the newest change to {name}: {words}"
                );
            }
        }
    }
    faults(report, selection, &mut text);
    text
}

fn faults(report: &Report, selection: &Selection, text: &mut String) {
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for object in report.objects.iter().filter(|object| is_wrong(object)) {
        let count = listed.entry(object.kind.as_str()).or_default();
        *count += 1;
        if *count > MAX_LISTED && !selection.all && !selection.names_kind(&object.kind) {
            continue;
        }
        for condition in conditions(object).iter().filter(|c| c.is_fault()) {
            let section = if condition.section.is_empty() {
                String::new()
            } else {
                format!(" ({})", condition.section)
            };
            let _ = writeln!(
                text,
                "{WRONG}{} {}{WRONG:#}{section}: {}={} {}: {}",
                object.kind,
                name(object),
                condition.type_,
                condition.status,
                condition.reason,
                condition.message
            );
        }
    }
    for (kind, count) in listed {
        let more = count.saturating_sub(MAX_LISTED);
        if more > 0 && !selection.all && !selection.names_kind(kind) {
            let _ = writeln!(
                text,
                "… and {} with problems; for all, run `sesame-agent status {}`",
                counted(more, kind),
                kind.to_ascii_lowercase()
            );
        }
    }
}

fn gateways(report: &Report) -> String {
    let header = [
        "GATEWAY",
        "STATE",
        "ADDRESSES",
        "PORTS",
        "WANTED",
        "APPLIED",
        "ENVOY",
    ];
    let rows = report.gateways.iter().map(|gateway| {
        let envoy = &gateway.envoy;
        let style = match gateway.state {
            AgentState::Serving => GOOD,
            AgentState::Applying | AgentState::Degraded => WARNING,
            AgentState::Down => WRONG,
        };
        let row = vec![
            gateway.gateway.clone(),
            gateway.state.to_string(),
            gateway.addresses.join(","),
            ports(&gateway.open_ports),
            short(either(&gateway.wanted_revision, &gateway.wanted)).to_owned(),
            short(either(&gateway.applied_revision, &gateway.applied)).to_owned(),
            format!("{} {} (pid {})", envoy.version, envoy.state, envoy.pid),
        ];
        (style, row)
    });
    table(&header, rows.collect())
}

/// Lists the first ports, and counts the rest.
fn ports(open: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = open.get(..SHOWN).unwrap_or(open).join(",");
    match open.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown},+{more}"),
    }
}

fn objects(shown: &[&ObjectReport]) -> String {
    let header = [
        "KIND",
        "NAMESPACE",
        "NAME",
        "SECTION",
        "CONDITION",
        "STATUS",
        "REASON",
        "MESSAGE",
    ];
    let mut rows = Vec::new();
    for object in shown {
        for condition in conditions(object) {
            let style = if condition.is_fault() {
                WRONG
            } else {
                Style::new()
            };
            let row = vec![
                object.kind.clone(),
                object.namespace.clone(),
                object.name.clone(),
                condition.section,
                condition.type_,
                condition.status,
                condition.reason,
                condition.message,
            ];
            rows.push((style, row));
        }
    }
    table(&header, rows)
}

fn name(object: &ObjectReport) -> String {
    if object.namespace.is_empty() {
        object.name.clone()
    } else {
        format!("{}/{}", object.namespace, object.name)
    }
}

fn either<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

/// Computes the column widths before adding colors, because escape codes have no width.
fn table(header: &[&str], rows: Vec<(Style, Vec<String>)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    let mut styles = vec![Style::new()];
    for (style, row) in rows {
        styles.push(style);
        table.add_row(row);
    }
    let mut text = String::new();
    for (line, style) in table.lines().zip(styles) {
        let _ = writeln!(text, "{style}{}{style:#}", line.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(routes: usize, wrong: usize) -> Report {
        let text = include_str!("../../../../tests/data/status.json");
        let mut report: Report = serde_json::from_str(text).expect("a report");
        let objects = (0..routes).map(|index| {
            let status = if index < wrong { "False" } else { "True" };
            let condition = json!({"type": "Accepted", "status": status, "reason": "R", "message": "why\nnot"});
            ObjectReport {
                kind: "HTTPRoute".to_owned(),
                namespace: "default".to_owned(),
                name: format!("r-{index:04}"),
                gateways: Vec::new(),
                status: json!({"parents": [{"parentRef": {"name": "edge"}, "conditions": [condition]}]}),
            }
        });
        report.objects = objects.collect();
        report
    }

    fn plain(report: &Report, words: &[&str], all: bool) -> String {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let selection = Selection::parse(&words, None, None, all).expect("valid arguments");
        let text = text(report, &selection);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn status_text_lists_problems_first_and_counts_served() {
        let text = plain(&report(1000, 0), &[], false);
        assert!(text.ends_with("\n1,000 HTTPRoutes, all served\n"), "{text}");
        assert!(text.lines().count() < 12, "{text}");

        let text = plain(&report(1000, 1), &[], false);
        let lines: Vec<&str> = text.lines().collect();
        let fault = "HTTPRoute default/r-0000 (edge): Accepted=False R: why not";
        let place = |wanted: &str| lines.iter().position(|line| line.starts_with(wanted));
        assert!(place("not healthy:") < place(fault), "{text}");
        assert!(place(fault) < place("GATEWAY"), "{text}");
        assert_eq!(
            lines.last(),
            Some(&"1,000 HTTPRoutes: 999 served, 1 with problems")
        );

        let text = plain(&report(1000, 100), &[], false);
        assert!(text.contains("… and 80 HTTPRoutes with problems"), "{text}");
        let text = plain(&report(1000, 100), &["httproutes"], false);
        assert!(text.contains("default/r-0099 (edge)"), "{text}");
        assert!(!text.contains("GATEWAY"), "{text}");
    }

    #[test]
    fn status_lists_conditions_for_named_objects_or_all() {
        let rows = |text: &str| {
            text.lines()
                .filter(|line| line.starts_with("HTTPRoute  "))
                .count()
        };
        assert_eq!(rows(&plain(&report(30, 1), &[], false)), 0);
        assert_eq!(rows(&plain(&report(30, 1), &[], true)), 30);
        let report = report(30, 1);
        assert_eq!(rows(&plain(&report, &["httproute", "r-0003"], false)), 1);
    }
}
