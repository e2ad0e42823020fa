//! AccessPolicies with mode `Report` reject nothing. Access logs and metrics name them.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{access_policy, edge, http_listener, plain_route, yaml};
use sesame_tests::ports::free_port;
use sesame_tests::tokens::{Issuer, unsigned};
use sesame_tests::wait::eventually;

use crate::access_logs::logs;
use crate::metrics::{scrape, values};

const ISSUER: &str = "https://id.test";
const POLICY: &str = "AccessPolicy/default";

/// The token's subject replaces `identity`.
fn tokens(keys: &str, header: &str, identity: &str) -> Value {
    json!({"providers": [{
        "name": "corp",
        "issuer": ISSUER,
        "jwks": {"inline": keys},
        "sources": [{"header": {"name": header}}],
        "claimHeaders": [{"claim": "sub", "header": identity}],
    }]})
}

fn objects(keys: &str) -> Vec<Value> {
    let route = |name: &str| json!({"kind": "HTTPRoute", "name": name});
    let report = |mut spec: Value| {
        spec["mode"] = json!("Report");
        spec
    };
    let claims = json!({"rules": [{"action": "Allow",
        "claims": [{"name": "groups", "values": ["staff"]}]}]});
    let networks = json!({"deny": ["192.0.2.0/24"]});
    let users = json!({"users": {"name": "none"}});
    let names = [
        "open", "trial", "tokens", "both", "parts", "broken", "unknown",
    ];
    let routes = names.map(|name| plain_route(name, &format!("{name}.test"), "a"));
    let policies = [
        access_policy(
            "edge",
            json!({"kind": "Gateway", "name": "edge"}),
            &json!({"ipFilter": {"deny": ["203.0.113.0/24"]}}),
        ),
        access_policy(
            "trial",
            route("trial"),
            &report(
                json!({"ipFilter": networks, "jwt": tokens(keys, "x-token", "x-id"),
                "authorization": claims}),
            ),
        ),
        access_policy(
            "tokens",
            route("tokens"),
            &report(json!({"jwt": tokens(keys, "x-token", "x-id")})),
        ),
        access_policy(
            "both",
            route("both"),
            &json!({"jwt": tokens(keys, "x-enforced", "x-user"), "authorization": claims}),
        ),
        access_policy(
            "both-trial",
            route("both"),
            &report(
                json!({"jwt": tokens(keys, "x-token", "x-id"), "authorization": claims,
                "ipFilter": {"allow": ["0.0.0.0/0"]}}),
            ),
        ),
        access_policy(
            "parts",
            route("parts"),
            &report(json!({"basicAuth": users, "csrf": {}, "ipFilter": networks})),
        ),
        access_policy(
            "broken",
            route("broken"),
            &report(json!({"jwt": tokens("{}", "x-token", "x-id")})),
        ),
        access_policy(
            "unknown",
            route("unknown"),
            &json!({"mode": "Audit", "ipFilter": networks}),
        ),
    ];
    routes.into_iter().chain(policies).collect()
}

struct Expected<'a> {
    host: &'a str,
    client: &'a str,
    /// `x-enforced` and `x-token`.
    tokens: [&'a str; 2],
    status: u16,
    refused_by: Option<&'a str>,
    reported_by: Option<&'a str>,
}

