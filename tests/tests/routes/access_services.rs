//! Authorization services in AccessPolicies. All services must allow a request.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::{Connection, Request};
use sesame_tests::grpc;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    access_policy, backend_ref, edge, http_listener, http_route, numbered, plain_route, route,
    rule_to, served, yaml,
};
use sesame_tests::ports::free_port;

use crate::access_tokens::{gateway_target, route_target};

fn service(protocol: &str, name: &str, more: &Value) -> Value {
    let mut auth = json!({"protocol": protocol, "backendRef": {"name": name, "port": 80}});
    for (field, value) in more.as_object().into_iter().flatten() {
        auth[field] = value.clone();
    }
    json!({"extAuth": auth})
}

fn by(request: &Request, user: &str) -> Request {
    request.clone().header("authorization", user)
}

/// The Gateway's policy uses the service `first`. Some routes use more services.
fn objects() -> Vec<Value> {
    let none = json!({});
    let user = json!({"http": {"allowedResponseHeaders": ["x-user"]}});
    let mut edge = service("HTTP", "first", &user);
    edge["ipFilter"] = json!({"deny": ["192.0.2.0/24"]});
    edge["exemptions"] = json!([
        {"kind": "HTTPRoute", "name": "health"},
        {"kind": "HTTPRoute", "name": "unasked", "parts": ["extAuth"]},
        {"kind": "HTTPRoute", "name": "anywhere", "parts": ["ipFilter"]},
    ]);
    let filter = json!({"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP",
        "backendRef": backend_ref("third")}});
    let mut own = rule_to("a", &[]);
    own["filters"] = json!([filter]);
    let mut elsewhere = service("HTTP", "first", &none);
    elsewhere["extAuth"]["backendRef"]["namespace"] = json!("elsewhere");
    vec![
        plain_route("shop", "shop.test", "a"),
        plain_route("health", "health.test", "a"),
        plain_route("unasked", "unasked.test", "a"),
        plain_route("anywhere", "anywhere.test", "a"),
        plain_route("second", "second.test", "a"),
        http_route("own", &["own.test"], &[own]),
        route("GRPCRoute", "calls", &["calls.test"], &[rule_to("a", &[])]),
        plain_route("closed", "closed.test", "a"),
        plain_route("missing", "missing.test", "a"),
        plain_route("elsewhere", "elsewhere.test", "a"),
        access_policy("edge", gateway_target(), &edge),
        access_policy(
            "second",
            route_target("second"),
            &service("GRPC", "second", &json!({"forwardBody": {"maxSize": 1024}})),
        ),
        access_policy(
            "own",
            route_target("own"),
            &service("GRPC", "second", &none),
        ),
        access_policy(
            "closed",
            route_target("closed"),
            &service("GRPC", "closed", &none),
        ),
        access_policy(
            "missing",
            route_target("missing"),
            &service("HTTP", "missing", &none),
        ),
        access_policy("elsewhere", route_target("elsewhere"), &elsewhere),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_all_policies_must_allow_requests() {
    let [first, second, third] = [
        Authorizing::start("first").await,
        Authorizing::start("second").await,
        Authorizing::start("third").await,
    ];
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    for auth in [&first, &second, &third] {
        all.extend(served(auth.name(), &[auth.address()]));
    }
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    all.extend(served("closed", &[closed]));
    all.extend(objects());
    let setup = Setup::with_ports(&[80]).flag("--trusted-hops=1");
    let agent = setup.start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "health.test", "/")).await;
    let mut checks = Checks::default();
    let to = |host: &str| agent.get(80, host, "/");
    for (host, user, expected) in [
        ("shop.test", "", 401),
        ("shop.test", "second", 401),
        ("shop.test", "first", 200),
        ("second.test", "first", 401),
        ("second.test", "second", 401),
        ("second.test", "everybody", 200),
        ("own.test", "second", 401),
        ("own.test", "everybody", 200),
        ("health.test", "", 200),
        ("closed.test", "everybody", 503),
        ("missing.test", "everybody", 500),
        ("elsewhere.test", "everybody", 500),
    ] {
        checks.status(by(&to(host), user), expected).await;
        checks.status(by(&to(host).http2(), user), expected).await;
    }
    for (host, user, client, expected) in [
        ("unasked.test", "", "198.51.100.1", 200),
        ("unasked.test", "", "192.0.2.1", 403),
        ("anywhere.test", "first", "192.0.2.1", 200),
        ("anywhere.test", "", "192.0.2.1", 401),
        ("health.test", "", "192.0.2.1", 200),
    ] {
        let request = by(&to(host), user).header("x-forwarded-for", client);
        checks.status(request, expected).await;
    }
    second.take();
    let post = by(&to("second.test"), "everybody").method("POST");
    checks.status(post.body("four"), 200).await;
    let received = second.take();
    let received: usize = received.iter().map(|it| it.body.len()).sum();
    checks.same("bytes that the service received", received, 4);
    // A denied request reaches neither the next service nor the backend.
    second.take();
    third.take();
    checks.status(by(&to("own.test"), "nobody"), 401).await;
    checks.same(
        "checks after a denial",
        second.take().len() + third.take().len(),
        0,
    );
    checks.status(by(&to("own.test"), "everybody"), 200).await;
    let asked = [second.take().len(), third.take().len()];
    checks.same("checks for an allowed request", asked, [1, 1]);
    // The service's header must never come from a client.
    for (host, user) in [("shop.test", Some("alice")), ("health.test", None)] {
        let request = by(&to(host), "first").header("x-user", "spoofed");
        if let Some(reply) = checks.reply(&request).await {
            checks.same(host, &reply.echo().value("x-user"), &user);
        }
    }
    for (user, expected) in [("nobody", 16), ("first", 0)] {
        let call = grpc::call(agent.address(80), "calls.test", "shop.Cart/Add");
        if let Some(reply) = checks.reply(&by(&call, user)).await {
            checks.same(user, &grpc::status(&reply), &Some(expected));
        }
    }
    let denied = to("shop.test").websocket(b"a").await;
    checks.that(denied.is_err(), "a websocket without authorization");
    let allowed = by(&to("shop.test"), "first").websocket(b"a").await;
    checks.that(allowed.is_ok(), format_args!("websocket: {allowed:?}"));
    checks.finish();
}

