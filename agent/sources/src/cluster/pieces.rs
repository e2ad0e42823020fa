//! Reads a revision's pieces from objects, checks that they belong together, and joins them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::Kind;
use sesame_proto::bounds;
use sesame_proto::encoded::{EncodedSnapshot, Entry};
use sesame_proto::schema::{EndpointSet, Manifest, ShardRef};
use sesame_proto::shard::{self, ConfigPiece, ShardError};
use sesame_proto::signature::{SignedPiece, Statement};
use sesame_published::names::{
    FLEET_LABEL, GATEWAY_ANNOTATION, GATEWAY_LABEL, KEY_SECRETS_ENTRY, MANIFEST_ENTRY,
    MAX_KEY_SECRETS, PART_LABEL, Part, SIGNATURE_ENTRY, gateway_id, manifest_name, shard_name,
};

use super::fetch::MissingPieces;
use crate::update::{Trusted, gateway_of};

/// A manifest that matches its object's name and labels.
#[derive(Debug)]
pub(super) struct CheckedManifest {
    pub(super) manifest: Manifest,
    pub(super) key_secrets: usize,
    /// Set if signatures are required.
    pub(super) stamp: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct EndpointShard {
    pub(super) sets: Vec<Entry>,
    pub(super) size: u64,
    /// Why the newest content cannot be used. The previous content remains in use.
    pub(super) fault: Option<String>,
    /// Deleted, but kept because the manifest still lists it.
    pub(super) gone: bool,
}

pub(super) struct Blocked {
    pub(super) reason: String,
    /// True for a failure, false while pieces are still being read.
    pub(super) stuck: bool,
    pub(super) need: Option<MissingPieces>,
}

impl Blocked {
    pub(super) fn stuck(reason: String) -> Self {
        Self {
            reason,
            stuck: true,
            need: None,
        }
    }
}

/// A configuration shard, by its digest.
#[derive(Debug)]
pub(super) struct HeldShard {
    /// Compressed size in bytes.
    pub(super) size: usize,
    pub(super) content: HeldContent,
}

#[derive(Debug)]
pub(super) enum HeldContent {
    Stored(Vec<u8>),
    /// Later revisions with this shard reuse its decoded contents.
    Open(ConfigPiece),
}

impl HeldShard {
    fn open(&mut self, reference: &ShardRef) -> Result<ConfigPiece, ShardError> {
        match &self.content {
            HeldContent::Open(piece) => Ok(piece.clone()),
            HeldContent::Stored(bytes) => {
                let piece = ConfigPiece::open(reference, bytes)?;
                self.content = HeldContent::Open(piece.clone());
                Ok(piece)
            }
        }
    }
}

pub(super) fn join(
    manifest: &Manifest,
    held: &mut BTreeMap<String, HeldShard>,
    faults: &[String],
) -> Result<EncodedSnapshot, Blocked> {
    let config = manifest.config.iter();
    let missing = config.filter(|reference| !held.contains_key(&reference.sha256));
    let missing: Vec<ShardRef> = missing.cloned().collect();
    if let [first, ..] = missing.as_slice() {
        return Err(Blocked {
            reason: match faults {
                [] => format!(
                    "{} of its {} shards are still being read, starting with {}",
                    missing.len(),
                    manifest.config.len(),
                    first.name
                ),
                faults => faults.join("; "),
            },
            stuck: !faults.is_empty(),
            need: Some(MissingPieces {
                shards: missing,
                key_secrets: 0,
            }),
        });
    }
    let piece = |reference: &ShardRef| match held.get_mut(&reference.sha256) {
        Some(shard) => shard.open(reference),
        None => Err(ShardError::Missing {
            name: reference.name.clone(),
        }),
    };
    shard::join_pieces(manifest, piece).map_err(|error| Blocked::stuck(error.to_string()))
}

pub(super) fn wait_for_keys(missing: &[String], key_secrets: usize, faults: &[String]) -> Blocked {
    let missing = missing.join(", ");
    let (reason, stuck) = match (key_secrets, faults) {
        (0, _) => (
            format!(
                "the keys {missing} are required, but {KEY_SECRETS_ENTRY} lists no key Secrets"
            ),
            true,
        ),
        (_, []) => (format!("the keys {missing} are being read"), false),
        (_, faults) => (format!("the keys {missing}: {}", faults.join("; ")), true),
    };
    Blocked {
        reason,
        stuck,
        need: (key_secrets > 0).then_some(MissingPieces {
            shards: Vec::new(),
            key_secrets,
        }),
    }
}

/// Returns the endpoint sets that the configuration uses. Takes missing sets from `before`, because
/// the shards may be newer or older than the manifest.
pub(super) fn endpoints(
    gateway: &NamespacedName,
    manifest: &Manifest,
    live: &BTreeMap<String, EndpointShard>,
    config: &EncodedSnapshot,
    before: &[Entry],
) -> Result<Vec<Entry>, Blocked> {
    let used = used_endpoints(gateway, config);
    let mut sets: BTreeMap<&str, &Entry> = BTreeMap::new();
    for reference in &manifest.endpoints {
        let name = shard_name(gateway, &reference.name);
        let shard = live.get(&name).ok_or_else(|| {
            Blocked::stuck(format!("its endpoint shard, ConfigMap {name}, is missing"))
        })?;
        for set in shard.sets.iter().filter(|set| used.contains(set.name())) {
            sets.entry(set.name()).or_insert(set);
        }
    }
    for set in before.iter().filter(|set| used.contains(set.name())) {
        sets.entry(set.name()).or_insert(set);
    }
    if let Some(name) = used.iter().find(|name| !sets.contains_key(&***name)) {
        return Err(Blocked::stuck(format!(
            "the endpoints of {name} are not in any endpoint shard of the Gateway"
        )));
    }
    Ok(sets.into_values().cloned().collect())
}

fn used_endpoints<'c>(
    gateway: &NamespacedName,
    config: &'c EncodedSnapshot,
) -> BTreeSet<Cow<'c, str>> {
    let mut limits = config.rest().rate_limits.iter();
    let hosts = limits.any(|limit| limit.fleet).then(|| {
        let gateway = Kind::Gateway.named(gateway.clone()).to_string();
        Cow::Owned(EndpointSet::hosts_of(&gateway))
    });
    let used = config.used_endpoints().into_iter().map(Cow::Borrowed);
    used.chain(hosts).collect()
}

