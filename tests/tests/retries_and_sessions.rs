//! Retries and session persistence of rules (experimental channel), and routes that name a port. Asked of a real agent
//! with a real Envoy.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, rule_to, served, yaml,
};

fn rule(host: &str, field: &str, value: &Value) -> Value {
    let mut rule = json!({"backendRefs": [backend_ref("a")]});
    rule[field] = value.clone();
    http_route(&host.replace('.', "-"), &[host], &[rule])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_says_of_retries_sessions_and_ports_is_done() {
    let backends = [Backend::start("one").await, Backend::start("two").await];
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("other", 8080, ""),
    ]);
    objects.extend(served("a", &backends.each_ref().map(Backend::address)));
    let session = |fields: Value| ("sessionPersistence", fields);
    let retry = |fields: Value| ("retry", fields);
    for (host, (field, value)) in [
        (
            "codes.test",
            retry(json!({"codes": [500, 503], "attempts": 3, "backoff": "1ms"})),
        ),
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
    ] {
        objects.push(rule(host, field, &value));
    }
    let mut by_port = http_route("by-port", &["port.test"], &[rule_to("a", &[])]);
    by_port["spec"]["parentRefs"][0]["port"] = json!(8080);
    objects.push(by_port);
    let agent = Setup::with_ports(&[80, 8080]).start(&[("all.yaml", &yaml(&objects))]);
    agent
        .wait_served(&agent.get(8080, "port.test", "/"), |reply| {
            reply.status == 200
        })
        .await;

    let mut checks = Checks::default();
    checks.status(agent.get(80, "port.test", "/"), 404).await;
    let seen = || backends.iter().map(Backend::count).sum::<u64>();
    for (host, status, tries) in [
        ("codes.test", 503, 4),
        ("codes.test", 500, 4),
        ("codes.test", 501, 1),
        ("other-codes.test", 503, 1),
        ("no-codes.test", 503, 1),
        ("never.test", 503, 1),
    ] {
        let before = seen();
        // What the last try said is what the client gets.
        let request = agent.get(80, host, &format!("/status/{status}"));
        checks.status(request.clone(), status).await;
        checks.same(format!("tries of {request}"), seen() - before, tries);
    }
    sessions(&agent, &mut checks).await;
    checks.finish();
}

async fn sessions(agent: &AgentUnderTest, checks: &mut Checks) {
    for (host, header, back) in [
        ("cookie.test", "set-cookie", "cookie"),
        ("permanent.test", "set-cookie", "cookie"),
        ("header.test", "x-sid", "x-sid"),
    ] {
        let request = agent.get(80, host, "/");
        let Some(first) = checks.reply(&request).await else {
            continue;
        };
        let said = first.header(header).unwrap_or_default().to_owned();
        checks.that(!said.is_empty(), format!("{request}: no {header}"));
        let max_age = said.to_ascii_lowercase().contains("max-age=3600");
        checks.same(
            format!("{request}: {said}"),
            max_age,
            host == "permanent.test",
        );
        let session = said.split(';').next().unwrap_or_default();
        // A client without the session gets both: were it one, 40 in a row are one chance in a billion.
        for (request, endpoints) in [
            (request.clone().header(back, session), 1),
            (request.clone(), 2),
        ] {
            let mut who = BTreeSet::new();
            for _ in 0..40 {
                let reply = checks.reply(&request).await;
                who.extend(reply.and_then(|reply| reply.backend()));
            }
            checks.same(format!("{request}: {who:?}"), who.len(), endpoints);
            if endpoints == 1 {
                checks.same(&request, who.into_iter().next(), first.backend());
            }
        }
    }
}
