//! Traces from a real Envoy. Requests must succeed without the collector.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::collecting::{Collecting, Span};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    class_with_parameters, edge, gateway, http_listener, plain_route, served, yaml,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn policy(name: &str, tracing: &Value) -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
            "tracing": tracing}})
}

fn traced(more: &Value) -> Value {
    let mut tracing = json!({"mode": "Enabled",
        "provider": {"backendRef": {"name": "collector", "port": 80}}});
    for (name, value) in more.as_object().into_iter().flatten() {
        tracing[name] = value.clone();
    }
    tracing
}

fn collector(collecting: &Collecting, app_protocol: &str) -> Vec<Value> {
    let mut objects = served("collector", &[collecting.address()]);
    if !app_protocol.is_empty() {
        objects[0]["spec"]["ports"][0]["appProtocol"] = json!(app_protocol);
    }
    objects
}

/// `recorded` sets the sampled flag.
fn caller(number: u32, recorded: bool) -> (String, String) {
    let trace = format!("{number:08x}{}", &TRACE[8..]);
    let flags = u8::from(recorded);
    let parent = format!("00-{trace}-{CALLER}-{flags:02x}");
    (trace, parent)
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_join_caller_trace_with_configured_attributes() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let mut tracing = traced(&json!({
        "samplingRate": {"numerator": 0},
        "serviceName": "shop-edge",
        "spanName": "ingress of shops",
        "attributes": [
            {"name": "env", "sourceType": "Literal", "literalValue": "100%PROTOCOL%"},
            {"name": "user", "sourceType": "Header", "headerName": "X-User"},
            {"name": "nobody", "sourceType": "Header", "headerName": "x-nobody"},
            {"name": "http.request.method", "sourceType": "Attribute", "attributeKey": "http.request.method"},
            {"name": "peer", "sourceType": "Attribute", "attributeKey": "network.peer.address"},
        ]
    }));
    tracing["provider"]["headers"] = json!([{"name": "X-Tenant", "value": "shop"}]);
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.extend(collector(&collecting, ""));
    objects.push(plain_route("app", "app.test", "app"));
    objects.push(policy("spans", &tracing));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "app.test", "/")).await;

    let get = |path: &str| agent.get(80, "app.test", path).header("x-user", "alice");
    let (unrecorded, parent) = caller(2, false);
    let reply = get("/b").header("traceparent", &parent).send().await;
    let passed_on = reply.expect("an answer").echo();
    assert!(
        passed_on.values("traceparent")[0].starts_with(&format!("00-{unrecorded}-"))
            && passed_on.values("traceparent")[0].ends_with("-00"),
        "{passed_on:?}"
    );
    let (trace, parent) = caller(1, true);
    let reply = get("/a?secret=1")
        .header("traceparent", &parent)
        .send()
        .await;
    let passed_on = reply.expect("an answer").echo();
    let spans = collecting.wait(&trace, 2).await;
    let find_span = |parent: &str| -> Span {
        let found = spans.iter().find(|span| span.parent == parent);
        found
            .unwrap_or_else(|| panic!("{parent}: {spans:#?}"))
            .clone()
    };
    let mut checks = Checks::default();
    let server = find_span(CALLER);
    let client = find_span(&server.id);
    checks.same(
        "traceparent at the backend",
        passed_on.values("traceparent"),
        vec![format!("00-{trace}-{}-01", client.id).as_str()],
    );
    checks.same("service", server.service.as_str(), "shop-edge");
    checks.same("name", server.name.as_str(), "ingress of shops");
    for (name, value) in [
        ("env", Some("100%PROTOCOL%")),
        ("user", Some("alice")),
        ("nobody", None),
        ("http.request.method", Some("GET")),
        ("peer", Some("127.0.0.1")),
        ("url.path", Some("/a")),
        ("http.status_code", Some("200")),
    ] {
        checks.same(name, server.attribute(name), value);
    }
    checks.same("tenant", server.header("x-tenant"), Some("shop"));
    let all = format!("{spans:?}");
    checks.that(!all.contains("secret"), &all);
    // Spans of the unsampled trace would have arrived earlier.
    let traces: Vec<String> = collecting.spans().into_iter().map(|it| it.trace).collect();
    checks.that(traces.iter().all(|it| *it == trace), format!("{traces:?}"));
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_tracing_uses_http_and_policy_overrides_it() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let tracing = traced(&json!({
        "samplingRate": {"numerator": 1, "denominator": 1},
        "parentBasedSampling": {"mode": "Disabled"}
    }));
    let spec = json!({"tracing": tracing});
    let mut objects: Vec<Value> = class_with_parameters("edge", "settings", &spec).into();
    objects.push(edge_gateway());
    objects.extend(served("app", &[backend.address()]));
    objects.extend(collector(&collecting, "http"));
    objects.push(plain_route("app", "app.test", "app"));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "app.test", "/")).await;
    let (trace, parent) = caller(1, false);
    let request = agent.get(80, "app.test", "/");
    let reply = request.header("traceparent", &parent).send().await;
    assert_eq!(reply.expect("an answer").status, 200);
    let spans = collecting.wait(&trace, 2).await;
    let mut checks = Checks::default();
    checks.same("path", spans[0].header(":path"), Some("/v1/traces"));
    checks.same("service", spans[0].service.as_str(), "edge.default");
    checks.finish();

    objects.push(policy("none", &json!({"mode": "Disabled"})));
    agent.write("all.yaml", &yaml(&objects));
    // With tracing disabled, Envoy adds no trace headers.
    let request = agent.get(80, "app.test", "/");
    agent
        .wait_served(&request, |reply| {
            reply.status == 200 && reply.echo().values("traceparent").is_empty()
        })
        .await;
}

fn edge_gateway() -> Value {
    let mut gateway = gateway("edge", &[http_listener("http", 80, "")]);
    gateway["spec"]["gatewayClassName"] = json!("edge");
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_collector_fails_no_request() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    objects.extend(collector(&collecting, ""));
    objects.push(plain_route("app", "app.test", "app"));
    let all = json!({"samplingRate": {"numerator": 100}});
    objects.push(policy("spans", &traced(&all)));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "app.test", "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone()]));
    let (trace, parent) = caller(1, true);
    let reply = request.header("traceparent", &parent).send().await;
    assert_eq!(reply.expect("an answer").status, 200);
    collecting.wait(&trace, 2).await;
    drop(collecting);
    load.pass(2_000).await;
    let report = load.stop().await;
    report.print("the collector exits");
    report.assert_clean();
}
