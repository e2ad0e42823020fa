//! Passwords that the agent checks: bcrypt and apr1. They must never be admitted without a check,
//! with or without a running agent.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    NAMESPACE, access_policy, edge, http_listener, numbered, plain_route, yaml,
};
use sesame_tests::wait::{eventually, holds};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::access_tokens::{gateway_target, route_target};

/// `ann:wonderland` with bcrypt, `bob:builder` with apr1, and `cleo:queen` with SHA-1.
const MIXED: &str = "\
ann:$2y$04$abcdefghijklmnopqrstuujZkTwHUiJ9XdZPwKfcfDo7dMp5DjlTu
bob:$apr1$saltsalt$ffJ66jyzYDzwC3INlyJ550
cleo:{SHA}QQEUEJJwyP/krxcGrcrW4pxCH00=
";
const ANN: &str = "Basic YW5uOndvbmRlcmxhbmQ=";
const BOB: &str = "Basic Ym9iOmJ1aWxkZXI=";
const CLEO: &str = "Basic Y2xlbzpxdWVlbg==";
/// `ann:queen` and `eve:queen`.
const WRONG: [&str; 2] = ["Basic YW5uOnF1ZWVu", "Basic ZXZlOnF1ZWVu"];
/// The same password as `ann`'s, with a higher cost.
const SLOW: &str = "ann:$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW\n";
const SHA1: &str = "ann:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n";

fn users(name: &str, file: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {".htpasswd": file}})
}

fn basic(secret: &str) -> Value {
    json!({"basicAuth": {"users": {"name": secret}, "usernameHeader": "x-user"}})
}

fn policy(name: &str, secret: &str) -> Value {
    access_policy(name, route_target(name), &basic(secret))
}

async fn is_counted(agent: &AgentUnderTest, outcome: &str) -> bool {
    let socket = agent.runtime().join("agent.sock");
    let mut socket = UnixStream::connect(socket)
        .await
        .expect("the agent's socket");
    let request = b"GET /metrics HTTP/1.1\r\nhost: agent\r\n\r\n";
    socket.write_all(request).await.expect("a request");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.expect("a reply");
    let label = format!("outcome=\"{outcome}\"");
    let mut lines = reply
        .lines()
        .filter(|line| line.contains("password_checks_total{"));
    let line = lines.find(|line| line.contains(&label)).expect("a series");
    !line.ends_with(" 0.0")
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_of_all_formats_are_checked() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    let mut gateway = basic("mixed");
    gateway["exemptions"] = json!([{"kind": "HTTPRoute", "name": "open"}]);
    all.extend([
        users("mixed", MIXED),
        users("slow", SLOW),
        users("sha", SHA1),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "keys", "namespace": NAMESPACE}, "stringData": {"app": "k-app"}}),
        plain_route("open", "open.test", "a"),
        plain_route("shop", "shop.test", "a"),
        plain_route("slow", "slow.test", "a"),
        plain_route("sha", "sha.test", "a"),
        plain_route("keys", "keys.test", "a"),
        access_policy("gateway", gateway_target(), &gateway),
        policy("slow", "slow"),
        policy("sha", "sha"),
        access_policy(
            "keys",
            route_target("keys"),
            &json!({"apiKeyAuth": {"credentials": [{"name": "keys"}]}}),
        ),
    ]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let to = |host: &str| agent.get(80, host, "/");
    let by = |who: &str, host: &str| to(host).header("authorization", who);
    let mut checks = Checks::default();
    for (request, expected) in [
        (to("shop.test"), 401),
        (by(ANN, "shop.test"), 200),
        (by(ANN, "shop.test").http2(), 200),
        (by(ANN, "shop.test").method("DELETE"), 200),
        (by(BOB, "shop.test"), 200),
        (by(CLEO, "shop.test"), 200),
        (by(WRONG[0], "shop.test"), 401),
        (by(WRONG[1], "shop.test"), 401),
        (by(&ANN.replace("Basic", "Bearer"), "shop.test"), 401),
        (by("Basic !", "shop.test"), 401),
        (by(ANN, "shop.test").header("authorization", BOB), 401),
        (by(ANN, "none.test"), 404),
        (by(WRONG[0], "none.test"), 401),
        // Both policies must admit the user.
        (by(ANN, "slow.test"), 200),
        (by(BOB, "slow.test"), 401),
        (by(ANN, "sha.test"), 200),
        (by(CLEO, "sha.test"), 401),
        (by(ANN, "keys.test"), 401),
        (by(ANN, "keys.test").header("x-api-key", "k-app"), 200),
        (to("keys.test").header("x-api-key", "k-app"), 401),
        (to("shop.test").header("x-client-address", "192.0.2.1"), 401),
    ] {
        checks.status(request, expected).await;
    }
    let spoofed = by(BOB, "shop.test").header("x-user", "eve");
    if let Some(reply) = checks.reply(&spoofed).await {
        checks.same("user", &reply.echo().value("x-user"), &Some("bob"));
        checks.same("password", &reply.echo().value("authorization"), &None);
    }
    if let Some(reply) = checks.reply(&to("shop.test")).await {
        let challenge = reply.header("www-authenticate").unwrap_or_default();
        checks.that(challenge.starts_with("Basic "), challenge);
    }
    let upgrade = to("shop.test");
    checks.that(upgrade.websocket(b"a").await.is_err(), "websocket");
    let upgraded = by(ANN, "shop.test").websocket(b"a").await;
    checks.that(upgraded.is_ok(), format_args!("websocket: {upgraded:?}"));
    checks.finish();
    for outcome in ["allowed", "denied"] {
        assert!(is_counted(&agent, outcome).await, "{outcome}");
    }
    assert!(!agent.log().contains("wonderland"));
}

