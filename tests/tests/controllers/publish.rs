//! Publications must be complete, minimal, split into shards, and separate from private keys.

use prost::Message as _;
use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::manifest_name;
use sesame_tests::certs::Authority;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, NAMESPACE, Publication, TEST_TIMEOUT, condition, deployed, keys, objects,
    publication,
};
use sesame_tests::manifests::{
    self, edge_name, endpoint_slices, gateway, http_listener, http_route, https_listener, path,
    plain_route, rule_to,
};
use sesame_tests::wait::{eventually, holds};

const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";

async fn published(
    cluster: &TestCluster,
    gateway: &NamespacedName,
    what: &str,
    good: impl Fn(&Publication) -> bool,
) -> Publication {
    eventually(what, TEST_TIMEOUT, async || {
        let publication = publication(cluster.admin(), gateway).await?;
        if good(&publication) {
            Ok(publication)
        } else {
            Err(format!("{:?}", publication.snapshot))
        }
    })
    .await
}

async fn withdrawn(cluster: &TestCluster, gateway: &NamespacedName) {
    eventually(
        "the Gateway's objects are deleted",
        TEST_TIMEOUT,
        async || {
            let mut left = objects(cluster.admin(), "configmaps", gateway).await;
            left.extend(objects(cluster.admin(), "secrets", gateway).await);
            match left.len() {
                0 => Ok(()),
                more => Err(format!("{more} objects remain")),
            }
        },
    )
    .await;
}

fn has_domain(publication: &Publication, domain: &str) -> bool {
    let tables = &publication.snapshot.route_tables;
    tables
        .iter()
        .flat_map(|table| &table.virtual_hosts)
        .any(|host| host.domain == domain)
}

/// Shared by all checks, because starting a cluster takes seconds.
struct Shared {
    cluster: TestCluster,
    controller: ControllerUnderTest,
}

impl Shared {
    async fn start() -> Self {
        let cluster = deployed(Channel::Experimental).await;
        let controller = ControllerUnderTest::start(&cluster, &[]).await;
        controller.wait_ready().await;
        Self {
            cluster,
            controller,
        }
    }

    async fn base(&self) -> Publication {
        let mut all = manifests::edge(&[http_listener("http", 80, "")]);
        all.extend(manifests::served_at("app", "10.0.0.1:8080"));
        all.push(base_route());
        self.cluster.apply_all(&all).await;
        published(
            &self.cluster,
            &edge_name(),
            "the Gateway is published",
            |publication| {
                has_domain(publication, "app.example.com")
                    && publication.endpoints() == ["10.0.0.1:8080"]
                    && publication.snapshot.keys.is_empty()
            },
        )
        .await
    }
}

fn base_route() -> Value {
    plain_route("app", "app.example.com", "app")
}

/// All checks change the same Gateway, so they run in sequence.
#[tokio::test(flavor = "multi_thread")]
async fn publications_are_whole_minimal_and_kept() {
    let mut shared = Shared::start().await;
    macro_rules! properties {
        ($($name:ident,)*) => {$({
            eprintln!("property: {}", stringify!($name));
            let first = shared.base().await;
            $name(&mut shared, &first).await;
            let log = shared.controller.log();
            assert!(
                !log.contains("forbidden"),
                "{}",
                shared.controller.log_tail()
            );
        })*};
    }
    properties! {
        manifest_summarizes_its_publication,
        endpoints_change_no_manifest,
        last_endpoint_is_removed,
        removed_backend_stays_until_manifest_changes,
        a_bad_object_is_skipped,
        two_gateways_of_one_name_are_apart,
        keys_are_apart,
        damaged_objects_are_repaired,
        foreign_objects_are_left_alone,
        nothing_is_written_after_a_restart,
        a_gateway_that_is_deleted_is_withdrawn_and_comes_back,
        large_routes_do_not_block_other_namespaces,
    }
}

async fn manifest_summarizes_its_publication(_: &mut Shared, first: &Publication) {
    let summary = &first.manifest_object["data"];
    assert_eq!(summary["gateway"], "Gateway/default/edge");
    assert_eq!(summary["fleet"], "default");
    assert_eq!(summary["keySecrets"], "0");
    assert_eq!(summary["revision"], first.manifest.revision);
}

