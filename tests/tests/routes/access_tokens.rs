//! Tokens and authorization rules in AccessPolicies. A request must satisfy every policy for its
//! rule.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::{Connection, Request};
use sesame_tests::grpc;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    NAMESPACE, access_policy, edge, http_listener, http_route, numbered, path, plain_route, route,
    rule_to, yaml,
};
use sesame_tests::tokens::{Issuer, unsigned};

const ISSUER: &str = "https://id.test";

fn provider(keys: &str, more: &Value) -> Value {
    let mut provider = json!({
        "name": "corp",
        "issuer": ISSUER,
        "audiences": ["shop"],
        "jwks": {"inline": keys},
    });
    for (field, value) in more.as_object().expect("an object") {
        provider[field] = value.clone();
    }
    json!({"jwt": {"providers": [provider]}})
}

pub(crate) fn gateway_target() -> Value {
    json!({"kind": "Gateway", "name": "edge"})
}

pub(crate) fn route_target(name: &str) -> Value {
    json!({"kind": "HTTPRoute", "name": name})
}

/// Every route except `health` requires a token.
fn objects(keys: &str) -> Vec<Value> {
    let mut admin = rule_to("a", &[path("PathPrefix", "/admin")]);
    admin["name"] = json!("admin");
    let open = rule_to("a", &[path("PathPrefix", "/")]);
    let mut users = provider(keys, &json!({}));
    users["exemptions"] = json!([{"kind": "HTTPRoute", "name": "health"}]);
    let headers = json!([
        {"claim": "sub", "header": "X-User"},
        {"claim": "realm.groups", "header": "x-groups"},
    ]);
    let mut admins = provider(keys, &json!({"claimHeaders": headers}));
    admins["authorization"] = json!({"rules": [
        {"action": "Deny", "hosts": ["closed.admin.test", "*.shut.test"]},
        {"action": "Deny", "methods": ["DELETE"], "paths": [{"value": "/admin/users"}]},
        {"action": "Allow", "claims": [{"name": "realm.groups", "values": ["admins", "owners"]}]},
        {"action": "Allow", "headers": [{"name": "x-env", "values": ["test"]}],
            "paths": [{"type": "Exact", "value": "/admin/one"}]},
    ]});
    let sources = json!([
        {"header": {"name": "x-token"}}, {"queryParameter": "t"}, {"cookie": "t"},
    ]);
    vec![
        plain_route("shop", "shop.test", "a"),
        plain_route("health", "health.test", "a"),
        plain_route("second", "second.test", "a"),
        plain_route("wrong", "wrong.test", "a"),
        http_route(
            "admin",
            &[
                "admin.test",
                "closed.admin.test",
                "*.shut.test",
                "shut.test",
            ],
            &[admin, open],
        ),
        route("GRPCRoute", "calls", &["calls.test"], &[rule_to("a", &[])]),
        access_policy("users", gateway_target(), &users),
        access_policy(
            "admins",
            json!({"kind": "HTTPRoute", "name": "admin", "sectionName": "admin"}),
            &admins,
        ),
        access_policy(
            "second",
            route_target("second"),
            &provider(keys, &json!({"sources": sources})),
        ),
        access_policy("wrong", route_target("wrong"), &provider("{}", &json!({}))),
    ]
}

pub(crate) fn bearer(request: Request, token: &str) -> Request {
    request.header("authorization", &format!("Bearer {token}"))
}

/// Returns invalid tokens, each with a description of its defect.
fn bad_tokens(issuer: &Issuer) -> Vec<(&'static str, String)> {
    let header = json!({"alg": "ES256", "kid": "a"});
    let claims = json!({"iss": ISSUER, "aud": "shop", "exp": 4_000_000_000_u64});
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        issuer.signed(&header, &claims)
    };
    let valid = issuer.token(&json!({}));
    let (signed, _) = valid.rsplit_once('.').expect("a signature");
    vec![
        ("expired", with("exp", json!(1_000_000_000))),
        ("not yet valid", with("nbf", json!(3_900_000_000_u64))),
        ("without an expiry", with("exp", Value::Null)),
        // Envoy responds to these tokens with 403.
        ("wrong audience", with("aud", json!("other"))),
        ("without an audience", with("aud", Value::Null)),
        ("wrong issuer", with("iss", json!("https://id.test/"))),
        ("without an issuer", with("iss", Value::Null)),
        ("other key", Issuer::new(ISSUER, "a").token(&json!({}))),
        ("unknown key", Issuer::new(ISSUER, "b").token(&json!({}))),
        ("no algorithm", unsigned(&json!({"alg": "none"}), &claims)),
        (
            "no algorithm, but a key",
            unsigned(&json!({"alg": "none", "kid": "a"}), &claims),
        ),
        (
            "symmetric algorithm",
            issuer.signed(&json!({"alg": "HS256", "kid": "a"}), &claims),
        ),
        ("public key as a secret", issuer.confused(&claims)),
        (
            "other algorithm",
            issuer.signed(&json!({"alg": "RS256", "kid": "a"}), &claims),
        ),
        ("without a signature", format!("{signed}.")),
        ("garbage", "a.b.c".to_owned()),
        ("empty", String::new()),
    ]
}

