//! `sesame-agent validate`: reports everything that is wrong, at once.
//!
//! The files come first, then the objects, then what cannot be expressed for Envoy, then Envoy's own verdict on what
//! is left. The exit code is 1 if anything is wrong, so that the command can guard a commit or a roll-out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use sesame_gateway_api::expiry::Expiry;
use sesame_gateway_api::status::{Condition, ConditionStatus, Section, Statuses};
use sesame_gateway_api::world::{Kind, ObjectKey};

use super::EXIT_WRONG;
use super::host::HostArgs;
use super::offline::{self, Offline, render_options};
use super::output::Format;
use super::settings::{ConfigArgs, LoadedSettings};
use crate::envoy::locate::locate;
use crate::envoy::validate::{Verdict, validate};
use crate::source::problem::Severity;

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
    /// Envoy that judges the result; `envoy` on the PATH by default.
    #[arg(long, env = "ENVOY", value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Format of the answer.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

/// The whole outcome.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    valid: bool,
    findings: Vec<Finding>,
    /// Envoy's verdict by Gateway.
    envoy: BTreeMap<String, EnvoyVerdict>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    file: String,
    line: usize,
    severity: Severity,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EnvoyVerdict {
    accepted: bool,
    message: String,
}

/// Validates manifests, or, if the command line names a settings file or no manifests, the settings.
pub(crate) fn main(
    args: &ValidateArgs,
    config: &ConfigArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    match &args.manifests {
        Some(manifests) if !args.is_of_settings(config) => self::manifests(args, manifests),
        _ => super::validate_settings::main(loaded, args.output),
    }
}

impl ValidateArgs {
    /// Returns whether it is the settings that are to be validated.
    pub(crate) fn is_of_settings(&self, config: &ConfigArgs) -> bool {
        config.named || self.manifests.is_none()
    }
}

fn manifests(args: &ValidateArgs, manifests: &Path) -> anyhow::Result<u8> {
    let read = offline::read(manifests, &args.host)?;
    let mut findings = findings(&read, Timestamp::now());
    let mut verdicts = BTreeMap::new();
    let binary = locate(args.envoy.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let scratch = tempfile::tempdir()?;
    for gateway in &read.resolution.gateways {
        let rendered = sesame_render::render(
            &gateway.snapshot,
            &gateway.keys,
            &render_options(&args.host),
        );
        for problem in &rendered.problems {
            findings.push(Finding {
                file: String::new(),
                line: 0,
                severity: Severity::Error,
                object: Some(problem.object.clone()),
                condition: None,
                message: problem.message.clone(),
            });
        }
        let bootstrap = sesame_render::static_bootstrap(&rendered)?;
        let verdict = match runtime.block_on(validate(&binary, scratch.path(), &bootstrap))? {
            Verdict::Valid => EnvoyVerdict {
                accepted: true,
                message: String::new(),
            },
            Verdict::Invalid { envoy_words } => EnvoyVerdict {
                accepted: false,
                message: envoy_words,
            },
        };
        verdicts.insert(gateway.gateway.to_string(), verdict);
    }
    findings.sort();
    let outcome = Outcome {
        valid: verdicts.values().all(|verdict| verdict.accepted)
            && findings
                .iter()
                .all(|finding| finding.severity != Severity::Error),
        findings,
        envoy: verdicts,
    };
    args.output.write(&outcome, || text(&outcome))?;
    Ok(if outcome.valid { 0 } else { EXIT_WRONG })
}

fn findings(read: &Offline, now: Timestamp) -> Vec<Finding> {
    let Offline {
        manifests,
        problems,
        resolution,
    } = read;
    let place = |object: &ObjectKey| {
        manifests
            .location(object)
            .map_or((String::new(), 0), |(file, line)| {
                (file.display().to_string(), line)
            })
    };
    let mut findings: Vec<Finding> = problems
        .iter()
        .map(|problem| Finding {
            file: problem.file.clone(),
            line: problem.line,
            severity: problem.severity,
            object: problem.object.clone(),
            condition: None,
            message: problem.message.clone(),
        })
        .collect();
    for problem in &resolution.problems {
        let (file, line) = place(&problem.object);
        findings.push(Finding {
            file,
            line,
            severity: Severity::Warning,
            object: Some(problem.object.to_string()),
            condition: None,
            message: problem.message.clone(),
        });
    }
    // A certificate that several Gateways serve is reported for each.
    for gateway in &resolution.gateways {
        let object = ObjectKey {
            kind: Kind::Gateway,
            name: gateway.gateway.clone(),
        };
        let expiries = gateway.keys.iter().filter_map(Expiry::of);
        for warning in expiries.filter_map(|expiry| expiry.warning(now)) {
            let (file, line) = place(&object);
            findings.push(Finding {
                file,
                line,
                severity: Severity::Warning,
                object: Some(object.to_string()),
                condition: None,
                message: warning.message,
            });
        }
    }
    for_each_condition(&resolution.statuses, &mut |object, section, condition| {
        // Nothing is programmed here: only what is False for a reason of its own counts.
        if condition.is_fault() && condition.status != ConditionStatus::Unknown {
            let (file, line) = place(&object);
            findings.push(Finding {
                file,
                line,
                severity: Severity::Error,
                object: Some(match section {
                    Some(section) => format!("{object}/{section}"),
                    None => object.to_string(),
                }),
                condition: Some(format!(
                    "{}={}",
                    condition.type_.as_str(),
                    condition.status.as_str()
                )),
                message: format!("{}: {}", condition.reason.as_str(), condition.message),
            });
        }
    });
    if resolution.gateways.is_empty()
        && findings
            .iter()
            .all(|finding| finding.severity != Severity::Error)
    {
        findings.push(Finding {
            file: String::new(),
            line: 0,
            severity: Severity::Error,
            object: None,
            condition: None,
            message: "no Gateway would be served: there is none whose GatewayClass names this controller (--controller-name)".to_owned(),
        });
    }
    findings
}

fn for_each_condition(
    statuses: &Statuses,
    visit: &mut dyn FnMut(ObjectKey, Option<String>, &Condition),
) {
    for (kind, name, status) in statuses.objects() {
        for (section, conditions) in status.sections() {
            let section = match section {
                Section::Object => None,
                Section::Listener(_, listener) => Some(format!("listeners/{listener}")),
                Section::Parent(index) => Some(format!("parentRefs/{index}")),
                Section::Ancestor(index) => Some(format!("ancestors/{index}")),
            };
            for condition in conditions {
                let name = name.clone();
                visit(ObjectKey { kind, name }, section.clone(), condition);
            }
        }
    }
}

fn text(outcome: &Outcome) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for finding in &outcome.findings {
        let mut line = String::new();
        if !finding.file.is_empty() {
            let _ = write!(line, "{}:{}: ", finding.file, finding.line);
        }
        let _ = write!(line, "{}: ", finding.severity);
        if let Some(object) = &finding.object {
            let _ = write!(line, "{object}: ");
        }
        if let Some(condition) = &finding.condition {
            let _ = write!(line, "{condition} ");
        }
        let _ = writeln!(text, "{line}{}", finding.message);
    }
    for (gateway, verdict) in &outcome.envoy {
        let _ = if verdict.accepted {
            writeln!(text, "Envoy accepts Gateway {gateway}")
        } else {
            writeln!(
                text,
                "error: Envoy refuses Gateway {gateway}: {}",
                verdict.message
            )
        };
    }
    text.push_str(if outcome.valid {
        "valid\n"
    } else {
        "not valid\n"
    });
    text
}
