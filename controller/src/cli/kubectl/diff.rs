//! Shows which requests would be handled differently if the given objects were applied. Secrets and
//! ConfigMaps are read only if referenced, and never shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, bail, ensure};
use clap::Args;
use sesame_explain::{ChangedAnswer, changed_answers, changes_text};
use sesame_files::open::{self, Rule};
use sesame_kinds::api::{NamespacedName, SesameConfiguration};
use sesame_kinds::decode::{DecodeLimits, decode, decode_value, split};
use sesame_kinds::world::{Kind, World};
use sesame_proto::schema::{Rollout, Snapshot};
use sesame_proto::terminal::plain;
use sesame_proto::{digest, drained, owned};
use sesame_resolver::settings::check::faults;
use sesame_resolver::{
    Options, RemoteKeySets, ResolvedFor, report_only, resolve, with_implied_gateway,
};

use super::reading::{ClusterReader, Listed};
use super::replay::ClusterReplayArgs;
use crate::configuration::read;
use crate::watch::references;

const MAX_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct ManifestArgs {
    /// File with objects, as for `kubectl apply`; `-` is standard input. Repeatable; optional if
    /// `spec.ingress.watch` is `Report`, because the difference to `Serve` is then shown.
    #[arg(long, short, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// The controller's own SesameConfiguration; defaults if unset.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    replay: ClusterReplayArgs,
}

/// Returns true if no request would be handled differently.
pub(super) async fn main(reader: &ClusterReader, args: &ManifestArgs) -> Result<bool> {
    args.replay.check(&args.filename)?;
    let mut world = read_world(reader).await?;
    let mut changed = world.clone();
    for file in &args.filename {
        add_file(&mut changed, file)?;
    }
    let served = Options {
        controller_name: reader.controller_name.clone(),
        resolved_for: ResolvedFor::Cluster,
        namespace: reader.published_in.clone(),
        configuration: configuration(args.config.as_deref())?,
        ..Options::default()
    };
    if args.config.is_none() && !(world.ingresses.is_empty() && world.http_proxies.is_empty()) {
        print_note(
            "spec.ingress of the controller's own configuration is unknown; if it has one, use \
             --config",
        );
    }
    let note = report_only(&world, &served);
    match note {
        Some(note) => print_note(note),
        None if args.filename.is_empty() => {
            bail!("--filename is missing; it is optional only if spec.ingress.watch is Report");
        }
        None => {}
    }
    // Only the new state includes reported objects, so the output lists what they would change.
    let options = Options {
        preview: note.is_some(),
        ..served.clone()
    };
    add_references(
        reader,
        &mut [(&mut world, &options), (&mut changed, &options)],
    )
    .await?;
    let (old, new) = (snapshots(&world, &served), snapshots(&changed, &options));
    if let Some(log) = &args.replay.requests {
        return args.replay.compare(reader, log, [old, new]);
    }
    for (name, old) in &old {
        if let Some(note) = new.get(name).and_then(|new| drains(name, old, new)) {
            print_note(&note);
        }
    }
    let names: BTreeSet<&NamespacedName> = old.keys().chain(new.keys()).collect();
    let mut answers: Vec<ChangedAnswer> = names
        .into_iter()
        .flat_map(|name| changed_answers(old.get(name), new.get(name)))
        .collect();
    answers.sort();
    reader.print(&answers, |_| changes_text(&answers, plain))?;
    Ok(answers.is_empty())
}

/// Describes the ports whose connections drain.
fn drains(gateway: &NamespacedName, old: &Snapshot, new: &Snapshot) -> Option<String> {
    let ports = drained::ports(old, new).into_iter();
    let ports = ports.map(|(transport, port)| format!("{port}/{}", transport.as_str_name()));
    let ports = ports.collect::<Vec<_>>().join(", ");
    let rollout = new.rollout.as_ref();
    let is_owners = owned::listeners(old) != owned::listeners(new);
    let is_held = |it: &Rollout| it.hold_draining && it.approved != digest::listeners(new);
    let held = if is_owners && rollout.is_some_and(is_held) {
        "; hosts hold the change until it is approved, or a maintenance window opens"
    } else {
        ""
    };
    let note = format!("the change of Gateway {gateway} may drain connections to {ports}{held}");
    Some(note).filter(|_| !ports.is_empty())
}

