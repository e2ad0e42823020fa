//! Statuses follow the hosts' reports. Other controllers' status entries must stay unchanged.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, condition, deployed, objects, publication,
};
use sesame_tests::manifests::{
    self, edge_name, gateway, http_listener, http_route, plain_route, rule_to,
};
use sesame_tests::reports::{self, REPORTS};
use sesame_tests::wait::{eventually, holds};

const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
const ROUTE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/app";

fn ours(route: &Value) -> &Value {
    let parents = route["status"]["parents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = parents
        .iter()
        .find(|parent| parent["controllerName"] == manifests::CONTROLLER);
    found.unwrap_or(&Value::Null)
}

fn accepted(route: &Value) -> &Value {
    condition(&ours(route)["conditions"], "Accepted")
}

fn foreign() -> Value {
    json!({
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "theirs"},
        "controllerName": "example.com/theirs",
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "theirs",
            "observedGeneration": 1, "lastTransitionTime": "2024-01-01T00:00:00Z",
        }],
    })
}

fn has_foreign(route: &Value) -> bool {
    let parents = route["status"]["parents"].as_array();
    parents.is_some_and(|parents| parents.contains(&foreign()))
}

#[tokio::test]
async fn controller_writes_only_own_statuses() {
    let cluster = deployed(Channel::Standard).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;

    let route = plain_route("app", "app.example.com", "app");
    let mut all = manifests::edge(&[http_listener("http", 80, "")]);
    all.extend(manifests::served_at("app", "10.0.0.1:80"));
    all.push(route.clone());
    cluster.apply_all(&all).await;
    let class = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";
    let class = cluster
        .until("the class is accepted", class, |class| {
            condition(&class["status"]["conditions"], "Accepted")["status"] == "True"
        })
        .await;
    let features = class["status"]["supportedFeatures"].as_array();
    assert!(features.is_some_and(|features| features.contains(&json!({"name": "HTTPRoute"}))));

    routes_are_shared(&cluster, &route).await;
    foreign_conditions_of_a_gateway_stay(&cluster).await;
    hosts_program_a_gateway(&cluster).await;
    large_hostname_is_published_in_parts(&cluster).await;
    routes_that_leave_are_left(&cluster, &route).await;
    agents_of_a_gateway_that_is_gone_are_forgotten(&cluster).await;

    assert!(controller.stop().await.success());
    drop(controller);
    one_gateway_only(&cluster).await;
}

async fn routes_are_shared(cluster: &TestCluster, route: &Value) {
    // The controller may receive the route before its Service, so wait for both conditions.
    let first = cluster
        .until("the route is accepted", ROUTE, |route| {
            let resolved = condition(&ours(route)["conditions"], "ResolvedRefs");
            accepted(route)["status"] == "True" && resolved["reason"] == "ResolvedRefs"
        })
        .await;
    assert_eq!(ours(&first)["parentRef"], first["spec"]["parentRefs"][0]);
    let both = json!({"status": {"parents": [ours(&first), foreign()]}});
    cluster.merge(&format!("{ROUTE}/status"), &both).await;

    let mut broken = route.clone();
    broken["spec"]["rules"][0]["backendRefs"][0]["name"] = json!("missing");
    cluster.apply_all(&[broken]).await;
    let second = cluster
        .until("the missing backend is reported", ROUTE, |route| {
            condition(&ours(route)["conditions"], "ResolvedRefs")["reason"] == "BackendNotFound"
        })
        .await;
    assert!(has_foreign(&second), "{}", second["status"]);
    assert_eq!(
        accepted(&second)["observedGeneration"],
        second["metadata"]["generation"]
    );
    assert_eq!(
        accepted(&second)["lastTransitionTime"],
        accepted(&first)["lastTransitionTime"],
        "an unchanged condition keeps its transition time"
    );
    cluster.apply_all(std::slice::from_ref(route)).await;
    let third = cluster
        .until("the reference is resolved again", ROUTE, |route| {
            condition(&ours(route)["conditions"], "ResolvedRefs")["status"] == "True"
        })
        .await;
    assert!(has_foreign(&third));
}

