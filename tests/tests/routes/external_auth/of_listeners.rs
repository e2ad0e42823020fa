//! Listener filters. Clients must not be able to forge the headers that these filters set.

use serde_json::{Value, json};
use sesame_envoy::Admin;
use sesame_tests::agent::Setup;
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::client::Reply;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, listener_set, on_listener_set, path, served, yaml,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{as_user, asking, echo, filtered};

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_choose_routes_by_headers_of_services() {
    let backends = [Backend::start("plain").await, Backend::start("gold").await];
    let auth = Authorizing::start("auth").await;
    let sets = |names: &[&str]| json!({"http": {"allowedResponseHeaders": names}});
    let filters = [asking("HTTP", "auth", &sets(&["x-tier", "x-role"]))];
    let mut objects = edge(&[filtered(http_listener("guarded", 80, ""), &filters)]);
    for backend in &backends {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    objects.extend(served("auth", &[auth.address()]));
    let header_match = |name: &str, value: &str| {
        let mut matching = path("PathPrefix", "/");
        matching["headers"] = json!([{"name": name, "value": value}]);
        matching
    };
    // The service never sets `x-role`.
    let rule = |matches: &[Value], backend: &str| json!({"matches": matches, "backendRefs": [backend_ref(backend)]});
    objects.extend([
        http_route(
            "role",
            &["role.test"],
            &[
                rule(&[header_match("x-role", "admin")], "gold"),
                rule(&[path("PathPrefix", "/")], "plain"),
            ],
        ),
        http_route(
            "tier",
            &["tier.test"],
            &[
                rule(&[header_match("x-tier", "forged")], "plain"),
                rule(&[header_match("x-tier", "gold")], "gold"),
            ],
        ),
    ]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let get = |host: &str| as_user(agent.get(80, host, "/"), "auth");
    agent.wait_ok(&get("role.test")).await;
    let mut checks = Checks::default();
    let forged = get("role.test").header("x-role", "admin");
    if let Some(echo) = echo(&forged, &mut checks).await {
        checks.same("backend", echo.backend.as_str(), "plain");
        checks.same("x-role", echo.values("x-role"), vec![]);
    }
    let forged = get("tier.test").header("x-tier", "forged");
    checks.backend(forged, "gold").await;
    checks.finish();
}

/// Other tenants on the port must keep their connections.
#[tokio::test(flavor = "multi_thread")]
async fn filters_of_a_listener_leave_the_port_alone() {
    let (main, auth) = (
        Backend::start("main").await,
        Authorizing::start("auth").await,
    );
    let mut objects = edge(&[http_listener("http", 80, "victim.test")]);
    objects[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    objects.extend(served("main", &[main.address()]));
    objects.extend(served("auth", &[auth.address()]));
    let route =
        |name: &str| http_route(name, &[], &[json!({"backendRefs": [backend_ref("main")]})]);
    objects.extend([route("victim"), on_listener_set(route("tenant"), "tenant")]);
    let set = |filters: usize| {
        let filter = |i: usize| asking("HTTP", "auth", &json!({"http": {"path": format!("/{i}")}}));
        let filters: Vec<Value> = (0..filters).map(filter).collect();
        let listener = filtered(http_listener("http", 80, "tenant.test"), &filters);
        yaml(&[listener_set("tenant", &[listener])])
    };
    let agent =
        Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects)), ("set.yaml", &set(0))]);
    let tenant = agent.get(80, "tenant.test", "/");
    agent.wait_ok(&tenant).await;
    let victim = agent.get(80, "victim.test", "/");
    agent.wait_ok(&victim).await;
    let status = agent.wait_healthy().await;
    let admin = status["gateways"][0]["envoy"]["admin"].as_str();
    let admin = Admin::new(admin.expect("an admin socket"));
    let moved = async || {
        let moved = r"^listener_manager\.listener_(added|modified|removed|in_place_updated)$";
        admin.counters(moved).await.expect("Envoy answers")
    };
    let before = moved().await;
    let mut stream = TcpStream::connect(agent.address(80))
        .await
        .expect("a connection");
    let mut checks = Checks::default();
    for (filters, status) in [(1, 401), (0, 200), (2, 401), (4, 401), (0, 200)] {
        agent.write("set.yaml", &set(filters));
        let changed = |reply: &Reply| reply.status == status;
        agent.wait_served(&tenant, changed).await;
        checks.same(
            format!("{filters} filters"),
            kept_alive(&mut stream).await,
            true,
        );
    }
    checks.same("changes of listeners", moved().await, before);
    checks.finish();
}

/// Returns false if the connection has been closed.
async fn kept_alive(stream: &mut TcpStream) -> bool {
    let request = b"GET / HTTP/1.1\r\nhost: victim.test\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return false;
    }
    let mut answer = vec![0; 16_384];
    let length = stream.read(&mut answer).await.unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer[..length]).to_ascii_lowercase();
    answer.starts_with("http/1.1 200") && !answer.contains("connection: close")
}
