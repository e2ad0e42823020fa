//! A Service that another Service replaces while it has no endpoints.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_policy, edge, endpoint_slices, http_listener, ingress, ingress_class, ingress_rule,
    service, yaml,
};

pub(crate) fn class() -> Value {
    let mut class = ingress_class();
    class["metadata"]["annotations"] = json!({"projectsesame.io/annotations": "Nginx"});
    class
}

/// Annotation names omit the common prefix.
pub(crate) fn annotated(
    host: &str,
    annotations: &[(&str, &str)],
    paths: &[(&str, &str, &str)],
) -> Value {
    let annotations = annotations.iter().map(|(name, value)| {
        let name = format!("nginx.ingress.kubernetes.io/{name}");
        (name, json!(value))
    });
    let name = host.split('.').next().unwrap_or_default();
    let mut object = ingress(
        name,
        &Value::Object(annotations.collect()),
        &json!({"rules": [ingress_rule(host, paths)]}),
    );
    if object["metadata"]["annotations"]["nginx.ingress.kubernetes.io/canary"] == "true" {
        object["metadata"]["name"] = json!(format!("{name}-canary"));
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn default_backend_serves_while_endpoints_are_missing() {
    let own = Backend::start("own").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _errors = start_served(&["errors"], &mut objects).await;
    objects.extend([class(), service("shop", "")]);
    let path = [("/", "Prefix", "shop")];
    let default = [("default-backend", "errors")];
    objects.push(annotated("shop.test", &default, &path));
    objects.push(annotated("plain.test", &[], &path));
    let missing = [("default-backend", "missing")];
    objects.push(annotated("missing.test", &missing, &path));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "shop.test", "/a");
    agent.wait_backend(&request, "errors").await;
    for host in ["plain.test", "missing.test"] {
        let reply = agent.get(80, host, "/a").send().await;
        assert_eq!(reply.expect("a response").status, 503, "{host}");
    }

    let load = Load::start(&Plan::new(vec![request.clone()]));
    let slices = yaml(&endpoint_slices("shop", &[own.address()]));
    for _ in 0..5 {
        agent.write("slices.yaml", &slices);
        agent.wait_backend(&request, "own").await;
        agent.remove("slices.yaml");
        agent.wait_backend(&request, "errors").await;
    }
    load.stop().await.clean("changes of a Service's endpoints");
}

#[tokio::test(flavor = "multi_thread")]
async fn default_backend_idles_while_an_endpoint_is_healthy() {
    let own = Backend::start("own").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _errors = start_served(&["errors"], &mut objects).await;
    objects.extend([class(), service("shop", "")]);
    // Nothing listens on the other ports.
    let dead = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
    let mut all = dead.map(|it| it.parse().expect("an address")).to_vec();
    let check =
        json!({"tcp": {}, "interval": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1});
    objects.push(backend_policy(
        "shop",
        &json!({"healthCheck": {"active": check}}),
    ));
    let default = [("default-backend", "errors")];
    objects.push(annotated("shop.test", &default, &[("/", "Prefix", "shop")]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "shop.test", "/a");
    agent.wait_backend(&request, "errors").await;
    all.push(own.address());
    agent.write("slices.yaml", &yaml(&endpoint_slices("shop", &all)));
    agent.wait_backend(&request, "own").await;
    for _ in 0..100 {
        let reply = agent.get(80, "shop.test", "/a").send().await;
        let served = reply.expect("a response").backend();
        assert_eq!(served.as_deref(), Some("own"));
    }
}
