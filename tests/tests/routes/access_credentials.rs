//! Passwords and API keys in AccessPolicies. A request must pass the checks of every policy.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::{Connection, Request};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    NAMESPACE, access_policy, edge, http_listener, numbered, plain_route, yaml,
};

use crate::access_tokens::{gateway_target, route_target};

/// `ann` with the password `wonderland`.
const USERS: &str = "# shop\nann:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n";
const ANN: &str = "Basic YW5uOndvbmRlcmxhbmQ=";
const ANN_WITH_WRONG_PASSWORD: &str = "Basic YW5uOndvbmRlcg==";

fn secret(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": data})
}

fn basic(more: &Value) -> Value {
    let mut spec = json!({"users": {"name": "users"}});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"basicAuth": spec})
}

fn keys(more: &Value) -> Value {
    let mut spec = json!({"credentials": [{"name": "keys"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiKeyAuth": spec})
}

fn objects() -> Vec<Value> {
    let none = json!({});
    let mut gateway = basic(&json!({"usernameHeader": "x-user"}));
    gateway["exemptions"] = json!([
        {"kind": "HTTPRoute", "name": "open"},
        {"kind": "HTTPRoute", "name": "keys", "parts": ["basicAuth"]},
        {"kind": "HTTPRoute", "name": "twice", "parts": ["basicAuth"]},
    ]);
    let places = json!({
        "sources": [{"header": "x-key"}, {"queryParameter": "key"}, {"cookie": "key"}],
        "clientHeader": "x-client",
    });
    let kept = json!({"sources": [{"queryParameter": "key"}], "forwardCredentials": true});
    let missing = json!({"basicAuth": {"users": {"name": "none"}}});
    vec![
        secret("users", &json!({".htpasswd": USERS})),
        secret("keys", &json!({"till": "k-till\n", "app": "k-app"})),
        plain_route("shop", "shop.test", "a"),
        plain_route("open", "open.test", "a"),
        plain_route("keys", "keys.test", "a"),
        plain_route("twice", "twice.test", "a"),
        plain_route("both", "both.test", "a"),
        plain_route("broken", "broken.test", "a"),
        access_policy("gateway", gateway_target(), &gateway),
        access_policy("keys", route_target("keys"), &keys(&places)),
        access_policy("twice-a", route_target("twice"), &keys(&places)),
        access_policy("twice-b", route_target("twice"), &keys(&kept)),
        access_policy("both", route_target("both"), &keys(&none)),
        access_policy("broken", route_target("broken"), &missing),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_need_credentials_of_all_policies() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let mut checks = Checks::default();
    let to = |host: &str, path: &str| agent.get(80, host, path);
    let by_ann = |request: Request| request.header("authorization", ANN);
    let with_key = |request: Request, key: &str| request.header("x-api-key", key);
    for (request, expected) in [
        (to("shop.test", "/"), 401),
        (by_ann(to("shop.test", "/")), 200),
        (by_ann(to("shop.test", "/").http2()), 200),
        (to("none.test", "/"), 401),
        (
            to("shop.test", "/").header("authorization", ANN_WITH_WRONG_PASSWORD),
            401,
        ),
        (
            to("shop.test", "/").header("authorization", "Bearer YW5uOndvbmRlcmxhbmQ="),
            401,
        ),
        (to("shop.test", "/").header("authorization", "Basic !"), 401),
        (by_ann(to("both.test", "/")), 401),
        (with_key(to("both.test", "/"), "k-app"), 401),
        (by_ann(with_key(to("both.test", "/"), "k-app")), 200),
        (by_ann(with_key(to("both.test", "/"), "k-ap")), 401),
        (by_ann(with_key(to("both.test", "/"), "")), 401),
        (to("keys.test", "/").header("x-key", "k-till"), 200),
        (to("keys.test", "/?key=k-app"), 200),
        (to("keys.test", "/?key=k-app&key=x"), 200),
        (to("keys.test", "/?key=x&key=k-app"), 401),
        (to("keys.test", "/").header("cookie", "a=b; key=k-app"), 200),
        (to("keys.test", "/").header("x-api-key", "k-app"), 401),
        (to("keys.test", "/").method("OPTIONS"), 401),
        (to("twice.test", "/?key=k-app"), 200),
        (to("twice.test", "/").header("x-key", "k-app"), 401),
        (by_ann(to("broken.test", "/")), 500),
    ] {
        checks.status(request, expected).await;
    }
    let mut checks = {
        checks.finish();
        Checks::default()
    };
    // Clients must not be able to set these headers, and backends must not receive credentials.
    let seen = by_ann(to("shop.test", "/")).header("x-user", "eve");
    if let Some(reply) = checks.reply(&seen).await {
        checks.same("user", &reply.echo().value("x-user"), &Some("ann"));
        checks.same("password", &reply.echo().value("authorization"), &None);
    }
    for path in ["/", "/?a=1&key=k-app"] {
        let seen = to("keys.test", path).header("x-client", "eve");
        let seen = match path {
            "/" => seen.header("x-key", "k-app"),
            _ => seen,
        };
        if let Some(reply) = checks.reply(&seen).await {
            checks.same("client", &reply.echo().value("x-client"), &Some("app"));
            checks.same("header", &reply.echo().value("x-key"), &None);
            checks.that(!reply.echo().path.contains("k-app"), "the key in the query");
        }
    }
    let spoofed = to("open.test", "/").header("x-user", "eve");
    if let Some(reply) = checks.reply(&spoofed).await {
        checks.same("open route", &reply.echo().value("x-user"), &None);
    }
    let upgrade = to("shop.test", "/");
    checks.that(
        upgrade.websocket(b"a").await.is_err(),
        "websocket without a password",
    );
    let upgraded = by_ann(upgrade).websocket(b"a").await;
    checks.that(upgraded.is_ok(), format_args!("websocket: {upgraded:?}"));
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_only_in_private_files() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let mut found = 0;
    let mut directories = vec![agent.runtime(), agent.state()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("an entry");
            // Temporary files may have been renamed.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.is_file() {
                let bytes = std::fs::read(entry.path()).expect("a file");
                if bytes.windows(5).any(|part| part == b"k-app") {
                    found += 1;
                    let mode = metadata.permissions().mode() & 0o777;
                    assert_eq!(mode, 0o600, "{}", entry.path().display());
                }
            }
        }
    }
    assert!(found > 0, "the filter file contains the keys");
    let manifests = agent.manifests().display().to_string();
    let output = agent.command(&["render", "--manifests", &manifests]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("api_key_auth"), "{printed}");
    for secret in ["k-app", "{SHA}"] {
        assert!(!printed.contains(secret), "{secret} is printed");
    }
}

const CHANGES: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn credentials_rotate_without_failed_or_unchecked_requests() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    all.push(plain_route("shop", "shop.test", "a"));
    let rotated = |number: usize| {
        let current = format!("k-{number}");
        let mut objects = vec![
            secret("keys", &json!({"app": "k-app", "other": current})),
            access_policy("edge", gateway_target(), &keys(&json!({}))),
        ];
        if !number.is_multiple_of(2) {
            objects.push(access_policy(
                "own",
                route_target("shop"),
                &keys(&json!({})),
            ));
        }
        let numbered_route = numbered("number.test", number, backends[0].address());
        format!("{}---\n{numbered_route}", yaml(&objects))
    };
    let files = [("all.yaml", yaml(&all)), ("keys.yaml", rotated(0))];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&files);
    let request = agent.get(80, "shop.test", "/").header("x-api-key", "k-app");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone(), request.clone().http2()]));
    let mut open = Connection::open(&request).await.expect("a connection");
    for number in 1..=CHANGES {
        agent.write("keys.yaml", &rotated(number));
        let numbered = agent.get(80, "number.test", &format!("/{number}"));
        let current = format!("k-{number}");
        agent
            .wait_ok(&numbered.clone().header("x-api-key", &current))
            .await;
        let before = format!("k-{}", number - 1);
        for (key, expected) in [("", 401), (&*before, 401), (&*current, 200)] {
            let request = agent.get(80, "shop.test", "/").header("x-api-key", key);
            let reply = request.send().await.expect("a reply");
            assert_eq!(reply.status, expected, "{key:?} after change {number}");
        }
        let reply = open.send(&request).await;
        let reply = reply.expect("a response on the open connection");
        assert_eq!(reply.status, 200, "after change {number}");
    }
    assert!(open.is_open().await);
    load.stop().await.clean("rotated credentials");
}
