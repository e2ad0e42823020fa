//! Reads a cluster with the caller's permissions.

use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde::Serialize;
use serde_json::Value;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::schema::Snapshot;
use sesame_published::GatewayAgent;
use sesame_published::names::{GATEWAY_ENTRY, PART_LABEL, Part};

use super::{PluginArgs, PluginFormat};
use crate::cli::published;
use crate::connection;

const PAGE: u32 = 500;
const MAX_OBJECTS: usize = 100_000;

pub(super) struct ClusterReader {
    pub(super) client: Client,
    /// `None` means all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) default_namespace: String,
    pub(super) published_in: String,
    pub(super) controller_name: String,
    format: PluginFormat,
}

pub(super) enum Listed {
    Objects(&'static str, Vec<Value>),
    Missing,
    Refused(String),
}

impl ClusterReader {
    pub(super) async fn open(args: &PluginArgs) -> Result<Self> {
        let PluginArgs {
            namespace,
            all_namespaces,
            context,
            kubeconfig,
            published_in,
            controller_name,
            output,
        } = args;
        let config: Config =
            connection::config_of_user(kubeconfig.as_deref(), context.as_deref()).await?;
        let default_namespace = namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self {
            client: Client::try_from(config)
                .context("cannot create a client for the API server")?,
            namespace: (!all_namespaces).then(|| default_namespace.clone()),
            default_namespace,
            published_in: published_in.clone(),
            controller_name: controller_name.clone(),
            format: *output,
        })
    }

    /// Fails for `--output name`, which the callers do not support.
    pub(super) fn print(
        &self,
        value: &impl Serialize,
        for_people: impl FnOnce(bool) -> String,
    ) -> Result<()> {
        if self.format == PluginFormat::Name {
            bail!(
                "--output name is supported only by status and hosts; omit it, or use json or yaml"
            );
        }
        self.print_rows(value, for_people, String::new).map(|_| ())
    }

    /// Returns false if the output is closed.
    pub(super) fn print_rows(
        &self,
        value: &impl Serialize,
        for_people: impl FnOnce(bool) -> String,
        names: impl FnOnce() -> String,
    ) -> Result<bool> {
        let text = match self.format {
            PluginFormat::Table => for_people(false),
            PluginFormat::Wide => for_people(true),
            PluginFormat::Json => serde_json::to_string_pretty(value)? + "\n",
            PluginFormat::Yaml => serde_saphyr::to_string(value)?,
            PluginFormat::Name => names(),
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            result => Ok(result.map(|()| true)?),
        }
    }

    /// Lists the objects of a kind in one namespace, or in all namespaces if `None`.
    pub(super) async fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Listed> {
        for version in kind.api_versions() {
            let api = self.api(kind, version, namespace);
            match pages(&api).await {
                Ok(objects) => return Ok(Listed::Objects(version, objects)),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    return Ok(Listed::Refused(status.message.clone()));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot list {kind}")),
            }
        }
        Ok(Listed::Missing)
    }

    /// Lists the objects of a kind that Sesame does not read, in all namespaces. Returns nothing if
    /// the kind does not exist.
    pub(super) async fn list_other(&self, api_version: &str, kind: &str) -> Result<Vec<Value>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = Api::all_with(self.client.clone(), &resource);
        let mut objects = match pages(&api).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            found => found.with_context(|| format!("cannot list {kind}"))?,
        };
        for object in &mut objects {
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
        }
        Ok(objects)
    }

    /// Returns `None` if the object does not exist or the caller may not read it.
    pub(super) async fn get(&self, key: &ObjectKey) -> Result<Option<(&'static str, Value)>> {
        for version in key.kind.api_versions() {
            let namespace = (!key.kind.cluster_scoped()).then_some(key.name.namespace.as_str());
            let found = self
                .api(key.kind, version, namespace)
                .get_opt(&key.name.name)
                .await;
            match found {
                Ok(Some(object)) => return Ok(Some((version, serde_json::to_value(object)?))),
                Ok(None) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {key}")),
            }
        }
        Ok(None)
    }

    pub(super) fn api(
        &self,
        kind: Kind,
        version: &str,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.as_str()));
        match namespace {
            Some(namespace) if !kind.cluster_scoped() => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            _ => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Returns `None` if the caller may not list GatewayAgents.
    pub(super) async fn reports(&self) -> Result<Option<Vec<GatewayAgent>>> {
        let api: Api<GatewayAgent> = Api::namespaced(self.client.clone(), &self.published_in);
        match api.list(&ListParams::default()).await {
            Ok(list) => Ok(Some(list.items)),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
            Err(error) => Err(error).context("cannot list GatewayAgents"),
        }
    }

    pub(super) async fn published(&self, gateway: &NamespacedName) -> Result<Snapshot> {
        let read = published::read(&self.client, &self.published_in, gateway).await?;
        Ok(read.snapshot)
    }

    pub(super) async fn all_published(&self) -> Result<Vec<Snapshot>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.published_in);
        let label = format!("{PART_LABEL}={}", Part::Manifest.as_str());
        let manifests = api.list(&ListParams::default().labels(&label)).await;
        let manifests = manifests.with_context(|| {
            format!(
                "cannot list publications in the namespace {}; use --published-in for another \
                namespace",
                self.published_in
            )
        })?;
        let names = manifests.items.iter().filter_map(|manifest| {
            let name = manifest.data.as_ref()?.get(GATEWAY_ENTRY)?;
            ObjectKey::parse_as(Kind::Gateway, name)
        });
        let mut snapshots = Vec::new();
        for gateway in names {
            snapshots.push(self.published(&gateway).await?);
        }
        if snapshots.is_empty() {
            bail!(
                "nothing is published in the namespace {}; use --published-in for another \
                namespace",
                self.published_in
            );
        }
        Ok(snapshots)
    }
}

async fn pages(api: &Api<DynamicObject>) -> kube::Result<Vec<Value>> {
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&params).await?;
        for object in list.items {
            objects.push(serde_json::to_value(object).map_err(kube::Error::SerdeError)?);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if objects.len() < MAX_OBJECTS => params = params.continue_token(&token),
            _ => return Ok(objects),
        }
    }
}
