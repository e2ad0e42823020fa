//! `GRPCRoute` on a real Envoy: backends, and the status of failed calls.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::grpc::{self, code};
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, https_listener, on_listener, route, rule_to,
    weighted_ref, yaml,
};

fn method(service: &str, method: &str) -> Value {
    json!({"method": {"service": service, "method": method}})
}

/// If the call fails, returns its status.
async fn outcome(checks: &mut Checks, request: &Request) -> String {
    let Some(reply) = checks.reply(request).await else {
        return "no answer".to_owned();
    };
    match (grpc::status(&reply), grpc::echo(&reply)) {
        // Over HTTP/1.1, the trailers are lost.
        (Some(code::OK) | None, Some(echo)) => format!("{} over {}", echo.backend, echo.protocol),
        (status, _) => format!("grpc-status {status:?}, HTTP {}", reply.status),
    }
}

async fn goes(checks: &mut Checks, request: Request, expected: &str) {
    let got = outcome(checks, &request).await;
    checks.same(&request, got.as_str(), expected);
}

const UNIMPLEMENTED: &str = "grpc-status Some(12), HTTP 200";
const UNAVAILABLE: &str = "grpc-status Some(14), HTTP 200";

#[tokio::test(flavor = "multi_thread")]
async fn grpc_calls_follow_routes_and_errors_have_status() {
    let authority = Authority::new("tests");
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("same", 80, "same.test"),
        https_listener("https", 443, "grpc.test", "cert"),
    ]);
    objects.push(authority.issue(&["grpc.test"]).secret("cert"));
    let _backends = start_served(&["one", "two", "three"], &mut objects).await;
    objects.extend(routes());
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
    let call = |host: &str, method: &str| grpc::call(agent.address(80), host, method);
    agent
        .wait_served(&call("grpc.test", "shop.Cart/Add"), |reply| {
            grpc::status(reply) == Some(code::OK)
        })
        .await;

    let mut checks = Checks::default();
    for (host, method, expected) in [
        ("grpc.test", "shop.Cart/Add", "one over HTTP/2.0"),
        ("grpc.test", "shop.Cart/Remove", "two over HTTP/2.0"),
        ("grpc.test", "shop.CartOfOthers/Add", UNIMPLEMENTED),
        ("grpc.test", "bank.Account2/GetAll", "three over HTTP/2.0"),
        ("grpc.test", "bank.Account2/SetAll", UNIMPLEMENTED),
        ("none.test", "shop.Cart/Add", UNIMPLEMENTED),
        ("missing.test", "shop.Cart/Add", UNAVAILABLE),
        ("every.test", "any.Thing/Goes", "one over HTTP/2.0"),
        // `both` precedes `both-grpc` by name, but must not get its calls.
        ("both.test", "shop.Cart/Add", "two over HTTP/2.0"),
        ("both.test", "other.Service/Add", "one over HTTP/1.1"),
        // Precedence depends first on the hostnames in the specs, then on matches and names.
        ("same.test", "shop.Cart/Add", "one over HTTP/2.0"),
        ("same.test", "any.Thing/Goes", "two over HTTP/2.0"),
    ] {
        goes(&mut checks, call(host, method), expected).await;
    }
    goes(
        &mut checks,
        call("grpc.test", "shop.Cart/Add").header("version", "2"),
        "three over HTTP/2.0",
    )
    .await;
    goes(
        &mut checks,
        grpc::call(agent.address(443), "grpc.test", "shop.Cart/Add")
            .tls("grpc.test", &authority.trust()),
        "one over HTTP/2.0",
    )
    .await;
    checks
        .status(agent.get(80, "every.test", "/any.Thing/Goes"), 404)
        .await;
    checks
        .backend(agent.get(80, "both.test", "/shop.Cart/Add"), "one")
        .await;
    headers(&agent, &mut checks).await;
    shares(&agent, &mut checks).await;
    checks.finish();
}