async fn status(request: &Request, expected: u16, checks: &mut Checks) {
    if let Some(reply) = checks.reply(request).await {
        checks.same(request, &reply.status, &expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_need_valid_tokens_of_all_policies() {
    let issuer = Issuer::new(ISSUER, "a");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects(&Issuer::jwks(&[&issuer])));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "health.test", "/")).await;
    let mut checks = Checks::default();
    let valid = issuer.token(&json!({"sub": "ann"}));
    for request in [
        agent.get(80, "shop.test", "/"),
        agent.get(80, "shop.test", "/").http2(),
        agent.get(80, "SHOP.test:80", "/a/../b"),
        agent.get(80, "admin.test", "/"),
    ] {
        status(&request, 401, &mut checks).await;
        for (fault, token) in bad_tokens(&issuer) {
            let request = bearer(request.clone(), &token);
            let reply = checks.reply(&request).await;
            let status = reply.map(|it| it.status);
            let expected = if fault.ends_with("audience") {
                403
            } else {
                401
            };
            checks.same(format_args!("{request}, {fault}"), &status, &Some(expected));
        }
        status(&bearer(request.clone(), &valid), 200, &mut checks).await;
        status(
            &bearer(request.clone().method("OPTIONS"), "a"),
            401,
            &mut checks,
        )
        .await;
        let twice = bearer(bearer(request.clone(), "a.b.c"), &valid);
        status(&twice, 401, &mut checks).await;
    }
    // By default, Envoy also accepts a token in the query.
    let in_query = agent.get(80, "shop.test", &format!("/?access_token={valid}"));
    status(&in_query, 401, &mut checks).await;
    status(&agent.get(80, "health.test", "/"), 200, &mut checks).await;
    status(
        &bearer(agent.get(80, "wrong.test", "/"), &valid),
        500,
        &mut checks,
    )
    .await;
    status(&agent.get(80, "none.test", "/"), 401, &mut checks).await;
    second_tokens(&agent, &valid, &mut checks).await;
    let upgrade = agent.get(80, "shop.test", "/");
    checks.that(
        upgrade.websocket(b"a").await.is_err(),
        "websocket without a token",
    );
    let upgraded = bearer(upgrade, &valid).websocket(b"a").await;
    checks.that(upgraded.is_ok(), format_args!("websocket: {upgraded:?}"));
    for (token, expected) in [("a.b.c", 16), (&*valid, 0)] {
        let call = grpc::call(agent.address(80), "calls.test", "shop.Cart/Add");
        let call = call.header("authorization", &format!("Bearer {token}"));
        if let Some(reply) = checks.reply(&call).await {
            checks.same(token, &grpc::status(&reply), &Some(expected));
        }
    }
    checks.finish();
}

