//! Logins with a real OpenID provider. Only requests with a session for the same host pass.

use serde_json::{Value, json};
use sesame_proto::digest::sha256;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::{Connection, Request};
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::load::{Load, Plan};
use sesame_tests::logging_in::{Browser, CLIENT, CLIENT_SECRET, OpenIdProvider, location};
use sesame_tests::manifests::{
    NAMESPACE, access_policy, edge, http_listener, http_route, numbered, path, plain_route,
    rule_to, served, yaml,
};

use crate::access_tokens::route_target;

const SHOP: &str = "shop.test";
const OTHER: &str = "other.test";
const COOKIE_SECRET: &str = "cookies-cookies-cookies";

fn secret(client: &str, cookies: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "client", "namespace": NAMESPACE},
        "stringData": {"client-secret": client, "hmac-secret": cookies}})
}

fn login(provider: &OpenIdProvider, more: &Value) -> Value {
    let mut spec = json!({
        "provider": {
            "authorizationEndpoint": provider.url("/auth"),
            "tokenEndpoint": provider.url("/token"),
            "endSessionEndpoint": provider.url("/session/end"),
            "backendRef": {"name": "id", "port": 80},
        },
        "clientID": CLIENT,
        "clientSecret": {"name": "client"},
        "hostnames": [SHOP, OTHER],
        "scopes": ["offline_access"],
        "apiPaths": ["/api"],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"oidc": spec})
}

/// `shop` and `cart` share a host and a policy. `vip` is on the same host.
fn objects(provider: &OpenIdProvider) -> Vec<Value> {
    let none = json!({});
    let cart = rule_to("a", &[path("PathPrefix", "/cart")]);
    let vip = rule_to("a", &[path("PathPrefix", "/vip")]);
    let missing = login(provider, &json!({"clientSecret": {"name": "none"}}));
    let mut both = access_policy("both", route_target("shop"), &login(provider, &none));
    both["spec"]["targetRefs"] = ["shop", "cart", "other"]
        .map(
            |name| json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}),
        )
        .into_iter()
        .collect();
    let own = json!({"hostnames": ["own.test"], "refresh": false, "forwardToken": "IDToken",
    "provider": {
        "authorizationEndpoint": provider.url("/auth"),
        "tokenEndpoint": provider.url("/token"),
        "backendRef": {"name": "id", "port": 80},
    }});
    let mut all = served("id", &[provider.address()]);
    all.extend([
        secret(CLIENT_SECRET, COOKIE_SECRET),
        plain_route("shop", SHOP, "a"),
        http_route("cart", &[SHOP], &[cart]),
        http_route("vip", &[SHOP], &[vip]),
        plain_route("other", OTHER, "a"),
        plain_route("own", "own.test", "a"),
        plain_route("open", "open.test", "a"),
        plain_route("broken", "broken.test", "a"),
        plain_route("twice", "twice.test", "a"),
        both,
        access_policy("vip", route_target("vip"), &login(provider, &none)),
        access_policy("own", route_target("own"), &login(provider, &own)),
        access_policy("broken", route_target("broken"), &missing),
        access_policy("twice-a", route_target("twice"), &login(provider, &none)),
        access_policy("twice-b", route_target("twice"), &login(provider, &none)),
    ]);
    all
}

async fn start(provider: &OpenIdProvider, setup: Setup) -> (AgentUnderTest, Vec<Backend>) {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    all.extend(objects(provider));
    let agent = setup.start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    (agent, backends)
}

fn browser(agent: &AgentUnderTest) -> Browser {
    Browser::new(agent.address(80))
}

/// Logs in, and follows the callback.
async fn logged_in(agent: &AgentUnderTest, url: &str) -> Browser {
    let mut browser = browser(agent);
    let callback = browser.log_in(url).await;
    let reply = browser.load(&callback).await;
    assert_eq!((reply.status, location(&reply)), (302, url.to_owned()));
    browser
}