async fn endpoints_change_no_manifest(shared: &mut Shared, first: &Publication) {
    let cluster = &shared.cluster;
    let slices = endpoint_slices("app", &["10.0.0.2:8080".parse().expect("an address")]);
    cluster.apply_all(&slices).await;
    let second = published(cluster, &edge_name(), "the new endpoint", |publication| {
        publication.endpoints() == ["10.0.0.2:8080"]
    })
    .await;
    assert_eq!(second.manifest_version(), first.manifest_version());
    let changed: Vec<&String> = second
        .config_maps
        .iter()
        .filter(|(name, object)| first.config_maps.get(*name) != Some(object))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert!(changed[0].contains(".endpoints-"), "{changed:?}");
}

/// kube-controller-manager writes null instead of an empty list.
async fn last_endpoint_is_removed(shared: &mut Shared, _: &Publication) {
    let cluster = &shared.cluster;
    let slices = endpoint_slices("app", &["10.0.0.2:8080".parse().expect("an address")]);
    cluster.apply_all(&slices).await;
    let admin = cluster.admin();
    let path = admin.path_of(&slices[0]).await.expect("a path");
    let empty = json!({"endpoints": null, "ports": null});
    admin.merge(&path, &empty).await.expect("a slice");
    let stored = admin.get(&path).await.expect("a slice");
    assert_eq!(
        (&stored["endpoints"], &stored["ports"]),
        (&Value::Null, &Value::Null)
    );
    published(cluster, &edge_name(), "no endpoint", |publication| {
        publication.endpoints().is_empty()
    })
    .await;
    cluster.apply_all(&slices).await;
    published(cluster, &edge_name(), "the endpoint again", |publication| {
        publication.endpoints() == ["10.0.0.2:8080"]
    })
    .await;
}

/// Readers of the previous manifest still need a removed backend's endpoints.
async fn removed_backend_stays_until_manifest_changes(shared: &mut Shared, _: &Publication) {
    let cluster = &shared.cluster;
    let other = manifests::served("other", &["10.0.0.9:8080".parse().expect("an address")]);
    cluster.apply_all(&other).await;
    let mut moved = base_route();
    moved["spec"]["rules"][0]["backendRefs"][0]["name"] = json!("other");
    let before = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    cluster.apply_all(&[moved]).await;
    let after = eventually("the other backend", TEST_TIMEOUT, async || {
        let seen = publication(cluster.admin(), &edge_name()).await?;
        for backend in &seen.snapshot.backends {
            let has = seen
                .snapshot
                .endpoints
                .iter()
                .any(|set| set.name == backend.endpoints && !set.endpoints.is_empty());
            assert!(has, "{} has no endpoints", backend.name);
        }
        if seen.endpoints() == ["10.0.0.9:8080"] {
            Ok(seen)
        } else {
            Err(format!("{:?}", seen.endpoints()))
        }
    })
    .await;
    assert_ne!(before.manifest.revision, after.manifest.revision);
    // Readers of the previous revision still need its shards.
    for shard in &before.manifest.config {
        let name = format!("default.edge.{}", shard.name);
        assert!(after.config_maps.contains_key(&name), "{name}");
    }
}

async fn a_bad_object_is_skipped(shared: &mut Shared, _: &Publication) {
    let Shared {
        cluster,
        controller,
    } = shared;
    // The API server accepts this number, although it overflows the field's Rust type.
    let mut bad = http_route(
        "bad",
        &["bad.example.com"],
        &[rule_to("app", &[path("Exact", "/")])],
    );
    bad["spec"]["rules"][0]["retry"] = json!({"attempts": 5_000_000_000_u64});
    let mut good = base_route();
    good["metadata"]["name"] = json!("good");
    good["spec"]["hostnames"] = json!(["good.example.com"]);
    cluster.apply_all(&[bad, good]).await;
    let seen = published(cluster, &edge_name(), "the good route", |publication| {
        has_domain(publication, "good.example.com")
    })
    .await;
    assert!(!has_domain(&seen, "bad.example.com"));
    eventually("the bad route is counted", TEST_TIMEOUT, async || {
        let skipped = controller.metric("skipped_objects", "").await;
        holds(
            skipped > 0.5 && controller.log().contains("HTTPRoute/default/bad"),
            || controller.log_tail(),
        )
    })
    .await;
    for name in ["bad", "good"] {
        let path = format!("{ROUTES}/{name}");
        cluster.delete(&path).await;
    }
}

