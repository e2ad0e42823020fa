//! `sesame-agent top`: shows rates, errors and durations by route, backend and endpoint.
//!
//! The numbers come from access logs, because Envoy would need a lot of memory to count requests by
//! route and endpoint. Without log files, metrics provide counts by backend only.

mod logged;
mod measured;
mod processor;
mod stages;
mod table;
mod tally;

use std::io::IsTerminal as _;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use self::logged::LoggedTraffic;
use self::measured::MeasuredTraffic;
use self::processor::ProcessorWatch;
use self::tally::TopReport;
use super::agent::AgentArgs;
use super::logs::duration;
use super::output::Format;
use sesame_engine::inspect;

/// Moves the cursor to the top and clears the rest of the screen.
const REDRAW: &str = "\x1b[H\x1b[J";

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Field for grouping requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(super) enum Grouping {
    /// The route that handled the request.
    Route,
    /// The backend that received the request.
    Backend,
    /// The address of the endpoint.
    Endpoint,
}

impl Grouping {
    fn heading(self) -> &'static str {
        match self {
            Self::Route => "ROUTE",
            Self::Backend => "BACKEND",
            Self::Endpoint => "ENDPOINT",
        }
    }
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum RowOrder {
    /// By number of requests.
    #[default]
    Requests,
    /// By P99 duration.
    P99,
    /// By duration of the longest request.
    Longest,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Group requests by these fields.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "route,backend"
    )]
    by: Vec<Grouping>,
    /// Length of the time window.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    window: SignedDuration,
    /// Time between updates.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    interval: SignedDuration,
    /// Order of the rows; without access logs, only `requests` is useful, because metrics contain
    /// no durations.
    #[arg(long, value_enum, value_name = "ORDER", default_value_t)]
    sort: RowOrder,
    /// Number of rows in each table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Show the tables once and exit.
    #[arg(long)]
    once: bool,
    /// Use the agent's metrics, even if there are access logs.
    #[arg(long)]
    metrics: bool,
}

enum Traffic {
    Logged(LoggedTraffic),
    Measured(MeasuredTraffic),
}

impl Traffic {
    fn report(&mut self, now: Timestamp) -> anyhow::Result<TopReport> {
        match self {
            Self::Logged(logged) => logged.report(now),
            Self::Measured(measured) => measured.report(now),
        }
    }
}

pub(crate) fn main(agent: &AgentArgs, args: &TopArgs) -> anyhow::Result<u8> {
    let TopArgs {
        by,
        window,
        interval,
        sort,
        rows,
        once,
        metrics,
    } = args;
    let window = (*window).clamp(SignedDuration::from_secs(1), SignedDuration::from_hours(24));
    let interval = (*interval).max(SignedDuration::from_millis(100));
    let files = if *metrics {
        Vec::new()
    } else {
        inspect::access_logs(&agent.runtime_dir, agent.gateway.as_ref())
    };
    let mut traffic = if files.is_empty() {
        let mut measured = MeasuredTraffic::new(agent.socket(), agent.gateway.clone(), window);
        // A rate is computed from two responses, so get the first one now.
        measured.report(Timestamp::now())?;
        thread::sleep(if *once { window } else { interval }.unsigned_abs());
        Traffic::Measured(measured)
    } else {
        Traffic::Logged(LoggedTraffic::open(files, window, (by.clone(), *sort))?)
    };
    let mut processors = ProcessorWatch::default();
    let envoys = || inspect::envoys(&agent.runtime_dir, agent.gateway.as_ref());
    processors.sample(envoys());
    thread::sleep(POLL_INTERVAL);
    let redraws = agent.output == Format::Table && !once && std::io::stdout().is_terminal();
    loop {
        let mut report = traffic.report(Timestamp::now())?;
        report.envoys = processors.sample(envoys());
        let text = || {
            let text = table::text(&report, *rows);
            if redraws {
                format!("{REDRAW}{text}")
            } else {
                text
            }
        };
        if *once {
            agent.output.write(&report, text)?;
            return Ok(0);
        }
        if !agent.output.write_next(&report, text)? {
            return Ok(0);
        }
        thread::sleep(interval.unsigned_abs());
    }
}