/// Reads all objects except for Secrets and ConfigMaps.
pub(super) async fn read_world(reader: &ClusterReader) -> Result<World> {
    let mut world = World::default();
    for kind in Kind::ALL.iter().copied() {
        if !matches!(kind, Kind::Secret | Kind::ConfigMap) {
            add_kind(reader, &mut world, kind).await?;
        }
    }
    Ok(world)
}

/// Adds the Secrets and ConfigMaps that any of the worlds references, unless a world has its own.
pub(super) async fn add_references(
    reader: &ClusterReader,
    worlds: &mut [(&mut World, &Options)],
) -> Result<()> {
    let wanted = worlds.iter().map(|(world, options)| {
        let world = &*with_implied_gateway(world, options);
        let key_sets = RemoteKeySets::of(world, options);
        references(world, options, &key_sets)
    });
    let wanted: BTreeSet<_> = wanted.flatten().collect();
    for key in wanted {
        let Some((version, value)) = reader.get(&key).await? else {
            print_note(&format!(
                "{key} cannot be read; objects that need it are excluded from the comparison"
            ));
            continue;
        };
        if let Ok(decoded) = decode_value(value, key.kind, version) {
            for (world, _) in &mut *worlds {
                if !world.contains(&key) {
                    world.insert(decoded.object.clone());
                }
            }
        }
    }
    Ok(())
}

pub(super) fn configuration(file: Option<&Path>) -> Result<Option<Arc<SesameConfiguration>>> {
    let Some(file) = file else {
        return Ok(None);
    };
    let configuration = read(file).map_err(Error::msg)?;
    let faults = faults(&configuration);
    ensure!(
        faults.is_empty(),
        "{}: {}",
        file.display(),
        faults.join("; ")
    );
    Ok(Some(Arc::new(configuration)))
}

/// Skips kinds that the caller may not read, and prints a note.
async fn add_kind(reader: &ClusterReader, world: &mut World, kind: Kind) -> Result<()> {
    match reader.list(kind, None).await? {
        Listed::Missing => {}
        Listed::Refused(why) => {
            print_note(&format!("{kind} is excluded from the comparison: {why}"));
        }
        Listed::Objects(version, objects) => {
            for value in objects {
                match decode_value(value, kind, version) {
                    Ok(decoded) => world.insert(decoded.object),
                    Err(error) => print_note(&format!("excluded from the comparison: {error}")),
                }
            }
        }
    }
    Ok(())
}

fn add_file(world: &mut World, file: &Path) -> Result<()> {
    let at = || file.display().to_string();
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().take(MAX_BYTES).read_to_string(&mut text)?;
        text
    } else {
        open::read_text(file, Rule::GivenByLink, MAX_BYTES).with_context(at)?
    };
    let documents = split(&text);
    if documents.is_empty() {
        bail!("{}: no objects found", at());
    }
    for document in documents {
        for decoded in decode(document.text, &DecodeLimits::default()) {
            match decoded {
                Ok(decoded) => world.insert(decoded.object),
                Err(error) if error.is_unsupported() => {
                    print_note(&format!("{}: {error}; it does not affect routes", at()));
                }
                Err(error) => bail!("{}, line {}: {error}", at(), document.line),
            }
        }
    }
    Ok(())
}

fn snapshots(world: &World, options: &Options) -> BTreeMap<NamespacedName, Snapshot> {
    let resolved = resolve(world, options).gateways.into_iter();
    resolved
        .map(|gateway| (gateway.gateway, gateway.snapshot))
        .collect()
}

pub(super) fn print_note(message: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "note: {}", plain(message));
}
