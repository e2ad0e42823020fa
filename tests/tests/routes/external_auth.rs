//! External authorization on a real Envoy. No request may bypass it.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, https_listener, path, served, service, yaml,
};
use sesame_tests::ports::free_port;

mod of_listeners;

/// Body size larger than a connection's default buffer.
const LARGE: usize = 90_000;

fn asking(protocol: &str, service: &str, fields: &Value) -> Value {
    let mut auth = json!({"protocol": protocol, "backendRef": backend_ref(service)});
    auth[protocol.to_lowercase()] = json!({});
    for (name, value) in fields.as_object().into_iter().flatten() {
        auth[name] = value.clone();
    }
    json!({"type": "ExternalAuth", "externalAuth": auth})
}

fn asked(host: &str, filters: &[Value]) -> Value {
    let rule = json!({"filters": filters, "backendRefs": [backend_ref("main")]});
    http_route(&host.replace('.', "-"), &[host], &[rule])
}

fn as_user(request: Request, user: &str) -> Request {
    request.header("authorization", user)
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_authorize_every_request_before_it_passes() {
    let main = Backend::start("main").await;
    let auth = Authorizing::start("auth").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("main", &[main.address()]));
    objects.extend(served(auth.name(), &[auth.address()]));
    // No service listens on this address.
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    objects.extend(served("closed", &[closed]));
    objects.push(service("nobody", ""));
    let http = json!({"http": {"path": "/check/", "allowedHeaders": ["X-Token"],
        "allowedResponseHeaders": ["x-user", "x-role", "authorization"]}});
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"hostname": "away.test"}});
    let mut redirected = asked(
        "redirect.test",
        &[asking("HTTP", "auth", &json!({})), redirect],
    );
    redirected["spec"]["rules"][0]["backendRefs"] = json!([]);
    let mut elsewhere = asking("HTTP", "auth", &json!({}));
    elsewhere["externalAuth"]["backendRef"]["namespace"] = json!("elsewhere");
    let cors = json!({"type": "CORS", "cors": {"allowOrigins": ["https://a.test"]}});
    objects.extend([
        asked("http.test", &[asking("HTTP", "auth", &http)]),
        asked("all.test", &[asking("HTTP", "auth", &json!({}))]),
        asked(
            "grpc.test",
            &[asking(
                "GRPC",
                "auth",
                &json!({"grpc": {"allowedHeaders": ["authorization"]}}),
            )],
        ),
        asked(
            "body.test",
            &[asking(
                "HTTP",
                "auth",
                &json!({"forwardBody": {"maxSize": LARGE}}),
            )],
        ),
        asked(
            "grpc-body.test",
            &[asking(
                "GRPC",
                "auth",
                &json!({"forwardBody": {"maxSize": LARGE}}),
            )],
        ),
        asked("cors.test", &[cors, asking("HTTP", "auth", &json!({}))]),
        redirected,
        asked("closed.test", &[asking("HTTP", "closed", &json!({}))]),
        asked("closed-grpc.test", &[asking("GRPC", "closed", &json!({}))]),
        asked("nobody.test", &[asking("GRPC", "nobody", &json!({}))]),
        asked("missing.test", &[asking("HTTP", "missing", &json!({}))]),
        asked("elsewhere.test", &[elsewhere]),
        asked("free.test", &[]),
    ]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "free.test", "/")).await;
    let mut checks = Checks::default();
    over_http(&agent, &auth, &mut checks).await;
    over_grpc(&agent, &auth, &mut checks).await;
    bodies(&agent, &auth, &mut checks).await;
    let preflight = agent.get(80, "cors.test", "/").method("OPTIONS");
    let preflight = preflight.header("origin", "https://a.test");
    let preflight = preflight.header("access-control-request-method", "GET");
    checks.status(preflight, 200).await;
    checks.same("checks for a preflight request", auth.take().len(), 0);
    checks.status(agent.get(80, "cors.test", "/"), 401).await;
    auth.take();
    if let Some(refusal) = checks.reply(&agent.get(80, "all.test", "/")).await {
        let headers = refusal.values("x-envoy-upstream-service-time");
        checks.same("service time of a denied request", headers, vec![]);
    }
    auth.take();
    checks
        .status(agent.get(80, "redirect.test", "/"), 401)
        .await;
    let request = as_user(agent.get(80, "redirect.test", "/"), "auth");
    checks.status(request, 302).await;
    let before = main.count();
    for (host, status) in [
        ("closed.test", 503),
        ("closed-grpc.test", 503),
        ("nobody.test", 503),
        ("missing.test", 500),
        ("elsewhere.test", 500),
    ] {
        let request = as_user(agent.get(80, host, "/"), "everybody");
        checks.status(request, status).await;
    }
    checks.same(
        "requests that passed without a check",
        main.count() - before,
        0,
    );
    checks.finish();
}

