//! `sesame-controller fleet`: shows and approves the changes needed to adopt an existing fleet.

use std::fmt::Write as _;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use kube::Client;
use serde_json::{Value, json};

use sesame_kinds::api::NamespacedName;
use sesame_published::names::ADOPT_ANNOTATION;

use super::hosts::{ClusterLocation, gateway};
use crate::adopt::{self, FleetComparison, FleetOwner, FleetState};
use crate::connection;
use crate::provision::{AdoptionAction, ObjectAction};

#[derive(Debug, Args)]
pub(super) struct FleetArgs {
    #[command(flatten)]
    at: ClusterLocation,
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Show the changes needed to adopt a Gateway's existing fleet, without making them. Exits with
    /// 0 if there is nothing to adopt, otherwise with 1
    Diff {
        /// The Gateway. For Gateways that are served together, the controller's namespace and the
        /// name of the shared GatewayClass
        #[arg(value_name = "NAMESPACE/NAME", value_parser = gateway)]
        gateway: NamespacedName,
        /// Output format
        #[arg(long, short, value_enum, default_value_t)]
        output: FleetOutput,
    },
    /// Approve the changes shown by `fleet diff`, with an annotation on the Gateway or
    /// GatewayClass; the controller then adopts the fleet
    Adopt {
        /// The Gateway. For Gateways that are served together, the controller's namespace and the
        /// name of the shared GatewayClass
        #[arg(value_name = "NAMESPACE/NAME", value_parser = gateway)]
        gateway: NamespacedName,
        /// Agreement printed by `fleet diff`. It covers only the objects and changes shown there
        #[arg(value_name = "AGREEMENT")]
        consent: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FleetOutput {
    /// Human-readable text
    #[default]
    Text,
    /// One JSON object
    Json,
    /// The same content as YAML
    Yaml,
}

/// Returns true if there is nothing to adopt or report.
pub(super) fn main(args: FleetArgs) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(answer(args))
}

async fn answer(args: FleetArgs) -> Result<bool> {
    let ClusterLocation {
        kubeconfig,
        namespace,
    } = args.at;
    let config = connection::config(kubeconfig.as_deref()).await?;
    let client = Client::try_from(config)?;
    match args.command {
        FleetCommand::Diff { gateway, output } => {
            let (owner, found) = adopt::inspect(&client, &namespace, &gateway).await?;
            let document = document(&gateway, &found);
            let text = match output {
                FleetOutput::Text => text(&gateway, &owner, &found),
                FleetOutput::Json => format!("{document:#}\n"),
                FleetOutput::Yaml => serde_saphyr::to_string(&document)?,
            };
            super::output(text.as_bytes())?;
            Ok(matches!(found, FleetState::Settled(None)))
        }
        FleetCommand::Adopt { gateway, consent } => {
            let owner = adopt::agree(&client, &namespace, &gateway, &consent).await?;
            let text = format!("{owner} is annotated with {ADOPT_ANNOTATION}: {consent}\n");
            super::output(text.as_bytes())?;
            Ok(true)
        }
    }
}

fn document(gateway: &NamespacedName, found: &FleetState) -> Value {
    let FleetState::There(comparison) = found else {
        let FleetState::Settled(incomplete) = found else {
            return Value::Null;
        };
        return json!({"gateway": gateway.to_string(), "objects": [], "incomplete": incomplete});
    };
    let FleetComparison {
        objects,
        consent,
        is_current,
    } = comparison;
    let objects = objects.iter().map(|ObjectAction { kind, name, action }| {
        let mut object = json!({"kind": kind, "namespace": name.namespace, "name": name.name});
        object["fate"] = json!(word(action));
        match action {
            AdoptionAction::Adopted { changes, .. } => object["changes"] = json!(changes),
            AdoptionAction::Foreign(why) => object["reason"] = json!(why),
            AdoptionAction::Created | AdoptionAction::Kept => {}
        }
        object
    });
    json!({
        "gateway": gateway.to_string(),
        "objects": objects.collect::<Value>(),
        "podsRestart": comparison.restarts_pods(),
        "agreement": consent,
        "current": is_current,
    })
}

fn word(action: &AdoptionAction) -> &'static str {
    match action {
        AdoptionAction::Created => "created",
        AdoptionAction::Kept => "kept",
        AdoptionAction::Adopted { changes, .. } if changes.is_empty() => "adopted unchanged",
        AdoptionAction::Adopted { .. } => "adopted with changes",
        AdoptionAction::Foreign(_) => "foreign",
    }
}

fn text(gateway: &NamespacedName, owner: &FleetOwner, found: &FleetState) -> String {
    let comparison = match found {
        FleetState::Settled(None) => {
            return format!("{owner}: there is nothing to adopt\n");
        }
        FleetState::Settled(Some(why)) => {
            return format!("{owner}: there is nothing to adopt, but {why}\n");
        }
        FleetState::There(comparison) => comparison,
    };
    let mut text = format!("Fleet of {owner}:\n");
    for ObjectAction { kind, name, action } in &comparison.objects {
        // Writing to a String cannot fail.
        let _ = write!(text, "{kind} {name}: {}", word(action));
        match action {
            AdoptionAction::Adopted { changes, .. } => {
                text.push('\n');
                for change in changes {
                    for (sign, value) in [('-', &change.before), ('+', &change.after)] {
                        if !value.is_null() {
                            let _ = writeln!(text, "  {sign} {}: {}", change.field, shown(value));
                        }
                    }
                }
            }
            AdoptionAction::Foreign(why) => {
                let _ = writeln!(text, ", {why}");
            }
            AdoptionAction::Created | AdoptionAction::Kept => text.push('\n'),
        }
    }
    text.push('\n');
    text.push_str(if comparison.restarts_pods() {
        "Pods restart in a rolling update.\n"
    } else {
        "No Pod restarts.\n"
    });
    let _ = match &comparison.consent {
        None => writeln!(
            text,
            "The fleet cannot be adopted while it contains foreign objects: rename or delete them."
        ),
        Some(consent) => writeln!(
            text,
            "To approve exactly these changes:\n  sesame-controller fleet adopt {gateway} {consent}\nor \
            in the manifest of {owner}:\n  metadata:\n    annotations:\n      {ADOPT_ANNOTATION}: \
            {consent}"
        ),
    };
    if !comparison.is_current {
        text.push_str(
            "The controller has not processed these changes yet; try again in a moment.\n",
        );
    }
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