async fn foreign_conditions_of_a_gateway_stay(cluster: &TestCluster) {
    let gateway = cluster
        .until("the Gateway is accepted", GATEWAY, |gateway| {
            condition(&gateway["status"]["conditions"], "Accepted")["status"] == "True"
        })
        .await;
    let mut conditions = gateway["status"]["conditions"]
        .as_array()
        .cloned()
        .expect("a list");
    conditions.push(json!({
        "type": "example.com/Checked", "status": "True", "reason": "Checked", "message": "by others",
        "observedGeneration": 1, "lastTransitionTime": "2024-01-01T00:00:00Z",
    }));
    let change = json!({"status": {"conditions": conditions}});
    cluster.merge(&format!("{GATEWAY}/status"), &change).await;
    let listeners = [
        http_listener("http", 80, ""),
        http_listener("more", 8080, ""),
    ];
    let objects = [manifests::gateway("edge", &listeners)];
    cluster.apply_all(&objects).await;
    let gateway = cluster
        .until("both listeners are reported", GATEWAY, |gateway| {
            gateway["status"]["listeners"].as_array().map(Vec::len) == Some(2)
        })
        .await;
    let conditions = &gateway["status"]["conditions"];
    assert_eq!(
        condition(conditions, "example.com/Checked")["message"],
        "by others"
    );
    for condition in conditions.as_array().expect("a list") {
        if condition["type"] != "example.com/Checked" {
            assert_eq!(
                condition["observedGeneration"],
                gateway["metadata"]["generation"]
            );
        }
    }
    for listener in gateway["status"]["listeners"].as_array().expect("a list") {
        assert_eq!(listener["attachedRoutes"], 1);
    }
}

async fn write_report(cluster: &TestCluster, host: &str, status: Value) {
    let result = reports::write_report(cluster.admin(), &edge_name(), host, &status).await;
    result.expect("a report");
}

async fn hosts_program_a_gateway(cluster: &TestCluster) {
    let edge = edge_name();
    let pending = cluster.get(GATEWAY).await;
    assert_eq!(
        condition(&pending["status"]["conditions"], "Programmed")["status"],
        "Unknown"
    );
    // The publication may be older than the Gateway's status.
    let publication = eventually("both listeners are published", TEST_TIMEOUT, async || {
        let publication = publication(cluster.admin(), &edge).await?;
        match publication.snapshot.ports.len() {
            2 => Ok(publication),
            other => Err(format!("{other} ports")),
        }
    })
    .await;
    let revision: String = publication.manifest.revision.chars().take(12).collect();
    let status = |address: &str, heartbeat: Timestamp| {
        json!({
            "state": "Serving",
            "wantedRevision": revision,
            "appliedRevision": revision,
            "envoyVersion": "1.40.0",
            "agentVersion": "0.1.0",
            "addresses": [address],
            "heartbeat": heartbeat,
        })
    };
    let now = Timestamp::now();
    write_report(cluster, "node-1", status("192.0.2.10", now)).await;
    let mut second = status("192.0.2.9", now);
    second["refusedListeners"] = json!([{"name": "Gateway/default/edge/listeners/more", "reason": "port 8080 is taken by nginx"}]);
    second["refusedRoutes"] = json!([{
        "route": "HTTPRoute/default/app", "rules": [{"rule": 0, "reason": "no such regex"}],
        "backends": [], "works": true,
    }]);
    write_report(cluster, "node-2", second).await;
    write_report(
        cluster,
        "node-3",
        status("192.0.2.11", now - SignedDuration::from_mins(10)),
    )
    .await;
    let gateway = cluster
        .until("two of three hosts serve", GATEWAY, |gateway| {
            let programmed = condition(&gateway["status"]["conditions"], "Programmed");
            let message = programmed["message"].as_str().unwrap_or_default();
            message.starts_with("programmed on 2 of 3 hosts") && message.ends_with("from node-3")
        })
        .await;
    let status = &gateway["status"];
    assert_eq!(
        condition(&status["conditions"], "Programmed")["status"],
        "True"
    );
    assert_eq!(
        status["addresses"],
        json!([
            {"type": "IPAddress", "value": "192.0.2.9"},
            {"type": "IPAddress", "value": "192.0.2.10"},
        ])
    );
    let listener = |name: &str| {
        let all = status["listeners"].as_array().expect("a list");
        let found = all.iter().find(|listener| listener["name"] == name);
        condition(&found.expect("a listener")["conditions"], "Programmed").clone()
    };
    assert_eq!(listener("http")["status"], "True");
    assert_eq!(listener("more")["status"], "False");
    assert_eq!(
        listener("more")["message"],
        "on node-2: port 8080 is taken by nginx"
    );
    let route = cluster
        .until("the rejected rule is reported", ROUTE, |route| {
            condition(&ours(route)["conditions"], "PartiallyInvalid")["status"] == "True"
        })
        .await;
    let message = &condition(&ours(&route)["conditions"], "PartiallyInvalid")["message"];
    assert_eq!(message, "Dropped Rule 0: on node-2: no such regex");
    assert!(has_foreign(&route));
}

