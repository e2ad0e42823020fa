//! Stores each Gateway's last accepted snapshot and keys, because Envoy must start without the
//! source.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use sesame_files::open::{self, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::bounds;
use sesame_proto::schema::Snapshot;
use sesame_resolver::ResolvedGateway;

use super::directories::Directories;
use super::kept_keys;
use super::target::Target;
use sesame_apply::state::{Accepted, Generation, StateDir};
use sesame_host::durable::replace_file;
use sesame_host::{create_directory, remove_directory_if_exists, remove_if_exists};
use sesame_sources::seal::SealingKeys;

/// Marks a Gateway as withdrawn. The file contains the Gateway's name.
const WITHDRAWN: &str = "withdrawn";
/// Maximum size of a decompressed snapshot in bytes.
const MAX_SNAPSHOT_BYTES: u64 = 512 << 20;
/// Maximum size of a decoded snapshot in bytes. Decoding usually multiplies the size by about
/// seven.
const MAX_DECODED_BYTES: u64 = 8 * MAX_SNAPSHOT_BYTES;

/// `config` is the digest of `wanted` without its endpoints.
pub(super) fn save(
    directory: &Path,
    wanted: &Target,
    config: &str,
    sealing: &SealingKeys,
) -> anyhow::Result<StateDir> {
    let state = StateDir::open(directory, StateDir::KEEP)?;
    let named = &wanted.encoded.rest().keys;
    let keys = kept_keys::encode(wanted.encoded.keys(), named, &state, sealing)?;
    let snapshot =
        zstd::bulk::compress(&wanted.encoded.bytes(), 1).context("cannot compress the snapshot")?;
    state.accept(Accepted {
        revision: wanted.revision(),
        config,
        cause: &wanted.cause,
        time: Timestamp::now(),
        snapshot: &snapshot,
        keys: &keys,
        addresses: &wanted.assignment.addresses,
    })?;
    Ok(state)
}

pub(super) fn revoke_others(state: &StateDir, wanted: &Target) -> anyhow::Result<()> {
    kept_keys::revoke_others(state, &wanted.encoded.rest().keys)
        .context("cannot remove withdrawn or replaced keys from older generations")
}

pub(super) fn reseal(directories: &Directories, sealing: &SealingKeys) {
    for directory in directories.gateway_states() {
        let sealed = StateDir::open(&directory, StateDir::KEEP)
            .and_then(|state| kept_keys::reseal(&state, sealing));
        if let Err(error) = sealed {
            tracing::warn!(directory = %directory.display(), "cannot reseal the keys of accepted configurations: {error}");
        }
    }
}

/// Logs and skips unreadable state.
pub(super) fn load_all(
    directories: &Directories,
    sealing: &SealingKeys,
) -> (Vec<ResolvedGateway>, BTreeMap<NamespacedName, Vec<IpAddr>>) {
    let mut gateways = Vec::new();
    let mut addresses = BTreeMap::new();
    for directory in directories.gateway_states() {
        if name_of_withdrawn(directories, &directory).is_some() {
            continue;
        }
        let loaded = generation(&directory).and_then(|generation| {
            let state = StateDir::view(&directory);
            let read = |generation: Generation| {
                Ok((
                    read(&state, &generation, sealing)?,
                    generation.meta.addresses,
                ))
            };
            generation.map(read).transpose()
        });
        match loaded {
            Ok(Some((gateway, served_at))) => {
                addresses.insert(gateway.gateway.clone(), served_at);
                gateways.push(gateway);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(directory = %directory.display(), "cannot read the accepted configuration: {error:#}");
            }
        }
    }
    gateways.sort_by(|a, b| a.gateway.cmp(&b.gateway));
    (gateways, addresses)
}

/// Marks the Gateway, so that the next agent does not serve it even if this agent dies before the
/// Gateway's Envoy has exited.
pub(super) fn withdraw(directories: &Directories, gateway: &NamespacedName) {
    let directory = directories.gateway(gateway).state;
    let noted = create_directory(&directory)
        .and_then(|()| replace_file(&directory.join(WITHDRAWN), gateway.to_string().as_bytes()));
    if let Err(error) = noted {
        tracing::warn!(%gateway, %error, directory = %directory.display(), "cannot store the withdrawal of the Gateway; if the agent dies before Envoy exits, the next agent serves the Gateway again");
    }
}

/// If [`forget`] failed, a Gateway that is declared again is still marked as withdrawn.
pub(super) fn unmark_withdrawn(directories: &Directories, gateway: &NamespacedName) {
    let note = directories.gateway(gateway).state.join(WITHDRAWN);
    if let Err(error) = remove_if_exists(&note) {
        tracing::warn!(%gateway, %error, note = %note.display(), "cannot remove the record of the Gateway's withdrawal");
    }
}

/// Returns withdrawn Gateways, whose Envoy processes may have outlived the previous agent.
pub(super) fn withdrawn(directories: &Directories) -> BTreeMap<NamespacedName, Vec<IpAddr>> {
    let states = directories.gateway_states().into_iter();
    let named = states.filter_map(|directory| {
        let name = name_of_withdrawn(directories, &directory)?;
        let last = generation(&directory).ok().flatten();
        Some((name, last.map(|last| last.meta.addresses)))
    });
    named
        .map(|(name, addresses)| (name, addresses.unwrap_or_default()))
        .collect()
}

fn name_of_withdrawn(directories: &Directories, directory: &Path) -> Option<NamespacedName> {
    let text = open::read_text(&directory.join(WITHDRAWN), Rule::Own, 1024).ok()?;
    let (namespace, name) = text.split_once('/')?;
    let gateway = NamespacedName::new(namespace, name);
    (directories.gateway(&gateway).state == directory).then_some(gateway)
}