async fn check_logins(setup: Setup) {
    let provider = OpenIdProvider::start(60, &[SHOP, OTHER, "own.test"]);
    let (agent, _backends) = start(&provider, setup).await;
    let to = |host: &str, path: &str| agent.get(80, host, path);
    let page = |request: Request| request.header("accept", "text/html");
    let mut checks = Checks::default();
    for (request, expected) in [
        (page(to(SHOP, "/")), 302),
        (page(to(SHOP, "/cart").http2()), 302),
        (to(SHOP, "/"), 401),
        (page(to(SHOP, "/api/items")), 401),
        (page(to(SHOP, "/api?a=b")), 401),
        (page(to(SHOP, "/apis")), 302),
        (page(to(SHOP, "/").method("POST")), 401),
        (to(SHOP, "/").method("OPTIONS"), 401),
        (
            page(to(SHOP, "/").header("x-requested-with", "XMLHttpRequest")),
            401,
        ),
        (page(to("broken.test", "/")), 500),
        (page(to("twice.test", "/")), 500),
        (page(to("open.test", "/")), 200),
        (page(to(SHOP, "/").header("authorization", "Bearer x")), 302),
    ] {
        checks.status(request, expected).await;
    }
    let upgraded = to(SHOP, "/").websocket(b"a").await;
    checks.that(upgraded.is_err(), "websocket without a session");

    let mut user = logged_in(&agent, "https://shop.test/a?b=c").await;
    let reply = user.load("https://shop.test/a?b=c").await;
    checks.same("session", &reply.status, &200);
    checks.same("path", &reply.echo().path.as_str(), &"/a?b=c");
    checks.same("cookies", &reply.echo().value("cookie"), &Some(""));
    checks.same("token", &reply.echo().value("authorization"), &None);
    let reply = user.load("https://shop.test/cart").await;
    checks.same("second route", &reply.status, &200);
    let reply = user.load("https://shop.test/api/items").await;
    checks.same("API", &reply.status, &200);
    let cookies = user.cookie_header(SHOP);
    let with_cookies = |host: &str, cookies: &str| page(to(host, "/").header("cookie", cookies));
    let upgraded = to(SHOP, "/")
        .header("cookie", &cookies)
        .websocket(b"a")
        .await;
    checks.that(upgraded.is_ok(), format_args!("websocket: {upgraded:?}"));
    for name in ["hmac", "expires", "refresh"] {
        let prefixed = format!("-{name}=");
        checks.that(
            cookies.contains(&prefixed),
            format_args!("{name} in {cookies}"),
        );
    }
    // Without the refresh token, only the signed cookies count.
    user.cookies(SHOP)
        .retain(|name, _| !name.ends_with("-refresh"));
    let stripped = user.cookie_header(SHOP);
    checks.status(with_cookies(SHOP, &stripped), 302).await;

    checks.finish();
    check_sessions(&agent, &provider).await;
    check_callbacks(&agent).await;
}

