//! Credentials are published like private keys, and digests in ConfigMaps must not reveal them.

use serde_json::json;
use sesame_proto::keys::KeyPair;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, deployed, keys, publication};
use sesame_tests::manifests::{access_policy, edge, edge_name, http_listener, plain_route};
use sesame_tests::wait::eventually;

const POLICY: &str = "AccessPolicy/default/keys/apiKeyAuth";

/// Returns the revision and the policy's key pair, whose digest the ConfigMaps contain.
async fn published(cluster: &TestCluster) -> (String, KeyPair) {
    eventually("the API keys are published", TEST_TIMEOUT, async || {
        let published = publication(cluster.admin(), &edge_name()).await?;
        let pairs = keys(cluster.admin(), &edge_name()).await;
        let pair = pairs.into_iter().find(|pair| pair.name == POLICY);
        let pair = pair.ok_or("no API keys are published")?;
        let mut named = published.snapshot.keys.iter();
        if named.any(|key| key.name == POLICY && key.digest == pair.digest()) {
            Ok((published.manifest.revision.clone(), pair))
        } else {
            Err(format!("{:?}", published.snapshot.keys))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn published_digests_reveal_no_api_key_and_survive_restarts() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let target = json!({"kind": "Gateway", "name": "edge"});
    let spec = json!({"apiKeyAuth": {"credentials": [{"name": "clients"}]}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "clients", "namespace": "default"},
        "stringData": {"shop": "1234"}});
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend([
        secret,
        plain_route("app", "app.test", "a"),
        access_policy("keys", target, &spec),
    ]);
    cluster.apply_all(&objects).await;
    let (revision, pair) = published(&cluster).await;
    let guess = KeyPair {
        private_key: b"shop:1234\n".to_vec(),
        ..KeyPair::default()
    };
    assert_ne!(pair.digest(), guess.digest());
    let text = String::from_utf8_lossy(&pair.private_key).into_owned();
    assert!(text.ends_with("\nshop:1234\n"), "the salt comes first");

    controller.stop().await;
    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    assert_eq!(published(&cluster).await, (revision, pair));
}
