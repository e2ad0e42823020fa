//! An overridden Ingress in a cluster, and values that the HTTPProxy CRD accepts.

use serde_json::{Value, json};
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, deployed, give_rights};
use sesame_tests::manifests::{
    edge, edge_name, http_listener, http_proxy, http_route, ingress, ingress_class, ingress_rule,
    path, rule_to, served,
};
use sesame_tests::reports;

const INGRESS: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/app";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const PROXIES: &str = "/apis/projectcontour.io/v1/namespaces/default/httpproxies";

#[tokio::test(flavor = "multi_thread")]
async fn overridden_ingress_gets_event_and_error() {
    let cluster = deployed(Channel::Standard).await;
    let _controller = ControllerUnderTest::start(&cluster, &[]).await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served(
        "app",
        &["192.0.2.1:80".parse().expect("an address")],
    ));
    let spec = json!({"rules": [ingress_rule("app.test", &[("/x", "Prefix", "app")])]});
    objects.extend([ingress_class(), ingress("app", &json!({}), &spec)]);
    cluster.apply_all(&objects).await;
    reports::serve_on_node(&cluster, &edge_name(), "192.0.2.10").await;
    let error = |ingress: &Value| {
        let port = &ingress["status"]["loadBalancer"]["ingress"][0]["ports"][0];
        (port["port"].clone(), port["error"].clone())
    };
    cluster
        .until("the status has a port", INGRESS, |ingress| {
            error(ingress) == (json!(80), Value::Null)
        })
        .await;

    let rule = rule_to("app", &[path("PathPrefix", "/x")]);
    let route = http_route("top", &["app.test"], &[rule]);
    cluster.apply_all(&[route]).await;
    cluster
        .until("the status has an error", INGRESS, |ingress| {
            error(ingress) == (json!(80), json!("projectsesame.io/Overridden"))
        })
        .await;
    cluster
        .until("an Event names the HTTPRoute", EVENTS, |events| {
            let mut all = events["items"].as_array().into_iter().flatten();
            all.any(|event| {
                let note = event["note"].as_str().unwrap_or_default();
                event["regarding"]["kind"] == "Ingress"
                    && event["reason"] == "Overridden"
                    && note.contains("HTTPRoute/default/top")
            })
        })
        .await;
}

/// Fields of the virtual host, fields of the route, and whether Contour's CRD accepts them.
fn values() -> Vec<(Value, Value, bool)> {
    let none = || json!({});
    let host = |fqdn: &str, accepted| (json!({"fqdn": fqdn}), none(), accepted);
    let of_route = |route: Value, accepted| (none(), route, accepted);
    let service = |more: Value, accepted| {
        let mut service = json!({"name": "app", "port": 80});
        extend(&mut service, &more);
        of_route(json!({"services": [service]}), accepted)
    };
    vec![
        host("*.a.test", true),
        host("*", false),
        host("a.*.test", false),
        host("A.test", false),
        of_route(
            json!({"conditions": [{"header": {"present": true}}]}),
            false,
        ),
        of_route(
            json!({"timeoutPolicy": {"response": "1.5h", "idle": "infinity"}}),
            true,
        ),
        of_route(json!({"timeoutPolicy": {"response": "soon"}}), false),
        of_route(
            json!({"retryPolicy": {"count": -1, "retryOn": ["5xx", "retriable-4xx"]}}),
            true,
        ),
        of_route(json!({"retryPolicy": {"count": -2}}), false),
        of_route(json!({"retryPolicy": {"retryOn": ["sometimes"]}}), false),
        of_route(json!({"requestRedirectPolicy": {"statusCode": 303}}), true),
        of_route(json!({"requestRedirectPolicy": {"statusCode": 304}}), false),
        of_route(json!({"requestRedirectPolicy": {"path": "x"}}), false),
        of_route(json!({"directResponsePolicy": {"statusCode": 200}}), true),
        of_route(json!({"directResponsePolicy": {"statusCode": 600}}), false),
        of_route(json!({"directResponsePolicy": {"body": "x"}}), false),
        of_route(
            json!({"internalRedirectPolicy": {"redirectResponseCodes": [302, 308],
                "allowCrossSchemeRedirect": "SafeOnly"}}),
            true,
        ),
        of_route(
            json!({"internalRedirectPolicy": {"redirectResponseCodes": [300]}}),
            false,
        ),
        of_route(
            json!({"ipAllowPolicy": [{"source": "Client", "cidr": "192.0.2.0/24"}]}),
            false,
        ),
        service(
            json!({"weight": 0, "slowStartPolicy": {"window": "1m30s"}}),
            true,
        ),
        service(json!({"weight": -1}), false),
        service(json!({"port": 65536}), false),
        service(json!({"protocol": "h3"}), false),
        service(
            json!({"slowStartPolicy": {"window": "1m", "minWeightPercent": 101}}),
            false,
        ),
    ]
}

fn extend(value: &mut Value, more: &Value) {
    let fields = value.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_accepts_what_contour_accepts() {
    let cluster = deployed(Channel::Standard).await;
    give_rights(&cluster, "contour/crds.yaml").await;
    let proxy = |host: &Value, route: &Value| {
        let mut spec = json!({
            "virtualhost": {"fqdn": "a.test"},
            "routes": [{"services": [{"name": "app", "port": 80}]}],
        });
        extend(&mut spec["virtualhost"], host);
        extend(&mut spec["routes"][0], route);
        http_proxy("app", &spec)
    };
    for (host, route, accepted) in values() {
        let outcome = cluster.admin().try_value(&proxy(&host, &route)).await;
        assert_eq!(outcome.is_ok(), accepted, "{host} {route}: {outcome:?}");
    }
    let written = proxy(&json!({}), &json!({}));
    cluster.apply_all(std::slice::from_ref(&written)).await;
    let path = format!("{PROXIES}/app");
    let port = json!({"port": 443, "protocol": "TCP"});
    let addresses = json!([{"ip": "192.0.2.1", "ports": [port]}]);
    let status = json!({"status": {"loadBalancer": {"ingress": addresses}}});
    cluster.merge(&format!("{path}/status"), &status).await;
    let stored = cluster.get(&path).await;
    // The API server adds no defaults.
    assert_eq!(stored["spec"], written["spec"]);
    assert_eq!(stored["status"]["loadBalancer"]["ingress"], addresses);
    let mut with_nulls = proxy(&json!({"tls": null}), &json!({"retryPolicy": null}));
    with_nulls["metadata"]["name"] = json!("nulls");
    let created = cluster.admin().create(PROXIES, &with_nulls).await;
    assert_eq!(created.expect("created")["spec"], written["spec"]);
}
