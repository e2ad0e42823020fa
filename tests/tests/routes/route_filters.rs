//! Serves the golden case for RouteFilters with a real agent and a real Envoy.

use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::grpc::{self, code};
use sesame_tests::manifests::{edge, endpoint_slices, http_listener, service, yaml};

const FILTERS: &str = include_str!("../../golden/route-filters/input.yaml");
const CREDENTIALS: &str = include_str!("../../golden/route-filter-credentials/input.yaml");
const MAINTENANCE: &str = include_str!("../../golden/route-filter-maintenance/input.yaml");
const TRANSCODING: &str = include_str!("../../golden/route-filter-transcoding/input.yaml");

fn start(backend: &Backend, golden: &str) -> AgentUnderTest {
    started(backend, golden, "")
}

fn started(backend: &Backend, golden: &str, app_protocol: &str) -> AgentUnderTest {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.push(service("backend", app_protocol));
    objects.extend(endpoint_slices("backend", &[backend.address()]));
    let filters = golden.replace("{name: gateway}", "{name: edge}");
    let manifests = [("all.yaml", yaml(&objects)), ("filters.yaml", filters)];
    let manifests = manifests
        .each_ref()
        .map(|(name, text)| (*name, text.as_str()));
    let setup = Setup::with_ports(&[80]).flag("--trusted-hops=1");
    setup.start(&manifests)
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_credentials_replace_values_of_clients() {
    let backend = Backend::start("backend").await;
    let agent = start(&backend, CREDENTIALS);
    let get = |path: &str| {
        let request = agent.get(80, "a.test", path);
        let request = request.header("authorization", "Basic bWU6");
        request.header("x-api-key", "mine")
    };
    agent.wait_ok(&get("/plain")).await;
    let mut checks = Checks::default();
    for (path, expected) in [
        ("/plain", [Some("Basic bWU6"), Some("mine")]),
        ("/partner", [Some("Bearer hush-1"), Some("mine")]),
        ("/keyed", [Some("Basic bWU6"), Some("100%-hush-2")]),
    ] {
        for request in [get(path), get(path).http2()] {
            if let Some(reply) = checks.reply(&request).await {
                let echo = reply.echo();
                let seen = ["authorization", "x-api-key"].map(|name| echo.value(name));
                checks.same(&request, seen, expected);
            }
        }
    }
    checks.status(get("/missing"), 500).await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_in_maintenance_answer_without_their_backends() {
    let backend = Backend::start("backend").await;
    let agent = start(&backend, MAINTENANCE);
    let get = |path: &str| agent.get(80, "a.test", path);
    agent.wait_ok(&get("/")).await;
    let mut checks = Checks::default();
    for (client, expected) in [
        ("192.0.2.9", None),
        ("2001:db8::9", None),
        ("198.51.100.1", Some("60")),
        ("::ffff:198.51.100.1", Some("60")),
    ] {
        for request in [get("/staff"), get("/staff").http2()] {
            let request = request.header("x-forwarded-for", client);
            if let Some(reply) = checks.reply(&request).await {
                let seen = (reply.status, reply.header("retry-after"));
                let status = if expected.is_some() { 503 } else { 200 };
                checks.same(&request, seen, (status, expected));
                let page = reply.body == "<h1>100 % soon</h1>";
                checks.same(&request, page, expected.is_some());
            }
        }
    }
    // The last address is the one that the trusted proxy saw.
    let forged = get("/staff").header("x-forwarded-for", "192.0.2.9, 198.51.100.1");
    checks.status(forged, 503).await;
    checks.status(get("/twice"), 500).await;
    drop(backend);
    for (path, retry, content_type, body) in [
        ("/shop", "600", "text/html", "<h1>Back soon</h1>"),
        (
            "/api",
            "5",
            "application/json",
            r#"{"error": "maintenance"}"#,
        ),
    ] {
        let request = get(path);
        if let Some(reply) = checks.reply(&request).await {
            let seen = ["retry-after", "content-type"].map(|name| reply.header(name));
            checks.same(&request, reply.status, 503);
            checks.same(&request, seen, [Some(retry), Some(content_type)]);
            checks.same(&request, &reply.body[..], body.as_bytes());
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn route_filters_answer_rewrite_and_redirect() {
    let backend = Backend::start("backend").await;
    let agent = start(&backend, FILTERS);
    let get = |host: &str, path: &str| agent.get(80, host, path);
    agent.wait_ok(&get("conflicts.example.com", "/fine")).await;
    let mut checks = Checks::default();

    let request = get("a.test", "/maintenance/x");
    if let Some(reply) = checks.reply(&request).await {
        let seen = (
            reply.status,
            reply.header("content-type"),
            reply.header("retry-after"),
            &reply.body[..],
        );
        let expected = (
            503,
            Some("text/html"),
            Some("600"),
            &b"<h1>Back soon</h1>"[..],
        );
        checks.same(&request, seen, expected);
    }
    for (path, host, backend_path) in [
        (
            "/users/7/mail?a=/users/8",
            "users.example.com",
            "/u/mail/7?a=/users/8",
        ),
        ("/users/7", "users.example.com", "/u/7"),
        ("/users/x", "users.example.com", "/users/x"),
        ("/tenants/a", "a.test", "/tenants/a"),
    ] {
        let request = get("a.test", path);
        if let Some(reply) = checks.reply(&request).await {
            let echo = reply.echo();
            let seen = (echo.host.as_str(), echo.path.as_str());
            checks.same(&request, seen, (host, backend_path));
        }
    }
    let request = get("a.test", "/tenants/a").header("x-tenant", "b.test");
    if let Some(reply) = checks.reply(&request).await {
        checks.same(&request, reply.echo().host.as_str(), "b.test");
    }
    let request = get("a.test", "/old/a/b.php?q=1");
    if let Some(reply) = checks.reply(&request).await {
        let seen = (reply.status, reply.header("location"));
        checks.same(&request, seen, (301, Some("https://a.test/old/a/b?q=1")));
    }
    for (host, path) in [
        ("a.test", "/missing"),
        ("a.test", "/open-redirect.evil.test"),
        ("a.test", "/open-redirect/evil.test"),
        ("conflicts.example.com", "/twice"),
        ("conflicts.example.com", "/answered"),
    ] {
        let request = get(host, path);
        if let Some(reply) = checks.reply(&request).await {
            checks.same(
                &request,
                reply.status,
                if path.contains(".evil") { 404 } else { 500 },
            );
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn json_requests_reach_backends_as_grpc() {
    let backend = Backend::start("backend").await;
    let agent = started(&backend, TRANSCODING, "kubernetes.io/h2c");
    let get = |path: &str| agent.get(80, "a.test", path);
    let returned = |path: &str, times: &str| get(path).header(grpc::RETURNED, times);
    let call = grpc::call(agent.address(80), "a.test", "books.v1.Books/Plain");
    agent
        .wait_served(&call, |reply| grpc::status(reply) == Some(code::OK))
        .await;
    let mut checks = Checks::default();
    let posted = |path: &str, body: &'static str| {
        let request = returned(path, "1").method("POST");
        request
            .header("content-type", "application/json")
            .body(body)
    };
    let iliad = r#"{"name":"iliad","pageCount":0}"#;
    let book = r#"{"name":"a","pageCount":7}"#;
    for (request, status, body) in [
        (returned("/v1/books/iliad?utm=a", "1"), 200, iliad),
        (returned("/v1/books/a?page_count=7", "1"), 200, book),
        (posted("/v1/books", book), 200, book),
        (posted("/books.v1.Books/Plain", book), 200, book),
        (
            returned("/v1/watch/iliad", "2"),
            200,
            &format!("[{iliad},{iliad}]"),
        ),
        (returned("/v1/books/iliad", "0"), 404, r#"{"code":5"#),
        (
            returned("/v1/books/iliad?x=1", "1"),
            400,
            "Could not find field",
        ),
        (posted("/v1/books", "{"), 400, ""),
        (returned("/v1/none", "1"), 404, "Could not resolve"),
        (returned("/other", "1"), 500, ""),
        (returned("/staff", "1"), 503, ""),
    ] {
        for request in [request.clone(), request.http2()] {
            if let Some(reply) = checks.reply(&request).await {
                let text = String::from_utf8_lossy(&reply.body);
                checks.same(&request, reply.status, status);
                checks.that(text.starts_with(body), format_args!("{request}: {text}"));
            }
        }
    }
    if let Some(reply) = checks.reply(&call).await {
        let path = grpc::echo(&reply).map(|echo| echo.path);
        checks.same(&call, path.as_deref(), Some("/books.v1.Books/Plain"));
    }
    checks.finish();
}