async fn over_http(agent: &AgentUnderTest, auth: &Authorizing, checks: &mut Checks) {
    let request = agent
        .get(80, "http.test", "/a/b?c=d")
        .header("x-user", "mallory")
        // The authorization service never sets this header.
        .header("x-role", "admin")
        .header("x-token", "t")
        .header("x-mine", "m");
    if let Some(reply) = checks.reply(&request).await {
        checks.same("status of a denied request", reply.status, 401);
        let realm = reply.header("www-authenticate");
        checks.same("challenge from the service", realm, Some("Basic"));
    }
    if let Some(echo) = echo(&as_user(request, "auth"), checks).await {
        checks.same("x-user", echo.values("x-user"), vec!["alice"]);
        checks.same("x-role", echo.values("x-role"), vec![]);
        checks.same("x-other", echo.values("x-other"), vec![]);
        checks.same("x-mine", echo.values("x-mine"), vec!["m"]);
    }
    let questions = auth.take();
    checks.same("questions", questions.len(), 2);
    for question in questions {
        checks.same("protocol", question.protocol, "HTTP");
        checks.same("path", question.path.as_str(), "/check/a/b?c=d");
        checks.that(question.host.starts_with("http.test"), &question.host);
        checks.same("x-token", question.header("x-token"), Some("t"));
        checks.same("x-mine", question.header("x-mine"), None);
        checks.same("x-user", question.header("x-user"), None);
        checks.same("x-role", question.header("x-role"), None);
        checks.same("length", question.header("content-length"), Some("0"));
    }
    let request = as_user(agent.get(80, "all.test", "/"), "auth").body("body");
    if let Some(echo) = echo(&request.method("POST"), checks).await {
        checks.same("x-user", echo.values("x-user"), vec!["alice"]);
        checks.same("x-other", echo.values("x-other"), vec!["other"]);
        checks.same("length", echo.values("content-length"), vec!["4"]);
        checks.that(echo.host.starts_with("all.test"), &echo.host);
    }
    let paths: Vec<String> = auth.take().into_iter().map(|it| it.path).collect();
    checks.same("paths", paths, vec!["/".to_owned()]);
}

async fn over_grpc(agent: &AgentUnderTest, auth: &Authorizing, checks: &mut Checks) {
    let request = agent.get(80, "grpc.test", "/a?b=c").header("x-mine", "m");
    checks.status(request.clone(), 401).await;
    if let Some(echo) = echo(&as_user(request, "auth"), checks).await {
        checks.same("x-user", echo.values("x-user"), vec!["alice"]);
        checks.that(echo.host.starts_with("grpc.test"), &echo.host);
    }
    let questions = auth.take();
    checks.same("questions", questions.len(), 2);
    for question in questions {
        checks.same("protocol", question.protocol, "GRPC");
        checks.same("path", question.path.as_str(), "/a?b=c");
        checks.that(question.host.starts_with("grpc.test"), &question.host);
        checks.same("x-mine", question.header("x-mine"), None);
    }
}

async fn bodies(agent: &AgentUnderTest, auth: &Authorizing, checks: &mut Checks) {
    for host in ["body.test", "grpc-body.test"] {
        let post = |length: usize| {
            let request = as_user(agent.get(80, host, "/"), "auth").method("POST");
            request.body(vec![b'a'; length])
        };
        if let Some(echo) = echo(&post(LARGE), checks).await {
            let length = LARGE.to_string();
            checks.same(
                "bytes that the service received",
                echo.value("x-auth"),
                Some(length.as_str()),
            );
        }
        checks.same("questions", auth.take().len(), 1);
        checks.status(post(LARGE + 1), 413).await;
        checks.same("questions about too much", auth.take().len(), 0);
    }
}

async fn echo(request: &Request, checks: &mut Checks) -> Option<sesame_tests::echo::Echo> {
    let reply = checks.reply(request).await?;
    let echo = serde_json::from_slice(&reply.body).ok();
    checks.that(
        reply.status == 200 && echo.is_some(),
        format_args!("{request}: status {}", reply.status),
    );
    echo
}

