//! Certificates by ACME in a cluster, from a real ACME server.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::acme::Pebble;
use sesame_tests::agent::{Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, deployed, give_rights};
use sesame_tests::envoy::workspace;
use sesame_tests::followed::follow_as;
use sesame_tests::handshakes::Handshake;
use sesame_tests::joining::{Site, holding, join, options};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    GATEWAY, class_with_parameters, gateway, http_listener, http_route, https_listener,
    listener_set, rule_to, served,
};
use sesame_tests::network::{self, BACKENDS};
use sesame_tests::ports::free_port;
use sesame_tests::wait::{eventually, holds};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// Longer than the lifetime of the certificates here.
const RENEWED: Duration = Duration::from_secs(90);

fn objects(acme: &Value, backend: &Backend) -> Vec<Value> {
    let mut objects = class_with_parameters(GATEWAY, "acme", &json!({"acme": acme})).to_vec();
    let listeners = [
        http_listener("http", 80, ""),
        https_listener("https", 443, "a.test", "pair"),
        https_listener("own", 443, "own.test", "own"),
    ];
    let mut gateway = gateway(GATEWAY, &listeners);
    gateway["metadata"]["annotations"] = json!({"projectsesame.io/acme": "true"});
    objects.push(gateway);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_orders_and_renews_under_load() {
    if !network::inside_own("controller_orders_and_renews_under_load") {
        return;
    }
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "acme.yaml").await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let setup = Setup::with_ports(&[80, 443]).unmapped();
    let agent = follow_as(&cluster, setup, &[]).await;
    let pebble = Pebble::start(agent.address(80), 60).await;
    let backend = Backend::start_at("a", (BACKENDS, 0).into())
        .await
        .expect("an address");
    let own = Authority::new("own").issue(&["own.test"]).secret("own");
    cluster.apply_all(&[own]).await;
    let mut unreachable = pebble.settings();
    unreachable["directory"] = json!(format!("https://localhost:{}/dir", free_port()));
    cluster.apply_all(&objects(&unreachable, &backend)).await;
    let explained = |events: &Value| {
        let mut items = events["items"].as_array().into_iter().flatten();
        items.any(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            event["reason"] == "CertificateNotOrdered" && note.contains("Secret default/pair")
        })
    };
    cluster
        .until("an Event about the failure", EVENTS, explained)
        .await;
    // A corrected request does not wait.
    cluster
        .apply_all(&objects(&pebble.settings(), &backend))
        .await;

    let trust = pebble.trust().await;
    let request = agent.get(443, "a.test", "/").tls("a.test", &trust);
    eventually("the certificate is served", RENEWED, async || {
        let sent = request.send().await.map_err(|error| format!("{error:#}"));
        let log = || format!("{}\n{}", controller.log_tail(), pebble.log());
        holds(sent.is_ok_and(|reply| reply.status == 200), log)
    })
    .await;
    let secret = cluster.get(&format!("{SECRETS}/pair")).await;
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(
        secret["metadata"]["labels"]["projectsesame.io/acme"],
        "certificate"
    );

    let client = Handshake::with(agent.address(443), "a.test", &trust);
    let certificate = async || {
        client
            .shake()
            .await
            .expect("a handshake")
            .certificate
            .to_vec()
    };
    let first = certificate().await;
    let load = Load::start(&Plan::new(vec![request, agent.get(80, "a.test", "/")]));
    eventually("the certificate is renewed", RENEWED, async || {
        let now = certificate().await;
        holds(now != first, || {
            format!("{}\n{}", controller.log_tail(), pebble.log())
        })
    })
    .await;
    let report = load.stop().await;
    report.clean("renewal of a certificate by ACME in a cluster");

    let no_challenge = |routes: &Value| {
        routes["items"]
            .as_array()
            .is_some_and(|items| items.len() == 1)
    };
    tokio::time::timeout(
        TEST_TIMEOUT,
        cluster.until("no challenge", ROUTES, no_challenge),
    )
    .await
    .expect("removed in time");
    let own = cluster.get(&format!("{SECRETS}/own")).await;
    assert_eq!(own["metadata"]["labels"], Value::Null, "{own:#}");
}

