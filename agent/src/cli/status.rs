//! `sesame-agent status`: asks the running agent.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use comfy_table::{Table, presets};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;

use super::output::OutputArgs;
use super::{EXIT_WRONG, agent};
use crate::run::report::{ObjectReport, Report};
use crate::run::{AGENT_SOCKET, DEFAULT_RUNTIME_DIR};

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 256 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The runtime directory of the agent to ask.
    #[arg(long, env = "SESAME_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR, value_name = "DIR")]
    runtime_dir: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn main(args: &StatusArgs) -> anyhow::Result<u8> {
    let report = ask(&args.runtime_dir.join(AGENT_SOCKET))?;
    args.output.write(&report, || table(&report))?;
    Ok(if report.healthy { 0 } else { EXIT_WRONG })
}

fn ask(socket: &Path) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let body = runtime.block_on(async { tokio::time::timeout(TIMEOUT, fetch(socket)).await });
    let body = match body {
        Ok(body) => body?,
        Err(_) => bail!(
            "the agent at {} has not answered within {TIMEOUT:?}",
            socket.display()
        ),
    };
    serde_json::from_slice(&body)
        .with_context(|| format!("the answer of {} is not understood", socket.display()))
}

async fn fetch(socket: &Path) -> anyhow::Result<Vec<u8>> {
    let request = hyper::Request::get("/status")
        .header(hyper::header::HOST, "agent")
        .body(Full::default())?;
    let body = agent::send(socket, request).await?;
    let body = Limited::new(body, MAX_BYTES)
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!("the answer is cut off: {error}"))?;
    Ok(body.to_bytes().to_vec())
}

/// Writing to a String cannot fail, so the results are let go.
fn table(report: &Report) -> String {
    let mut text = String::new();
    let mut gateways = new_table(&[
        "GATEWAY",
        "STATE",
        "ADDRESSES",
        "WANTED",
        "APPLIED",
        "ENVOY",
    ]);
    for gateway in &report.gateways {
        gateways.add_row([
            gateway.gateway.clone(),
            gateway.state.as_str().to_owned(),
            gateway.addresses.join(","),
            short(either(&gateway.wanted_revision, &gateway.wanted)),
            short(either(&gateway.applied_revision, &gateway.applied)),
            format!(
                "{} {} (pid {})",
                gateway.envoy.version, gateway.envoy.state, gateway.envoy.pid
            ),
        ]);
    }
    let _ = writeln!(text, "{gateways}\n");
    let available = if report.source.available {
        "available"
    } else {
        "not available"
    };
    let _ = writeln!(text, "source: {}, {available}\n", report.source.title());
    let mut objects = new_table(&[
        "KIND",
        "NAMESPACE",
        "NAME",
        "SECTION",
        "CONDITION",
        "STATUS",
        "REASON",
        "MESSAGE",
    ]);
    for object in &report.objects {
        for row in condition_rows(object) {
            objects.add_row(row);
        }
    }
    if !report.objects.is_empty() {
        let _ = writeln!(text, "{objects}");
    }
    if !report.source.problems.is_empty() {
        text.push('\n');
        for problem in &report.source.problems {
            let place = match problem.line {
                0 => problem.file.clone(),
                line => format!("{}:{line}", problem.file),
            };
            let _ = writeln!(text, "{}: {place}: {}", problem.severity, problem.message);
        }
    }
    for gateway in &report.gateways {
        for refused in &gateway.refused {
            let _ = writeln!(text, "\nEnvoy refuses {refused} (since {})", refused.since);
        }
        for words in &gateway.refusal {
            let _ = writeln!(
                text,
                "\nEnvoy refuses the newest change of {}: {words}",
                gateway.gateway
            );
        }
    }
    if !report.warnings.is_empty() {
        text.push_str("\nsoon wrong:\n");
        for warning in &report.warnings {
            let _ = writeln!(text, "  {warning}");
        }
    }
    if report.healthy {
        text.push_str("\nhealthy\n");
    } else {
        text.push_str("\nnot healthy:\n");
        for reason in &report.reasons {
            let _ = writeln!(text, "  {reason}");
        }
    }
    text
}

/// One row for each condition: of the object itself, of its listeners, of its parents or ancestors.
fn condition_rows(object: &ObjectReport) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut add = |section: String, holder: &Value| {
        for condition in list(holder, "conditions") {
            rows.push(vec![
                object.kind.clone(),
                object.namespace.clone(),
                object.name.clone(),
                section.clone(),
                word(condition, "type"),
                word(condition, "status"),
                word(condition, "reason"),
                word(condition, "message"),
            ]);
        }
    };
    add(String::new(), &object.status);
    for listener in list(&object.status, "listeners") {
        add(word(listener, "name"), listener);
    }
    for parent in list(&object.status, "parents") {
        add(reference(&parent["parentRef"]), parent);
    }
    for ancestor in list(&object.status, "ancestors") {
        add(reference(&ancestor["ancestorRef"]), ancestor);
    }
    rows
}

/// The name that a reference says, with what it says beside it.
fn reference(reference: &Value) -> String {
    let mut section = word(reference, "name");
    for extra in ["sectionName", "port"] {
        match &reference[extra] {
            Value::Null => {}
            Value::String(text) => section.extend(["/", text]),
            other => section.extend(["/", &other.to_string()]),
        }
    }
    section
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn either<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

fn short(digest: &str) -> String {
    digest.get(..12).unwrap_or(digest).to_owned()
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}
