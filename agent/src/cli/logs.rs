//! `sesame-agent logs`: prints access logs that are kept in files.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;
use sesame_gateway_api::api::NamespacedName;

use super::agent::AgentArgs;
use super::render::gateway_name;
use crate::access_log::LogReader;
use crate::run::inspect;

/// Time between two looks for new lines.
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Gateway whose access log is printed; all of this host by default.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = gateway_name)]
    name: Option<NamespacedName>,
    /// Go on with the lines that come.
    #[arg(long, short)]
    follow: bool,
    /// Begin with this many lines of each Gateway, rather than with all.
    #[arg(long, short = 'n', value_name = "N")]
    lines: Option<usize>,
}

/// Prints lines. They are of whoever sent requests: nothing of them reaches a terminal as it is.
pub(crate) fn main(agent: &AgentArgs, args: &LogsArgs) -> anyhow::Result<u8> {
    let LogsArgs {
        name,
        follow,
        lines,
    } = args;
    let gateway = name.as_ref().or(agent.gateway.as_ref());
    let files = inspect::access_logs(&agent.runtime_dir, gateway);
    if files.is_empty() {
        let whose = gateway.map_or_else(
            || "no Gateway".to_owned(),
            |name| format!("not Gateway {name}"),
        );
        bail!(
            "{}: {whose} has an access log in a file here; with `--access-log stdout` it is in the journal or the container's log, and `sesame-agent status` tells why one is off",
            agent.runtime_dir.display()
        );
    }
    let mut logs = Vec::new();
    for file in files {
        let log = LogReader::open(&file).with_context(|| file.display().to_string())?;
        logs.push((file, log));
    }
    let mut first = true;
    loop {
        for (file, log) in &mut logs {
            let most = lines.filter(|_| first);
            let mut last = VecDeque::new();
            while let Some(line) = log
                .next_line()
                .with_context(|| file.display().to_string())?
            {
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
        }
        if !follow {
            return Ok(0);
        }
        first = false;
        thread::sleep(POLL);
    }
}

/// Prints one line; returns false when nobody reads any more.
fn print(agent: &AgentArgs, line: &str) -> anyhow::Result<bool> {
    if line.is_empty() {
        return Ok(true);
    }
    // A line that was cut off by a power failure is shown as text.
    let value = serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
    agent.output.write_next(&value, || sentence(&value) + "\n")
}

/// Returns a line for people.
fn sentence(value: &Value) -> String {
    let text = |name: &str| value.get(name).map(plain);
    let known = |name: &str| text(name).unwrap_or_else(|| "-".to_owned());
    if !value.is_object() {
        return plain(value);
    }
    let mut parts = vec![known("time")];
    match text("method") {
        Some(method) => parts.extend([known("status"), method, known("host") + &known("path")]),
        None => parts.extend([
            format!("{}/{}", known("protocol"), known("port")),
            text("tls_server_name").unwrap_or_default(),
        ]),
    }
    if let Some(time) = text("duration_ms") {
        parts.push(format!("{time}ms"));
    }
    parts.push(format!(
        "{}B/{}B",
        known("bytes_received"),
        known("bytes_sent")
    ));
    parts.push(format!("from {}", known("client_address")));
    parts.push(format!("by {}", known("route")));
    parts.push(format!(
        "to {} {}",
        known("backend"),
        known("backend_address")
    ));
    for name in ["response_flags", "termination_details", "backend_failure"] {
        if let Some(flag) = text(name).filter(|flag| flag != "-") {
            parts.push(flag);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// Returns a value without what a terminal would take for a command.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::sentence;

    #[test]
    fn a_request_is_a_sentence_without_control_characters() {
        let line = json!({
            "time": "2026-01-02T03:04:05.678Z", "status": 200, "method": "GET", "host": "a.test",
            "path": "/x\u{1b}[2Jy\nz", "duration_ms": 3, "bytes_received": 0, "bytes_sent": 12,
            "client_address": "192.0.2.1:4711", "route": "HTTPRoute/default/web/rules/0/matches/0",
            "backend": "Service/default/web/80", "backend_address": "10.0.0.1:8080", "response_flags": "-",
        });
        assert_eq!(
            sentence(&line),
            "2026-01-02T03:04:05.678Z 200 GET a.test/x\\u{1b}[2Jy\\nz 3ms 0B/12B from 192.0.2.1:4711 \
             by HTTPRoute/default/web/rules/0/matches/0 to Service/default/web/80 10.0.0.1:8080"
        );
    }

    #[test]
    fn a_connection_is_a_sentence_too() {
        let line = json!({
            "time": "t", "protocol": "tls", "port": 443, "tls_server_name": "a.test", "duration_ms": 3,
            "bytes_received": 1, "bytes_sent": 2, "client_address": "c", "response_flags": "UF",
            "route": "TLSRoute/default/a/rules/0", "backend": "Service/default/a/443",
        });
        assert_eq!(
            sentence(&line),
            "t tls/443 a.test 3ms 1B/2B from c by TLSRoute/default/a/rules/0 to Service/default/a/443 - UF"
        );
    }
}