const CHANGES: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn services_change_without_failed_or_unchecked_requests() {
    let [first, second] = [
        Authorizing::start("first").await,
        Authorizing::start("second").await,
    ];
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    for auth in [&first, &second] {
        all.extend(served(auth.name(), &[auth.address()]));
    }
    all.push(plain_route("shop", "shop.test", "a"));
    let policies = |number: usize| {
        let service = |name: &str| service("HTTP", name, &json!({}));
        let mut objects = vec![access_policy("edge", gateway_target(), &service("first"))];
        if !number.is_multiple_of(2) {
            objects.push(access_policy(
                "own",
                route_target("shop"),
                &service("second"),
            ));
        }
        let numbered_route = numbered("number.test", number, backends[0].address());
        format!("{}---\n{numbered_route}", yaml(&objects))
    };
    let files = [("all.yaml", yaml(&all)), ("policies.yaml", policies(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let request = by(&agent.get(80, "shop.test", "/"), "everybody");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone(), request.clone().http2()]));
    let mut open = Connection::open(&request).await.expect("a connection");
    for number in 1..=CHANGES {
        agent.write("policies.yaml", &policies(number));
        let numbered = agent.get(80, "number.test", &format!("/{number}"));
        agent.wait_ok(&by(&numbered, "first")).await;
        let without = agent.get(80, "shop.test", "/").send().await;
        assert_eq!(
            without.expect("a reply").status,
            401,
            "after change {number}"
        );
        let one = by(&agent.get(80, "shop.test", "/"), "first").send().await;
        let expected = if number.is_multiple_of(2) { 200 } else { 401 };
        assert_eq!(
            one.expect("a reply").status,
            expected,
            "after change {number}"
        );
        let reply = open
            .send(&request)
            .await
            .expect("a response on the open connection");
        assert_eq!(reply.status, 200, "after change {number}");
    }
    assert!(open.is_open().await);
    load.stop().await.clean("authorization service changes");
}