/// Sessions of a policy without refresh tokens: tampering, other hosts, tokens, and logout.
async fn check_sessions(agent: &AgentUnderTest, provider: &OpenIdProvider) {
    let mut checks = Checks::default();
    let to = |host: &str, path: &str| agent.get(80, host, path);
    let mut user = logged_in(agent, "https://own.test/").await;
    let reply = user.load("https://own.test/").await;
    checks.same("session", &reply.status, &200);
    let token = reply
        .echo()
        .value("authorization")
        .unwrap_or_default()
        .to_owned();
    let is_jwt = token.starts_with("Bearer ey") && token.split('.').count() == 3;
    checks.that(is_jwt, format_args!("ID token: {token}"));

    let cookies = user.cookie_header("own.test");
    let shop = to(SHOP, "/")
        .header("cookie", &cookies)
        .header("accept", "text/html");
    checks.status(shop, 302).await;
    // A policy must not accept another policy's cookies, even under its own names.
    let mut shop = logged_in(agent, "https://shop.test/").await;
    let [from, to_vip] = ["both", "vip"].map(|name| {
        let id = sha256(format!("AccessPolicy/{NAMESPACE}/{name}").as_bytes());
        format!("__Host-oidc-{}-", &id[..12])
    });
    let cookies = shop.cookie_header(SHOP);
    assert!(cookies.contains(&from), "{cookies}");
    let renamed = cookies.replace(&from, &to_vip);
    let vip = to(SHOP, "/vip").header("accept", "text/html");
    checks.status(vip.header("cookie", &renamed), 302).await;
    for name in ["hmac", "expires", "id"] {
        let mut tampered = user.clone();
        let jar = tampered.cookies("own.test");
        let (_, value) = jar
            .iter_mut()
            .find(|(key, _)| key.ends_with(&format!("-{name}")))
            .expect("a cookie");
        let last = value.pop().expect("a value");
        value.push(if last == '0' { '1' } else { '0' });
        let first = value.remove(0);
        value.insert(0, if first == '1' { '2' } else { '1' });
        let reply = tampered.load("https://own.test/").await;
        checks.same(format!("tampered {name}"), &reply.status, &302);
    }
    let reply = user.load("https://own.test/logout").await;
    checks.same("logout", &reply.status, &302);
    let after = location(&reply);
    checks.that(
        after.ends_with("://own.test/"),
        format_args!("after logout: {after}"),
    );
    checks.same(
        "cookies after logout",
        &user.cookie_header("own.test").as_str(),
        &"",
    );
    let reply = user.load("https://own.test/").await;
    checks.same("after logout", &reply.status, &302);
    let reply = shop.load("https://shop.test/logout").await;
    let end = location(&reply);
    checks.that(
        end.starts_with(&provider.url("/session/end?"))
            && end.contains("post_logout_redirect_uri=https%3A%2F%2Fshop.test%2F"),
        format_args!("logout at the provider: {end}"),
    );
    checks.finish();
}

/// Callbacks without a login, from another browser, and with another destination.
async fn check_callbacks(agent: &AgentUnderTest) {
    let mut checks = Checks::default();
    let callback = "https://shop.test/oauth2/callback";
    for query in [
        "",
        "?code=a",
        "?code=a&state=b",
        "?error=access_denied&state=b",
    ] {
        let reply = browser(agent).load(&format!("{callback}{query}")).await;
        checks.same(format!("callback{query}"), &reply.status, &401);
    }
    let mut user = browser(agent);
    let full = user.log_in("https://shop.test/").await;
    let reply = browser(agent).load(&full).await;
    checks.same("callback in another browser", &reply.status, &401);
    let (code, state) = full.split_once("&state=").expect("a state");
    let state = state.split('&').next().unwrap_or_default();
    for destination in [
        "https://evil.test/",
        "//evil.test/",
        "https://shop.test.evil.test/",
    ] {
        let forged = with_destination(state, destination);
        let mut victim = user.clone();
        let reply = victim.load(&format!("{code}&state={forged}")).await;
        checks.same(format!("redirect to {destination}"), &reply.status, &401);
    }
    // Another host must not take part.
    let reply = browser(agent)
        .load("https://evil.test/oauth2/callback?code=a&state=b")
        .await;
    checks.same("unknown host", &reply.status, &404);
    checks.finish();
}