/// A hostname whose routes do not fit in one ConfigMap is split.
async fn large_hostname_is_published_in_parts(cluster: &TestCluster) {
    let edge = edge_name();
    let noise = |seed: u64| {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let text: String = (0..4000)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                char::from(b'0' + u8::try_from(state >> 32 & 63).expect("six bits"))
            })
            .collect();
        text
    };
    let mut names = Vec::new();
    for part in 0..3_u64 {
        let matches: Vec<Value> = (0..120)
            .map(|index| {
                json!({
                    "path": {"type": "Exact", "value": format!("/{part}/{index}")},
                    "headers": [{"name": "x-noise", "value": noise(part * 1000 + index)}],
                })
            })
            .collect();
        let rules: Vec<Value> = matches
            .chunks(60)
            .map(|some| rule_to("app", some))
            .collect();
        let name = format!("large-{part}");
        let route = http_route(&name, &["large.example.com"], &rules);
        cluster.apply_all(&[route]).await;
        names.push(name);
    }
    eventually("all routes are published", TEST_TIMEOUT, async || {
        let publication = publication(cluster.admin(), &edge).await?;
        let tables = publication.snapshot.route_tables.iter();
        let mut hosts = tables.flat_map(|table| &table.virtual_hosts);
        let host = hosts.find(|host| host.domain == "large.example.com");
        match host.map_or(0, |host| host.routes.len()) {
            360 => Ok(()),
            routes => Err(format!("{routes} routes")),
        }
    })
    .await;
    for name in names {
        cluster.delete(&ROUTE.replace("app", &name)).await;
    }
    cluster
        .until("the Gateway is programmed again", GATEWAY, |gateway| {
            condition(&gateway["status"]["conditions"], "Programmed")["status"] == "True"
        })
        .await;
}

async fn routes_that_leave_are_left(cluster: &TestCluster, route: &Value) {
    let mut elsewhere = route.clone();
    elsewhere["spec"]["parentRefs"] = json!([{"name": "theirs"}]);
    cluster.apply_all(&[elsewhere]).await;
    let left = cluster
        .until("the controller's entry is removed", ROUTE, |route| {
            ours(route).is_null()
        })
        .await;
    assert_eq!(left["status"]["parents"], json!([foreign()]));
    let gateway = cluster
        .until("no route is attached", GATEWAY, |gateway| {
            gateway["status"]["listeners"][0]["attachedRoutes"] == 0
        })
        .await;
    assert_eq!(gateway["status"]["listeners"][1]["attachedRoutes"], 0);
}

async fn agents_of_a_gateway_that_is_gone_are_forgotten(cluster: &TestCluster) {
    cluster.delete(GATEWAY).await;
    let is_empty = |list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
    let what = "all GatewayAgents are deleted";
    cluster.until(what, REPORTS, is_empty).await;
}

/// In `single` mode, all Gateways except the oldest must report why they are not served.
async fn one_gateway_only(cluster: &TestCluster) {
    let listeners = [http_listener("http", 80, "")];
    let first = gateway("edge", &listeners);
    cluster.apply_all(&[first]).await;
    let stored = cluster.get(GATEWAY).await;
    // Creation timestamps are in seconds, so wait for the next second.
    let created: Timestamp = stored["metadata"]["creationTimestamp"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a time");
    eventually("the next second", TEST_TIMEOUT, async || {
        let later = Timestamp::now() > created + SignedDuration::from_millis(1100);
        holds(later, || "not yet".to_owned())
    })
    .await;
    let mut second = gateway("another", &listeners);
    second["spec"]["gatewayClassName"] = json!("edge");
    let others = [
        second,
        manifests::gateway_class("later"),
        gateway("later", &listeners),
    ];
    cluster.apply_all(&others).await;
    let controller = ControllerUnderTest::start(cluster, &["--mode", "single"]).await;
    let edge = edge_name();
    eventually("the oldest is published", TEST_TIMEOUT, async || {
        publication(cluster.admin(), &edge).await
    })
    .await;
    for name in ["another", "later"] {
        let refused = cluster
            .until(
                "the others are rejected",
                &GATEWAY.replace("edge", name),
                |gateway| {
                    condition(&gateway["status"]["conditions"], "Accepted")["status"] == "False"
                },
            )
            .await;
        let message = &condition(&refused["status"]["conditions"], "Accepted")["message"];
        let message = message.as_str().expect("a message");
        assert!(
            message.contains("default/edge") && message.contains("Single"),
            "{message}"
        );
        let name = NamespacedName::new("default", name);
        assert!(
            objects(cluster.admin(), "configmaps", &name)
                .await
                .is_empty()
        );
    }
    let class = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/later";
    cluster
        .until("the other class is rejected", class, |class| {
            let accepted = condition(&class["status"]["conditions"], "Accepted");
            let message = accepted["message"].as_str().unwrap_or_default();
            accepted["reason"] == "OlderGatewayClassExists" && message.contains("\"edge\"")
        })
        .await;
    drop(controller);
}