async fn two_gateways_of_one_name_are_apart(shared: &mut Shared, _: &Publication) {
    let cluster = &shared.cluster;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    let mut twin = gateway("edge", &[http_listener("http", 8080, "")]);
    twin["metadata"]["namespace"] = json!("other");
    twin["metadata"]["labels"] = json!({"projectsesame.io/fleet": "west"});
    cluster.apply_all(&[namespace, twin]).await;
    let name = NamespacedName::new("other", "edge");
    let theirs = published(cluster, &name, "the other Gateway", |_| true).await;
    assert_eq!(theirs.snapshot.gateway, "Gateway/other/edge");
    assert_eq!(theirs.manifest_object["data"]["fleet"], "west");
    assert_eq!(
        theirs.manifest_object["metadata"]["labels"]["projectsesame.io/fleet"],
        "west"
    );
    let ours = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    assert_eq!(ours.snapshot.gateway, "Gateway/default/edge");
    cluster
        .delete(
            &GATEWAYS
                .replace("default", "other")
                .replace("gateways", "gateways/edge"),
        )
        .await;
    withdrawn(cluster, &name).await;
    publication(cluster.admin(), &edge_name())
        .await
        .expect("still published");
}

async fn keys_are_apart(shared: &mut Shared, _: &Publication) {
    let Shared {
        cluster,
        controller,
    } = shared;
    let authority = Authority::new("test");
    let mut revisions = Vec::new();
    for round in 0..2 {
        let leaf = authority.issue(&["secure.example.com"]);
        let unrelated = authority.issue(&["unrelated.example.com"]);
        let listeners = [
            http_listener("http", 80, ""),
            https_listener("https", 443, "secure.example.com", "cert"),
        ];
        let objects = [
            leaf.secret("cert"),
            unrelated.secret("unrelated"),
            gateway("edge", &listeners),
        ];
        cluster.apply_all(&objects).await;
        let key = eventually("the key is published", TEST_TIMEOUT, async || {
            let found = keys(cluster.admin(), &edge_name()).await;
            let wanted = leaf.key_pem.replace("\r\n", "\n");
            let same = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                body(&text) == body(&wanted)
            };
            match found.as_slice() {
                [pair] if same(&pair.private_key) => Ok(pair.clone()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(key.name, "Secret/default/cert");
        let seen = published(
            cluster,
            &edge_name(),
            "the manifest with the key",
            |publication| {
                let digests: Vec<&str> = publication
                    .snapshot
                    .keys
                    .iter()
                    .map(|key| key.digest.as_str())
                    .collect();
                digests == [key.digest()]
            },
        )
        .await;
        assert_eq!(seen.manifest_object["data"]["keySecrets"], "1");
        revisions.push(seen.manifest.revision.clone());
        let secret = body(&leaf.key_pem);
        let secret = secret.get(10..60).expect("a key");
        let plain = seen.snapshot.encode_to_vec();
        assert!(
            !String::from_utf8_lossy(&plain).contains(secret),
            "round {round}"
        );
        for (name, object) in &seen.config_maps {
            for (_, value) in object["binaryData"].as_object().into_iter().flatten() {
                use base64::Engine as _;
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(value.as_str().expect("text"))
                    .expect("base64");
                assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{name}");
            }
            assert!(!object.to_string().contains(secret), "{name}");
        }
        assert!(!controller.log().contains(secret));
    }
    assert_ne!(
        revisions[0], revisions[1],
        "a new key must change the revision"
    );
}

fn body(pem: &str) -> String {
    pem.lines()
        .filter(|line| !line.starts_with("-----"))
        .collect()
}

async fn damaged_objects_are_repaired(shared: &mut Shared, _: &Publication) {
    let cluster = &shared.cluster;
    let before = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    let namespace = "/api/v1/namespaces/sesame-system";
    let lost = format!("default.edge.{}", before.manifest.config[0].name);
    cluster
        .delete(&format!("{namespace}/configmaps/{lost}"))
        .await;
    let manifest = format!("{namespace}/configmaps/default.edge.manifest");
    let change = json!({"data": {"revision": "nonsense", "more": "of it"}});
    cluster.merge(&manifest, &change).await;
    let after = published(
        cluster,
        &edge_name(),
        "the damaged manifest is repaired",
        |publication| publication.manifest_object["data"] == before.manifest_object["data"],
    )
    .await;
    assert_eq!(after.snapshot, before.snapshot);
}

/// Foreign objects stay, even if they have Sesame's labels or a name that Sesame needs.
async fn foreign_objects_are_left_alone(shared: &mut Shared, _: &Publication) {
    let cluster = &shared.cluster;
    let admin = cluster.admin();
    let publication = published(cluster, &edge_name(), "published", |_| true).await;
    let labels = &publication.manifest_object["metadata"]["labels"];
    let config_map = |name: &str, labels: &Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"whose": "theirs"},
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}})
    };
    let mut orphan_labels = labels.clone();
    orphan_labels["projectsesame.io/gateway"] = json!("00000000000000000000");
    let squat = NamespacedName::new("default", "squat");
    let name = manifest_name(&squat);
    for object in [
        config_map("copy", labels),
        config_map("copy-of-nobodys", &orphan_labels),
        config_map(&name, &json!({})),
    ] {
        admin.apply_value(&object).await.expect("applied");
    }
    let mut gateway = manifests::gateway("squat", &[http_listener("http", 80, "")]);
    gateway["spec"]["gatewayClassName"] = json!("edge");
    admin.apply_value(&gateway).await.expect("applied");
    let path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/squat";
    cluster
        .until("the name conflict is reported", path, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            message.contains(&name)
                && message.contains("was not created by this controller; delete it")
        })
        .await;
    for name in ["copy", "copy-of-nobodys", &name] {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}");
        let theirs = admin.get(&path).await.expect("a ConfigMap");
        assert_eq!(theirs["data"]["whose"], "theirs", "{name}");
        admin.delete(&path).await.expect("deleted");
    }
    published(
        cluster,
        &squat,
        "the Gateway with the freed name is published",
        |_| true,
    )
    .await;
    admin.delete(path).await.expect("deleted");
    withdrawn(cluster, &squat).await;
}

