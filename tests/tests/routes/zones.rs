//! Zone preference on a real Envoy.

use serde_json::json;
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    backend_policy, edge, endpoint_slices, http_listener, plain_route, service, yaml,
};

#[tokio::test(flavor = "multi_thread")]
async fn requests_stay_in_zone_until_it_fails() {
    let (near, far) = (Backend::start("near").await, Backend::start("far").await);
    let mut objects = edge(&[http_listener("http", 80, "")]);
    for name in ["preferred", "close", "few"] {
        let mut service = service(name, "");
        if name == "close" {
            service["spec"]["trafficDistribution"] = json!("PreferClose");
        }
        objects.push(service);
        for (backend, zone) in [(&near, "zone-a"), (&far, "zone-b")] {
            let mut slices = endpoint_slices(name, &[backend.address()]);
            for slice in &mut slices {
                slice["endpoints"][0]["zone"] = json!(zone);
            }
            objects.extend(slices);
        }
        let host = format!("{name}.test");
        objects.push(plain_route(name, &host, name));
    }
    objects.push(backend_policy(
        "preferred",
        &json!({
            "loadBalancer": {"type": "LeastRequest", "zonePreference": {}},
            "healthCheck": {"active": {
                "tcp": {}, "interval": "100ms", "healthyThreshold": 1, "unhealthyThreshold": 2,
            }},
        }),
    ));
    let balancer = json!({"type": "RoundRobin", "zonePreference": {"minEndpoints": 2}});
    objects.push(backend_policy("few", &json!({"loadBalancer": balancer})));
    let setup = Setup::with_ports(&[80]).flag("--zone=zone-a");
    let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
    let get = |host: &str| agent.get(80, host, "/");
    let mut checks = Checks::default();
    for host in ["preferred.test", "close.test"] {
        agent.wait_ok(&get(host)).await;
        for _ in 0..30 {
            checks.backend(get(host), "near").await;
        }
    }
    for name in ["near", "far"] {
        agent.wait_backend(&get("few.test"), name).await;
    }
    drop(near);
    agent.wait_backend(&get("preferred.test"), "far").await;
    for _ in 0..30 {
        checks.backend(get("preferred.test"), "far").await;
    }
    checks.finish();
}