impl Expected<'_> {
    fn request(&self, agent: &AgentUnderTest, path: &str) -> Request {
        let request = agent
            .get(80, self.host, path)
            .header("x-forwarded-for", self.client)
            .header("x-user", "spoofed")
            .header("x-id", "own");
        let headers = ["x-enforced", "x-token"].into_iter().zip(self.tokens);
        headers
            .filter(|(_, token)| !token.is_empty())
            .fold(request, |request, (name, token)| {
                request.header(name, token)
            })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reporting_policies_reject_nothing_but_are_logged() {
    let issuer = Issuer::new(ISSUER, "a");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects(&Issuer::jwks(&[&issuer])));
    let metrics: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let agent = Setup::with_ports(&[80])
        .flag("--trusted-hops=1")
        .flag("--metrics-address")
        .flag(&metrics.to_string())
        .start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let user = issuer.token(&json!({"sub": "ann"}));
    let staff = issuer.token(&json!({"sub": "eve", "groups": ["staff"]}));
    let forged = unsigned(
        &json!({"alg": "none"}),
        &json!({"iss": ISSUER, "groups": ["staff"]}),
    );
    let (inside, denied, refused) = ("198.51.100.1", "192.0.2.9", "203.0.113.9");
    let mut checks = Checks::default();
    let named = |name: &str| Some(format!("{POLICY}/{name}"));
    let cases = [
        ("open", inside, ["", ""], 200, None, None),
        ("open", refused, ["", ""], 403, named("edge"), None),
        ("trial", inside, ["", &*staff], 200, None, None),
        ("trial", inside, ["", &*user], 200, None, named("trial")),
        ("trial", inside, ["", &*forged], 200, None, named("trial")),
        ("trial", inside, ["", ""], 200, None, named("trial")),
        ("trial", denied, ["", &*staff], 200, None, named("trial")),
        ("trial", refused, ["", &*staff], 403, named("edge"), None),
        ("tokens", inside, ["", &*user], 200, None, None),
        ("tokens", inside, ["", ""], 200, None, named("tokens/jwt")),
        (
            "tokens",
            inside,
            ["", "a.b.c"],
            200,
            None,
            named("tokens/jwt"),
        ),
        (
            "tokens",
            inside,
            ["", &*forged],
            200,
            None,
            named("tokens/jwt"),
        ),
        // A valid token for the reporting policy must not satisfy the other policy.
        ("both", inside, ["", &*staff], 401, None, None),
        ("both", inside, ["a.b.c", &*staff], 401, None, None),
        ("both", inside, [&*forged, &*staff], 401, None, None),
        ("both", inside, [&*user, &*staff], 403, named("both"), None),
        ("both", inside, [&*staff, &*staff], 200, None, None),
        (
            "both",
            inside,
            [&*staff, ""],
            200,
            None,
            named("both-trial"),
        ),
        (
            "both",
            inside,
            [&*staff, "a"],
            200,
            None,
            named("both-trial"),
        ),
        (
            "both",
            refused,
            [&*staff, &*staff],
            403,
            named("edge"),
            None,
        ),
        ("parts", inside, ["", ""], 200, None, None),
        ("parts", denied, ["", ""], 200, None, named("parts")),
        ("broken", inside, ["", ""], 200, None, None),
        ("unknown", inside, ["", ""], 500, None, None),
    ];
    for (i, (host, client, tokens, status, refused_by, reported_by)) in cases.iter().enumerate() {
        let expected = Expected {
            host: &format!("{host}.test"),
            client,
            tokens: *tokens,
            status: *status,
            refused_by: refused_by.as_deref(),
            reported_by: reported_by.as_deref(),
        };
        let path = format!("/{i}");
        let what = format!("{host} {client}, case {i}");
        let request = expected.request(&agent, &path);
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.same(&what, reply.status, expected.status);
        if reply.status == 200 {
            let echo = reply.echo();
            let user = (*host == "both").then_some("eve");
            checks.same(&what, echo.value("x-user"), user);
            checks.same(&what, echo.value("x-id"), Some("own"));
            let forwarded = !tokens[1].is_empty();
            checks.same(&what, echo.value("x-token").is_some(), forwarded);
            checks.same(&what, echo.value("x-enforced"), None);
        }
        let line = logs::line(&agent, "path", &json!(path)).await;
        let logged = |name: &str| line.get(name).and_then(Value::as_str);
        checks.same(&what, logged("refused_by"), expected.refused_by);
        checks.same(&what, logged("reported_by"), expected.reported_by);
    }
    let upgraded = agent.get(80, "trial.test", "/").websocket(b"a").await;
    checks.that(upgraded.is_ok(), format_args!("websocket: {upgraded:?}"));
    checks.finish();
    counted(
        metrics,
        &[("edge", "Enforce", 3.0), ("trial", "Report", 4.0)],
    )
    .await;
}

async fn counted(metrics: SocketAddr, least: &[(&str, &str, f64)]) {
    eventually("the policies are counted", TEST_TIMEOUT, async || {
        let (_, text) = scrape(metrics, "*/*").await;
        let values = values(&text);
        let missing = least.iter().find(|(policy, mode, least)| {
            let series = format!(
                "sesame_gateway_policy_denied_requests_total{{gateway_namespace=\"default\",\
                 gateway=\"edge\",policy=\"{POLICY}/{policy}\",mode=\"{mode}\"}}"
            );
            values.get(series.as_str()).is_none_or(|it| it < least)
        });
        missing.map_or(Ok(()), |it| Err(format!("{it:?}: {text}")))
    })
    .await;
}
