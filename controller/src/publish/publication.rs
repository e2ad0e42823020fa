//! Makes the objects that are to be published of a resolved Gateway. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use sesame_proto::delta::RouteTableDelta;
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::Snapshot;
use sesame_proto::shard::{MAX_STORED_BYTES, Shard, Sharded, Splitter};

use super::objects::{DesiredObject, PublicationOwner};
use sesame_gateway_api::resolve::ResolvedGateway;
use sesame_gateway_api::world::ServedPorts;
use sesame_published::names::{
    GATEWAY_ENTRY, KEY_SECRETS_ENTRY, MAX_KEY_SECRETS, Part, SERVED_TOGETHER_ENTRY,
    key_secret_name, manifest_name, shard_name,
};

/// Number of listeners that the summary names.
const MAX_SUMMARY_LISTENERS: usize = 64;

/// All objects that are to be published of one Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    pub(crate) owner: PublicationOwner,
    pub(crate) revision: String,
    /// Key Secrets, then configuration, then endpoints; each by name.
    pub(crate) parts: Vec<Arc<DesiredObject>>,
    pub(crate) manifest: Arc<DesiredObject>,
}

impl Publication {
    /// Makes the objects. The error says what is too large, in words for the Gateway's status. `splitter` is the
    /// Gateway's own.
    pub(crate) fn new(
        resolved: ResolvedGateway,
        fleet: &str,
        splitter: &mut Splitter,
    ) -> Result<Self, String> {
        let ResolvedGateway {
            gateway,
            snapshot,
            keys,
        } = resolved;
        let owner = PublicationOwner {
            gateway,
            fleet: fleet.to_owned(),
        };
        let secrets = pack_keys(&keys)?;
        let secrets = secrets.into_iter().enumerate().map(|(index, pairs)| {
            let name = key_secret_name(&owner.gateway, index);
            let bytes = keys::encode(&pairs).into();
            let secret = DesiredObject::new(&owner, Part::Keys, name, bytes, BTreeMap::new());
            Arc::new(secret)
        });
        let secrets = secrets.collect();
        let sharded = splitter
            .split(snapshot)
            .map_err(|error| error.to_string())?;
        Self::of(owner, secrets, sharded, splitter.config(), &[])
    }

    /// Returns the publication after these changes of virtual hosts; none if only the whole Gateway tells. `splitter` is the
    /// Gateway's own.
    pub(crate) fn with_changed_hosts(
        &self,
        delta: &RouteTableDelta,
        splitter: &mut Splitter,
    ) -> Option<Self> {
        let sharded = splitter.change_hosts(delta).ok()??;
        let secrets = self.parts.iter().filter(|part| part.part == Part::Keys);
        let secrets = secrets.cloned().collect();
        let owner = self.owner.clone();
        Self::of(owner, secrets, sharded, splitter.config(), &self.parts).ok()
    }

    /// Puts it together; objects that are among `known` are taken from there.
    fn of(
        owner: PublicationOwner,
        secrets: Vec<Arc<DesiredObject>>,
        sharded: Sharded,
        config: &Snapshot,
        known: &[Arc<DesiredObject>],
    ) -> Result<Self, String> {
        let Sharded { manifest, shards } = sharded;
        let known: HashMap<&str, &Arc<DesiredObject>> =
            known.iter().map(|part| (&*part.name, part)).collect();
        let mut summary = summary(config, &owner.fleet, secrets.len());
        summary.insert("revision".to_owned(), manifest.revision.clone());
        summary.insert("shards".to_owned(), manifest.config.len().to_string());
        let shards = shards.into_iter().enumerate().map(|(index, shard)| {
            let Shard { name, bytes } = shard;
            let part = if index < manifest.config.len() {
                Part::Config
            } else {
                Part::Endpoints
            };
            let name = shard_name(&owner.gateway, &name);
            match known.get(&*name).filter(|known| known.bytes == bytes) {
                Some(known) => Arc::clone(known),
                None => Arc::new(DesiredObject::new(
                    &owner,
                    part,
                    name,
                    bytes,
                    BTreeMap::new(),
                )),
            }
        });
        let parts = secrets.into_iter().chain(shards).collect();
        let bytes = Bytes::from(manifest.encode_to_vec());
        if bytes.len() > MAX_STORED_BYTES {
            return Err(format!(
                "the manifest takes {} bytes, more than the {MAX_STORED_BYTES} that can be stored; split the \
                 Gateway's routes over several Gateways",
                bytes.len()
            ));
        }
        let name = manifest_name(&owner.gateway);
        let manifest_object = DesiredObject::new(&owner, Part::Manifest, name, bytes, summary);
        Ok(Self {
            manifest: Arc::new(manifest_object),
            revision: manifest.revision,
            parts,
            owner,
        })
    }

    /// Returns the same publication with these endpoint shards in place of those with their names.
    pub(crate) fn with_endpoints(&self, shards: Vec<Shard>) -> Self {
        let mut publication = self.clone();
        for Shard { name, bytes } in shards {
            let name = shard_name(&self.owner.gateway, &name);
            if let Some(part) = publication.parts.iter_mut().find(|part| part.name == name) {
                *part = Arc::new(part.with(&self.owner, bytes));
            }
        }
        publication
    }
}

/// Distributes key pairs, in their order, over as few Secrets as hold them.
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

/// Returns the summary that `kubectl describe` shows, and that the controller remembers by. It holds nothing that endpoints change: they do not rewrite the manifest.
fn summary(snapshot: &Snapshot, fleet: &str, key_secrets: usize) -> BTreeMap<String, String> {
    let mut listeners: Vec<String> = snapshot
        .ports
        .iter()
        .flat_map(|port| {
            port.listeners.iter().map(move |listener| {
                let provenance = Provenance::parse(&listener.name).ok();
                let name = provenance.and_then(|provenance| provenance.listener());
                let name = name.unwrap_or(&listener.name);
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
    let together = ServedPorts::of(snapshot).text();
    let together = (!together.is_empty()).then_some((SERVED_TOGETHER_ENTRY, together));
    [
        (GATEWAY_ENTRY, snapshot.gateway.clone()),
        ("fleet", fleet.to_owned()),
        ("listeners", listeners.join("\n")),
        ("routes", routes.to_string()),
        ("backends", snapshot.backends.len().to_string()),
        ("certificates", snapshot.keys.len().to_string()),
        (KEY_SECRETS_ENTRY, key_secrets.to_string()),
    ]
    .into_iter()
    .chain(together)
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