async fn nothing_is_written_after_a_restart(shared: &mut Shared, _: &Publication) {
    let Shared {
        cluster,
        controller,
    } = shared;
    let before = publication(cluster.admin(), &edge_name())
        .await
        .expect("published");
    let path = format!("{GATEWAYS}/edge");
    let gateway = cluster
        .until("the Gateway's status has settled", &path, |gateway| {
            let accepted = condition(&gateway["status"]["conditions"], "Accepted");
            accepted["observedGeneration"] == gateway["metadata"]["generation"]
        })
        .await;
    assert!(controller.stop().await.success());
    controller.restart();
    controller.wait_ready().await;
    controller.wait_leads().await;
    // If the restart causes writes, they precede this change. Watches of different kinds are not
    // ordered, so the route uses an existing Service.
    let later = plain_route("later", "later.example.com", "app");
    cluster.apply_all(&[later]).await;
    let after = published(cluster, &edge_name(), "the later route", |publication| {
        has_domain(publication, "later.example.com")
    })
    .await;
    let rewritten = before
        .config_maps
        .iter()
        .filter(|(name, _)| !name.ends_with(".manifest") && !name.contains(".endpoints-"))
        .filter(|(name, object)| {
            after
                .config_maps
                .get(*name)
                .is_some_and(|now| now != *object)
        })
        .count();
    assert_eq!(rewritten, 0);
    let manifests_written = controller
        .metric("publish_writes_total", "part=\"manifest\"")
        .await;
    assert!(
        manifests_written < 1.5,
        "{manifests_written} manifests were written"
    );
    let status = cluster.get(&path).await;
    assert_eq!(
        condition(&status["status"]["conditions"], "Accepted"),
        condition(&gateway["status"]["conditions"], "Accepted")
    );
    let path = format!("{ROUTES}/later");
    cluster.delete(&path).await;
}