fn filtered(mut listener: Value, filters: &[Value]) -> Value {
    listener["filters"] = json!({"requests": filters});
    listener
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_authorize_in_order_before_route_selection() {
    let backends = [Backend::start("plain").await, Backend::start("gold").await];
    let services = [
        Authorizing::start("first").await,
        Authorizing::start("second").await,
        Authorizing::start("third").await,
    ];
    let authority = Authority::new("test authority");
    let leaf = authority.issue(&["over.test"]);
    let settings = json!({"http": {"allowedHeaders": ["x-tier", "x-first", "x-second"]}});
    let filters = [
        asking("HTTP", "first", &settings),
        asking("GRPC", "second", &json!({})),
    ];
    let broken = [filters[0].clone(), asking("HTTP", "missing", &json!({}))];
    let mut objects = edge(&[
        http_listener("open", 80, ""),
        filtered(http_listener("guarded", 80, "*.guarded.test"), &filters),
        filtered(http_listener("broken", 80, "*.broken.test"), &broken),
        filtered(https_listener("over", 443, "over.test", "over"), &filters),
    ]);
    objects.push(leaf.secret("over"));
    for backend in &backends {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    for service in &services {
        objects.extend(served(service.name(), &[service.address()]));
    }
    let mut gold = json!({"matches": [path("PathPrefix", "/gold")], "backendRefs": [backend_ref("gold")],
        "filters": [asking("HTTP", "third", &settings)]});
    gold["matches"][0]["headers"] = json!([{"name": "x-tier", "value": "gold"}]);
    let prefix = |prefix: &str| json!({"matches": [path("PathPrefix", prefix)], "backendRefs": [backend_ref("plain")]});
    objects.extend([
        http_route(
            "guarded",
            &["a.guarded.test", "over.test"],
            &[gold, prefix("/gold"), prefix("/plain")],
        ),
        http_route("everywhere", &[], &[prefix("/everywhere")]),
        http_route("open", &["open.test"], &[prefix("/")]),
    ]);
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    let counts = || services.each_ref().map(|service| service.take().len());
    let mut checks = Checks::default();
    checks.same("checks for a listener without filters", counts(), [0, 0, 0]);
    let trust = authority.trust();
    for (host, port) in [
        ("a.guarded.test", 80),
        ("b.guarded.test", 80),
        ("over.test", 443),
    ] {
        let get = |path: &str| {
            let request = agent.get(port, host, path);
            if port == 443 {
                request.tls(host, &trust)
            } else {
                request
            }
        };
        // Requests without a route also need authorization.
        for path in ["/plain", "/gold", "/everywhere", "/nowhere"] {
            checks.status(get(path), 401).await;
        }
        checks.same(format!("checks for {host}"), counts(), [4, 0, 0]);
        checks
            .status(as_user(get("/everywhere"), "first"), 401)
            .await;
        checks.same(format!("checks for {host}"), counts(), [1, 1, 0]);
        checks
            .status(as_user(get("/nowhere"), "everybody"), 404)
            .await;
        checks.same(format!("checks for {host}"), counts(), [1, 1, 0]);
        if host == "b.guarded.test" {
            continue;
        }
        let plain = as_user(get("/plain"), "everybody");
        if let Some(echo) = echo(&plain, &mut checks).await {
            checks.same("backend", echo.backend.as_str(), "plain");
            checks.that(echo.host.starts_with(host), &echo.host);
            checks.that(echo.value("x-second").is_some(), "x-second");
        }
        let second = services[1].take();
        let seen: Vec<_> = second.iter().map(|it| it.header("x-first")).collect();
        checks.same("x-first at the second service", seen, vec![Some("0")]);
        counts();
        // Headers from a listener filter affect route selection.
        let gold = as_user(get("/gold"), "everybody");
        checks.backend(gold, "gold").await;
        let third = services[2].take();
        let seen: Vec<_> = third.iter().map(|it| it.header("x-second")).collect();
        checks.same("x-second at the route's service", seen, vec![Some("0")]);
        counts();
    }
    for path in ["/everywhere", "/plain", "/"] {
        let request = as_user(agent.get(80, "a.broken.test", path), "everybody");
        checks.status(request, 500).await;
    }
    checks.finish();
}

/// Without the rejection, the wider listener and route would serve these requests.
#[tokio::test(flavor = "multi_thread")]
async fn unprotectable_requests_are_refused_despite_wider_routes() {
    let main = Backend::start("main").await;
    let mut firewalled = http_listener("firewalled", 80, "firewalled.test");
    firewalled["firewall"] = json!({"deny": ["10.0.0.0/8"]});
    let mut objects = edge(&[http_listener("open", 80, ""), firewalled]);
    objects.extend(served("main", &[main.address()]));
    let mut twice = asked("twice.test", &[asking("HTTP", "main", &json!({}))]);
    let filters = &mut twice["spec"]["rules"][0]["filters"];
    *filters = json!([filters[0], filters[0]]);
    let mut withheld = asked("withheld.test", &[]);
    withheld["spec"]["authorizationPolicy"] = json!({"jwt": {}});
    let mut limited = asked("limited.test", &[]);
    limited["spec"]["rules"][0]["rateLimit"] = json!({"requests": 1});
    objects.extend([
        http_route(
            "wide",
            &[],
            &[json!({"backendRefs": [backend_ref("main")]})],
        ),
        asked("soap.test", &[asking("SOAP", "main", &json!({}))]),
        twice,
        withheld,
        limited,
    ]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "free.test", "/")).await;
    let mut checks = Checks::default();
    let before = main.count();
    for host in [
        "soap.test",
        "twice.test",
        "withheld.test",
        "limited.test",
        "firewalled.test",
    ] {
        checks.status(agent.get(80, host, "/"), 500).await;
    }
    checks.same("requests that passed", main.count() - before, 0);
    checks.finish();
}