fn routes() -> Vec<Value> {
    let to = |service: &str| json!({"backendRefs": [backend_ref(service)]});
    let regex = json!({"method": {
        "type": "RegularExpression", "service": r"bank\.[A-Z].*", "method": "Get.*",
    }});
    let versioned = json!({
        "method": {"service": "shop.Cart", "method": "Add"},
        "headers": [{"name": "Version", "value": "2"}],
    });
    let service = json!({"method": {"service": "shop.Cart"}});
    let modified = json!({
        "filters": [
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-in", "value": "50%"}],
                "add": [{"name": "x-more", "value": "added"}], "remove": ["x-gone"]}},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-out", "value": "b"}]}},
        ],
        "backendRefs": [backend_ref("one")],
    });
    let shares = json!({"backendRefs": [weighted_ref("one", 1), weighted_ref("absent", 1)]});
    vec![
        route(
            "GRPCRoute",
            "grpc",
            &["grpc.test"],
            &[
                rule_to("two", &[service]),
                rule_to("one", &[method("shop.Cart", "Add")]),
                rule_to("three", &[versioned, regex]),
            ],
        ),
        route("GRPCRoute", "missing", &["missing.test"], &[to("absent")]),
        route("GRPCRoute", "every", &["every.test"], &[to("one")]),
        route("GRPCRoute", "modified", &["modified.test"], &[modified]),
        route("GRPCRoute", "shares", &["shares.test"], &[shares]),
        on_listener(
            route(
                "GRPCRoute",
                "a-wide",
                &["*.test"],
                &[rule_to(
                    "two",
                    &[method("shop.Cart", "Add"), method("any.Thing", "Goes")],
                )],
            ),
            "same",
        ),
        on_listener(
            route(
                "GRPCRoute",
                "b-exact",
                &["same.test"],
                &[rule_to(
                    "one",
                    &[json!({"method": {"service": "shop.Cart"}})],
                )],
            ),
            "same",
        ),
        // The backends have different protocols.
        http_route("both", &["both.test"], &[to("one")]),
        route(
            "GRPCRoute",
            "both-grpc",
            &["both.test"],
            &[rule_to("two", &[method("shop.Cart", "Add")])],
        ),
    ]
}

async fn headers(agent: &AgentUnderTest, checks: &mut Checks) {
    let request = grpc::call(agent.address(80), "modified.test", "shop.Cart/Add")
        .header("x-in", "1")
        .header("x-more", "own")
        .header("x-gone", "1")
        .header("x-kept", "1");
    if let Some(reply) = checks.reply(&request).await {
        let echo = grpc::echo(&reply);
        let seen = echo.as_ref().map(|echo| echo.values("x-in"));
        checks.same(&request, seen, Some(vec!["50%"]));
        for (name, values) in [
            ("x-more", vec!["own", "added"]),
            ("x-gone", vec![]),
            ("x-kept", vec!["1"]),
        ] {
            let seen = echo.as_ref().map(|echo| echo.values(name));
            checks.same(format!("{request}: {name}"), seen, Some(values));
        }
        checks.same(&request, reply.header("x-out"), Some("b"));
    }
}

/// Calls to an invalid backend fail with UNAVAILABLE in proportion to its weight.
async fn shares(agent: &AgentUnderTest, checks: &mut Checks) {
    let request = grpc::call(agent.address(80), "shares.test", "shop.Cart/Add");
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..60 {
        *seen.entry(outcome(checks, &request).await).or_default() += 1;
    }
    let outcomes: Vec<&str> = seen.keys().map(String::as_str).collect();
    checks.same("shares", outcomes, vec![UNAVAILABLE, "one over HTTP/2.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn route_filters_apply_to_grpc_calls() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    let filtered = |service: &str, filter: &str| {
        let mut rule = rule_to("a", &[json!({"method": {"service": service}})]);
        rule["filters"] = json!([{"type": "ExtensionRef", "extensionRef": {
            "group": "projectsesame.io", "kind": "RouteFilter", "name": filter}}]);
        rule
    };
    let rules = [
        filtered("a.Down", "down"),
        filtered("a.Partner", "partner"),
        filtered("a.Page", "page"),
    ];
    objects.push(route("GRPCRoute", "calls", &["grpc.test"], &rules));
    for (name, spec) in [
        ("down", json!({"maintenance": {"retryAfter": "10m"}})),
        (
            "partner",
            json!({"credentialInjection": {"credential": {"name": "partner"}}}),
        ),
        (
            "page",
            json!({"directResponse": {"statusCode": 200, "body": "page"}}),
        ),
    ] {
        objects.push(
            json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "RouteFilter",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}),
        );
    }
    objects.push(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "partner", "namespace": "default"},
        "stringData": {"credential": "Bearer partner"}}),
    );
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let call = |method: &str| grpc::call(agent.address(80), "grpc.test", method);
    let partner = call("a.Partner/Get").header("authorization", "Bearer client");
    let reply = agent
        .wait_served(&partner, |reply| grpc::status(reply) == Some(code::OK))
        .await;
    let mut checks = Checks::default();
    let echo = grpc::echo(&reply).expect("the backend's response");
    let mut headers = echo.headers.into_iter();
    let sent = headers.find(|(name, _)| name == "authorization");
    let sent = sent.map(|(_, value)| value);
    checks.same("credential", sent.as_deref(), Some("Bearer partner"));
    goes(&mut checks, call("a.Down/Get"), UNAVAILABLE).await;
    let page = outcome(&mut checks, &call("a.Page/Get")).await;
    checks.that(
        page.starts_with("grpc-status Some(") && page != UNAVAILABLE,
        &page,
    );
    checks.finish();
}
