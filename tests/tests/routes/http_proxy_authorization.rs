//! External authorization of HTTPProxy routes on a real Envoy. No request may bypass it.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, served, yaml};
use sesame_tests::ports::free_port;

const HOSTS: [&str; 5] = [
    "shop.test",
    "http.test",
    "open.test",
    "closed.test",
    "missing.test",
];

fn extension(service: &str, protocol: &str) -> Value {
    json!({"apiVersion": "projectcontour.io/v1alpha1", "kind": "ExtensionService",
        "metadata": {"name": service, "namespace": "default"},
        "spec": {"services": [{"name": service, "port": 80}], "protocol": protocol}})
}

fn to_a() -> Value {
    json!([{"name": "a", "port": 80}])
}

fn root(host: &str, service: &str, more: &Value, routes: &Value) -> Value {
    let mut authorization = json!({"extensionRef": {"name": service}});
    for (field, value) in more.as_object().into_iter().flatten() {
        authorization[field] = value.clone();
    }
    let spec = json!({
        "virtualhost": {"fqdn": host, "tls": {"secretName": "all"}, "authorization": authorization},
        "routes": routes,
        "includes": [{"name": "child", "conditions": [{"prefix": "/child"}]}],
    });
    http_proxy(&host.replace('.', "-"), &spec)
}

fn objects() -> Vec<Value> {
    let all = json!([{"services": to_a()}]);
    let team = json!({"disabled": false, "context": {"team": "shop", "tier": "1"}});
    let routes = json!([
        {"services": to_a()},
        {"conditions": [{"prefix": "/open"}], "services": to_a(), "authPolicy": {"disabled": true}},
        {"conditions": [{"prefix": "/gold"}], "services": to_a(), "authPolicy": {"context": {"tier": "2"}}},
        {"conditions": [{"prefix": "/away"}], "requestRedirectPolicy": {"hostname": "away.test"}},
        {"conditions": [{"prefix": "/teapot"}], "directResponsePolicy": {"statusCode": 418}},
        {"conditions": [{"prefix": "/insecure"}], "services": to_a(), "permitInsecure": true},
    ]);
    let child = json!({"routes": [{"services": to_a()},
        {"conditions": [{"prefix": "/open"}], "services": to_a(), "authPolicy": {"disabled": true}}]});
    let http = json!({"serviceType": "http", "httpSettings": {"pathPrefix": "/check",
        "allowedAuthorizationHeaders": [{"exact": "x-token"}], "allowedUpstreamHeaders": [{"exact": "x-user"}]}});
    vec![
        ingress_class(),
        extension("auth", "h2c"),
        extension("plain", "http/1.1"),
        extension("closed", "h2c"),
        root(
            "shop.test",
            "auth",
            &json!({"authPolicy": team, "responseTimeout": "5s"}),
            &routes,
        ),
        root("http.test", "plain", &http, &all),
        root("open.test", "closed", &json!({"failOpen": true}), &all),
        root("closed.test", "closed", &json!({}), &all),
        root("missing.test", "missing", &json!({"failOpen": true}), &all),
        http_proxy("child", &child),
    ]
}

fn by(request: Request, user: &str) -> Request {
    request.header("authorization", user)
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_services_authorize_routes_of_proxies() {
    let authority = Authority::new("test");
    let auth = Authorizing::start("auth").await;
    let plain = Authorizing::start("plain").await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(served("auth", &[auth.address()]));
    all.extend(served("plain", &[plain.address()]));
    // No service listens on this address.
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    all.extend(served("closed", &[closed]));
    all.push(authority.issue(&HOSTS).secret("all"));
    all.extend(objects());
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let trust = authority.trust();
    let https = |host: &str, path: &str| agent.get(443, host, path).tls(host, &trust);
    let shop = |path: &str| https("shop.test", path);
    agent.wait_ok(&shop("/open")).await;
    agent.wait_ok(&by(shop("/"), "auth")).await;
    let mut checks = Checks::default();
    auth.take();
    for (request, user, expected) in [
        (shop("/"), "", 401),
        (shop("/"), "auth", 200),
        (shop("/open"), "", 200),
        (shop("/open/../x"), "", 401),
        (shop("/child/x"), "", 401),
        (shop("/child/x"), "auth", 200),
        (shop("/child/open"), "", 200),
        (shop("/away"), "", 401),
        (shop("/away"), "auth", 302),
        (shop("/teapot"), "", 401),
        (shop("/teapot"), "auth", 418),
        // Only a redirect to HTTPS needs no check.
        (agent.get(80, "shop.test", "/"), "", 301),
        (agent.get(80, "shop.test", "/insecure"), "", 401),
        (agent.get(80, "shop.test", "/insecure"), "auth", 200),
        (https("open.test", "/"), "", 200),
        (https("closed.test", "/"), "everybody", 503),
        (https("missing.test", "/"), "everybody", 500),
    ] {
        let request = if user.is_empty() {
            request
        } else {
            by(request, user)
        };
        checks.status(request, expected).await;
    }
    auth.take();
    contexts(&auth, &shop, &mut checks).await;
    let request = https("http.test", "/a?b=c").header("x-user", "mallory");
    over_http(&plain, request.header("x-token", "t"), &mut checks).await;
    // `explain` reads the stored configuration.
    agent.wait_stored().await;
    let runtime = agent.runtime().display().to_string();
    let explained = agent.command(&["explain", "--runtime-dir", &runtime, "https://open.test/"]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    checks.that(
        explained.contains("HTTPProxy/default/open-test") && explained.contains("failOpen"),
        &explained,
    );
    checks.finish();
}

async fn contexts(auth: &Authorizing, shop: &impl Fn(&str) -> Request, checks: &mut Checks) {
    for (path, tier) in [("/", "1"), ("/gold", "2"), ("/child/x", "1")] {
        checks.status(by(shop(path), "auth"), 200).await;
        let seen: Vec<_> = auth.take().into_iter().map(|it| it.context).collect();
        let expected = [("team", "shop"), ("tier", tier)];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        checks.same(format!("context of {path}"), seen, vec![expected.to_vec()]);
    }
}

async fn over_http(plain: &Authorizing, request: Request, checks: &mut Checks) {
    checks.status(request.clone(), 401).await;
    if let Some(reply) = checks.reply(&by(request, "plain")).await {
        let echo = reply.echo();
        checks.same("x-user", echo.value("x-user"), Some("alice"));
        checks.same("x-other", echo.value("x-other"), None);
    }
    for question in plain.take() {
        checks.same("protocol", question.protocol, "HTTP");
        checks.same("path", question.path.as_str(), "/check/a?b=c");
        checks.same("x-token", question.header("x-token"), Some("t"));
        checks.same("x-user", question.header("x-user"), None);
    }
}
