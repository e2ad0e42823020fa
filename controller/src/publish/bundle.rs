//! A resolved Gateway as the objects that are to be published. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::{Manifest, Snapshot};
use sesame_proto::shard::{self, MAX_STORED_BYTES, Sharded};
use sha2::{Digest as _, Sha256};

use super::objects::{Object, Owner};
use crate::cluster::published::{
    KEY_SECRETS_ENTRY, KEYS_ENTRY, MANIFEST_ENTRY, MAX_KEY_SECRETS, Part, SHARD_ENTRY,
    key_secret_name, manifest_name, shard_name,
};
use crate::resolve::ResolvedGateway;

/// How many listeners the summary names.
const MAX_SUMMARY_LISTENERS: usize = 64;

/// Everything that is to be published of one Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(crate) owner: Owner,
    pub(crate) revision: String,
    /// Key Secrets, then configuration, then endpoints; each by name.
    pub(crate) parts: Vec<Object>,
    pub(crate) manifest: Object,
}

impl Bundle {
    /// Makes the objects; the error says what is too large, in words for the Gateway's status.
    pub(crate) fn new(resolved: &ResolvedGateway, fleet: &str) -> Result<Self, String> {
        let ResolvedGateway {
            gateway,
            snapshot,
            keys,
        } = resolved;
        let Sharded { manifest, shards } =
            shard::split(snapshot).map_err(|error| error.to_string())?;
        let secrets = pack_keys(keys)?;
        let key_secrets = secrets.len();
        let mut parts: Vec<Object> = secrets
            .into_iter()
            .enumerate()
            .map(|(index, pairs)| Object {
                part: Part::Keys,
                name: key_secret_name(gateway, index),
                entry: KEYS_ENTRY,
                bytes: keys::encode(&pairs).into(),
                summary: BTreeMap::new(),
            })
            .collect();
        parts.extend(shards.into_iter().map(|shard| {
            let live = manifest
                .endpoints
                .iter()
                .any(|named| named.name == shard.name);
            Object {
                part: if live { Part::Endpoints } else { Part::Config },
                name: shard_name(gateway, &shard.name),
                entry: SHARD_ENTRY,
                bytes: shard.bytes.into(),
                summary: BTreeMap::new(),
            }
        }));
        let bytes = Bytes::from(manifest.encode_to_vec());
        if bytes.len() > MAX_STORED_BYTES {
            return Err(format!(
                "the manifest takes {} bytes, more than the {MAX_STORED_BYTES} that can be stored; split the \
                 Gateway's routes over several Gateways",
                bytes.len()
            ));
        }
        Ok(Self {
            owner: Owner {
                gateway: gateway.clone(),
                fleet: fleet.to_owned(),
            },
            manifest: Object {
                part: Part::Manifest,
                name: manifest_name(gateway),
                entry: MANIFEST_ENTRY,
                bytes,
                summary: summary(&manifest, snapshot, fleet, key_secrets),
            },
            revision: manifest.revision,
            parts,
        })
    }
}

/// Tells whether a Gateway would be published as the last time, without making it.
pub(crate) fn input_digest(resolved: &ResolvedGateway, fleet: &str) -> String {
    let ResolvedGateway {
        gateway: _,
        snapshot,
        keys,
    } = resolved;
    let mut hash = Sha256::new();
    hash.update(snapshot.encode_to_vec());
    for key in keys {
        hash.update(key.digest());
    }
    hash.update(fleet);
    sesame_proto::digest::sha256(&hash.finalize())
}

/// Key pairs in their order, as few Secrets as hold them.
fn pack_keys(keys: &[KeyPair]) -> Result<Vec<Vec<KeyPair>>, String> {
    let mut secrets: Vec<Vec<KeyPair>> = Vec::new();
    let mut room = 0_usize;
    for key in keys {
        let size = keys::encode(std::slice::from_ref(key)).len();
        if size > MAX_STORED_BYTES {
            return Err(format!(
                "{} takes {size} bytes, more than the {MAX_STORED_BYTES} that can be stored",
                key.name
            ));
        }
        match secrets.last_mut() {
            Some(last) if size <= room => {
                last.push(key.clone());
                room -= size;
            }
            _ => {
                secrets.push(vec![key.clone()]);
                room = MAX_STORED_BYTES - size;
            }
        }
    }
    if secrets.len() > MAX_KEY_SECRETS {
        return Err(format!(
            "its {} key pairs need {} Secrets, more than {MAX_KEY_SECRETS}; split the listeners over several \
             Gateways",
            keys.len(),
            secrets.len()
        ));
    }
    Ok(secrets)
}

/// What `kubectl describe` shows. Nothing that endpoints change: they do not rewrite the manifest.
fn summary(
    manifest: &Manifest,
    snapshot: &Snapshot,
    fleet: &str,
    key_secrets: usize,
) -> BTreeMap<String, String> {
    let mut listeners: Vec<String> = snapshot
        .ports
        .iter()
        .flat_map(|port| {
            port.listeners.iter().map(move |listener| {
                let name = listener.name.rsplit('/').next().unwrap_or_default();
                let protocol = listener.protocol().as_str_name();
                let hostname = match listener.hostname.as_str() {
                    "" => "*",
                    hostname => hostname,
                };
                format!("{name} {protocol} {} {hostname}", port.port)
            })
        })
        .collect();
    if listeners.len() > MAX_SUMMARY_LISTENERS {
        let more = listeners.len() - MAX_SUMMARY_LISTENERS;
        listeners.truncate(MAX_SUMMARY_LISTENERS);
        listeners.push(format!("and {more} more"));
    }
    let routes: usize = snapshot
        .route_tables
        .iter()
        .flat_map(|table| &table.virtual_hosts)
        .map(|host| host.routes.len())
        .sum();
    [
        ("revision", manifest.revision.clone()),
        ("gateway", manifest.gateway.clone()),
        ("fleet", fleet.to_owned()),
        ("listeners", listeners.join("\n")),
        ("routes", routes.to_string()),
        ("backends", snapshot.backends.len().to_string()),
        ("certificates", snapshot.keys.len().to_string()),
        (KEY_SECRETS_ENTRY, key_secrets.to_string()),
        ("shards", manifest.config.len().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
