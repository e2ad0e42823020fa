//! Retries and session persistence (experimental channel), and parentRefs with a port.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Reply;
use sesame_tests::manifests::{
    backend_ref, edge, endpoint_slices, http_listener, http_route, https_listener, rule_to, served,
    service, yaml,
};
use sesame_tests::ports::free_port;
use sesame_tests::wait::{eventually, holds};

fn rule(host: &str, field: &str, value: &Value) -> Value {
    let mut rule = json!({"backendRefs": [backend_ref("a")]});
    rule[field] = value.clone();
    http_route(&host.replace('.', "-"), &[host], &[rule])
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_sets_retries_sessions_and_ports() {
    let backends = [Backend::start("one").await, Backend::start("two").await];
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("other", 8080, ""),
        https_listener("https", 443, "", "pair"),
    ]);
    let authority = Authority::new("servers");
    objects.push(authority.issue(&["cookie.test"]).secret("pair"));
    objects.extend(served("a", &backends.each_ref().map(Backend::address)));
    let session = |fields: Value| ("sessionPersistence", fields);
    let retry = |fields: Value| ("retry", fields);
    for (host, (field, value)) in [
        (
            "codes.test",
            retry(json!({"codes": [500, 503], "attempts": 3, "backoff": "1ms"})),
        ),
        ("once-more.test", retry(json!({"codes": [503]}))),
        (
            "other-codes.test",
            retry(json!({"codes": [502], "attempts": 3, "backoff": "1ms"})),
        ),
        (
            "no-codes.test",
            retry(json!({"attempts": 3, "backoff": "1ms"})),
        ),
        (
            "never.test",
            retry(json!({"codes": [500, 503], "attempts": 0})),
        ),
        ("cookie.test", session(json!({"sessionName": "sid"}))),
        (
            "permanent.test",
            session(json!({
                "sessionName": "sid",
                "absoluteTimeout": "1h",
                "cookieConfig": {"lifetimeType": "Permanent"},
            })),
        ),
        (
            "header.test",
            session(json!({"sessionName": "x-sid", "type": "Header"})),
        ),
        (
            "newer-cookie.test",
            session(json!({"type": "Cookie", "cookie": {"name": "sid", "path": "/shop"}})),
        ),
        (
            "newer-header.test",
            session(json!({"type": "Header", "header": {"name": "x-sid"}})),
        ),
    ] {
        objects.push(rule(host, field, &value));
    }
    let mut by_port = http_route("by-port", &["port.test"], &[rule_to("a", &[])]);
    by_port["spec"]["parentRefs"][0]["port"] = json!(8080);
    objects.push(by_port);
    let agent = Setup::with_ports(&[80, 443, 8080]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(8080, "port.test", "/")).await;

    let mut checks = Checks::default();
    checks.status(agent.get(80, "port.test", "/"), 404).await;
    let seen = || backends.iter().map(Backend::count).sum::<u64>();
    for (host, status, tries) in [
        ("codes.test", 503, 4),
        ("codes.test", 500, 4),
        ("codes.test", 501, 1),
        // Envoy retries once by default.
        ("once-more.test", 503, 2),
        ("other-codes.test", 503, 1),
        ("no-codes.test", 503, 1),
        ("never.test", 503, 1),
    ] {
        let before = seen();
        // The client gets the response to the last attempt.
        let request = agent.get(80, host, &format!("/status/{status}"));
        checks.status(request.clone(), status).await;
        checks.same(format!("tries of {request}"), seen() - before, tries);
    }
    sessions(&agent, &mut checks).await;
    let request = agent.get(443, "cookie.test", "/");
    let request = request.tls("cookie.test", &authority.trust());
    if let Some(reply) = checks.reply(&request).await {
        let cookie = reply.header("set-cookie").unwrap_or_default();
        let restricted = cookie.ends_with("; HttpOnly; SameSite=Lax; Secure");
        checks.that(restricted, format!("{request}: {cookie}"));
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_connection_is_retried_unless_retries_are_off() {
    let there = Backend::start("there").await;
    // No backend listens on this address.
    let gone = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[there.address(), gone]));
    objects.push(rule("retry.test", "retry", &json!({"backoff": "1ms"})));
    objects.push(rule("never.test", "retry", &json!({"attempts": 0})));
    objects.push(http_route("plain", &["plain.test"], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let retried = agent.get(80, "retry.test", "/");
    agent.wait_ok(&retried).await;
    let mut checks = Checks::default();
    for _ in 0..40 {
        checks.backend(retried.clone(), "there").await;
    }
    let mut seen = BTreeSet::new();
    for _ in 0..40 {
        let reply = checks.reply(&agent.get(80, "never.test", "/")).await;
        seen.extend(reply.map(|reply| reply.status));
    }
    checks.same("statuses without retries", seen, BTreeSet::from([200, 503]));
    // Envoy does not buffer this body, but must still retry on the other endpoint.
    let upload = agent.get(80, "plain.test", "/").method("POST");
    let upload = upload.body(vec![b'x'; 4 << 20]);
    for request in [upload.clone(), upload.http2()] {
        for _ in 0..10 {
            checks.backend(request.clone(), "there").await;
        }
    }
    checks.finish();
}

async fn sessions(agent: &AgentUnderTest, checks: &mut Checks) {
    for (host, header, back) in [
        ("cookie.test", "set-cookie", "cookie"),
        ("permanent.test", "set-cookie", "cookie"),
        ("header.test", "x-sid", "x-sid"),
        ("newer-cookie.test", "set-cookie", "cookie"),
        ("newer-header.test", "x-sid", "x-sid"),
    ] {
        let request = agent.get(80, host, "/");
        let Some(first) = checks.reply(&request).await else {
            continue;
        };
        let value = first.header(header).unwrap_or_default().to_owned();
        checks.that(!value.is_empty(), format!("{request}: no {header}"));
        let max_age = value.to_ascii_lowercase().contains("max-age=3600");
        checks.same(
            format!("{request}: {value}"),
            max_age,
            host == "permanent.test",
        );
        if header == "set-cookie" {
            let path = if host == "newer-cookie.test" {
                "Path=/shop;"
            } else {
                "Path=/;"
            };
            checks.that(value.contains(path), format!("{request}: {value}"));
            let restricted = value.ends_with("; HttpOnly; SameSite=Lax");
            checks.that(restricted, format!("{request}: {value}"));
        }
        let session = value.split(';').next().unwrap_or_default();
        // Without a session, the probability of 40 equal responses is below one in a billion.
        for (request, endpoints) in [
            (request.clone().header(back, session), 1),
            (request.clone(), 2),
        ] {
            let mut responders = BTreeSet::new();
            for _ in 0..40 {
                let reply = checks.reply(&request).await;
                responders.extend(reply.and_then(|reply| reply.backend()));
            }
            checks.same(
                format!("{request}: {responders:?}"),
                responders.len(),
                endpoints,
            );
            if endpoints == 1 {
                checks.same(&request, responders.into_iter().next(), first.backend());
            }
        }
    }
}

/// Columns: host, response header, and request header.
const CARRIERS: [(&str, &str, &str); 2] = [
    ("cookie.test", "set-cookie", "cookie"),
    ("header.test", "x-sid", "x-sid"),
];

/// Envoy does not retry after a connection closes, because the request may have been processed.
async fn wait_closed(agent: &AgentUnderTest, address: SocketAddr) {
    let runtime = agent.runtime().display().to_string();
    let line = ["endpoints", "--output", "json", "--runtime-dir", &runtime];
    eventually(
        "Envoy has no connection to the endpoint",
        TEST_TIMEOUT,
        async || {
            let open = tokio::net::TcpStream::connect(address).await.is_ok();
            holds(!open, || format!("{address} accepts connections"))?;
            let output = agent.command_beside(&line).await;
            let gateways: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let all = gateways
                .iter()
                .filter_map(|one| one["endpoints"].as_array());
            let mut endpoints = all
                .flatten()
                .filter(|it| it["address"] == address.to_string());
            let known = endpoints.clone().next().is_some();
            let closed = endpoints.all(|it| it["connections"].as_u64() == Some(0));
            holds(known && closed, || format!("{gateways:#?}"))
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_survives_endpoint_changes_and_hides_endpoint() {
    let mut backends = Vec::new();
    for name in ["one", "two", "three"] {
        backends.push(Backend::start(name).await);
    }
    let addresses: Vec<SocketAddr> = backends.iter().map(Backend::address).collect();
    let mut objects = edge(&[http_listener("http", 80, "")]);
    for (host, spec) in [
        ("cookie.test", json!({"sessionName": "sid"})),
        (
            "header.test",
            json!({"sessionName": "x-sid", "type": "Header"}),
        ),
    ] {
        objects.push(rule(host, "sessionPersistence", &spec));
    }
    objects.push(service("h2", "kubernetes.io/h2c"));
    objects.extend(endpoint_slices("h2", &addresses));
    let mut over_h2 = json!({"backendRefs": [backend_ref("h2")]});
    over_h2["sessionPersistence"] = json!({"sessionName": "sid"});
    objects.push(http_route("h2", &["h2.test"], &[over_h2]));
    let endpoints = |which: &[SocketAddr]| yaml(&served("a", which));
    let agent = Setup::with_ports(&[80]).start(&[
        ("all.yaml", &yaml(&objects)),
        ("endpoints.yaml", &endpoints(&addresses[..2])),
    ]);
    let plain = agent.get(80, "cookie.test", "/");
    agent.wait_ok(&plain).await;

    let mut checks = Checks::default();
    let first = checks.reply(&agent.get(80, "h2.test", "/")).await;
    let cookie = first.as_ref().and_then(|reply| reply.header("set-cookie"));
    let cookie = cookie
        .and_then(|all| all.split(';').next())
        .unwrap_or_default();
    let again = agent.get(80, "h2.test", "/").header("cookie", cookie);
    let expected = first.as_ref().and_then(Reply::backend);
    for _ in 0..10 {
        let reply = checks.reply(&again).await;
        checks.same(
            &again,
            reply.and_then(|reply| reply.backend()),
            expected.clone(),
        );
    }

    let mut held = Vec::new();
    for (host, carrier, back) in CARRIERS {
        let request = agent.get(80, host, "/");
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        let value = reply.header(carrier).unwrap_or_default();
        let session = value.split(';').next().unwrap_or_default().to_owned();
        opaque(&mut checks, session.trim_start_matches("sid="));
        forged(&mut checks, &agent, (host, carrier, back), addresses[0]).await;
        held.push((request.header(back, &session), carrier, reply.backend()));
    }
    let stay = async |checks: &mut Checks| {
        for (request, carrier, backend) in &held {
            for _ in 0..10 {
                let Some(reply) = checks.reply(request).await else {
                    continue;
                };
                checks.same(request, reply.backend(), backend.clone());
                checks.same(
                    format!("{request}: session set again"),
                    reply.header(carrier),
                    None,
                );
            }
        }
    };
    stay(&mut checks).await;
    agent.write("endpoints.yaml", &endpoints(&addresses));
    let is_three = |reply: &Reply| reply.backend().as_deref() == Some("three");
    agent.wait_served(&plain, is_three).await;
    stay(&mut checks).await;

    // The session must move away from an endpoint that is down but listed.
    let (request, carrier, backend) = held.remove(0);
    let dead = backends
        .iter()
        .find(|it| Some(it.name()) == backend.as_deref());
    let dead = dead.expect("a known backend").address();
    backends.retain(|it| it.address() != dead);
    wait_closed(&agent, dead).await;
    for _ in 0..5 {
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.same(&request, reply.status, 200);
        checks.that(
            reply.header(carrier).is_some(),
            format!("{request}: no new session"),
        );
    }
    let (request, carrier, _) = held.remove(0);
    agent.write("endpoints.yaml", &endpoints(&addresses[2..]));
    let moved = |reply: &Reply| is_three(reply) && reply.header(carrier).is_some();
    agent.wait_served(&request, moved).await;
    checks.finish();
}

/// A digest reveals no address.
fn opaque(checks: &mut Checks, session: &str) {
    let digits = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let is_digest = session.len() == 32 && session.bytes().all(digits);
    checks.that(is_digest, format!("{session:?} is no digest"));
    let octets = [127_u8, 0, 0, 1];
    let bytes: Vec<u8> = (0..session.len() / 2)
        .filter_map(|at| u8::from_str_radix(session.get(2 * at..2 * at + 2)?, 16).ok())
        .collect();
    let decoded = BASE64_STANDARD.decode(session).unwrap_or_default();
    for form in [session.as_bytes(), &bytes, &decoded] {
        let text = String::from_utf8_lossy(form).into_owned();
        checks.that(!text.contains("127.0.0.1"), format!("{session}: {text}"));
        let shown = form.windows(octets.len()).any(|window| window == octets);
        checks.that(!shown, format!("{session}: {form:?}"));
    }
}

/// The client must get a new session.
async fn forged(
    checks: &mut Checks,
    agent: &AgentUnderTest,
    (host, carrier, back): (&str, &str, &str),
    endpoint: SocketAddr,
) {
    let outside = SocketAddr::from(([127, 0, 0, 1], 9));
    for value in [
        "-".to_owned(),
        "f".repeat(32),
        endpoint.to_string(),
        BASE64_STANDARD.encode(endpoint.to_string()),
        BASE64_STANDARD.encode(outside.to_string()),
    ] {
        let value = if back == "cookie" {
            format!("sid={value}")
        } else {
            value
        };
        let request = agent.get(80, host, "/").header(back, &value);
        let mut responders = BTreeSet::new();
        for _ in 0..20 {
            if let Some(reply) = checks.reply(&request).await {
                checks.same(&request, reply.status, 200);
                checks.that(
                    reply.header(carrier).is_some(),
                    format!("{request}: no session"),
                );
                responders.extend(reply.backend());
            }
        }
        checks.same(format!("{request}: {responders:?}"), responders.len(), 2);
    }
}
