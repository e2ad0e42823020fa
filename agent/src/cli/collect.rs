//! `sesame-agent collect`: collects the data for a bug report, without secrets, in one file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::agent::{self, AgentArgs};
use super::doctor::{Examined, examine};
use super::output::Format;
use super::settings::LoadedSettings;
use crate::collect::redact::Secrets;
use crate::collect::{ReportPart, ReportPartSummary, archive, gather, header_values};
use crate::doctor::findings;
use sesame_engine::history::History;
use sesame_engine::inspect::{self, InspectedGateway};
use sesame_host::credentials;
#[cfg(feature = "cluster")]
use sesame_sources::cluster::stored_token::StoredToken;

/// Collects the doctor's findings, status, history, settings, Envoy's own state, recent log lines
/// and the kernel's limits in a .tar.zst file with mode 0600. Private keys, tokens, passwords and
/// the values of headers and query parameters are removed; names, addresses and certificates are
/// not.
#[derive(Debug, Args)]
pub(crate) struct CollectArgs {
    /// File to write, which must not exist; sesame-TIME.tar.zst by default.
    #[arg(long, short = 'o', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Output format.
    #[arg(long, default_value = "table")]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Collected {
    file: PathBuf,
    contents: Vec<ReportPartSummary>,
}

pub(crate) fn main(
    agent: &AgentArgs,
    args: &CollectArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    let now = Timestamp::now();
    let file = args.file.clone().unwrap_or_else(|| {
        PathBuf::from(format!("sesame-{}.tar.zst", now.strftime("%Y%m%dT%H%M%SZ")))
    });
    let Examined { facts, settings } = examine(agent, loaded)?;
    let value = |key: &str| {
        let found = settings.iter().find(|setting| setting.key == key);
        found
            .and_then(|setting| setting.values.first())
            .map(PathBuf::from)
    };
    let state_dir = value("state-dir").unwrap_or_default();
    let gateways = inspect::accepted(&state_dir);
    // Without access to the kubeconfig, the collected parts cannot contain its secrets.
    let kubeconfig = value("kubeconfig").and_then(|path| credentials::resolve(path).ok());
    let tokens = value("metrics-token-file").into_iter();
    #[cfg(feature = "cluster")]
    let tokens = tokens.chain([StoredToken::copy_below(&agent.runtime_dir)]);
    let tokens: Vec<PathBuf> = tokens.collect();
    let mut secrets = gather::secrets(&gateways, kubeconfig.as_deref(), &tokens);
    secrets.extend(gather::header_file(value("spans-headers-file").as_deref()));
    let versions = serde_json::json!({
        "agent": env!("CARGO_PKG_VERSION"),
        "envoy": facts.envoy.as_ref().map(|envoy| &envoy.version).ok(),
        "collectedAt": now,
    });
    let mut parts = vec![
        part("doctor.json", &findings(&facts)),
        part("settings.json", &settings),
        part("versions.json", &versions),
        ReportPart::new(
            "status.json",
            status(agent).map_err(|error| format!("{error:#}")),
        ),
    ];
    parts.extend(histories(&state_dir, &gateways));
    parts.extend(gather::snapshots(&gateways));
    parts.extend(gather::host());
    parts.extend(agent::runtime()?.block_on(gather::envoys(&agent.runtime_dir)));
    secrets.extend(header_values::redact(&mut parts));
    let secrets = Secrets::new(secrets)?;
    let contents = archive::write(&file, parts, &secrets, now)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let collected = Collected { file, contents };
    args.output.write(&collected, || text(&collected))?;
    Ok(0)
}

fn part(name: &str, value: &impl Serialize) -> ReportPart {
    ReportPart::new(name, serde_json::to_string_pretty(value))
}

fn status(agent: &AgentArgs) -> anyhow::Result<String> {
    let socket = agent.socket();
    let answer = agent::ask(&socket, "/status")?.ok_or_else(|| agent::not_running(&socket))?;
    let value: Value = serde_json::from_slice(&answer)?;
    Ok(serde_json::to_string_pretty(&value)?)
}

fn histories(state_dir: &Path, gateways: &[InspectedGateway]) -> Vec<ReportPart> {
    let histories = gateways.iter().map(|gateway| {
        let name = &gateway.gateway;
        let listed = History::open(state_dir, Some(name)).and_then(|history| history.list());
        ReportPart {
            name: format!("gateways/{}.{}/history.json", name.namespace, name.name),
            content: listed
                .and_then(|listed| Ok(serde_json::to_string_pretty(&listed)?))
                .map_err(|error| format!("{error:#}")),
        }
    });
    histories.collect()
}

fn text(collected: &Collected) -> String {
    let Collected { file, contents } = collected;
    let mut text = String::new();
    for part in contents {
        let _ = match &part.missing {
            Some(why) => writeln!(text, "{:>10} {}: {why}", "-", part.name),
            None => writeln!(text, "{:>10} {}", part.bytes, part.name),
        };
    }
    let _ = writeln!(
        text,
        "wrote {}; it names hosts, addresses and objects, so review it before you share it",
        file.display()
    );
    text
}