pub(super) fn forget(directories: &Directories, gateway: &NamespacedName) {
    let directory = directories.gateway(gateway).state;
    // Rename first: if removal stopped halfway, an older generation might look like the accepted
    // one.
    let withdrawn = directories.withdrawn();
    let removed = remove_directory_if_exists(&withdrawn)
        .and_then(|()| std::fs::rename(&directory, &withdrawn))
        .and_then(|()| std::fs::remove_dir_all(&withdrawn));
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%gateway, %error, directory = %directory.display(), "cannot remove the withdrawn Gateway's accepted configuration");
    }
}

pub(super) fn load(
    directory: &Path,
    sealing: &SealingKeys,
) -> anyhow::Result<Option<ResolvedGateway>> {
    let state = StateDir::view(directory);
    let generation = generation(directory)?;
    let read = generation.map(|generation| read(&state, &generation, sealing));
    read.transpose()
}

pub(super) fn load_public(directory: &Path) -> anyhow::Result<Option<ResolvedGateway>> {
    let Some(generation) = generation(directory)? else {
        return Ok(None);
    };
    let (gateway, snapshot) = read_snapshot(&generation)?;
    let keys = kept_keys::public(&generation.keys).context("cannot read the keys")?;
    Ok(Some(ResolvedGateway {
        gateway,
        snapshot,
        keys,
    }))
}

fn generation(directory: &Path) -> anyhow::Result<Option<Generation>> {
    let loaded = StateDir::view(directory).load_accepted()?;
    for damage in &loaded.damage {
        tracing::warn!(directory = %directory.display(), "{damage}");
    }
    Ok(loaded.generation)
}

/// Logs and skips keys that are missing or cannot be read.
pub(super) fn read(
    state: &StateDir,
    generation: &Generation,
    sealing: &SealingKeys,
) -> anyhow::Result<ResolvedGateway> {
    let (gateway, mut snapshot) = read_snapshot(generation)?;
    let found = kept_keys::find(&mut snapshot, &generation.keys, state, sealing);
    let (keys, problems) = found.context("cannot read the keys")?;
    for problem in problems {
        let number = generation.meta.number;
        tracing::warn!(%gateway, generation = number, "{problem}; listeners and backends that need this key are not served until the source provides it again");
    }
    Ok(ResolvedGateway {
        gateway,
        snapshot,
        keys,
    })
}

pub(super) fn read_snapshot(generation: &Generation) -> anyhow::Result<(NamespacedName, Snapshot)> {
    let mut bytes = Vec::new();
    zstd::stream::read::Decoder::new(generation.snapshot.as_ref())?
        .take(MAX_SNAPSHOT_BYTES + 1)
        .read_to_end(&mut bytes)
        .context("cannot decompress the snapshot")?;
    if bytes.len() as u64 > MAX_SNAPSHOT_BYTES {
        bail!("the snapshot is larger than {MAX_SNAPSHOT_BYTES} bytes once decompressed");
    }
    let (snapshot, _) =
        bounds::snapshot(&bytes, MAX_DECODED_BYTES).context("cannot decode the snapshot")?;
    let gateway = ObjectKey::parse_as(Kind::Gateway, &snapshot.gateway).with_context(|| {
        format!(
            "the snapshot is for {:?}, which is not a Gateway",
            snapshot.gateway
        )
    })?;
    Ok((gateway, snapshot))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sesame_proto::schema::Snapshot;

    use super::*;

    fn accept(directories: &Directories, gateway: &NamespacedName) {
        let snapshot = Snapshot {
            gateway: format!("Gateway/{gateway}"),
            ..Snapshot::default()
        };
        let state = StateDir::open(directories.gateway(gateway).state, StateDir::KEEP).unwrap();
        let accepted = Accepted {
            revision: "r",
            config: "c",
            cause: "test",
            time: Timestamp::UNIX_EPOCH,
            snapshot: &zstd::bulk::compress(&snapshot.encode_to_vec(), 1).unwrap(),
            keys: &[],
            addresses: &[IpAddr::from([127, 0, 0, 9])],
        };
        state.accept(accepted).unwrap();
    }

    #[test]
    fn withdrawn_gateway_stays_gone_after_agent_crash() {
        let root = tempfile::tempdir().unwrap();
        let (state, runtime) = (root.path().join("s"), root.path().join("r"));
        let directories = Directories::create(&state, &runtime).unwrap();
        let [kept, gone] = ["kept", "gone"].map(|name| NamespacedName::new("default", name));
        let loaded = || -> Vec<NamespacedName> {
            let (gateways, _) = load_all(&directories, &SealingKeys::clear());
            gateways.into_iter().map(|found| found.gateway).collect()
        };
        for gateway in [&kept, &gone] {
            accept(&directories, gateway);
        }
        assert_eq!(loaded(), [gone.clone(), kept.clone()]);

        withdraw(&directories, &gone);
        assert_eq!(loaded(), std::slice::from_ref(&kept));
        accept(&directories, &gone);
        assert_eq!(loaded(), std::slice::from_ref(&kept));
        let left = BTreeMap::from([(gone.clone(), vec![IpAddr::from([127, 0, 0, 9])])]);
        assert_eq!(withdrawn(&directories), left);
        std::fs::create_dir_all(directories.withdrawn().join("generations")).unwrap();
        forget(&directories, &gone);
        assert_eq!(withdrawn(&directories), BTreeMap::new());
        assert!(!directories.gateway(&gone).state.exists());
        assert!(!directories.withdrawn().exists());

        withdraw(&directories, &gone);
        assert_eq!(withdrawn(&directories).get(&gone), Some(&Vec::new()));
        unmark_withdrawn(&directories, &gone);
        accept(&directories, &gone);
        assert_eq!(loaded(), [gone, kept]);
    }
}