async fn a_gateway_that_is_deleted_is_withdrawn_and_comes_back(
    shared: &mut Shared,
    _: &Publication,
) {
    let cluster = &shared.cluster;
    let gateway = cluster.get(&format!("{GATEWAYS}/edge")).await;
    cluster.delete(&format!("{GATEWAYS}/edge")).await;
    withdrawn(cluster, &edge_name()).await;
    let back = json!({
        "apiVersion": gateway["apiVersion"],
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": gateway["spec"],
    });
    cluster.apply_all(&[back]).await;
    published(
        cluster,
        &edge_name(),
        "the Gateway is published again",
        |publication| has_domain(publication, "app.example.com"),
    )
    .await;
}

/// Some routes' incompressible values exceed one shard. Another route would expand to 256 MiB.
async fn large_routes_do_not_block_other_namespaces(shared: &mut Shared, _: &Publication) {
    let cluster = &shared.cluster;
    let mut listener = http_listener("http", 80, "");
    listener["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}});
    cluster
        .apply_all(&[namespace, gateway("edge", &[listener])])
        .await;
    let tenant = |name: &str, hostnames: &[&str], matches: &[Value]| {
        let mut rule = rule_to("app", matches);
        rule["filters"] = json!([
            {"type": "RequestHeaderModifier", "requestHeaderModifier":
                {"set": noise(name, "a"), "add": noise(name, "b")}},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier":
                {"set": noise(name, "c"), "add": noise(name, "d")}},
        ]);
        let mut route = http_route(name, hostnames, &[rule]);
        route["metadata"]["namespace"] = json!("team-b");
        route["spec"]["parentRefs"][0]["namespace"] = json!("default");
        route
    };
    let mut service = manifests::service("app", "");
    service["metadata"]["namespace"] = json!("team-b");
    let large: Vec<Value> = (0..8)
        .map(|i| {
            let at = path("Exact", &format!("/{i}"));
            tenant(&format!("large-{i}"), &["b.example.com"], &[at])
        })
        .collect();
    let hostnames: Vec<String> = (0..16).map(|i| format!("h{i}.example.com")).collect();
    let hostnames: Vec<&str> = hostnames.iter().map(String::as_str).collect();
    let paths: Vec<Value> = (0..64).map(|i| path("Exact", &format!("/{i}"))).collect();
    let larger = tenant("larger", &hostnames, &paths);
    cluster.apply_all(&[service]).await;
    cluster.apply_all(&large).await;
    cluster.apply_all(std::slice::from_ref(&larger)).await;

    // The tenant's routes that fit must still be published.
    let mut other = base_route();
    other["spec"]["hostnames"] = json!(["app.example.com", "new.example.com"]);
    cluster.apply_all(&[other]).await;
    let slices = endpoint_slices("app", &["10.0.0.7:8080".parse().expect("an address")]);
    cluster.apply_all(&slices).await;
    let all = published(cluster, &edge_name(), "both tenants", |publication| {
        has_domain(publication, "new.example.com")
            && has_domain(publication, "b.example.com")
            && publication.endpoints() == ["10.0.0.7:8080"]
    })
    .await;
    let tables = all.snapshot.route_tables.iter();
    let mut hosts = tables.flat_map(|table| &table.virtual_hosts);
    let host = hosts.find(|host| host.domain == "b.example.com");
    assert_eq!(host.map(|host| host.routes.len()), Some(8));
    assert!(!has_domain(&all, "h0.example.com"));
    let admin = cluster.admin();
    let at = admin.path_of(&larger).await.expect("a path");
    eventually("the largest route is rejected", TEST_TIMEOUT, async || {
        let route = admin.get(&at).await.map_err(|error| error.to_string())?;
        let accepted = condition(&route["status"]["parents"][0]["conditions"], "Accepted");
        let message = accepted["message"].as_str().unwrap_or_default();
        let refused = accepted["reason"] == "UnsupportedValue" && message.contains("16 hostnames");
        refused.then_some(()).ok_or_else(|| accepted.to_string())
    })
    .await;
    for route in large.iter().chain([&larger]) {
        let path = admin.path_of(route).await.expect("a path");
        cluster.delete(&path).await;
    }
}

fn noise(route: &str, filter: &str) -> Value {
    let header = |i: usize| {
        let mut value = String::new();
        for part in 0..64 {
            value +=
                &sesame_proto::digest::sha256(format!("{route}/{filter}/{i}/{part}").as_bytes());
        }
        json!({"name": format!("x-{filter}-{i}"), "value": value})
    };
    (0..16).map(header).collect()
}