/// Returns a Gateway for listeners from all namespaces, and a ListenerSet in the namespace `shop`.
fn shared(acme: &Value) -> Vec<Value> {
    let annotations = json!({"projectsesame.io/acme": "true"});
    let mut objects = class_with_parameters(GATEWAY, "acme", &json!({"acme": acme})).to_vec();
    let mut http = http_listener("http", 80, "");
    http["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    let mut gateway = gateway(GATEWAY, &[http]);
    gateway["metadata"]["annotations"] = annotations.clone();
    gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
    let mut set = listener_set(
        "tenant",
        &[https_listener("https", 443, "set.test", "pair")],
    );
    set["metadata"]["namespace"] = json!("shop");
    set["metadata"]["annotations"] = annotations;
    set["spec"]["parentRef"]["namespace"] = json!("default");
    objects.extend([gateway, set]);
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_set_orders_in_own_namespace() {
    if !network::inside_own("listener_set_orders_in_own_namespace") {
        return;
    }
    let cluster = deployed(Channel::Standard).await;
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    cluster.apply_all(&[shop]).await;
    let rights = workspace().join("controller/deploy/acme.yaml");
    let rights = std::fs::read_to_string(rights).expect("the rights");
    // The Gateway's namespace needs no RoleBinding.
    let rights = rights.replace("namespace: default", "namespace: shop");
    cluster.apply(&rights).await.expect("the rights");
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let setup = Setup::with_ports(&[80, 443]).unmapped();
    let agent = follow_as(&cluster, setup, &[]).await;
    let pebble = Pebble::start(agent.address(80), 3600).await;
    cluster.apply_all(&shared(&pebble.settings())).await;
    let trust = pebble.trust().await;
    let client = Handshake::with(agent.address(443), "set.test", &trust);
    eventually("the certificate is served", RENEWED, async || {
        let log = || format!("{}\n{}", controller.log_tail(), pebble.log());
        holds(client.shake().await.is_ok(), log)
    })
    .await;
    let secret = cluster.get("/api/v1/namespaces/shop/secrets/pair").await;
    let label = &secret["metadata"]["labels"]["projectsesame.io/acme"];
    assert_eq!(label, "certificate");
    let secrets = cluster.get(SECRETS).await;
    assert_eq!(secrets["items"], json!([]), "{secrets:#}");
    let routes = ROUTES.replace("default", "shop");
    let no_challenge = |routes: &Value| routes["items"] == json!([]);
    let removed = cluster.until("no challenge", &routes, no_challenge);
    tokio::time::timeout(TEST_TIMEOUT, removed)
        .await
        .expect("removed in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_orders_wildcard_with_dns_hook() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "acme.yaml").await;
    let pebble = Pebble::start((Ipv4Addr::LOCALHOST, 1).into(), 3600).await;
    let hook = pebble.dns_hook();
    let hook = hook.to_string_lossy();
    let controller = ControllerUnderTest::start(&cluster, &["--acme-dns-hook", &hook]).await;
    controller.wait_ready().await;
    let mut acme = pebble.settings();
    acme["challenge"] = json!("DNS01");
    let mut objects = class_with_parameters(GATEWAY, "acme", &json!({"acme": acme})).to_vec();
    let mut gateway = gateway(
        GATEWAY,
        &[https_listener("https", 443, "*.dns.test", "wild")],
    );
    gateway["metadata"]["annotations"] = json!({"projectsesame.io/acme": "true"});
    objects.push(gateway);
    cluster.apply_all(&objects).await;
    eventually("the certificate is ordered", RENEWED, async || {
        let secret = cluster.admin().get(&format!("{SECRETS}/wild")).await;
        let log = || format!("{}\n{}", controller.log_tail(), pebble.log());
        holds(secret.is_ok(), log)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn joined_host_serves_ordered_certificate() {
    if !network::inside_own("joined_host_serves_ordered_certificate") {
        return;
    }
    let site = Site::start().await;
    give_rights(&site.cluster, "acme.yaml").await;
    let controller = ControllerUnderTest::start(&site.cluster, &[]).await;
    controller.wait_ready().await;
    let backend = Backend::start_at("a", (BACKENDS, 0).into())
        .await
        .expect("an address");
    let setup = Setup::with_ports(&[80, 443]).unmapped();
    let mut agent = setup.without_manifests().prepare();
    let pebble = Pebble::start(agent.address(80), 3600).await;
    site.apply(&objects(&pebble.settings(), &backend)).await;
    let config = agent.runtime().join("agent.yaml");
    let token = site.token(&["--gateway", "default/edge", "--host", "host-1"]);
    let joined = join(&agent.state(), &config, &token, &[]);
    assert!(joined.status.success(), "{}", words(&joined));
    let flags = options(&config);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    agent.add_flags(&flags);
    agent.restart();

    let trust = pebble.trust().await;
    let request = agent.get(443, "a.test", "/").tls("a.test", &trust);
    eventually("the certificate is served", RENEWED, async || {
        let sent = request.send().await.map_err(|error| format!("{error:#}"));
        let log = || format!("{}\n{}", controller.log_tail(), pebble.log());
        holds(sent.is_ok_and(|reply| reply.status == 200), log)
    })
    .await;
    agent.wait_stored().await;

    let secret = site.cluster.get(&format!("{SECRETS}/pair")).await;
    let key = decoded(&secret["data"]["tls.key"]);
    let key = String::from_utf8(key).expect("PEM");
    let body = key.lines().nth(1).expect("base64");
    assert_eq!(holding(&agent.state(), body), [] as [PathBuf; 0]);
    let maps = site.cluster.get("/api/v1/configmaps").await;
    let mut values = 0;
    for map in maps["items"].as_array().expect("ConfigMaps") {
        let data = map["data"].as_object().into_iter().flatten();
        let binary = map["binaryData"].as_object().into_iter().flatten();
        let binary = binary.map(|(_, value)| {
            let bytes = decoded(value);
            zstd::decode_all(bytes.as_slice()).unwrap_or(bytes)
        });
        let text = data.map(|(_, value)| value.as_str().expect("text").as_bytes().to_vec());
        for value in text.chain(binary) {
            let mut parts = value.windows(body.len());
            assert!(!parts.any(|part| part == body.as_bytes()), "{map:#}");
            values += 1;
        }
    }
    assert!(values > 1, "nothing is published: {maps:#}");
    for log in [controller.log(), agent.log()] {
        assert!(!log.contains(body), "the key is logged");
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("base64");
    STANDARD.decode(text).expect("base64")
}
