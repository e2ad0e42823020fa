//! `sesame-agent apply`: passes a bundle to the running agent and waits until Envoy serves it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use sesame_files::bundle::{self, SUFFIX};
use sesame_files::random;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::AgentState;
use sesame_proto::bundle::BundleFile;
use sesame_proto::digest::sha256;

use super::agent::{self, AgentArgs};
use super::{EXIT_FAILED, EXIT_FAULT};
use sesame_engine::DEFAULT_STATE_DIR;
use sesame_engine::report::GatewayReport;
use sesame_sources::bundles::state::BundleState;
use sesame_sources::bundles::{BundleFileState, BundleReport};
use sesame_sources::update::gateway_of;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait for a degraded Gateway to recover.
const TIMEOUT: Duration = Duration::from_secs(3);
const APPLIED: &str = "applied.";

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Bundle to apply.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Apply the bundle even if it is older than the last applied one. The agent logs that, and
    /// accepts newer bundles as before.
    #[arg(long)]
    allow_older: bool,
    /// State directory of the agent.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Time within which Envoy must accept the bundle.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout_seconds: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ApplyAnswer {
    accepted: bool,
    gateway: String,
    sequence: u64,
    digest: String,
    message: String,
}

pub(crate) fn main(agent: &AgentArgs, args: &ApplyArgs) -> anyhow::Result<u8> {
    let path = &args.bundle;
    let at = || path.display().to_string();
    let bytes = super::bundle::read(path)?;
    let file = match BundleFile::read(&bytes) {
        Ok(file) => file,
        Err(error) => {
            tracing::error!("{}: {error}", at());
            return Ok(EXIT_FAULT);
        }
    };
    let (digest, sequence) = (file.digest(), file.label().sequence);
    let Some(gateway) = gateway_of(&file.label().gateway) else {
        tracing::error!("{}: {:?} is not a Gateway", at(), file.label().gateway);
        return Ok(EXIT_FAULT);
    };
    if let Some(only) = agent.gateway.as_ref().filter(|only| **only != gateway) {
        tracing::error!("{}: the bundle is for Gateway {gateway}, not {only}", at());
        return Ok(EXIT_FAULT);
    }
    let report = agent::report(agent, "/gateways")?;
    let Some(directory) = &report.source.bundle_dir else {
        bail!(
            "the agent reads its configuration from {}; only an agent with --bundle-dir accepts bundles",
            report.source.title()
        );
    };
    if args.allow_older {
        BundleState::open(&args.state_dir)?.allow(&digest)?;
    }
    let AppliedName { stem, name } = AppliedName::new(&gateway)?;
    let target = directory.join(&name);
    bundle::write(&target, &bytes).with_context(|| target.display().to_string())?;
    let waiting = Waiting {
        agent,
        name: &name,
        digest: &digest,
        gateway: gateway.to_string(),
        deadline: Instant::now() + Duration::from_secs(args.timeout_seconds),
    };
    let outcome = waiting.outcome()?;
    match &outcome {
        // Otherwise, the agent would find the rejected bundle at its next start.
        Outcome::Refused(_) => drop(std::fs::remove_file(&target)),
        Outcome::Accepted => forget_others(directory, &stem, &name),
        Outcome::Wrong(_) | Outcome::Late(_) => {}
    }
    let (message, code) = outcome.answer();
    let answer = ApplyAnswer {
        accepted: code == 0,
        gateway: waiting.gateway.clone(),
        sequence,
        digest: digest.clone(),
        message,
    };
    agent.output.write(&answer, || {
        format!(
            "{}, sequence number {sequence} of Gateway {gateway}: {}\n",
            path.display(),
            answer.message
        )
    })?;
    Ok(code)
}

struct AppliedName {
    stem: String,
    name: String,
}

impl AppliedName {
    /// Contains a random number, because the agent may still report earlier bundles.
    fn new(gateway: &NamespacedName) -> anyhow::Result<Self> {
        let mut nonce = [0; 8];
        random::fill(&mut nonce)?;
        let nonce = u64::from_be_bytes(nonce);
        let stem = format!(
            "{APPLIED}{}.",
            &sha256(gateway.to_string().as_bytes())[..16]
        );
        let name = format!("{stem}{nonce:016x}{SUFFIX}");
        Ok(Self { stem, name })
    }
}

enum Outcome {
    Accepted,
    Refused(String),
    /// The agent accepted the bundle, but its Gateway is degraded.
    Wrong(String),
    Late(String),
}

impl Outcome {
    fn answer(self) -> (String, u8) {
        match self {
            Self::Accepted => ("Envoy has accepted it".to_owned(), 0),
            Self::Refused(why) => (format!("it {why}"), EXIT_FAULT),
            Self::Wrong(why) => (why, EXIT_FAULT),
            Self::Late(why) => (why, EXIT_FAILED),
        }
    }
}

struct Waiting<'a> {
    agent: &'a AgentArgs,
    name: &'a str,
    digest: &'a str,
    gateway: String,
    deadline: Instant,
}

impl Waiting<'_> {
    fn outcome(&self) -> anyhow::Result<Outcome> {
        let mut degraded: Option<Instant> = None;
        loop {
            let report = agent::report(self.agent, "/gateways")?;
            let bundles = report.source.bundles.iter();
            let mut ours = bundles.filter(|one| one.file == self.name && one.digest == self.digest);
            let progress = match ours.next_back() {
                Some(BundleReport {
                    state: BundleFileState::Taken,
                    ..
                }) => {
                    let gateway = report
                        .gateways
                        .iter()
                        .find(|one| one.gateway == self.gateway);
                    match gateway {
                        Some(one) if is_served(one) => return Ok(Outcome::Accepted),
                        Some(one) => {
                            let is_degraded = one.state == AgentState::Degraded;
                            degraded = degraded.or_else(|| is_degraded.then(Instant::now));
                            if !is_degraded {
                                degraded = None;
                            }
                            let why = format!(
                                "Gateway {} is {}: {}",
                                self.gateway, one.state, one.message
                            );
                            if degraded.is_some_and(|since| since.elapsed() > TIMEOUT) {
                                return Ok(Outcome::Wrong(why));
                            }
                            why
                        }
                        None => format!("Gateway {} is being started", self.gateway),
                    }
                }
                Some(BundleReport {
                    state: BundleFileState::Superseded,
                    ..
                }) => {
                    return Ok(Outcome::Refused(
                        "is not served, because the directory contains a bundle with a higher sequence number"
                            .to_owned(),
                    ));
                }
                Some(BundleReport {
                    state: BundleFileState::Refused | BundleFileState::Older,
                    reason,
                    ..
                }) => return Ok(Outcome::Refused(reason.clone())),
                _ => match &report.source.reason {
                    reason if reason.is_empty() => "the agent has not read it yet".to_owned(),
                    reason => format!("the agent has not read it yet: {reason}"),
                },
            };
            if Instant::now() > self.deadline {
                return Ok(Outcome::Late(format!(
                    "it was not served within the timeout: {progress}"
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn is_served(gateway: &GatewayReport) -> bool {
    gateway.state == AgentState::Serving
        && gateway.envoy.serves
        && gateway.wanted == gateway.applied
}

fn forget_others(directory: &Path, stem: &str, name: &str) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let found = found.to_string_lossy();
        let nonce = found
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_suffix(SUFFIX));
        let ours = nonce.is_some_and(|nonce| nonce.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if ours && *found != *name {
            // Ignore failures, because a leftover file is harmless.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
