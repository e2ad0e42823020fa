//! `sesame-agent bundle diff`: compares two bundles.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use sesame_kinds::api::NamespacedName;
use sesame_proto::bundle::{self, BundleDifference, BundleFile, NameDifference};
use sesame_proto::schema::Snapshot;

use crate::cli::EXIT_FAULT;
use crate::cli::output::Format;
use sesame_engine::DEFAULT_STATE_DIR;
use sesame_engine::history::History;
use sesame_sources::update::gateway_of;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// First bundle; without a second one, it is compared with this host's last accepted
    /// configuration.
    #[arg(value_name = "BUNDLE")]
    from: PathBuf,
    /// Second bundle.
    #[arg(value_name = "BUNDLE2")]
    to: Option<PathBuf>,
    /// State directory of the agent.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    /// Output format.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangedName {
    kind: &'static str,
    change: &'static str,
    name: String,
}

/// Like `diff`, exits with 0 if the bundles are equal, and with 1 if they differ.
pub(super) fn main(args: &CompareArgs) -> anyhow::Result<u8> {
    let (first, gateway) = read(&args.from)?;
    let (from, to) = if let Some(to) = &args.to {
        (first, read(to)?.0)
    } else {
        let history = History::open(&args.state_dir, gateway.as_ref())?;
        (history.accepted_last()?, first)
    };
    let changes = changes(&bundle::difference(&from, &to));
    args.output.write(&changes, || {
        let mut text = String::new();
        for ChangedName { kind, change, name } in &changes {
            let mark = match *change {
                "added" => '+',
                "removed" => '-',
                _ => '~',
            };
            let _ = writeln!(text, "{mark} {kind} {name}");
        }
        text
    })?;
    Ok(if changes.is_empty() { 0 } else { EXIT_FAULT })
}

fn read(path: &Path) -> anyhow::Result<(Snapshot, Option<NamespacedName>)> {
    let at = || path.display().to_string();
    let bytes = super::read(&path.to_owned())?;
    let file = BundleFile::read(&bytes).with_context(at)?;
    let snapshot = file.snapshot().with_context(at)?;
    Ok((snapshot, gateway_of(&file.label().gateway)))
}

fn changes(difference: &BundleDifference) -> Vec<ChangedName> {
    let BundleDifference {
        listeners,
        virtual_hosts,
        backends,
        endpoints,
        keys,
        trust_bundles,
        settings,
    } = difference;
    let mut all = Vec::new();
    for (kind, difference) in [
        ("listener", listeners),
        ("virtual host", virtual_hosts),
        ("backend", backends),
        ("endpoints", endpoints),
        ("key", keys),
        ("CA bundle", trust_bundles),
    ] {
        let NameDifference {
            added,
            removed,
            changed,
        } = difference;
        for (change, names) in [("added", added), ("removed", removed), ("changed", changed)] {
            all.extend(names.iter().map(|name| ChangedName {
                kind,
                change,
                name: name.clone(),
            }));
        }
    }
    if *settings {
        all.push(ChangedName {
            kind: "settings",
            change: "changed",
            name: "addresses or settings for client connections".to_owned(),
        });
    }
    all
}
