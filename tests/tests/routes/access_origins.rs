//! Protection against forged requests in AccessPolicies. All policies must accept the origin.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{access_policy, edge, http_listener, plain_route, yaml};

use crate::access_tokens::{gateway_target, route_target};

fn csrf(origins: &[&str]) -> Value {
    json!({"csrf": {"additionalOrigins": origins}})
}

fn objects() -> Vec<Value> {
    let mut all = csrf(&["a.test", "b.test:8443"]);
    all["exemptions"] = json!([
        {"kind": "HTTPRoute", "name": "hooks", "parts": ["csrf"]},
    ]);
    vec![
        plain_route("plain", "plain.test", "a"),
        plain_route("shop", "shop.test", "a"),
        plain_route("hooks", "hooks.test", "a"),
        plain_route("wrong", "wrong.test", "a"),
        access_policy("all", gateway_target(), &all),
        access_policy(
            "shop",
            route_target("shop"),
            &csrf(&["b.test:8443", "c.test"]),
        ),
        access_policy("wrong", route_target("wrong"), &csrf(&["null"])),
    ]
}

async fn status(request: &Request, origin: &str, expected: u16, checks: &mut Checks) {
    let both = [request.clone(), request.clone().http2()];
    for request in both {
        if let Some(reply) = checks.reply(&request).await {
            checks.same(
                format_args!("{request} from {origin:?}"),
                &reply.status,
                &expected,
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_requests_get_403() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "plain.test", "/")).await;
    let mut checks = Checks::default();
    for (host, origin, expected) in [
        ("plain.test", "", 403),
        ("plain.test", "http://plain.test", 200),
        // Envoy ignores schemes.
        ("plain.test", "https://plain.test", 200),
        ("plain.test:80", "http://plain.test", 403),
        ("plain.test:80", "http://plain.test:80", 200),
        ("plain.test", "http://evil.test", 403),
        ("plain.test", "http://plain.test.evil.test", 403),
        ("plain.test", "http://evil.test/plain.test", 403),
        ("plain.test", "null", 403),
        ("plain.test", "https://a.test", 200),
        ("plain.test", "https://a.test:8443", 403),
        ("plain.test", "https://b.test:8443", 200),
        ("plain.test", "https://b.test", 403),
        ("plain.test", "https://c.test", 403),
        ("shop.test", "", 403),
        ("shop.test", "https://shop.test", 200),
        ("shop.test", "https://a.test", 403),
        ("shop.test", "https://b.test:8443", 200),
        ("shop.test", "https://c.test", 403),
        ("hooks.test", "", 200),
        ("hooks.test", "http://evil.test", 200),
        ("wrong.test", "http://wrong.test", 500),
        ("none.test", "http://evil.test", 403),
        ("none.test", "http://none.test", 404),
    ] {
        let request = agent.get(80, host, "/");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let request = request.clone().method(method);
            if !origin.is_empty() {
                let by_origin = request.clone().header("origin", origin);
                status(&by_origin, origin, expected, &mut checks).await;
            }
            let by_referer = match origin {
                "" => request,
                _ => request.header("referer", &format!("{origin}/x?y")),
            };
            // Without a scheme, the path is part of the origin.
            status(&by_referer, origin, expected, &mut checks).await;
        }
        let unchecked = match (host, expected) {
            ("none.test", _) => 404,
            (_, 500) => 500,
            _ => 200,
        };
        for method in ["GET", "OPTIONS"] {
            let request = request.clone().method(method).header("origin", origin);
            status(&request, origin, unchecked, &mut checks).await;
        }
    }
    // `Origin` takes precedence over `Referer`.
    let request = agent.get(80, "plain.test", "/").method("POST");
    let forged = request
        .clone()
        .header("origin", "http://evil.test")
        .header("referer", "http://plain.test/");
    status(&forged, "evil", 403, &mut checks).await;
    let twice = request
        .header("origin", "http://plain.test")
        .header("origin", "http://evil.test");
    status(&twice, "both", 403, &mut checks).await;
    checks.finish();
}
