//! Reads a revision's pieces from objects, checks that they belong together, and joins them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use sesame_gateway_api::api::NamespacedName;
use sesame_proto::bounds;
use sesame_proto::schema::{EndpointSet, Manifest, Snapshot};
use sesame_proto::shard::{self, Joined};
use sesame_proto::signature::{SignedPiece, Statement};
use sesame_published::names::{
    FLEET_LABEL, GATEWAY_ANNOTATION, GATEWAY_LABEL, KEY_SECRETS_ENTRY, MANIFEST_ENTRY,
    MAX_KEY_SECRETS, PART_LABEL, Part, SIGNATURE_ENTRY, gateway_id, manifest_name, shard_name,
};

use super::fetch::MissingPieces;
use crate::source::update::{Trusted, gateway_of};
use sesame_proto::encoded::EncodedSnapshot;

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
    pub(super) sets: Vec<EndpointSet>,
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

pub(super) fn join(
    manifest: &Manifest,
    held: &BTreeMap<String, Vec<u8>>,
    faults: &[String],
) -> Result<Joined, Blocked> {
    let mut missing = Vec::new();
    let mut shards: BTreeMap<String, &[u8]> = BTreeMap::new();
    for reference in &manifest.config {
        match held.get(&reference.sha256) {
            Some(bytes) => {
                shards.insert(reference.name.clone(), bytes);
            }
            None => missing.push(reference.clone()),
        }
    }
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
    shard::join_config(manifest, &shards).map_err(|error| Blocked::stuck(error.to_string()))
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

pub(super) fn live_shards<'a>(
    gateway: &NamespacedName,
    manifest: &Manifest,
    live: &'a BTreeMap<String, EndpointShard>,
) -> Result<Vec<&'a EndpointShard>, Blocked> {
    let named = manifest.endpoints.iter().map(|reference| {
        let name = shard_name(gateway, &reference.name);
        match live.get(&name) {
            Some(live) => Ok(live),
            None => Err(Blocked::stuck(format!(
                "its endpoint shard, ConfigMap {name}, is missing"
            ))),
        }
    });
    named.collect()
}

/// Returns the endpoint sets in `used`. Takes missing sets from `before`, because the shards may be
/// newer or older than the manifest.
pub(super) fn endpoints(
    shards: &[&EndpointShard],
    used: BTreeSet<&str>,
    before: &[EndpointSet],
) -> Result<Vec<EndpointSet>, Blocked> {
    let mut all = Snapshot::default();
    let sets = shards.iter().flat_map(|live| &live.sets);
    let sets = sets.filter(|set| used.contains(set.name.as_str())).cloned();
    shard::set_endpoints(&mut all, sets.collect());
    let mut lost = used;
    for set in &all.endpoints {
        lost.remove(set.name.as_str());
    }
    let kept: Vec<EndpointSet> = before
        .iter()
        .filter(|set| lost.remove(set.name.as_str()))
        .cloned()
        .collect();
    if let Some(name) = lost.first() {
        return Err(Blocked::stuck(format!(
            "the endpoints of {name} are not in any endpoint shard of the Gateway"
        )));
    }
    let mut sets = all.endpoints;
    sets.extend(kept);
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sets)
}

pub(super) fn used_endpoints(config: &EncodedSnapshot) -> Result<BTreeSet<&str>, Blocked> {
    let used = config.used_endpoints();
    used.ok_or_else(|| Blocked::stuck("its backends differ from their encoded form".to_owned()))
}

pub(super) fn moved_endpoints(
    gateway: &NamespacedName,
    manifest: &Manifest,
    live: &BTreeMap<String, EndpointShard>,
    encoded: &EncodedSnapshot,
) -> Result<Option<EncodedSnapshot>, Blocked> {
    let shards = live_shards(gateway, manifest, live)?;
    let earlier = encoded.endpoints();
    let sets = endpoints(&shards, used_endpoints(encoded)?, &earlier)?;
    Ok((sets != earlier).then(|| encoded.with_endpoints(&sets)))
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
