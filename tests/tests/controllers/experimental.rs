//! End-to-end tests for Gateway API 1.7's experimental channel. Statuses must report unsupported
//! fields.

use serde_json::{Value, json};
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, condition, deploy};
use sesame_tests::followed::follow;
use sesame_tests::manifests::{
    backend_ref, edge, gateway, http_listener, http_route, path, served,
};
use sesame_tests::network;
use sesame_tests::wait::eventually;

const RESOURCES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default";
const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/edge";

fn asking(service: &str) -> Value {
    json!({"type": "ExternalAuth", "externalAuth":
        {"protocol": "HTTP", "backendRef": backend_ref(service), "http": {}}})
}

fn objects(backend: &Backend, auth: &Authorizing) -> Vec<Value> {
    let mut guarded = http_listener("guarded", 80, "guarded.test");
    guarded["filters"] = json!({"requests": [asking("auth")]});
    let mut missing = http_listener("missing", 80, "missing.test");
    missing["filters"] = json!({"requests": [asking("missing")]});
    let mut extension = http_listener("extension", 80, "extension.test");
    extension["filters"] = json!({"requests": [{"type": "ExtensionRef", "extensionRef":
        {"group": "example.com", "kind": "Filter", "name": "filter"}}]});
    let open = http_listener("open", 80, "");
    let mut objects = edge(&[open, guarded, missing, extension]);
    let mut routable = gateway("routable", &[http_listener("http", 81, "")]);
    routable["spec"]["gatewayClassName"] = json!("edge");
    routable["spec"]["addresses"] = json!([{"value": "192.0.2.1", "routability": "Cluster"}]);
    objects.push(routable);
    objects.extend(served("app", &[backend.address()]));
    objects.extend(served("auth", &[auth.address()]));
    let rule = |prefix: &str, fields: &Value| {
        let mut rule =
            json!({"matches": [path("PathPrefix", prefix)], "backendRefs": [backend_ref("app")]});
        for (name, value) in fields.as_object().into_iter().flatten() {
            rule[name] = value.clone();
        }
        rule
    };
    let rules = [
        rule("/", &json!({})),
        rule("/asked", &json!({"filters": [asking("auth")]})),
        rule(
            "/cookie",
            &json!({"sessionPersistence": {"type": "Cookie", "cookie": {"name": "sid", "path": "/cookie"}}}),
        ),
        rule(
            "/default",
            &json!({"sessionPersistence": {"cookie": {"name": "sid"}}}),
        ),
        rule(
            "/header",
            &json!({"sessionPersistence": {"type": "Header", "header": {"name": "x-sid"}}}),
        ),
        rule("/codes", &json!({"retry": {"codes": [503]}})),
        rule("/never", &json!({"retry": {"codes": [503], "attempts": 0}})),
        rule(
            "/processed",
            &json!({"retry": {"codes": [502]}, "timeouts": {"backendRequest": "200ms"}}),
        ),
    ];
    objects.push(http_route("app", &[], &rules));
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn experimental_fields_are_served_or_reported_in_status() {
    if !network::inside_own("experimental_fields_are_served_or_reported_in_status") {
        return;
    }
    let cluster = TestCluster::start().await;
    cluster.install_crds(Channel::Experimental).await;
    deploy(&cluster).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let agent = follow(&cluster, &[80], &[]).await;
    let at = (network::BACKENDS, 0).into();
    let backend = Backend::start_at("app", at).await.expect("an address");
    let auth = Authorizing::start_at("auth", network::BACKENDS.into()).await;
    cluster.apply_all(&objects(&backend, &auth)).await;
    let get = |host: &str, path: &str| agent.get(80, host, path);
    agent.wait_backend(&get("open.test", "/"), "app").await;

    let user = |host: &str, path: &str| get(host, path).header("authorization", "auth");
    for (request, status) in [
        (get("open.test", "/asked"), 401),
        (user("open.test", "/asked"), 200),
        (get("guarded.test", "/"), 401),
        (user("guarded.test", "/"), 200),
        (user("missing.test", "/"), 500),
        (user("extension.test", "/"), 500),
    ] {
        let reply = request.send().await.expect("an answer");
        assert_eq!(reply.status, status, "{request}");
    }
    for (path, header, part) in [
        ("/cookie", "set-cookie", "Path=/cookie;"),
        ("/default", "set-cookie", "Path=/;"),
        ("/header", "x-sid", ""),
    ] {
        let reply = get("open.test", path).send().await.expect("an answer");
        let value = reply
            .header(header)
            .unwrap_or_else(|| panic!("{path}: no {header}"));
        assert!(value.contains(part), "{path}: {value}");
    }
    // By default, Envoy retries once, and only requests that the backend cannot have processed.
    for (path, status, tries) in [
        ("/codes/status/503", 503, 2),
        ("/never/status/503", 503, 1),
        ("/processed/delay/3000ms", 504, 1),
    ] {
        let before = backend.count();
        let request = get("open.test", path);
        let reply = request.send().await.expect("an answer");
        assert_eq!(reply.status, status, "{request}");
        assert_eq!(backend.count() - before, tries, "{request}");
    }
    says_so(&cluster).await;
}

async fn says_so(cluster: &TestCluster) {
    cluster
        .until("the feature is listed", CLASS, |class| {
            let all = class["status"]["supportedFeatures"].as_array();
            let mut all = all.into_iter().flatten();
            all.any(|claimed| claimed["name"] == "GatewayListenerFilters")
        })
        .await;
    let edge = format!("{RESOURCES}/gateways/edge");
    cluster
        .until("the unsupported filters are reported", &edge, |gateway| {
            let reasons = |place: usize, type_: &str| {
                let listener = &gateway["status"]["listeners"][place];
                condition(&listener["conditions"], type_)["reason"].clone()
            };
            reasons(1, "Accepted") == "Accepted"
                && reasons(1, "ResolvedRefs") == "ResolvedRefs"
                && reasons(2, "Accepted") == "Accepted"
                && reasons(2, "ResolvedRefs") == "InvalidListenerFilterRef"
                && reasons(3, "Accepted") == "UnsupportedValue"
        })
        .await;
    let routable = format!("{RESOURCES}/gateways/routable");
    cluster
        .until("the routability is reported", &routable, |gateway| {
            let conditions = &gateway["status"]["conditions"];
            let assigned = condition(conditions, "AddressesAssigned");
            assigned["status"] == "False"
                && assigned["reason"] == "NotAssigned"
                && condition(conditions, "Programmed")["reason"] == "AddressNotAssigned"
        })
        .await;
}

/// Starts with the 1.6 CRDs, and then installs the 1.7 CRDs.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_in_older_shape_survive_newer_definitions() {
    if !network::inside_own("sessions_in_older_shape_survive_newer_definitions") {
        return;
    }
    let cluster = TestCluster::start().await;
    cluster
        .install_release("v1.6.3", Channel::Experimental)
        .await;
    deploy(&cluster).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let agent = follow(&cluster, &[80], &[]).await;
    let start = async |name| {
        let at = (network::BACKENDS, 0).into();
        Backend::start_at(name, at).await.expect("an address")
    };
    let backends = [start("one").await, start("two").await];
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &backends.each_ref().map(Backend::address)));
    let rule = json!({"backendRefs": [backend_ref("app")], "sessionPersistence":
        {"type": "Cookie", "sessionName": "sid", "cookieConfig": {"lifetimeType": "Session"}}});
    let mut newer = rule.clone();
    newer["sessionPersistence"] = json!({"type": "Cookie", "cookie": {"name": "sid", "path": "/"}});
    objects.push(http_route("app", &[], &[rule]));
    cluster.apply_all(&objects).await;
    let request = agent.get(80, "open.test", "/");
    let (cookie, first) = until_cookie(&request, "sid=").await;
    stays(&request.clone().header("cookie", &cookie), first.clone()).await;

    cluster.install_crds(Channel::Experimental).await;
    // The 1.7 CRD removes the older field, so sessions get a different cookie name.
    let route = format!("{RESOURCES}/httproutes/app");
    let stored = cluster.get(&route).await;
    let session = &stored["spec"]["rules"][0]["sessionPersistence"];
    assert_eq!(session, &json!({"type": "Cookie"}));
    let (other, backend) = until_cookie(&request, "sesame-session-").await;
    stays(&request.clone().header("cookie", &other), backend).await;
    // With the new field, old cookies are valid again.
    let change = json!({"spec": {"rules": [newer]}});
    cluster.merge(&route, &change).await;
    until_cookie(&request, "sid=").await;
    stays(&request.clone().header("cookie", &cookie), first).await;
}

async fn until_cookie(request: &Request, begins: &str) -> (String, Option<String>) {
    eventually("a cookie of this name", TEST_TIMEOUT, async || {
        let reply = request.send().await.map_err(|error| error.to_string())?;
        let set_cookie = reply.header("set-cookie").unwrap_or_default();
        let cookie = set_cookie.split(';').next().unwrap_or_default().to_owned();
        if cookie.starts_with(begins) {
            Ok((cookie, reply.backend()))
        } else {
            Err(set_cookie.to_owned())
        }
    })
    .await
}

async fn stays(request: &Request, backend: Option<String>) {
    for _ in 0..20 {
        let reply = request.send().await.expect("an answer");
        assert_eq!(reply.backend(), backend, "{request}");
    }
}
