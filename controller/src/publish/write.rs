//! Carries out one write. Never changes an object that this controller did not write.

use kube::api::{DeleteParams, PostParams};
use kube::core::request::Request;
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::{Api, Resource as _};

use super::objects::{self, DesiredObject, PublicationOwner};
use super::observed::{PublishedObject, PublishedObjects, is_ours};
use super::plan::ObjectWrite;
use super::publisher::SnapshotPublisher;
use crate::watch::Received;
use sesame_published::names::{PUBLISHER, Part};

pub(super) enum Written {
    Put(String, Box<PublishedObject>),
    Deleted(&'static str, String),
    Nothing,
}

impl Written {
    pub(super) fn record(self, published: &mut PublishedObjects) {
        match self {
            Self::Put(name, entry) => {
                published.put(&name, *entry);
            }
            Self::Deleted(kind, name) => {
                published.remove(kind, &name, u64::MAX);
            }
            Self::Nothing => {}
        }
    }
}

pub(super) enum WriteRefusal {
    Foreign,
    Kube(kube::Error),
}

impl From<kube::Error> for WriteRefusal {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Create,
    Replace,
}

impl SnapshotPublisher {
    pub(super) async fn send(
        &self,
        owner: Option<&PublicationOwner>,
        write: ObjectWrite,
        stamp: u64,
    ) -> Result<Written, WriteRefusal> {
        let written = match (owner, write) {
            (Some(owner), ObjectWrite::Create(object)) => {
                match self.put(owner, &object, (Verb::Create, stamp)).await {
                    // The watch omits objects that have lost their label.
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        if !self.wrote(objects::kind(object.part), &object.name).await? {
                            return Err(WriteRefusal::Foreign);
                        }
                        self.put(owner, &object, (Verb::Replace, stamp)).await
                    }
                    result => result,
                }
            }
            (Some(owner), ObjectWrite::Replace(object)) => {
                match self.put(owner, &object, (Verb::Replace, stamp)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        self.put(owner, &object, (Verb::Create, stamp)).await
                    }
                    // Another writer created an immutable object with our name. Only in this case
                    // does a replacement delete the object.
                    Err(kube::Error::Api(status))
                        if status.code == 422 && object.part == Part::Config =>
                    {
                        self.delete(objects::kind(object.part), &object.name)
                            .await?;
                        self.put(owner, &object, (Verb::Create, stamp)).await
                    }
                    result => result,
                }
            }
            (_, ObjectWrite::Delete { kind, name }) => self.delete(kind, &name).await,
            // The plan for a deleted Gateway contains only deletions.
            (None, ObjectWrite::Create(_) | ObjectWrite::Replace(_)) => Ok(Written::Nothing),
        };
        Ok(written?)
    }

    async fn wrote(&self, kind: &'static str, name: &str) -> kube::Result<bool> {
        Ok(is_ours(&self.api(kind).get(name).await?))
    }

    async fn put(
        &self,
        owner: &PublicationOwner,
        object: &DesiredObject,
        (verb, stamp): (Verb, u64),
    ) -> kube::Result<Written> {
        let kind = objects::kind(object.part);
        let signature = self.signing.sign(object, owner, stamp);
        let json = object.json(owner, &self.replica.namespace, signature.as_deref());
        let body = serde_json::to_vec(&json).map_err(kube::Error::SerdeError)?;
        let request = Request::new(<Received>::url_path(
            &resource(kind),
            Some(&self.replica.namespace),
        ));
        let parameters = PostParams {
            field_manager: Some(PUBLISHER.to_owned()),
            ..PostParams::default()
        };
        let (verb, request) = match verb {
            Verb::Create => ("create", request.create(&parameters, body)),
            Verb::Replace => ("replace", request.replace(&object.name, &parameters, body)),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let metrics = &self.replica.metrics;
        metrics.published(object.part.as_str(), verb);
        // Parse only the metadata, because the content equals the request's.
        let stored: PartialObjectMeta = self.replica.client.request(request).await?;
        let version = stored.metadata.resource_version.unwrap_or_default();
        let version = version.parse().unwrap_or(0);
        let seal = self.signing.written(object.part, stamp);
        let entry = PublishedObject::from_write(object, owner, version, seal);
        Ok(Written::Put(object.name.clone(), Box::new(entry)))
    }

    async fn delete(&self, kind: &'static str, name: &str) -> kube::Result<Written> {
        self.replica.metrics.published(kind, "delete");
        match self.api(kind).delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        Ok(Written::Deleted(kind, name.to_owned()))
    }

    fn api(&self, kind: &str) -> Api<Received> {
        let (client, namespace) = (self.replica.client.clone(), &self.replica.namespace);
        Api::namespaced_with(client, namespace, &resource(kind))
    }
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}
