//! `sesame-agent explain`: explains how a request would be routed, and why.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use sesame_explain::{CandidateVerdict, ExplainRequest, Explanation, TextDetail, text};
use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::Snapshot;

use super::EXIT_FAULT;
use super::agent::{self, AgentArgs};
use super::history::StateArgs;
use super::host::HostArgs;
use super::offline;
use sesame_engine::explaining::{ExplainOrder, explain_accepted, explain_one};
use sesame_engine::report::RefusedReport;
use sesame_sources::problem::SourceProblem;

/// Explains where a request goes, and why. The exit code is 0 if a route matches the request, 1 if
/// none does.
#[derive(Debug, Args)]
#[command(override_usage = "sesame-agent explain [OPTIONS] [METHOD] <URL>")]
pub(crate) struct ExplainArgs {
    /// Explain these Gateway API manifests instead of the agent's configuration; needs no running
    /// agent.
    #[arg(long, value_name = "DIR", conflicts_with = "state_dir")]
    manifests: Option<PathBuf>,
    /// Request header; repeatable. `Host` overrides the host in the URL.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Server name in the TLS handshake; defaults to the host in the URL.
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Assume that the client presents a valid certificate if asked.
    #[arg(long)]
    client_cert: bool,
    /// Client address, assuming a direct connection; if unset, address filters do not apply.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    /// Show all routes for the host, including routes for other paths.
    #[arg(long)]
    all_routes: bool,
    /// Method (default GET), and URL with the port that clients connect to.
    #[arg(value_names = ["METHOD", "URL"], num_args = 1..=2, required = true)]
    request: Vec<String>,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) fn main(agent: &AgentArgs, args: &ExplainArgs) -> anyhow::Result<u8> {
    let order = ExplainOrder {
        gateway: agent.gateway.as_ref().map(ToString::to_string),
        request: request(args)?,
    };
    let mut explanation: Explanation = match &args.manifests {
        Some(_) => from_manifests(agent, args, order)?,
        None => args.state.read(
            agent,
            || agent::ask_about(&agent.socket(), "/explain", &order),
            |state_dir| explain_accepted(state_dir, &order),
        )?,
    };
    if args.manifests.is_none() && args.state.without_asking(agent).is_none() {
        let (refused, problems) = reported(agent)?;
        let refused = notes(&explanation, &refused);
        let hidden = hidden(&explanation, &problems);
        explanation.add_notes(refused.into_iter().chain(hidden));
    }
    let detail = if args.all_routes {
        TextDetail::AllRoutes
    } else {
        TextDetail::Brief
    };
    agent
        .output
        .write(&explanation, || text(&explanation, detail))?;
    Ok(if explanation.route.is_some() {
        0
    } else {
        EXIT_FAULT
    })
}

/// Returns empty lists if no agent is running.
fn reported(agent: &AgentArgs) -> anyhow::Result<(Vec<RefusedReport>, Vec<SourceProblem>)> {
    let Some(report) = agent::find_report(agent, "/gateways")? else {
        return Ok((Vec::new(), Vec::new()));
    };
    let gateways = report.gateways.into_iter();
    let refused = gateways.flat_map(|gateway| gateway.refused).collect();
    Ok((refused, report.source.problems))
}

fn hidden(explanation: &Explanation, problems: &[SourceProblem]) -> Vec<String> {
    let matches = |route: &str| {
        let mut candidates = explanation.candidates.iter();
        candidates.any(|it| it.route == route && it.verdict != CandidateVerdict::NoMatch)
    };
    let hidden = problems.iter().filter_map(|problem| {
        let hidden_by = problem.hidden_by.as_deref()?;
        let object = problem.object.as_deref()?;
        matches(hidden_by).then(|| format!("{object}: {}", problem.message))
    });
    hidden.collect()
}

/// Returns a note for each explained object that Envoy rejects, because the actual response may
/// differ.
fn notes(explanation: &Explanation, refused: &[RefusedReport]) -> Vec<String> {
    let parts = explanation.parts();
    let is_part = |it: &&RefusedReport| {
        let name = [&it.kind, &it.namespace, &it.name, &it.section].map(String::as_str);
        let name: Vec<&str> = name.into_iter().filter(|part| !part.is_empty()).collect();
        let name = name.join("/");
        parts.iter().any(|part| {
            let rest = part.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let refused = refused.iter().filter(is_part);
    refused
        .map(|it| format!("Envoy rejects part of this: {it}"))
        .collect()
}

fn request(args: &ExplainArgs) -> anyhow::Result<ExplainRequest> {
    let (method, url) = match args.request.as_slice() {
        [method, url] => (method.as_str(), url.as_str()),
        [url] => ("GET", url.as_str()),
        _ => ("GET", ""),
    };
    let request = ExplainRequest::parse(method, url, &args.headers, args.sni.as_deref())?;
    Ok(ExplainRequest {
        client_certificate: args.client_cert,
        client: args.client,
        ..request
    })
}

fn from_manifests(
    agent: &AgentArgs,
    args: &ExplainArgs,
    mut order: ExplainOrder,
) -> anyhow::Result<Explanation> {
    let manifests = args.manifests.clone().unwrap_or_default();
    let read = offline::preview(&manifests, &args.host)?;
    read.warn_of_stand_ins();
    for problem in &read.problems {
        tracing::warn!("{}:{}: {}", problem.file, problem.line, problem.message);
    }
    let problems = read.resolution.problems.iter();
    let problems: Vec<SourceProblem> = problems
        .map(|problem| SourceProblem::of_object(problem, None))
        .collect();
    // A merged Gateway is served under the name of its GatewayClass.
    let merged = agent.gateway.as_ref();
    if let Some(merged) = merged.and_then(|name| read.resolution.merged.get(name)) {
        order.gateway = Some(merged.published_as.to_string());
    }
    let gateways = read.resolution.gateways.iter();
    let snapshots: Vec<(&NamespacedName, &Snapshot)> =
        gateways.map(|it| (&it.gateway, &it.snapshot)).collect();
    let mut explanation = explain_one(snapshots, &order)?;
    let hidden = hidden(&explanation, &problems);
    explanation.add_notes(hidden);
    Ok(explanation)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sesame_explain::explain_any;
    use sesame_proto::schema::{Listener, Port};

    use super::*;

    #[test]
    fn a_refused_part_is_noted() {
        let snapshot = Snapshot {
            ports: vec![Port {
                port: 80,
                listeners: vec![Listener {
                    name: "Gateway/default/edge/listeners/http".to_owned(),
                    route_table: "http/80".to_owned(),
                    ..Listener::default()
                }],
                ..Port::default()
            }],
            ..Snapshot::default()
        };
        let request = ExplainRequest::parse("GET", "http://a.test/", &[] as &[&str], None);
        let explanation = explain_any(&[&snapshot], &request.expect("a request"));
        let explanation = explanation.expect("one Gateway");
        let noted = |section: &str| {
            let refused = json!([{"kind": "Gateway", "namespace": "default", "name": "edge", "section": section,
                "effect": "nothing is served", "envoyWords": "no", "since": "2026-01-01T00:00:00Z"}]);
            notes(
                &explanation,
                &serde_json::from_value::<Vec<RefusedReport>>(refused).expect("a report"),
            )
            .len()
        };
        assert_eq!(
            ["", "listeners/http", "listeners/htt", "rules/0"].map(noted),
            [1, 1, 0, 0]
        );
    }
}
