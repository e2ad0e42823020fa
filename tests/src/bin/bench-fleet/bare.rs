//! A process with many clients that only watch one ConfigMap. Their cost is a lower bound for
//! distributing changes through the API server.

use std::time::Duration;

use anyhow::Context as _;
use futures::TryStreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use sesame_published::kubeconfig;
use sesame_tests::controller::NAMESPACE;
use tokio::sync::mpsc;

use super::light::LightHost;
use super::objects::WATCHED_LABEL;
use super::told::{Observation, print_observations};

pub(crate) async fn run(hosts: Vec<LightHost>) -> anyhow::Result<()> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let count = hosts.len();
    for (index, host) in hosts.into_iter().enumerate() {
        let sender = sender.clone();
        tokio::spawn(async move {
            while !sender.is_closed() {
                if let Err(error) = watch(index, &host, &sender).await {
                    eprintln!("{}: {error:#}", host.name);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    drop(sender);
    print_observations(count, receiver)
        .await
        .context("tell the parent")
}

async fn watch(
    index: usize,
    host: &LightHost,
    observations: &mpsc::UnboundedSender<Observation>,
) -> anyhow::Result<()> {
    let config = kubeconfig::read(&host.kubeconfig).await?.config;
    let client = Client::try_from(config)?;
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let resource = ApiResource::from_gvk_with_plural(&kind, "configmaps");
    let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
    let params = WatchParams::default()
        .labels(&format!("{WATCHED_LABEL}=yes"))
        .timeout(290);
    let mut events = std::pin::pin!(api.watch(&params, "0").await?);
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
            let revision = object.data["data"]["revision"].as_str().map(str::to_owned);
            let result = observations.send(Observation::now(index, revision, true));
            if result.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
