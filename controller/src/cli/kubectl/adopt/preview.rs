//! Resolves the copies of one host as if they were applied, because hosts move one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Error, Result, anyhow};
use serde_json::json;
use sesame_kinds::api::{IngressSettings, SesameConfiguration};
use sesame_kinds::decode::{decode_value, from_value};
use sesame_kinds::world::{Kind, World};
use sesame_resolver::{Options, Resolution, ResolvedFor, resolve as resolve_world};

use super::super::diff;
use super::super::reading::ClusterReader;
use super::copies::{HostCopies, text};
use sesame_resolver::INGRESS_CONTROLLER;

/// Name and namespace of the Gateway that an assumed class uses.
const ASSUMED_GATEWAY: (&str, &str) = ("adopt-preview", "default");

/// The cluster's own objects, and the copies of all hosts.
pub(super) struct AdoptPreview {
    world: World,
    options: Options,
    /// The copies of all hosts.
    copies: BTreeSet<String>,
}

impl AdoptPreview {
    /// Resolves the copies of one host in addition to the cluster's own objects.
    pub(super) fn resolve(&self, host: &HostCopies) -> Resolution {
        let mut world = self.world.clone();
        let stays = |key: String| host.originals.contains_key(&key) || !self.copies.contains(&key);
        world
            .ingresses
            .retain(|it| stays(key_text(Kind::Ingress, &it.metadata)));
        world
            .http_proxies
            .retain(|it| stays(key_text(Kind::HttpProxy, &it.metadata)));
        resolve_world(&world, &self.options)
    }
}

/// Reads the cluster. `assumed` is a class to assume.
pub(super) async fn read(
    reader: &ClusterReader,
    configuration: Option<Arc<SesameConfiguration>>,
    assumed: Option<&str>,
    hosts: &BTreeMap<String, HostCopies>,
) -> Result<AdoptPreview> {
    let mut world = diff::read_world(reader).await?;
    // The cluster may also serve the originals, which would then conflict with the copies.
    let originals = hosts.values().flat_map(|host| host.originals.values());
    let originals: BTreeSet<&str> = originals.map(String::as_str).collect();
    world
        .ingresses
        .retain(|it| !originals.contains(&*key_text(Kind::Ingress, &it.metadata)));
    world
        .http_proxies
        .retain(|it| !originals.contains(&*key_text(Kind::HttpProxy, &it.metadata)));
    let mut options = Options {
        controller_name: reader.controller_name.clone(),
        resolved_for: ResolvedFor::Cluster,
        namespace: reader.published_in.clone(),
        configuration,
        preview: true,
        ..Options::default()
    };
    if let Some(class) = assumed {
        assume(class, &mut world, &mut options)?;
    }
    for copy in hosts.values().flat_map(|host| &host.copies) {
        let (version, kind) = (text(copy, "/apiVersion"), text(copy, "/kind"));
        let kind = Kind::find(version, kind).ok_or_else(|| anyhow!("unknown kind {kind}"))?;
        match decode_value(copy.clone(), kind, version) {
            Ok(decoded) => world.insert(decoded.object),
            // Without the object, the report says that it is not served.
            Err(error) => diff::print_note(&error.to_string()),
        }
    }
    diff::add_references(reader, &mut [(&mut world, &options)]).await?;
    let copies = hosts.values().flat_map(|host| host.originals.keys());
    Ok(AdoptPreview {
        copies: copies.cloned().collect(),
        world,
        options,
    })
}

fn key_text(kind: Kind, metadata: &sesame_kinds::api::Metadata) -> String {
    kind.named(metadata.key()).to_string()
}

/// Adds a class that reads annotations of ingress-nginx, and a Gateway with an HTTP listener.
fn assume(class: &str, world: &mut World, options: &mut Options) -> Result<()> {
    let (name, namespace) = ASSUMED_GATEWAY;
    let version = "networking.k8s.io/v1";
    let object = json!({
        "apiVersion": version,
        "kind": "IngressClass",
        "metadata": {"name": class, "annotations": {"projectsesame.io/annotations": "Nginx"}},
        "spec": {"controller": INGRESS_CONTROLLER},
    });
    world.insert(decode_value(object, Kind::IngressClass, version)?.object);
    let assumed =
        json!({"gatewayRef": {"name": name, "namespace": namespace}, "listeners": [{"port": 80}]});
    let assumed: IngressSettings = from_value(assumed).map_err(Error::msg)?;
    let configuration = options.configuration.as_deref().cloned();
    let mut configuration = configuration.unwrap_or_default();
    let ingress = configuration.spec.ingress.take().unwrap_or_default();
    configuration.spec.ingress = Some(IngressSettings {
        gateway_ref: assumed.gateway_ref,
        listeners: assumed.listeners,
        ..ingress
    });
    options.configuration = Some(Arc::new(configuration));
    Ok(())
}
