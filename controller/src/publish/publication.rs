//! Builds the objects to publish from a resolved Gateway.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use sesame_proto::delta::GatewayDelta;
use sesame_proto::digest::{canonicalize, canonicalize_endpoints};
use sesame_proto::encoded::{EncodedSnapshot, Entry};
use sesame_proto::keys::{self, KeyPair};
use sesame_proto::schema::{Rollout, RolloutRecord};
use sesame_proto::shard::{MAX_STORED_BYTES, Shard, ShardError, Sharded, Splitter};

use super::objects::{DesiredObject, PublicationOwner};
use super::summary::Summary;
use sesame_proto::bounds;
use sesame_published::names::{MAX_KEY_SECRETS, Part, key_secret_name, manifest_name, shard_name};
use sesame_resolver::ResolvedGateway;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Publication {
    pub(crate) owner: PublicationOwner,
    pub(crate) revision: String,
    /// Key Secrets, then configuration, then endpoints, each sorted by name.
    pub(crate) parts: Vec<Arc<DesiredObject>>,
    pub(crate) manifest: Arc<DesiredObject>,
    pub(super) summary: Summary,
    /// `None` if all hosts get the revision at once.
    pub(crate) staged: Option<Arc<StagedRevision>>,
}

/// Facts about a revision that the stages of a rollout need.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StagedRevision {
    pub(crate) rollout: Rollout,
    pub(crate) digest: String,
}

impl StagedRevision {
    fn of(snapshot: &EncodedSnapshot) -> Option<Arc<Self>> {
        let rollout = snapshot.rest().rollout.as_ref()?;
        let is_staged = !rollout.stages.is_empty();
        is_staged.then(|| {
            Arc::new(Self {
                rollout: rollout.clone(),
                digest: snapshot.staged_digest(),
            })
        })
    }
}

impl Publication {
    /// The error is reported in the Gateway's status. `splitter` must belong to this Gateway.
    pub(crate) fn new(
        resolved: ResolvedGateway,
        fleet: &str,
        splitter: &mut Splitter,
    ) -> Result<Self, String> {
        let ResolvedGateway {
            gateway,
            mut snapshot,
            keys,
        } = resolved;
        let owner = PublicationOwner {
            gateway,
            fleet: fleet.to_owned(),
        };
        canonicalize(&mut snapshot);
        let encoded = EncodedSnapshot::new(&snapshot, Vec::new());
        let secrets = match pack_keys(&keys) {
            Ok(secrets) => secrets,
            Err(why) => {
                return Err(match splitter.replace_endpoints(&encoded) {
                    Ok(()) => why,
                    Err(error) => format!("{why}; {error}"),
                });
            }
        };
        let secrets = secrets.into_iter().enumerate().map(|(index, pairs)| {
            let name = key_secret_name(&owner.gateway, index);
            let bytes = keys::encode(&pairs).into();
            let secret = DesiredObject::new(&owner, Part::Keys, name, bytes, BTreeMap::new());
            Arc::new(secret)
        });
        let secrets: Vec<_> = secrets.collect();
        let sharded = splitter
            .split(&encoded)
            .map_err(|error| error.to_string())?;
        let summary = Summary::of(&snapshot, &owner.fleet, secrets.len());
        let staged = StagedRevision::of(&encoded);
        Self::assemble(owner, secrets, sharded, (summary, staged), &[])
    }

    /// Returns `None` if a rebuild is needed. `splitter` must belong to this Gateway.
    pub(crate) fn with_changes(
        &self,
        delta: &GatewayDelta,
        splitter: &mut Splitter,
    ) -> Option<Self> {
        let summary = self.summary.updated(delta)?;
        let mut delta = delta.clone();
        if self.staged.is_some() {
            // Hosts that wait for the rollout still use these sets.
            delta.endpoints.removed.clear();
        }
        let added = &mut delta.endpoints.added;
        added.iter_mut().for_each(canonicalize_endpoints);
        let changed = splitter.snapshot().with_changes(&delta)?;
        let sharded = splitter.split(&changed).ok()?;
        self.with_shards(sharded, (summary, StagedRevision::of(&changed)))
    }

    /// Returns `None` if no endpoints change. `splitter` must belong to this Gateway.
    pub(crate) fn with_endpoints(
        &self,
        sets: &[Entry],
        splitter: &mut Splitter,
    ) -> Result<Option<Self>, ShardError> {
        let changed = splitter.snapshot().with_changed_endpoints(sets);
        if changed == *splitter.snapshot() {
            return Ok(None);
        }
        let sharded = splitter.split(&changed)?;
        let staged = self.staged.clone();
        Ok(self.with_shards(sharded, (self.summary.clone(), staged)))
    }

    /// Returns `None` if the splitter has a different configuration.
    pub(crate) fn with_last(&self, splitter: &Splitter) -> Option<Self> {
        let sharded = splitter.last()?;
        let is_same = sharded.manifest.revision == self.revision;
        let staged = self.staged.clone();
        is_same.then(|| self.with_shards(sharded, (self.summary.clone(), staged)))?
    }

    /// Returns the publication with the state of its rollout in the manifest. Returns `None` if the
    /// manifest would be too large.
    pub(super) fn with_record(&self, record: RolloutRecord) -> Option<Self> {
        let mut manifest = bounds::manifest(&self.manifest.bytes).ok()?;
        manifest.rollout = Some(record);
        let bytes = Bytes::from(manifest.encode_to_vec());
        (bytes.len() <= MAX_STORED_BYTES).then(|| Self {
            manifest: Arc::new(self.manifest.with(&self.owner, bytes)),
            ..self.clone()
        })
    }

    fn with_shards(
        &self,
        sharded: Sharded,
        summary: (Summary, Option<Arc<StagedRevision>>),
    ) -> Option<Self> {
        let secrets = self.parts.iter().filter(|part| part.part == Part::Keys);
        let secrets = secrets.cloned().collect();
        let owner = self.owner.clone();
        Self::assemble(owner, secrets, sharded, summary, &self.parts).ok()
    }

    /// Reuses unchanged objects from `known`.
    fn assemble(
        owner: PublicationOwner,
        secrets: Vec<Arc<DesiredObject>>,
        sharded: Sharded,
        (summary, staged): (Summary, Option<Arc<StagedRevision>>),
        known: &[Arc<DesiredObject>],
    ) -> Result<Self, String> {
        let Sharded { manifest, shards } = sharded;
        let known: HashMap<&str, &Arc<DesiredObject>> =
            known.iter().map(|part| (&*part.name, part)).collect();
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
                 Gateway's routes across several Gateways",
                bytes.len()
            ));
        }
        let name = manifest_name(&owner.gateway);
        let entries = summary.entries(&manifest);
        let manifest_object = DesiredObject::new(&owner, Part::Manifest, name, bytes, entries);
        Ok(Self {
            manifest: Arc::new(manifest_object),
            revision: manifest.revision,
            parts,
            owner,
            summary,
            staged,
        })
    }
}

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
