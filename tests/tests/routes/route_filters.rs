//! Serves the golden case for RouteFilters with a real agent and a real Envoy.

use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{edge, http_listener, served, yaml};

const FILTERS: &str = include_str!("../../golden/route-filters/input.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn route_filters_answer_rewrite_and_redirect() {
    let backend = Backend::start("backend").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("backend", &[backend.address()]));
    let filters = FILTERS.replace("{name: gateway}", "{name: edge}");
    let manifests = [("all.yaml", yaml(&objects)), ("filters.yaml", filters)];
    let manifests = manifests
        .each_ref()
        .map(|(name, text)| (*name, text.as_str()));
    let agent = Setup::with_ports(&[80]).start(&manifests);
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