pub(super) fn read_manifest(
    id: &str,
    object: &ConfigMap,
    trusted: &Trusted,
) -> Result<(NamespacedName, CheckedManifest), String> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let at = |why: String| format!("ConfigMap {name}: {why}");
    let bytes = entry(object, MANIFEST_ENTRY).map_err(at)?;
    let manifest =
        bounds::manifest(bytes).map_err(|error| at(format!("{MANIFEST_ENTRY} {error}")))?;
    shard::check(&manifest).map_err(|error| at(error.to_string()))?;
    let gateway = gateway_of(&manifest.gateway)
        .ok_or_else(|| at(format!("{:?} is not a Gateway", manifest.gateway)))?;
    if manifest_name(&gateway) != name || gateway_id(&gateway) != id {
        return Err(at(format!(
            "its manifest is for Gateway {gateway}, which belongs in ConfigMap {}",
            manifest_name(&gateway)
        )));
    }
    let key_secrets = match object.data.as_ref().and_then(|d| d.get(KEY_SECRETS_ENTRY)) {
        None => 0,
        Some(text) => match text.parse() {
            Ok(count) if count <= MAX_KEY_SECRETS => count,
            _ => {
                return Err(at(format!(
                    "{KEY_SECRETS_ENTRY} is {text:?}, expected a number up to {MAX_KEY_SECRETS}"
                )));
            }
        },
    };
    let piece = SignedPiece::Manifest {
        fleet: label(object, FLEET_LABEL),
        key_secrets,
    };
    let stamp = verified(&gateway, piece, bytes, object, trusted).map_err(at)?;
    Ok((
        gateway,
        CheckedManifest {
            manifest,
            key_secrets,
            stamp,
        },
    ))
}

/// Returns the signature's stamp.
pub(super) fn verified(
    gateway: &NamespacedName,
    piece: SignedPiece<'_>,
    content: &[u8],
    object: &ConfigMap,
    trusted: &Trusted,
) -> Result<Option<u64>, String> {
    let Some(trusted) = trusted else {
        return Ok(None);
    };
    let statement = Statement {
        gateway: &format!("Gateway/{gateway}"),
        piece,
        content,
    };
    let stamp = trusted.verify(&statement, entry(object, SIGNATURE_ENTRY).ok());
    stamp.map(Some).map_err(|error| error.to_string())
}

/// Returns the Gateway in the object's annotation, without verification.
pub(super) fn owner(object: &ConfigMap) -> Option<NamespacedName> {
    let annotations = object.metadata.annotations.as_ref()?;
    gateway_of(&format!("Gateway/{}", annotations.get(GATEWAY_ANNOTATION)?))
}

fn label<'a>(object: &'a ConfigMap, name: &str) -> &'a str {
    let labels = object.metadata.labels.as_ref();
    let value = labels.and_then(|labels| labels.get(name));
    value.map(String::as_str).unwrap_or_default()
}

pub(super) fn entry<'a>(object: &'a ConfigMap, name: &str) -> Result<&'a [u8], String> {
    object
        .binary_data
        .as_ref()
        .and_then(|data| data.get(name))
        .map(|bytes| bytes.0.as_slice())
        .ok_or_else(|| format!("has no binaryData entry {name}"))
}

/// Returns the Gateway label, name and part.
pub(super) fn part(object: &ConfigMap) -> Option<(&str, &str, Part)> {
    let labels = object.metadata.labels.as_ref()?;
    let part = labels.get(PART_LABEL)?;
    let part = [Part::Manifest, Part::Endpoints, Part::Config, Part::Keys]
        .into_iter()
        .find(|known| known.as_str() == part)?;
    Some((
        labels.get(GATEWAY_LABEL)?,
        object.metadata.name.as_deref()?,
        part,
    ))
}