const CHANGES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn passwords_rotate_without_failed_or_unchecked_requests() {
    // The passwords of `other` are `p0` and `p1`.
    const OTHERS: [&str; 4] = [
        "other:$2y$04$abcdefghijklmnopqrstuuIj35XMHKoaKEKGQqdXVQSgz.lg4Ty7C\n",
        "other:$2y$04$abcdefghijklmnopqrstuu.KIzZfelZR5YylUGRZPygX79E39YxNm\n",
        "other:{SHA}8YfOuyLLBERVe1Jd5bNx5Y5xme8=\n",
        "other:{SHA}t49XZhHsBvlq88plTCIXKl10bEA=\n",
    ];
    const KNOWN: [&str; 2] = ["Basic b3RoZXI6cDA=", "Basic b3RoZXI6cDE="];
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    all.push(plain_route("shop", "shop.test", "a"));
    let rotated = |number: usize| {
        let other = OTHERS[number % OTHERS.len()];
        // Envoy itself can check half of the sets.
        let ann = if other.contains("{SHA}") { SHA1 } else { MIXED };
        let objects = [
            users("users", &format!("{ann}{other}")),
            access_policy("edge", gateway_target(), &basic("users")),
        ];
        let numbered_route = numbered("number.test", number, backends[0].address());
        format!("{}---\n{numbered_route}", yaml(&objects))
    };
    let files = [("all.yaml", yaml(&all)), ("users.yaml", rotated(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let by =
        |who: &str, host: &str, path: &str| agent.get(80, host, path).header("authorization", who);
    let request = by(ANN, "shop.test", "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone(), request.http2()]));
    let mut unchecked = Plan::new(vec![by(WRONG[0], "shop.test", "/")]);
    unchecked.good = |reply| reply.status == 401;
    let unchecked = Load::start(&unchecked);
    for number in 1..=CHANGES {
        agent.write("users.yaml", &rotated(number));
        let [known, former] = [number, number - 1].map(|it| KNOWN[it % KNOWN.len()]);
        let path = format!("/{number}");
        agent.wait_ok(&by(known, "number.test", &path)).await;
        for (who, expected) in [(known, 200), (former, 401)] {
            let reply = by(who, "shop.test", "/").send().await.expect("a reply");
            assert_eq!(reply.status, expected, "{who} after change {number}");
        }
    }
    load.stop().await.clean("rotated passwords");
    unchecked.stop().await.clean("wrong passwords");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_agent_admits_nobody_until_it_returns() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend([
        users("mixed", MIXED),
        users("sha", SHA1),
        plain_route("mixed", "mixed.test", "a"),
        plain_route("sha", "sha.test", "a"),
        plain_route("open", "open.test", "a"),
        policy("mixed", "mixed"),
        policy("sha", "sha"),
    ]);
    let mut agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let request = |host: &str, who: &str| -> Request {
        agent.get(80, host, "/").header("authorization", who)
    };
    let (good, wrong) = (request("mixed.test", ANN), request("mixed.test", WRONG[0]));
    let (sha, open) = (request("sha.test", ANN), agent.get(80, "open.test", "/"));
    agent.wait_ok(&good).await;
    agent.wait_stored().await;
    agent.kill9();
    let mut checks = Checks::default();
    checks.status(sha, 200).await;
    checks.status(open, 200).await;
    let mut waiting = Vec::new();
    for request in [&good, &wrong] {
        let request = request.clone().timeout(Duration::from_secs(60));
        waiting.push(tokio::spawn(async move { request.send().await }));
    }
    for request in waiting {
        let reply = request.await.expect("no panic").expect("a reply");
        checks.same("without an agent", reply.status, 503);
    }
    // These requests wait for the agent.
    let waiting = [&good, &wrong].map(|request| {
        let request = request.clone().timeout(Duration::from_secs(60));
        tokio::spawn(async move { request.send().await })
    });
    agent.restart();
    let [admitted, denied] = waiting;
    let admitted = admitted.await.expect("no panic").expect("a reply").status;
    checks.that(matches!(admitted, 200 | 503), admitted);
    let denied = denied.await.expect("no panic").expect("a reply").status;
    checks.that(matches!(denied, 401 | 503), denied);
    agent.wait_ok(&good).await;
    checks.status(wrong, 401).await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn guessed_passwords_stop_no_other_requests() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend([
        users("slow", SLOW),
        users("sha", SHA1),
        plain_route("slow", "slow.test", "a"),
        plain_route("sha", "sha.test", "a"),
        plain_route("open", "open.test", "a"),
        policy("slow", "slow"),
        policy("sha", "sha"),
    ]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let request = |host: &str, who: &str| agent.get(80, host, "/").header("authorization", who);
    let good = request("slow.test", ANN);
    agent.wait_ok(&good).await;
    let guessing = (0..60).map(|number| {
        let guess = STANDARD.encode(format!("ann:{number}"));
        let guess = request("slow.test", &format!("Basic {guess}"));
        let mut plan = Plan::new(vec![guess]);
        (plan.keep_alive, plan.fresh) = (1, 0);
        plan.good = |reply| matches!(reply.status, 401 | 503);
        Load::start(&plan)
    });
    let guessing: Vec<Load> = guessing.collect();
    eventually("checks are rejected", Duration::from_secs(60), async || {
        let overloaded = is_counted(&agent, "overloaded").await;
        holds(overloaded, || "no check was rejected".to_owned())
    })
    .await;
    let others = vec![
        good,
        request("sha.test", ANN),
        agent.get(80, "open.test", "/"),
    ];
    let others = Load::start(&Plan::new(others));
    others.pass(300).await;
    others.stop().await.clean("other requests");
    for load in guessing {
        load.stop().await.clean("guessed passwords");
    }
}
