//! Thousands of routes: status writes are rare, snapshots are split, and a restart rewrites
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use serde_json::Value;
use sesame_tests::cluster::{Channel, TestCluster, User};
use sesame_tests::controller::{
    ControllerUnderTest, Publication, condition, deployed, publication,
};
use sesame_tests::manifests::{self, edge_name, http_listener, http_route, path, rule_to};
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";
/// Time limit, long enough for a debug build on a busy machine.
const LATE: Duration = Duration::from_secs(120);

fn route(index: usize) -> Value {
    let host = format!("r{index}.example.com");
    let matches = [path("PathPrefix", &format!("/app/{index}"))];
    http_route(&format!("r{index}"), &[&host], &[rule_to("app", &matches)])
}

async fn create(cluster: &TestCluster, range: std::ops::Range<usize>) {
    futures::stream::iter(range)
        .for_each_concurrent(16, |index| async move {
            let created = cluster.admin().create(ROUTES, &route(index)).await;
            created.unwrap_or_else(|error| panic!("route {index}: {error}"));
        })
        .await;
}

async fn wait_attached(cluster: &TestCluster, count: usize) {
    eventually("all routes are counted", LATE, async || {
        let gateway = cluster.admin().get(GATEWAY).await;
        let gateway = gateway.map_err(|error| error.to_string())?;
        let attached = &gateway["status"]["listeners"][0]["attachedRoutes"];
        holds(*attached == count, || attached.to_string())
    })
    .await;
}

async fn wait_published(cluster: &TestCluster, routes: &str) -> Publication {
    eventually("all routes are published", LATE, async || {
        let publication = publication(cluster.admin(), &edge_name()).await?;
        let published = &publication.manifest_object["data"]["routes"];
        holds(published == routes, || published.to_string())?;
        Ok(publication)
    })
    .await
}

/// Counts writes to Gateways by any client.
async fn count_writes(cluster: &TestCluster) -> Arc<AtomicUsize> {
    let file = Kubeconfig::read_from(cluster.kubeconfig(&User::Admin).await).expect("a file");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a configuration")).expect("a client");
    let resource = ApiResource {
        group: "gateway.networking.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "gateway.networking.k8s.io/v1".to_owned(),
        kind: "Gateway".to_owned(),
        plural: "gateways".to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let (listed, is_listed) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut listed = Some(listed);
        // Without a backoff, this loop would spin after the API server has stopped.
        let watch = watcher(api, watcher::Config::default()).default_backoff();
        let mut watch = std::pin::pin!(watch);
        while let Some(event) = watch.next().await {
            match event {
                Ok(watcher::Event::Apply(_)) => {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Ok(watcher::Event::InitDone) => {
                    if let Some(listed) = listed.take() {
                        let _ = listed.send(());
                    }
                }
                _ => {}
            }
        }
    });
    is_listed.await.expect("a list");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_routes() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    let took = controller.wait_ready().await;
    eprintln!("ready with an empty cluster after {took:?}");
    let mut all = manifests::edge(&[http_listener("http", 80, "")]);
    all.extend(manifests::served_at("app", "10.0.0.1:80"));
    cluster.apply_all(&all).await;
    wait_attached(&cluster, 0).await;

    let writes = count_writes(&cluster).await;
    let start = Instant::now();
    create(&cluster, 0..1000).await;
    let created = start.elapsed();
    wait_attached(&cluster, 1000).await;
    eprintln!(
        "1,000 routes created in {created:?}, all counted after {:?}",
        start.elapsed()
    );
    let written = writes.load(Ordering::Relaxed);
    eprintln!("{written} writes to the Gateway's status");
    assert!(written <= 100, "{written} writes");

    create(&cluster, 1000..5000).await;
    wait_attached(&cluster, 5000).await;
    let before = wait_published(&cluster, "5000").await;
    assert!(
        before.manifest.config.len() >= 4,
        "{} shards",
        before.manifest.config.len()
    );
    let last = format!("{ROUTES}/r4999");
    eventually("every route has a status", LATE, async || {
        let status = controller.metric("status_writes_total", "HTTPRoute").await;
        let route = cluster.admin().get(&last).await;
        let route = route.map_err(|error| error.to_string())?;
        let conditions = &route["status"]["parents"][0]["conditions"];
        let accepted = condition(conditions, "Accepted")["status"] == "True";
        holds(accepted && status > 4999.5, || format!("{status} written"))
    })
    .await;
    let written = controller.metric("status_writes_total", "HTTPRoute").await;
    assert!(written < 5500.0, "{written} writes for 5,000 routes");
    eprintln!(
        "5,000 routes: {} shards, {} MiB resident, {written} route status writes, {} Gateway writes",
        before.manifest.config.len(),
        controller.resident_bytes() >> 20,
        writes.load(Ordering::Relaxed),
    );

    let published = |name: &str| format!("part=\"{name}\"");
    let shards = controller
        .metric("publish_writes_total", &published("config"))
        .await;
    create(&cluster, 5000..5001).await;
    let start = Instant::now();
    wait_published(&cluster, "5001").await;
    eprintln!("one more route published after {:?}", start.elapsed());
    wait_attached(&cluster, 5001).await;
    let more = controller
        .metric("publish_writes_total", &published("config"))
        .await
        - shards;
    assert!(more < 1.5, "one more route changed {more} shards");

    let seconds = controller.metric("resolution_seconds_sum", "").await;
    let count = controller.metric("resolution_seconds_count", "").await;
    eprintln!("{count} resolutions in {seconds:.1} s, including sharding");

    controller.restart();
    let took = controller.wait_ready().await;
    eprintln!(
        "ready with 5,000 routes after {took:?}, {} MiB resident",
        controller.resident_bytes() >> 20
    );
    controller.wait_leads().await;
    create(&cluster, 5001..5002).await;
    wait_attached(&cluster, 5002).await;
    let writes = controller.metric("status_writes_total", "").await;
    assert!(
        writes < 10.0,
        "{writes} statuses were written after a restart"
    );
    let rewritten = controller
        .metric("publish_writes_total", &published("config"))
        .await;
    assert!(
        rewritten < 1.5,
        "{rewritten} shards were written after a restart"
    );
}