/// Replaces the destination in the state of a login.
fn with_destination(state: &str, destination: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let decoded = URL_SAFE_NO_PAD.decode(state).expect("Base64");
    let mut state: Value = serde_json::from_slice(&decoded).expect("JSON");
    assert_eq!(state["url"], json!("https://shop.test/"));
    state["url"] = json!(destination);
    URL_SAFE_NO_PAD.encode(state.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_logged_in_users_pass() {
    check_logins(Setup::with_ports(&[80]).envoy(&envoy_binary())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_logged_in_users_pass_older_envoy() {
    check_logins(Setup::with_ports(&[80]).envoy(&older_envoy_binary())).await;
}

const CHANGES: usize = 6;
const WRONG_SECRET: &str = "wrong-wrong-wrong-wrong";

#[tokio::test(flavor = "multi_thread")]
async fn secrets_rotate_without_failed_sessions() {
    let provider = OpenIdProvider::start(600, &[SHOP, OTHER]);
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    all.extend(objects(&provider));
    all.retain(|object| object["kind"] != json!("Secret"));
    let rotated = |client: &str, cookies: &str, number: usize| {
        let secret = yaml(&[secret(client, cookies)]);
        let numbered = numbered("number.test", number, backends[0].address());
        format!("{secret}---\n{numbered}")
    };
    let first = rotated(CLIENT_SECRET, COOKIE_SECRET, 0);
    let files = [("all.yaml", yaml(&all)), ("secret.yaml", first)];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let mut agent = Setup::with_ports(&[80]).start(&files);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let user = logged_in(&agent, "https://shop.test/").await;
    let session = agent.get(80, SHOP, "/");
    let session = session.header("cookie", &user.cookie_header(SHOP));
    let load = Load::start(&Plan::new(vec![session.clone(), session.clone().http2()]));
    let mut open = Connection::open(&session).await.expect("a connection");
    for number in 1..=CHANGES {
        let (client, expected) = match number % 2 {
            0 => (CLIENT_SECRET, 302),
            _ => (WRONG_SECRET, 401),
        };
        agent.write("secret.yaml", &rotated(client, COOKIE_SECRET, number));
        agent
            .wait_ok(&agent.get(80, "number.test", &format!("/{number}")))
            .await;
        let mut new = browser(&agent);
        let callback = new.log_in("https://shop.test/").await;
        let reply = new.load(&callback).await;
        assert_eq!(reply.status, expected, "after change {number}");
        let reply = open.send(&session).await;
        assert_eq!(reply.expect("a response").status, 200);
    }
    assert!(open.is_open().await, "the listener has not changed");
    load.stop().await.clean("rotated secrets");
    agent.end();
    agent.restart();
    agent.wait_ok(&session).await;
    let rotated = rotated(CLIENT_SECRET, "other-other-other-other", CHANGES + 1);
    agent.write("secret.yaml", &rotated);
    agent
        .wait_served(&session, |reply| reply.status == 401)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_survive_provider_outage() {
    let mut provider = OpenIdProvider::start(600, &[SHOP, OTHER]);
    let (agent, _backends) = start(&provider, Setup::with_ports(&[80])).await;
    let mut user = logged_in(&agent, "https://shop.test/").await;
    let mut waiting = browser(&agent);
    let callback = waiting.log_in("https://shop.test/").await;
    provider.stop();
    assert_eq!(user.load("https://shop.test/").await.status, 200);
    let reply = waiting.load(&callback).await;
    assert_eq!(reply.status, 401, "a login needs the provider");
    assert_eq!(waiting.load("https://shop.test/").await.status, 302);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_sessions_need_the_provider() {
    let mut provider = OpenIdProvider::start(1, &[SHOP, OTHER]);
    let (agent, _backends) = start(&provider, Setup::with_ports(&[80])).await;
    let mut user = logged_in(&agent, "https://shop.test/").await;
    let cookies = user.cookie_header(SHOP);
    let request = |cookies: &str| agent.get(80, SHOP, "/").header("cookie", cookies);
    let renewed = agent
        .wait_served(&request(&cookies), |reply| {
            !reply.values("set-cookie").is_empty()
        })
        .await;
    assert_eq!(renewed.status, 200);
    assert_eq!(renewed.echo().value("cookie"), Some(""));
    let mut user_without_refresh = user.clone();
    user_without_refresh
        .cookies(SHOP)
        .retain(|name, _| !name.ends_with("-refresh"));
    let reply = user_without_refresh.load("https://shop.test/").await;
    assert_eq!(reply.status, 302, "an expired session");
    let reply = user.load("https://shop.test/").await;
    assert_eq!(reply.status, 200, "a renewed session");
    assert_ne!(user.cookie_header(SHOP), cookies);
    provider.stop();
    agent
        .wait_served(&request(&user.cookie_header(SHOP)), |reply| {
            reply.status == 401
        })
        .await;
}