/// The second policy accepts tokens in three places.
async fn second_tokens(agent: &AgentUnderTest, valid: &str, checks: &mut Checks) {
    let second = |path: &str| agent.get(80, "second.test", path);
    status(&second("/"), 401, checks).await;
    status(&bearer(second("/"), valid), 401, checks).await;
    status(&second("/").header("x-token", valid), 401, checks).await;
    for request in [
        second("/").header("x-token", valid),
        second(&format!("/?t={valid}")),
        second("/").header("cookie", &format!("a=b; t={valid}")),
    ] {
        status(&bearer(request, valid), 200, checks).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_judge_claims_and_headers_come_from_them() {
    let issuer = Issuer::new(ISSUER, "a");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects(&Issuer::jwks(&[&issuer])));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "health.test", "/")).await;
    let mut checks = Checks::default();
    let user = issuer.token(&json!({"sub": "ann", "realm": {"groups": ["users"]}}));
    let admin = issuer.token(&json!({"sub": "eve", "realm": {"groups": ["users", "admins"]}}));
    let text = issuer.token(&json!({"sub": "eve", "realm": {"groups": "owners"}}));
    let nested = issuer.token(&json!({"sub": "eve", "groups": ["admins"]}));
    let joined =
        issuer.token(&json!({"realm": {"groups": "users,admins"}, "realm.groups": ["admins"]}));
    for (token, path, method, expected) in [
        (&user, "/", "GET", 200),
        (&user, "/admin", "GET", 403),
        (&user, "/admin/x", "GET", 403),
        (&user, "/x/../admin", "GET", 403),
        (&user, "//admin", "GET", 403),
        (&user, "/%61dmin", "GET", 403),
        (&user, "/admin?x=/", "GET", 403),
        (&admin, "/admin", "GET", 200),
        (&text, "/admin", "GET", 200),
        (&nested, "/admin", "GET", 403),
        (&joined, "/admin", "GET", 403),
        (&admin, "/admin/users", "DELETE", 403),
        (&admin, "/admin/users/1", "DELETE", 403),
        (&admin, "/admin/usersX", "DELETE", 200),
        (&admin, "/admin/users", "GET", 200),
    ] {
        let request = agent.get(80, "admin.test", path).method(method);
        status(&bearer(request.clone(), token), expected, &mut checks).await;
        status(&request, 401, &mut checks).await;
    }
    for (host, expected) in [
        ("closed.admin.test", 403),
        ("CLOSED.admin.test:80", 403),
        ("a.b.shut.test", 403),
        ("shut.test", 200),
    ] {
        let request = bearer(agent.get(80, host, "/admin"), &admin);
        status(&request, expected, &mut checks).await;
    }
    let by_header = bearer(agent.get(80, "admin.test", "/admin/one"), &user);
    status(&by_header, 403, &mut checks).await;
    status(&by_header.clone().header("x-env", "prod"), 403, &mut checks).await;
    status(&by_header.header("x-env", "test"), 200, &mut checks).await;
    seen(&agent, &admin, &mut checks).await;
    let split = issuer.token(&json!({"sub": "a\r\nx-evil: 1", "realm": {"groups": "admins"}}));
    let split = bearer(agent.get(80, "admin.test", "/admin"), &split);
    if let Some(reply) = checks.reply(&split).await {
        checks.that(
            reply.status >= 400,
            format_args!("a claim that contains a header line: {reply:?}"),
        );
    }
    checks.finish();
}

/// Claims must replace client headers, and backends must not receive tokens.
async fn seen(agent: &AgentUnderTest, admin: &str, checks: &mut Checks) {
    for (host, path, user, groups) in [
        (
            "admin.test",
            "/admin",
            Some("eve"),
            Some(r#"["users","admins"]"#),
        ),
        // The policy must not apply to these routes.
        ("admin.test", "/", None, None),
        ("health.test", "/", None, None),
    ] {
        let request = agent.get(80, host, path).header("x-user", "spoofed");
        let request = bearer(request.header("X-Groups", "admins"), admin);
        if let Some(reply) = checks.reply(&request).await {
            let echo = reply.echo();
            checks.same(&request, &echo.value("x-user"), &user);
            checks.same(&request, &echo.value("x-groups"), &groups);
            let token = echo.value("authorization").is_some();
            checks.same(&request, &token, &(host == "health.test"));
        }
    }
}

const CHANGES: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_policies_change_without_rejecting_valid_tokens() {
    let issuer = Issuer::new(ISSUER, "a");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    all.push(plain_route("shop", "shop.test", "a"));
    let policies = |number: usize| {
        // Every other version contains an additional key.
        let other = Issuer::new(ISSUER, &format!("k-{number}"));
        let keys = Issuer::jwks(&[&other, &issuer][number % 2..]);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "keys", "namespace": NAMESPACE}, "data": {"jwks": keys}});
        let mut policy = provider("", &json!({"jwks": {"configMapRef": {"name": "keys"}}}));
        let mut objects = vec![map, access_policy("users", gateway_target(), &policy)];
        if !number.is_multiple_of(3) {
            policy["authorization"] = json!({"rules": [{"action": "Allow",
                "claims": [{"name": "sub", "values": ["ann", number.to_string()]}]}]});
            objects.push(access_policy("own", route_target("shop"), &policy));
        }
        let numbered_route = numbered("number.test", number, backends[0].address());
        format!("{}---\n{numbered_route}", yaml(&objects))
    };
    let files = [("all.yaml", yaml(&all)), ("policies.yaml", policies(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let valid = issuer.token(&json!({"sub": "ann"}));
    let request = bearer(agent.get(80, "shop.test", "/"), &valid);
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone(), request.clone().http2()]));
    let mut open = Connection::open(&request).await.expect("a connection");
    for number in 1..=CHANGES {
        agent.write("policies.yaml", &policies(number));
        let served = agent.get(80, "number.test", &format!("/{number}"));
        agent.wait_ok(&bearer(served, &valid)).await;
        let reply = open.send(&request).await;
        let reply = reply.expect("a response on the open connection");
        assert_eq!(reply.status, 200, "after change {number}");
        let without = agent.get(80, "shop.test", "/").send().await;
        let without = without.expect("a reply").status;
        assert_eq!(without, 401, "after change {number}");
    }
    assert!(open.is_open().await);
    load.stop().await.clean("key and policy changes");
}
