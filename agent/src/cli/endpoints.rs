//! `sesame-agent endpoints`: shows backend endpoints as Envoy sees them.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::EXIT_FAULT;
use super::agent::{self, AgentArgs};
use super::logs::sentence::plain;
use sesame_envoy::access_log::ObjectPattern;
use sesame_envoy::admin::{Admin, ClusterEndpoints, EndpointCounts};

/// Shows where requests to a backend go, and what delays them: open connections, waiting requests
/// and failed connections. The exit code is 1 if an endpoint receives no requests, connections to
/// it have failed, or requests are waiting.
#[derive(Debug, Args)]
pub(crate) struct EndpointsArgs {
    /// Backends to show, with or without their kind; all by default.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = ObjectPattern::parse)]
    backends: Vec<ObjectPattern>,
    /// Show only backends with waiting requests, failed connections, or endpoints that receive no
    /// requests.
    #[arg(long)]
    failing: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BackendEndpoints {
    gateway: String,
    backend: String,
    connections: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<u64>,
    /// Requests that are waiting for a connection.
    waiting: u64,
    endpoints: Vec<EndpointCounts>,
}

impl BackendEndpoints {
    fn new(gateway: &str, cluster: ClusterEndpoints) -> Self {
        let ClusterEndpoints {
            name,
            max_connections,
            endpoints,
        } = cluster;
        let sum = |of: fn(&EndpointCounts) -> u64| endpoints.iter().map(of).sum();
        Self {
            gateway: gateway.to_owned(),
            backend: name,
            connections: sum(|it| it.connections),
            max_connections,
            waiting: sum(|it| it.waiting),
            endpoints,
        }
    }

    fn is_full(&self) -> bool {
        self.max_connections
            .is_some_and(|most| self.connections >= most)
    }

    fn is_failing(&self) -> bool {
        self.waiting > 0
            || self.is_full()
            || self.endpoints.is_empty()
            || self.endpoints.iter().any(is_failing)
    }
}

fn is_failing(endpoint: &EndpointCounts) -> bool {
    !endpoint.healthy || endpoint.failed_connections > 0
}

pub(crate) fn main(agent: &AgentArgs, args: &EndpointsArgs) -> anyhow::Result<u8> {
    let report = agent::report(agent, "/status")?;
    let one = agent.gateway.as_ref().map(ToString::to_string);
    let filter = filter(&args.backends);
    let runtime = agent::runtime()?;
    let mut found = Vec::new();
    for gateway in report.gateways {
        if one.as_ref().is_some_and(|one| *one != gateway.gateway) || gateway.envoy.pid == 0 {
            continue;
        }
        let admin = Admin::new(&gateway.envoy.admin);
        let clusters = runtime.block_on(admin.endpoints(&filter));
        let clusters = clusters
            .with_context(|| gateway.gateway.clone())?
            .into_iter();
        // Filter again, because older Envoy versions ignore the filter parameter and return all
        // clusters.
        let chosen = |name: &str| {
            let mut patterns = args.backends.iter();
            patterns.len() == 0 || patterns.any(|pattern| pattern.names(name))
        };
        let clusters = clusters.filter(|cluster| chosen(&cluster.name));
        found.extend(clusters.map(|cluster| BackendEndpoints::new(&gateway.gateway, cluster)));
    }
    let wrong = found.iter().any(BackendEndpoints::is_failing);
    if args.failing {
        found.retain(BackendEndpoints::is_failing);
    }
    agent.output.write(&found, || text(&found))?;
    Ok(if wrong { EXIT_FAULT } else { 0 })
}

/// Returns a regular expression, which may also match other clusters.
fn filter(backends: &[ObjectPattern]) -> String {
    let escaped = backends.iter().map(|backend| {
        let name = backend.to_string();
        // In object names, the dot is the only regular-expression metacharacter.
        name.replace('.', r"\.")
    });
    let names: Vec<String> = escaped.collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("(?i)({})", names.join("|"))
    }
}

fn text(found: &[BackendEndpoints]) -> String {
    if found.is_empty() {
        return "no backend\n".to_owned();
    }
    let mut text = String::new();
    for one in found {
        let _ = write!(
            text,
            "{} of {}: {} connections",
            plain(&one.backend.as_str().into()),
            one.gateway,
            one.connections
        );
        if let Some(most) = one.max_connections {
            let _ = write!(text, " of {most}");
        }
        match (one.waiting, one.is_full()) {
            (0, false) => {}
            (0, true) => text.push_str(", the maximum; no requests are waiting"),
            (waiting, true) => {
                let waiting = requests(waiting);
                let _ = write!(text, ", the maximum; {waiting} for a connection");
            }
            (waiting, false) => {
                let waiting = requests(waiting);
                let _ = write!(text, "; {waiting} for a new one");
            }
        }
        let _ = writeln!(text, "\n{}\n", table(&one.endpoints));
    }
    text
}

fn requests(waiting: u64) -> String {
    match waiting {
        1 => "1 request waits".to_owned(),
        _ => format!("{waiting} requests wait"),
    }
}

fn table(endpoints: &[EndpointCounts]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "ENDPOINT",
        "STATE",
        "CONNECTIONS",
        "COULD NOT CONNECT",
        "ACTIVE",
        "WAITING",
        "REQUESTS",
        "FAILED",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for endpoint in endpoints {
        let EndpointCounts {
            address,
            healthy,
            connections,
            failed_connections,
            active,
            waiting,
            requests,
            failed,
        } = endpoint;
        let state = if *healthy { "used" } else { "left out" };
        let counts = [
            connections,
            failed_connections,
            active,
            waiting,
            requests,
            failed,
        ];
        let cells = [plain(&address.as_str().into()), state.to_owned()];
        table.add_row(cells.into_iter().chain(counts.map(u64::to_string)));
    }
    if endpoints.is_empty() {
        table.add_row(["none", "-", "-", "-", "-", "-", "-", "-"]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_with_waiting_requests_reports_reason() {
        let cluster = |connections, waiting, failed_connections| ClusterEndpoints {
            name: "Service/shop/cart/80".to_owned(),
            max_connections: Some(33),
            endpoints: vec![EndpointCounts {
                address: "10.1.0.7:8080".to_owned(),
                healthy: true,
                connections,
                failed_connections,
                waiting,
                ..EndpointCounts::default()
            }],
        };
        let of = |cluster| BackendEndpoints::new("shop/edge", cluster);
        let full = of(cluster(33, 146, 0));
        assert!(full.is_failing());
        let words = "33 connections of 33, the maximum; 146 requests wait for a connection";
        assert!(text(&[full]).contains(words));
        assert!(of(cluster(3, 0, 6)).is_failing());
        assert!(!of(cluster(3, 0, 0)).is_failing());
    }

    #[test]
    fn name_is_not_an_expression() {
        let backends = ["shop/a.b", "Service/shop/c"].map(|it| ObjectPattern::parse(it).unwrap());
        assert_eq!(filter(&backends), r"(?i)(shop/a\.b|Service/shop/c)");
        assert_eq!(filter(&[]), "");
        assert!(ObjectPattern::parse("shop/(x+x+)+y").is_err());
    }
}
