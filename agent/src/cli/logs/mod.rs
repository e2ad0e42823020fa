//! `sesame-agent logs`: prints access log files.

pub(super) mod sentence;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sesame_kinds::api::NamespacedName;

use self::sentence::sentence;
use super::agent::AgentArgs;
use super::render::gateway_name;
use sesame_engine::inspect;
use sesame_envoy::access_log::{
    LogEntry, LogFilter, LogReader, ObjectPattern, Readability, StatusPattern,
};

const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Gateway whose access log to print; all Gateways on this host by default.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    name: Option<NamespacedName>,
    /// Keep printing new lines.
    #[arg(long, short)]
    follow: bool,
    /// Start with each Gateway's last N lines instead of all lines.
    #[arg(long, short = 'n', value_name = "N")]
    lines: Option<usize>,
    #[command(flatten)]
    choice: ChoiceArgs,
}

/// Filters for lines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which lines")]
struct ChoiceArgs {
    /// Only requests with this status or status class; repeatable. 0 means that the client
    /// disconnected.
    #[arg(long, value_name = "404|5xx", value_parser = StatusPattern::parse, value_delimiter = ',')]
    status: Vec<StatusPattern>,
    /// Only requests that this route handled; its kind may precede the name, and a part such as
    /// `/rules/0` may follow. Repeatable.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = ObjectPattern::parse)]
    route: Vec<ObjectPattern>,
    /// Only requests sent to this backend, with the same syntax as --route. Repeatable.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = ObjectPattern::parse)]
    backend: Vec<ObjectPattern>,
    /// Only requests for this hostname.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Only requests that ended since this time or within this duration: `10m`,
    /// `2026-11-23T10:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Only requests that took at least this long: `1s`, `250ms`.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    slow: Option<SignedDuration>,
}

impl ChoiceArgs {
    fn filter(&self) -> LogFilter {
        let Self {
            status,
            route,
            backend,
            host,
            since,
            slow,
        } = self;
        LogFilter {
            statuses: status.clone(),
            routes: route.clone(),
            backends: backend.clone(),
            host: host.clone(),
            since: *since,
            slow: *slow,
        }
    }
}

pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    let read = text.parse::<SignedDuration>().ok();
    read.filter(|duration| !duration.is_negative())
        .ok_or_else(|| "expected a duration such as 250ms, 10s, 5m or 2h".to_owned())
}

/// A duration is subtracted from the current time.
pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    let ago = |duration| Timestamp::now().checked_sub(duration).ok();
    duration(text)
        .ok()
        .and_then(ago)
        .or_else(|| text.parse().ok())
        .ok_or_else(|| {
            "expected a duration such as 10m, or a time such as 2026-11-23T10:00:00Z".to_owned()
        })
}

/// Clients control some of the content, so never write it to a terminal unescaped.
pub(crate) fn main(agent: &AgentArgs, args: &LogsArgs) -> anyhow::Result<u8> {
    let LogsArgs {
        name,
        follow,
        lines,
        choice,
    } = args;
    let filter = choice.filter();
    let since = choice.since.map(SystemTime::from);
    let mut logs = Vec::new();
    for file in files(agent, name.as_ref())? {
        let opened = match since {
            Some(since) => LogReader::open_since(&file, since),
            None => LogReader::open(&file),
        };
        let log = opened.with_context(|| file.display().to_string())?;
        logs.push((file, log, Readability::default()));
    }
    let mut first = true;
    loop {
        for (file, log, readability) in &mut logs {
            let most = lines.filter(|_| first);
            let mut last = VecDeque::new();
            while let Some(line) = log
                .next_line()
                .with_context(|| file.display().to_string())?
            {
                if !is_chosen(&filter, &line, readability) {
                    continue;
                }
                match most {
                    Some(most) => {
                        last.push_back(line);
                        if last.len() > most {
                            last.pop_front();
                        }
                    }
                    None if !print(agent, &line)? => return Ok(0),
                    None => {}
                }
            }
            for line in last {
                if !print(agent, &line)? {
                    return Ok(0);
                }
            }
            if let Some(complaint) = readability.complaint(file) {
                bail!(complaint);
            }
        }
        if !follow {
            return Ok(0);
        }
        first = false;
        thread::sleep(POLL);
    }
}

pub(super) fn files(
    agent: &AgentArgs,
    name: Option<&NamespacedName>,
) -> anyhow::Result<Vec<PathBuf>> {
    let gateway = name.or(agent.gateway.as_ref());
    let files = inspect::access_logs(&agent.runtime_dir, gateway);
    if files.is_empty() {
        let whose = gateway.map_or_else(
            || "no Gateway".to_owned(),
            |name| format!("not Gateway {name}"),
        );
        bail!(
            "{}: {whose} has an access log file here; with `--access-log stdout` it is in the journal or the container's log, and `sesame-agent status` shows why a log is off",
            agent.runtime_dir.display()
        );
    }
    Ok(files)
}

/// A truncated line passes only if the filter has no conditions.
fn is_chosen(filter: &LogFilter, line: &str, readability: &mut Readability) -> bool {
    if filter.is_everything() {
        return true;
    }
    let entry = LogEntry::read(line);
    readability.record(line, entry.as_ref());
    entry.is_some_and(|entry| filter.chooses(&entry))
}

fn print(agent: &AgentArgs, line: &str) -> anyhow::Result<bool> {
    if line.is_empty() {
        return Ok(true);
    }
    // Print a non-JSON line, such as one truncated by a power failure, as plain text.
    let value = serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
    agent.output.write_next(&value, || sentence(&value) + "\n")
}
