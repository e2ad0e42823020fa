//! Plans the writes that turn the published objects into the desired objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::desired::{DesiredPublication, DesiredPublications};
use super::objects::{self, DesiredObject, PublicationOwner};
use super::observed::PublishedObjects;
use super::publication::Publication;
use super::signing::Seal;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{Part, gateway_id, shard_name};

/// A step starts once all earlier writes have succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayPlan {
    /// `None` if only the Gateway's label is known.
    pub(super) owner: Option<PublicationOwner>,
    pub(super) steps: Vec<Vec<ObjectWrite>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ObjectWrite {
    Create(Arc<DesiredObject>),
    Replace(Arc<DesiredObject>),
    Delete {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        name: String,
    },
}

/// Also removes publications that are no longer desired.
pub(super) fn plan(
    published: &PublishedObjects,
    desired: &DesiredPublications,
) -> Vec<GatewayPlan> {
    let ours: BTreeSet<String> = desired.keys().map(gateway_id).collect();
    let wanted = desired.iter().filter_map(|(name, desired)| match desired {
        DesiredPublication::Publish(publication) => Some(publish(published, name, publication)),
        DesiredPublication::Retain => None,
    });
    let withdrawn = published
        .gateways()
        .into_iter()
        .filter(|gateway| !ours.contains(*gateway))
        .map(|gateway| withdraw(published, gateway));
    wanted
        .chain(withdrawn)
        .filter(|plan| !plan.steps.is_empty())
        .collect()
}

fn publish(
    published: &PublishedObjects,
    name: &NamespacedName,
    publication: &Arc<Publication>,
) -> GatewayPlan {
    let Publication {
        owner,
        revision: _,
        parts,
        manifest,
        summary: _,
        staged: _,
    } = publication.as_ref();
    let known = published.get(Part::Manifest, &manifest.name);
    let new_manifest = known.is_none_or(|known| !known.is(manifest));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for object in parts {
        let Some(known) = published.get(object.part, &object.name) else {
            before.push(ObjectWrite::Create(Arc::clone(object)));
            continue;
        };
        if known.is(object) {
            continue;
        }
        // Keep both manifests' endpoints, but drop endpoints from other writers, because this
        // controller would sign them.
        let ours = known.seal != Seal::Bad;
        let united = (new_manifest && ours && object.part == Part::Endpoints)
            .then(|| unite(&known.bytes, object, owner))
            .flatten()
            .filter(|united| united.digest != object.digest);
        match united {
            Some(united) => {
                if known.digest != united.digest {
                    before.push(ObjectWrite::Replace(Arc::new(united)));
                }
                after.push(ObjectWrite::Replace(Arc::clone(object)));
            }
            None => before.push(ObjectWrite::Replace(Arc::clone(object))),
        }
    }
    let mut here = Vec::new();
    if new_manifest {
        here.push(match known {
            Some(_) => ObjectWrite::Replace(Arc::clone(manifest)),
            None => ObjectWrite::Create(Arc::clone(manifest)),
        });
    }
    after.extend(left_over(published, name, publication, new_manifest));
    GatewayPlan {
        owner: Some(owner.clone()),
        steps: steps([before, here, after]),
    }
}

/// Deletes leftover objects, but keeps objects of the previous manifest.
fn left_over(
    published: &PublishedObjects,
    name: &NamespacedName,
    publication: &Publication,
    new_manifest: bool,
) -> Vec<ObjectWrite> {
    let Publication {
        owner: _,
        revision: _,
        parts,
        manifest,
        summary: _,
        staged: _,
    } = publication;
    // While the manifest is unchanged, shards that it does not reference belong to the previous
    // revision.
    let named_before: BTreeSet<String> = published
        .get(Part::Manifest, &manifest.name)
        .iter()
        .flat_map(|known| &known.shards)
        .map(|shard| shard_name(name, shard))
        .collect();
    let wanted: BTreeSet<&str> = parts
        .iter()
        .chain([manifest])
        .map(|object| object.name.as_str())
        .collect();
    let is_useful = |left: &str, part: Part| {
        wanted.contains(left)
            || match part {
                Part::Config | Part::Endpoints => !new_manifest || named_before.contains(left),
                Part::Manifest | Part::Keys => false,
            }
    };
    published
        .for_gateway(&gateway_id(name))
        .filter(|(left, entry)| !is_useful(left, entry.part))
        .map(|(left, entry)| ObjectWrite::Delete {
            kind: objects::kind(entry.part),
            name: left.to_owned(),
        })
        .collect()
}

/// Deletes the manifest first, because it references the other objects.
fn withdraw(published: &PublishedObjects, gateway: &str) -> GatewayPlan {
    let (mut manifest, mut rest) = (Vec::new(), Vec::new());
    for (name, entry) in published.for_gateway(gateway) {
        let write = ObjectWrite::Delete {
            kind: objects::kind(entry.part),
            name: name.to_owned(),
        };
        match entry.part {
            Part::Manifest => manifest.push(write),
            Part::Config | Part::Endpoints | Part::Keys => rest.push(write),
        }
    }
    GatewayPlan {
        owner: None,
        steps: steps([manifest, rest, Vec::new()]),
    }
}

fn steps(all: [Vec<ObjectWrite>; 3]) -> Vec<Vec<ObjectWrite>> {
    all.into_iter().filter(|step| !step.is_empty()).collect()
}

/// Merges old and new endpoints. Returns `None` if the result is too large.
fn unite(
    published: &[u8],
    object: &DesiredObject,
    owner: &PublicationOwner,
) -> Option<DesiredObject> {
    let bytes = sesame_proto::shard::unite_endpoints(&object.name, published, &object.bytes);
    Some(object.with(owner, bytes.ok()?))
}
