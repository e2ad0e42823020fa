//! `kubectl sesame why`: shows which Gateways serve an object, and the object's conditions.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use sesame_explain::{ServedPlace, served, served_text};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ShownCondition, conditions_of};
use sesame_kinds::world::Kind;
use sesame_proto::terminal::plain;

use super::reading::ClusterReader;

#[derive(Debug, Args)]
pub(super) struct ObjectArgs {
    /// Kind of the object, case-insensitive: singular, plural or short name.
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: Kind,
    /// Name of the object, optionally with its namespace.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServedObject {
    object: String,
    served: Vec<ServedPlace>,
    conditions: Vec<ShownCondition>,
}

/// Returns true if the object is served without problems.
pub(super) async fn main(reader: &ClusterReader, args: &ObjectArgs) -> Result<bool> {
    let ObjectArgs { kind, name } = args;
    if kind.cluster_scoped() {
        bail!("a {kind} is not served directly; specify one of its Gateways");
    }
    let (namespace, name) = name
        .split_once('/')
        .unwrap_or((&reader.default_namespace, name));
    let key = kind.named(NamespacedName::new(namespace, name));
    // Never read Secrets and ConfigMaps, because their content may be secret.
    let shown = match kind {
        Kind::Secret | Kind::ConfigMap => None,
        _ => reader.get(&key).await?,
    };
    let object = key.to_string();
    let snapshots = reader.all_published().await?;
    let answer = ServedObject {
        served: snapshots
            .iter()
            .flat_map(|snapshot| served(snapshot, &object))
            .collect(),
        conditions: shown
            .as_ref()
            .map(|(_, shown)| conditions_of(&shown["status"]))
            .unwrap_or_default(),
        object,
    };
    reader.print(&answer, |_| text(&answer))?;
    let wrong = answer.conditions.iter().any(ShownCondition::is_fault);
    Ok(!answer.served.is_empty() && !wrong)
}

fn text(answer: &ServedObject) -> String {
    let ServedObject {
        object,
        served,
        conditions,
    } = answer;
    let mut text = format!("{}\n", plain(object));
    text.push_str(&served_text(served, plain));
    for condition in conditions {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", plain(&condition.to_string()));
    }
    text
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text).ok_or_else(|| {
        format!("{text:?} is not a kind that Sesame reads; expected a value such as httproute")
    })
}
