//! `sesame-agent validate`: reports all problems in manifests in one run.
//!
//! Envoy itself validates the rendered configuration. The exit code is 1 if there are problems, so
//! the command can gate a commit or a rollout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use sesame_acme::{CertificateRequest, ChallengeMethod};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ConditionStatus, Reason, Section, Statuses};
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_resolver::Problem;

use super::agent::AgentArgs;
use super::host::HostArgs;
use super::offline::{self, Offline, render_options};
use super::output::Format;
use super::settings::{ConfigArgs, LoadedSettings};
use super::{EXIT_FAULT, forecast};
use sesame_apply::Forecast;
use sesame_envoy::locate::locate;
use sesame_envoy::validate::{Validity, validate};
use sesame_sources::problem::{Severity, SourceProblem};

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Directory of Gateway API manifests.
    #[arg(
        long,
        env = "SESAME_MANIFESTS",
        value_name = "DIR",
        required_unless_present = "config"
    )]
    manifests: Option<PathBuf>,
    #[command(flatten)]
    host: HostArgs,
    /// Envoy binary that validates the rendered configuration; by default, `envoy` on the PATH.
    #[arg(long, env = "ENVOY", value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// State directory of this host's agent, to warn about connections that the change would drain.
    #[arg(long, env = "SESAME_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Validation {
    valid: bool,
    findings: Vec<Finding>,
    envoy: BTreeMap<String, EnvoyVerdict>,
    /// Directories of the CAs from which the agent orders certificates, by Secret that the manifests
    /// lack.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ordered: BTreeMap<String, String>,
    /// Further requirements of the orders, by Secret.
    #[serde(skip)]
    provisos: BTreeMap<String, &'static str>,
    /// Cost of the change for Envoy, by Gateway that this host's agent serves.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    forecasts: BTreeMap<String, Forecast>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    #[serde(flatten)]
    problem: SourceProblem,
    /// The condition as `Type=Status`, or `None` if the problem is not a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
}

