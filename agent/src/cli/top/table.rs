//! Formats the output of `top` as tables.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::Grouping;
use super::processor::ProcessorUse;
use super::tally::{TopReport, TopRow};
use crate::cli::logs::sentence::plain;

pub(super) fn text(report: &TopReport, most: usize) -> String {
    let TopReport {
        source,
        from: _,
        until,
        seconds,
        envoys,
        rows,
    } = report;
    let mut text = format!("{} the last {seconds:.0}s until {until:.0}", title(source));
    text.push('\n');
    for envoy in envoys {
        let ProcessorUse {
            pid,
            cores,
            waiting,
            waiting_percent,
        } = envoy;
        let _ = writeln!(
            text,
            "Envoy (pid {pid}) uses {cores:.2} CPUs; its threads wait {waiting:.2}s per second for a CPU, {waiting_percent}% of their runnable time"
        );
    }
    for (grouping, rows) in rows {
        let shown = &rows[..rows.len().min(most)];
        let _ = writeln!(text, "\n{}", table(*grouping, shown, *seconds));
        if rows.len() > most {
            let _ = writeln!(text, "… and {} more", rows.len() - most);
        }
    }
    text
}

fn title(source: &str) -> &'static str {
    match source {
        "metrics" => "From metrics, which lack routes and backend durations;",
        _ => "From the access log;",
    }
}

fn table(grouping: Grouping, rows: &[TopRow], seconds: f64) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        grouping.heading(),
        "REQ/S",
        "4XX/S",
        "5XX/S",
        "RETRIED/S",
        "P50",
        "P99",
        "LONGEST",
        "MOSTLY",
        "FLAGS",
    ]);
    for column in table.column_iter_mut().skip(1).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        table.add_row(cells(row, seconds));
    }
    table.trim_fmt()
}

fn cells(row: &TopRow, seconds: f64) -> [String; 10] {
    let TopRow {
        name,
        requests,
        per_second: _,
        classes,
        retried,
        p50_ms,
        p99_ms,
        longest_ms,
        stages_ms,
        flags,
    } = row;
    let mostly = stages_ms.and_then(|stages| stages.longest());
    let mostly = mostly.map(|(stage, percent)| format!("{stage} {percent}%"));
    let class = |class: &str| rate(classes.get(class).copied().unwrap_or(0), seconds);
    let mut flags: Vec<(&String, &u64)> = flags.iter().filter(|(_, count)| **count > 0).collect();
    flags.sort_by(|one, other| other.1.cmp(one.1));
    let flags: Vec<String> = flags
        .iter()
        .take(3)
        .map(|(flag, count)| format!("{flag} {count}"))
        .collect();
    [
        plain(&name.as_str().into()),
        rate(*requests, seconds),
        class("4xx"),
        class("5xx"),
        rate(*retried, seconds),
        time(*p50_ms),
        time(*p99_ms),
        time(*longest_ms),
        mostly.unwrap_or_else(|| "-".to_owned()),
        plain(&flags.join(", ").into()),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a displayed rate need not be exact"
)]
fn rate(count: u64, seconds: f64) -> String {
    match count {
        0 => "0".to_owned(),
        _ if seconds > 0.0 => format!("{:.1}", count as f64 / seconds),
        _ => "-".to_owned(),
    }
}

fn time(milliseconds: Option<u64>) -> String {
    match milliseconds {
        None => "-".to_owned(),
        Some(short) if short < 10_000 => format!("{short}ms"),
        Some(long) => format!("{}s", long / 1000),
    }
}
