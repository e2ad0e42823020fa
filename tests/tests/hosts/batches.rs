//! Continuous changes under load. Expensive changes are batched, and endpoint updates overtake
//! them.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, endpoint_slices, http_listener, http_route, rule_to, service, yaml,
};
use sesame_tests::wait::eventually;

/// Number of routes, enough to make each change slow.
const ROUTES: usize = 1000;

fn route(number: usize, status: u16) -> Value {
    let mut rule = rule_to("a", &[]);
    if status != 200 {
        rule = json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": status}}]});
    }
    let host = format!("h{number}.test");
    http_route(&format!("r{number}"), &[&host], &[rule])
}

async fn status_of(agent: &AgentUnderTest, number: usize) -> u16 {
    let request = agent.get(80, &format!("h{number}.test"), "/");
    request.send().await.map_or(0, |reply| reply.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_apply_before_delayed_routes_without_failed_request() {
    let (first, second) = (
        Backend::start("first").await,
        Backend::start("second").await,
    );
    let slices = |backend: &Backend| yaml(&endpoint_slices("a", &[backend.address()]));
    let routes: Vec<Value> = (0..ROUTES).map(|number| route(number, 200)).collect();
    let agent = Setup::with_ports(&[80])
        .flag("--max-apply-share=1")
        .start(&[
            ("edge.yaml", &yaml(&edge(&[http_listener("http", 80, "")]))),
            ("service.yaml", &yaml(&[service("a", "")])),
            ("slices.yaml", &slices(&first)),
            ("routes.yaml", &yaml(&routes[1..])),
            ("changing.yaml", &yaml(&[route(0, 200)])),
        ]);
    let kept = agent.get(80, "h1.test", "/");
    agent.wait_backend(&kept, "first").await;
    let load = Load::start(&Plan::new(vec![kept.clone()]));
    let mut change = 0;
    eventually(
        "an endpoint update overtakes a route change",
        TEST_TIMEOUT * 3,
        async || {
            change += 1;
            let (status, backend, name) = if change % 2 == 1 {
                (302, &second, "second")
            } else {
                (301, &first, "first")
            };
            agent.write("changing.yaml", &yaml(&[route(0, status)]));
            agent.write("slices.yaml", &slices(backend));
            agent.wait_backend(&kept, name).await;
            let ahead = status_of(&agent, 0).await != status;
            // The delayed change must be applied even if no other change follows.
            let request = agent.get(80, "h0.test", "/");
            agent
                .wait_served(&request, |reply| reply.status == status)
                .await;
            sesame_tests::wait::holds(ahead, || format!("change {change} was not delayed"))
        },
    )
    .await;
    load.stop().await.assert_clean();
}