impl From<SourceProblem> for Finding {
    fn from(problem: SourceProblem) -> Self {
        Self {
            problem,
            condition: None,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EnvoyVerdict {
    accepted: bool,
    message: String,
}

pub(crate) fn main(
    agent: &AgentArgs,
    args: &ValidateArgs,
    config: &ConfigArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    match &args.manifests {
        Some(manifests) if !args.is_of_settings(config) => self::manifests(agent, args, manifests),
        _ => super::validate_settings::main(loaded, args.output),
    }
}

impl ValidateArgs {
    pub(crate) fn is_of_settings(&self, config: &ConfigArgs) -> bool {
        config.named || self.manifests.is_none()
    }
}

fn manifests(agent: &AgentArgs, args: &ValidateArgs, manifests: &Path) -> anyhow::Result<u8> {
    let read = offline::preview(manifests, &args.host)?;
    let mut findings = findings(&read, Timestamp::now());
    let (mut verdicts, mut forecasts) = (BTreeMap::new(), BTreeMap::new());
    let binary = locate(args.envoy.as_deref())?;
    let runtime = super::agent::runtime()?;
    let scratch = tempfile::tempdir()?;
    for gateway in &read.resolution.gateways {
        let rendered = sesame_render::render(
            &gateway.snapshot,
            &gateway.keys,
            &render_options(&args.host),
        );
        findings.extend(rendered.problems.iter().map(|problem| {
            let error = SourceProblem::of_file(Severity::Error, "", problem.message.clone());
            Finding::from(SourceProblem {
                object: Some(problem.object.clone()),
                ..error
            })
        }));
        if let Some(state_dir) = args.state_dir.as_deref().or(agent.state_of_host()) {
            let cost = forecast::forecast_of_running(agent, &args.host, state_dir, gateway)?;
            forecasts.extend(cost.map(|cost| (gateway.gateway.to_string(), cost)));
        }
        let bootstrap = sesame_render::static_bootstrap(&rendered)?;
        let verdict = match runtime.block_on(validate(&binary, scratch.path(), &bootstrap))? {
            Validity::Valid => EnvoyVerdict {
                accepted: true,
                message: String::new(),
            },
            Validity::Invalid { envoy_words } => EnvoyVerdict {
                accepted: false,
                message: envoy_words,
            },
        };
        verdicts.insert(gateway.gateway.to_string(), verdict);
    }
    findings.sort();
    let outcome = Validation {
        valid: verdicts.values().all(|verdict| verdict.accepted) && !has_errors(&findings),
        findings,
        envoy: verdicts,
        ordered: read.ordered.iter().map(ordered).collect(),
        provisos: read.ordered.iter().filter_map(proviso).collect(),
        forecasts,
    };
    args.output.write(&outcome, || text(&outcome))?;
    Ok(if outcome.valid { 0 } else { EXIT_FAULT })
}

fn ordered((secret, request): (&NamespacedName, &CertificateRequest)) -> (String, String) {
    (secret.to_string(), request.issuer.directory.clone())
}

/// Manifests do not show this host's settings and accounts.
fn proviso(
    (secret, request): (&NamespacedName, &CertificateRequest),
) -> Option<(String, &'static str)> {
    let issuer = &request.issuer;
    let is_dns = issuer.method == ChallengeMethod::Dns01;
    let external = issuer.external.as_ref();
    let lacks_key = external.is_some_and(|account| account.key.is_none());
    let proviso = match (is_dns, lacks_key) {
        (false, false) => return None,
        (true, false) => ", if acme-dns-hook is set",
        (false, true) => ", if the account already exists",
        (true, true) => ", if acme-dns-hook is set and the account already exists",
    };
    Some((secret.to_string(), proviso))
}

fn findings(read: &Offline, now: Timestamp) -> Vec<Finding> {
    let Offline {
        manifests: _,
        problems,
        resolution,
        ordered: _,
        implied: _,
    } = read;
    let located =
        |problem: &Problem| SourceProblem::of_object(problem, read.location(&problem.object));
    let mut findings: Vec<Finding> = problems.iter().cloned().map(Finding::from).collect();
    let located_problems = resolution.problems.iter().map(located);
    findings.extend(located_problems.map(Finding::from));
    // An expiring certificate is reported once for each Gateway that serves it.
    for (gateway, expiries) in resolution.expiries() {
        let warnings = expiries.iter().filter_map(|expiry| expiry.warning(now));
        findings.extend(warnings.map(|warning| {
            let object = Kind::Gateway.named(gateway.clone());
            let message = warning.message;
            Finding::from(located(&Problem::new(object, message)))
        }));
    }
    findings.extend(faults(&resolution.statuses, located));
    if resolution.gateways.is_empty() && !has_errors(&findings) {
        let message = "no Gateway would be served: none uses a GatewayClass of this controller (--controller-name)";
        let error = SourceProblem::of_file(Severity::Error, "", message.to_owned());
        findings.push(error.into());
    }
    findings
}

/// Ignores status Unknown, and conditions that are False only because this command does not program
/// Envoy. Also ignores objects that others override, which is valid: `problems` contain a warning.
fn faults(statuses: &Statuses, located: impl Fn(&Problem) -> SourceProblem) -> Vec<Finding> {
    let mut faults = Vec::new();
    for (kind, name, status) in statuses.objects() {
        for (section, conditions) in status.sections() {
            let section = match section {
                Section::Object => String::new(),
                Section::Listener(_, listener) => format!("/listeners/{listener}"),
                Section::Parent(index) => format!("/parentRefs/{index}"),
                Section::Ancestor(index) => format!("/ancestors/{index}"),
            };
            for condition in conditions {
                if !condition.is_fault()
                    || condition.status == ConditionStatus::Unknown
                    || condition.reason == Reason::Overridden
                {
                    continue;
                }
                let name = name.clone();
                let object = ObjectKey { kind, name };
                let named = format!("{object}{section}");
                let message = format!("{}: {}", condition.reason.as_str(), condition.message);
                let (type_, status) = (condition.type_.as_str(), condition.status.as_str());
                faults.push(Finding {
                    problem: SourceProblem {
                        severity: Severity::Error,
                        object: Some(named),
                        ..located(&Problem::new(object, message))
                    },
                    condition: Some(format!("{type_}={status}")),
                });
            }
        }
    }
    faults
}

fn has_errors(findings: &[Finding]) -> bool {
    let severities = &mut findings.iter().map(|finding| finding.problem.severity);
    severities.any(|severity| severity == Severity::Error)
}

fn text(outcome: &Validation) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for Finding { problem, condition } in &outcome.findings {
        let mut line = String::new();
        if !problem.file.is_empty() {
            let _ = write!(line, "{}:{}: ", problem.file, problem.line);
        }
        let _ = write!(line, "{}: ", problem.severity);
        if let Some(object) = &problem.object {
            let _ = write!(line, "{object}: ");
        }
        if let Some(condition) = condition {
            let _ = write!(line, "{condition} ");
        }
        let _ = writeln!(text, "{line}{}", problem.message);
    }
    for (gateway, verdict) in &outcome.envoy {
        let _ = if verdict.accepted {
            writeln!(text, "Envoy accepts Gateway {gateway}")
        } else {
            writeln!(
                text,
                "error: Envoy rejects Gateway {gateway}: {}",
                verdict.message
            )
        };
    }
    for (secret, directory) in &outcome.ordered {
        let proviso = outcome.provisos.get(secret).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "Secret {secret} will be ordered by ACME from {directory}{proviso}"
        );
    }
    for (gateway, forecast) in &outcome.forecasts {
        let _ = writeln!(text, "forecast for Gateway {gateway}: {forecast}");
    }
    text.push_str(if outcome.valid {
        "valid\n"
    } else {
        "not valid\n"
    });
    text
}
