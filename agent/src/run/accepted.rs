//! What Envoy accepted last, kept for a start with nothing else alive: snapshots and keys of every Gateway.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use prost::Message as _;
use sesame_controller::api::NamespacedName;
use sesame_controller::resolve::ResolvedGateway;
use sesame_proto::keys;
use sesame_proto::schema::Snapshot;

use super::directories::Directories;
use super::wanted::Wanted;
use crate::apply::state::{Accepted, Generation, StateDir};

/// The most that a stored snapshot may take once decompressed.
const MAX_SNAPSHOT_BYTES: u64 = 512 << 20;

/// Makes `wanted`, with this digest of all but its endpoints, what the next cold start serves.
pub(super) fn save(directory: &Path, wanted: &Wanted, config: &str) -> anyhow::Result<()> {
    let snapshot = zstd::bulk::compress(&wanted.packed.bytes(), 1)
        .context("the snapshot cannot be compressed")?;
    StateDir::open(directory, StateDir::KEEP)?.accept(Accepted {
        revision: wanted.revision(),
        config,
        cause: &wanted.cause,
        time: Timestamp::now(),
        snapshot: &snapshot,
        keys: &keys::encode(wanted.packed.keys()),
        addresses: &wanted.assignment.addresses,
    })?;
    Ok(())
}

/// What was accepted of every Gateway, and where it was served; what cannot be read is logged and left out.
pub(super) fn load_all(
    directories: &Directories,
) -> (Vec<ResolvedGateway>, BTreeMap<NamespacedName, Vec<IpAddr>>) {
    let mut gateways = Vec::new();
    let mut addresses = BTreeMap::new();
    for directory in directories.gateway_states() {
        let loaded = generation(&directory).and_then(|generation| {
            let read = |generation: Generation| Ok((read(&generation)?, generation.meta.addresses));
            generation.map(read).transpose()
        });
        match loaded {
            Ok(Some((gateway, served_at))) => {
                addresses.insert(gateway.gateway.clone(), served_at);
                gateways.push(gateway);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(directory = %directory.display(), "the accepted configuration cannot be read: {error:#}");
            }
        }
    }
    gateways.sort_by(|a, b| a.gateway.cmp(&b.gateway));
    (gateways, addresses)
}

/// Forgets a Gateway that was withdrawn: a cold start must not bring it back.
pub(super) fn forget(directories: &Directories, gateway: &NamespacedName) {
    let directory = directories.gateway(gateway).state;
    // All of it at once: half of it may be an older generation.
    let withdrawn = directories.withdrawn();
    let removed =
        std::fs::rename(&directory, &withdrawn).and_then(|()| std::fs::remove_dir_all(&withdrawn));
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%gateway, %error, directory = %directory.display(), "the withdrawn Gateway's accepted configuration cannot be removed");
    }
}

/// What was accepted last of the Gateway of a directory.
pub(super) fn load(directory: &Path) -> anyhow::Result<Option<ResolvedGateway>> {
    let generation = generation(directory)?;
    generation.map(|generation| read(&generation)).transpose()
}

fn generation(directory: &Path) -> anyhow::Result<Option<Generation>> {
    let loaded = StateDir::view(directory).load_accepted()?;
    for damage in &loaded.damage {
        tracing::warn!(directory = %directory.display(), "{damage}");
    }
    Ok(loaded.generation)
}

/// What a generation holds.
pub(super) fn read(generation: &Generation) -> anyhow::Result<ResolvedGateway> {
    let mut bytes = Vec::new();
    zstd::stream::read::Decoder::new(generation.snapshot.as_ref())?
        .take(MAX_SNAPSHOT_BYTES + 1)
        .read_to_end(&mut bytes)
        .context("the snapshot cannot be decompressed")?;
    if bytes.len() as u64 > MAX_SNAPSHOT_BYTES {
        bail!("the snapshot is larger than {MAX_SNAPSHOT_BYTES} bytes once decompressed");
    }
    let snapshot = Snapshot::decode(bytes.as_slice()).context("the snapshot cannot be decoded")?;
    let gateway = match snapshot.gateway.split('/').collect::<Vec<_>>().as_slice() {
        ["Gateway", namespace, name] => NamespacedName::new(namespace, name),
        _ => bail!(
            "the snapshot is of {:?}, which is no Gateway",
            snapshot.gateway
        ),
    };
    Ok(ResolvedGateway {
        gateway,
        keys: keys::decode(&generation.keys).context("the keys cannot be decoded")?,
        snapshot,
    })
}
