//! Detects the Gateway API release of the installed CRDs. Never guesses: a failed read is retried.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};

use super::{Input, api_resource};
use crate::connection::answer;
use crate::replica::Replica;
use crate::retry::READ_BACKOFF;
use sesame_kinds::api::GATEWAY_GROUP;
use sesame_kinds::world::{DefinitionRelease, Definitions, Kind};

/// Interval between checks, because CRDs can be upgraded while the controller is running.
const RECHECK_INTERVAL: Duration = Duration::from_secs(15);
const TIMEOUT: Duration = Duration::from_secs(10);
const CERTIFICATES_GROUP: &str = "certificates.k8s.io";

/// Many API servers have ClusterTrustBundles disabled.
async fn served_certificates(client: &Client) -> kube::Result<Option<&'static str>> {
    let groups = answer(TIMEOUT, client.list_api_groups()).await?;
    let group = groups
        .groups
        .iter()
        .find(|group| group.name == CERTIFICATES_GROUP);
    let offered = |version: &&&str| {
        let versions = group.into_iter().flat_map(|group| &group.versions);
        versions
            .map(|it| &it.group_version)
            .any(|it| it == **version)
    };
    for version in Kind::ClusterTrustBundle
        .api_versions()
        .iter()
        .filter(offered)
    {
        let resources = answer(TIMEOUT, client.list_api_group_resources(version)).await?;
        let kind = Kind::ClusterTrustBundle.as_str();
        if resources.resources.iter().any(|it| it.kind == kind) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnreadCertificates {
    NotServed,
    Forbidden,
}

/// Tests the permission with a list request, regardless of how the permission was granted.
pub(super) async fn readable_certificates(
    client: &Client,
) -> kube::Result<Result<&'static str, UnreadCertificates>> {
    let Some(version) = served_certificates(client).await? else {
        return Ok(Err(UnreadCertificates::NotServed));
    };
    let resource = api_resource(Kind::ClusterTrustBundle, version);
    let bundles: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let one = ListParams::default().limit(1);
    match answer(TIMEOUT, bundles.list_metadata(&one)).await {
        Ok(_) => Ok(Ok(version)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(Err(UnreadCertificates::Forbidden))
        }
        Err(error) => Err(error),
    }
}

pub(crate) struct DefinitionReader {
    pub(crate) replica: Replica,
    pub(crate) inputs: Sender<Input>,
}

impl DefinitionReader {
    pub(crate) async fn run(self) {
        let mut previous = None;
        let mut backoff = READ_BACKOFF;
        loop {
            let pause = match self.read().await {
                Ok(found) => {
                    backoff.reset();
                    if previous.as_ref() != Some(&found) {
                        let input = Input::Defined(Definitions::Installed(found.clone()));
                        if self.inputs.send(input).is_err() {
                            return;
                        }
                        previous = Some(found);
                    }
                    RECHECK_INTERVAL
                }
                Err(error) => {
                    let subject = "definitions of the Gateway API";
                    self.replica.failures.record(subject, &error);
                    backoff.next_pause()
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn read(&self) -> kube::Result<BTreeMap<Kind, DefinitionRelease>> {
        let api: Api<CustomResourceDefinition> = Api::all(self.replica.client.clone());
        let mut found = BTreeMap::new();
        for kind in Kind::ALL.iter().filter(|kind| kind.is_gateway_api()) {
            let name = format!("{}.{GATEWAY_GROUP}", api_resource(*kind, "").plural);
            if let Some(definition) = answer(TIMEOUT, api.get_metadata_opt(&name)).await? {
                let annotations = definition.metadata.annotations.unwrap_or_default();
                found.insert(*kind, DefinitionRelease::read(&annotations));
            }
        }
        // BackendTLSPolicy can reference ClusterTrustBundle, so treat ClusterTrustBundle as part of
        // the same release.
        if let Some(release) = found.get(&Kind::BackendTlsPolicy).cloned()
            && readable_certificates(&self.replica.client).await?.is_ok()
        {
            found.insert(Kind::ClusterTrustBundle, release);
        }
        Ok(found)
    }
}
