//! Attempts to bypass an AccessPolicy. No backend may receive any of them, while routes without a
//! policy are served.

use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    NAMESPACE, access_policy, edge, http_listener, http_route, path, plain_route, route, rule_to,
    yaml,
};
use sesame_tests::tokens::{Issuer, unsigned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access_tokens::{bearer, route_target};

pub(crate) const ISSUER: &str = "https://id.test";
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn staff(keys: &Value) -> Value {
    json!({
        "jwt": {"providers": [{
            "name": "corp", "issuer": ISSUER, "audiences": ["shop"], "jwks": keys,
            "claimHeaders": [
                {"claim": "sub", "header": "x-user"}, {"claim": "groups", "header": "x-groups"},
            ],
        }]},
        "authorization": {"rules": [{"action": "Allow", "methods": ["GET"],
            "claims": [{"name": "groups", "values": ["staff"]}]}]},
    })
}

pub(crate) fn key_map(name: &str, keys: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"jwks": keys}})
}

/// `locked.test` and `/admin` of `part.test` have a policy. `b` serves only the neighbours.
fn objects(keys: &str) -> Vec<Value> {
    let mut admin = rule_to("a", &[path("PathPrefix", "/admin")]);
    admin["name"] = json!("admin");
    let open = rule_to("b", &[path("PathPrefix", "/")]);
    let policy = staff(&json!({"inline": keys}));
    let many = vec![r#"{"kty":"EC"}"#; 10_000].join(",");
    vec![
        plain_route("locked", "locked.test", "a"),
        plain_route("open", "open.test", "b"),
        plain_route("many", "many.test", "a"),
        http_route("part", &["part.test"], &[admin, open]),
        route("GRPCRoute", "calls", &["calls.test"], &[rule_to("a", &[])]),
        key_map("many", &format!("{{\"keys\":[{many}]}}")),
        access_policy("locked", route_target("locked"), &policy),
        access_policy(
            "many",
            route_target("many"),
            &staff(&json!({"configMapRef": {"name": "many"}})),
        ),
        access_policy(
            "part",
            json!({"kind": "HTTPRoute", "name": "part", "sectionName": "admin"}),
            &policy,
        ),
        access_policy(
            "calls",
            json!({"kind": "GRPCRoute", "name": "calls"}),
            &policy,
        ),
    ]
}

const PATHS: [&str; 18] = [
    "/admin",
    "/x/../admin",
    "//admin",
    "/./admin",
    "/%61dmin",
    "/%2e/admin",
    "/x/%2e%2e/admin",
    "/x%2f..%2fadmin",
    "/x%5c..%5cadmin",
    "/admin%2fusers",
    "/admin;x=1",
    "/ADMIN",
    "/admin.",
    "/admin%20",
    "/admin%00",
    "/\\admin",
    "/admin?x=/",
    "/admin/..;/admin",
];

const HOSTS: [&str; 10] = [
    "LOCKED.test",
    "locked.test.",
    "locked.test:80",
    "locked.test.:80",
    "locked.test:80:80",
    "open.test@locked.test",
    "open.test,locked.test",
    "locked.test..",
    " locked.test",
    "[locked.test]",
];

/// Header lines, of which the last ends with a line break.
const HEADERS: [&str; 25] = [
    "access-control-request-method: GET\r\n",
    "origin: http://open.test\r\naccess-control-request-method: GET\r\n",
    "x-http-method-override: GET\r\n",
    "x-method-override: GET\r\n",
    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
    "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    "content-type: application/grpc-web\r\n",
    "content-type: application/grpc-web-text\r\n",
    "x-user: root\r\nx-groups: staff\r\n",
    "x_user: root\r\nx_groups: staff\r\n",
    "x-user: a\r\nx-user: root\r\n",
    "authorization: Basic cm9vdDpyb290\r\n",
    "authorization: Bearer\r\n",
    "authorization: bearer a.b.c\r\nauthorization: Bearer d.e.f\r\n",
    "x-forwarded-for: 127.0.0.1\r\n",
    "x-forwarded-host: open.test\r\n",
    "x-original-url: /\r\nx-rewrite-url: /\r\n",
    "x-envoy-original-path: /\r\nx-envoy-internal: true\r\n",
    "x-envoy-decorator-operation: open\r\nx-envoy-retry-on: 5xx\r\n",
    "x-forwarded-client-cert: By=a;Subject=\"CN=root\"\r\n",
    "forwarded: for=127.0.0.1;host=open.test\r\n",
    "connection: authorization, x-user\r\n",
    "te: trailers\r\n",
    "expect: 100-continue\r\n",
    "transfer-encoding: identity\r\n",
];

/// Whole requests without a valid token.
const REQUESTS: [&str; 9] = [
    "GET http://locked.test/ HTTP/1.1\r\nhost: open.test\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: open.test\r\nhost: locked.test\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: locked.test\r\nhost: open.test\r\n\r\n",
    "GET / HTTP/1.1\r\nhost : locked.test\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: open.test\r\n locked.test\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: locked.test\r\n\r\n",
    "CONNECT locked.test:80 HTTP/1.1\r\nhost: locked.test\r\n\r\n",
    "TRACE / HTTP/1.1\r\nhost: locked.test\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: none.test\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: locked.test\r\n\r\n",
];

/// Returns the status of the first response, or 0 if there is none.
async fn raw(agent: &AgentUnderTest, request: &str) -> u16 {
    let exchange = async {
        let mut stream = TcpStream::connect(agent.address(80)).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        // Envoy may reset the connection after its response.
        stream.read_to_end(&mut answer).await.ok();
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(LIMIT, exchange).await.expect("an end").ok();
    let answer = String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned();
    let status = answer.split(' ').nth(1);
    status.and_then(|it| it.parse().ok()).unwrap_or_default()
}

fn get(host: &str, path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n")
}

fn attempts(valid: &str) -> Vec<String> {
    let mut all: Vec<String> = REQUESTS.map(str::to_owned).into();
    let normal = PATHS.iter().take(10);
    all.extend(normal.map(|path| get("part.test", path, "")));
    all.extend(PATHS.map(|path| get("locked.test", path, "")));
    all.extend(HOSTS.map(|host| get(host, "/", "")));
    for method in ["GET", "HEAD", "POST", "OPTIONS", "PROPFIND", "get"] {
        all.extend(HEADERS.map(|headers| {
            let host = if headers.contains("grpc") {
                "calls.test"
            } else {
                "locked.test"
            };
            let host = format!("host: {host}\r\n");
            format!("{method} /shop.Cart/Add HTTP/1.1\r\n{host}{headers}content-length: 0\r\n\r\n")
        }));
    }
    let token = format!("authorization: Bearer {valid}\r\n");
    let override_method = format!("{token}x-http-method-override: GET\r\ncontent-length: 0\r\n");
    for method in ["POST", "DELETE"] {
        all.push(format!(
            "{method} / HTTP/1.1\r\nhost: locked.test\r\n{override_method}\r\n"
        ));
    }
    // Policies do not read tokens from these places.
    all.push(get("locked.test", &format!("/?access_token={valid}"), ""));
    all.push(get(
        "locked.test",
        "/",
        &format!("cookie: access_token={valid}\r\n"),
    ));
    all.push(get(
        "locked.test",
        "/",
        &format!("proxy-authorization: Bearer {valid}\r\n"),
    ));
    let chunked = "transfer-encoding: chunked\r\ntrailer: authorization\r\n";
    all.push(format!(
        "POST / HTTP/1.1\r\nhost: locked.test\r\n{chunked}\r\n0\r\n{token}\r\n"
    ));
    let long = "a".repeat(50_000);
    all.push(get(
        "locked.test",
        "/",
        &format!("authorization: Bearer a.{long}.c\r\n"),
    ));
    let longer = "a".repeat(100_000);
    all.push(get(
        "locked.test",
        "/",
        &format!("authorization: Bearer {longer}\r\n"),
    ));
    all
}

/// Tokens that must not be accepted.
fn forged(issuer: &Issuer) -> Vec<String> {
    let other = Issuer::new(ISSUER, "a");
    let claims = json!({"iss": ISSUER, "aud": "shop", "exp": 4_000_000_000_u64, "sub": "eve",
        "groups": ["staff"]});
    let header = json!({"alg": "ES256", "kid": "a"});
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        issuer.signed(&header, &claims)
    };
    let deep = format!("{}1{}", "{\"a\":".repeat(2_000), "}".repeat(2_000));
    let deep =
        format!("{{\"iss\":\"{ISSUER}\",\"aud\":\"shop\",\"exp\":4000000000,\"sub\":{deep}}}");
    let mut forged = vec![
        issuer.confused(&claims),
        issuer.signed_text(&header.to_string(), &deep),
        issuer.signed_text(&header.to_string(), "[]"),
        issuer.signed_text(&header.to_string(), "{\"iss\":"),
        issuer.signed_text("{}", &claims.to_string()),
        issuer.signed(&json!({"alg": "ES256", "kid": "../a"}), &claims),
        other.signed(
            &json!({"alg": "ES256", "kid": "a", "jwk": other.jwk()}),
            &claims,
        ),
        other.signed(
            &json!({"alg": "ES256", "jku": "http://open.test/"}),
            &claims,
        ),
        with("exp", json!(1)),
        with("exp", json!("4000000000")),
        with("exp", json!(-1)),
        with("nbf", json!(3_900_000_000_u64)),
        with("iss", json!([ISSUER])),
        with("aud", json!({"shop": true})),
        with("groups", json!({"staff": true})),
        with("groups", json!([["staff"]])),
        with("groups", json!("staff,users")),
        with("groups", json!(["Staff", "staff ", "staff\u{0}"])),
    ];
    for alg in ["none", "None", "NONE", ""] {
        forged.push(unsigned(&json!({"alg": alg, "kid": "a"}), &claims));
    }
    forged
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_attempts_reach_no_backend() {
    let issuer = Issuer::new(ISSUER, "a");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a", "b"], &mut all).await;
    all.extend(objects(&Issuer::jwks(&[&issuer])));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let open = agent.get(80, "open.test", "/");
    agent.wait_ok(&open).await;
    let mut checks = Checks::default();
    let valid = issuer.token(&json!({"sub": "ann", "groups": ["staff"]}));
    for request in attempts(&valid) {
        let status = raw(&agent, &request).await;
        let shown: String = request.chars().take(200).collect();
        checks.that(
            status == 0 || (300..600).contains(&status),
            format_args!("{shown:?}: {status}"),
        );
        let received = backends[0].count();
        checks.same(format_args!("{shown:?}"), received, 0);
        if received > 0 {
            break;
        }
    }
    for (i, token) in forged(&issuer).iter().enumerate() {
        for request in [
            agent.get(80, "locked.test", "/"),
            agent.get(80, "locked.test", "/").http2(),
            agent.get(80, "part.test", "/admin"),
        ] {
            if let Some(reply) = checks.reply(&bearer(request.clone(), token)).await {
                let is_refused = matches!(reply.status, 401 | 403);
                let what = format!("token {i}, {request}: {}", reply.status);
                checks.that(is_refused, what);
            }
        }
    }
    checks.same("received", backends[0].count(), 0);
    checks
        .status(bearer(agent.get(80, "many.test", "/"), &valid), 500)
        .await;
    checks.backend(open, "b").await;
    checks.backend(agent.get(80, "part.test", "/"), "b").await;
    identities(&agent, &issuer, &mut checks).await;
    checks.finish();
}

/// Backends see the identity that was checked, and no other.
async fn identities(agent: &AgentUnderTest, issuer: &Issuer, checks: &mut Checks) {
    let header = json!({"alg": "ES256", "kid": "a"}).to_string();
    let start = format!("\"iss\":\"{ISSUER}\",\"aud\":\"shop\",\"exp\":4000000000");
    for (claims, is_staff) in [
        (r#""sub":"ann","groups":["staff"]"#, true),
        (r#""sub":"ann","groups":["users"],"groups":["staff"]"#, true),
        (
            r#""sub":"ann","groups":["staff"],"groups":["users"]"#,
            false,
        ),
    ] {
        let token = issuer.signed_text(&header, &format!("{{{start},{claims}}}"));
        let request = bearer(agent.get(80, "locked.test", "/"), &token);
        let request = request.header("x-user", "root").header("X-User", "admin");
        if let Some(reply) = checks.reply(&request).await {
            let is_served = reply.status == 200;
            // A token with a duplicate claim may be refused, but its parts must not differ.
            checks.that(
                is_served == is_staff || reply.status == 401,
                format_args!("{claims}: {}", reply.status),
            );
            if is_served {
                let echo = reply.echo();
                checks.same(claims, echo.values("x-user"), vec!["ann"]);
                checks.same(claims, echo.values("x-groups"), vec![r#"["staff"]"#]);
                checks.same(claims, echo.value("authorization"), None);
            }
        }
    }
}
