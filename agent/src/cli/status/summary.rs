//! Counts objects by kind and by whether they have problems.

use std::collections::BTreeSet;

use sesame_kinds::world::Kind;

use super::conditions::is_wrong;
use super::text::{GOOD, WARNING, WRONG};
use sesame_engine::report::Report;

pub(super) fn lines(report: &Report) -> Vec<String> {
    let problems = report.source.problems.iter();
    let hidden: BTreeSet<&str> = problems
        .filter(|problem| problem.hidden_by.is_some())
        .filter_map(|problem| problem.object.as_deref())
        .collect();
    let mut kinds: Vec<(&str, usize, usize)> = Vec::new();
    for object in &report.objects {
        let wrong = usize::from(is_wrong(object));
        match kinds.last_mut().filter(|(kind, ..)| *kind == object.kind) {
            Some((_, all, bad)) => (*all, *bad) = (*all + 1, *bad + wrong),
            None => kinds.push((&object.kind, 1, wrong)),
        }
    }
    let line = |(kind, all, wrong): (&str, usize, usize)| {
        let is_of_kind = |object: &&&str| object.split('/').next() == Some(kind);
        let unreached = match hidden.iter().filter(is_of_kind).count() {
            0 => String::new(),
            1 => format!("; {WARNING}1 has matches that no request reaches{WARNING:#}"),
            count => format!("; {WARNING}{count} have matches that no request reaches{WARNING:#}"),
        };
        let well = match kind {
            "GatewayClass" | "BackendTLSPolicy" => "accepted",
            _ => "served",
        };
        let count = counted(all, kind);
        let summary = match (all, wrong) {
            (1, 0) => format!("{count}, {GOOD}{well}{GOOD:#}"),
            (_, 0) => format!("{count}, {GOOD}all {well}{GOOD:#}"),
            (1, _) => format!("{count}, {WRONG}with problems{WRONG:#}"),
            _ => format!(
                "{count}: {} {well}, {WRONG}{} with problems{WRONG:#}",
                grouped(all - wrong),
                grouped(wrong)
            ),
        };
        summary + &unreached
    };
    kinds.into_iter().map(line).collect()
}

pub(super) fn counted(count: usize, kind: &str) -> String {
    let plural = Kind::parse(kind).map_or(kind, |kind| kind.plural());
    match count {
        1 => format!("1 {kind}"),
        _ => format!("{} {plural}", grouped(count)),
    }
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sesame_engine::report::ObjectReport;
    use sesame_sources::problem::{Severity, SourceProblem};

    #[test]
    fn hidden_routes_count_as_served_and_are_reported() {
        let text = include_str!("../../../../tests/data/status.json");
        let mut report: Report = serde_json::from_str(text).expect("a report");
        let route = |name: &str| ObjectReport {
            kind: "HTTPRoute".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            gateways: Vec::new(),
            status: json!({"parents": []}),
        };
        report.objects = ["a", "b"].map(route).into();
        let hidden = |winner: &str| SourceProblem {
            object: Some("HTTPRoute/shop/b".to_owned()),
            hidden_by: Some(winner.to_owned()),
            ..SourceProblem::of_file(Severity::Warning, "shop.yaml", String::new())
        };
        let winners = [
            "HTTPRoute/shop/a/rules/0/matches/0",
            "HTTPRoute/shop/a/rules/1/matches/0",
        ];
        report.source.problems = winners.map(hidden).into();
        let lines = lines(&report).join("\n");
        let plain = anstream::adapter::strip_str(&lines).to_string();
        assert_eq!(
            plain,
            "2 HTTPRoutes, all served; 1 has matches that no request reaches"
        );
    }
}
