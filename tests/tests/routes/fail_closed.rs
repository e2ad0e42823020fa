//! Invalid listeners and routes that might be security-relevant. Requests for them must be
//! rejected, even if a wider listener or route matches.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    backend_ref, edge, edge_with_parameters, gateway, http_listener, http_route, https_listener,
    served, yaml,
};

fn asked(matches: &Value) -> Value {
    let auth = json!({"protocol": "HTTP", "backendRef": backend_ref("main"), "http": {}});
    let filter = json!({"type": "ExternalAuth", "externalAuth": auth});
    json!({"matches": matches, "filters": [filter], "backendRefs": [backend_ref("main")]})
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_listener_keeps_hostname_from_wider_listener() {
    let main = Backend::start("main").await;
    let authority = Authority::new("tests");
    let wide = authority.issue(&["*.test", "wide.test"]);
    let mut nobody = http_listener("nobody", 80, "nobody.test");
    nobody["allowedRoutes"] = json!({"namespaces": {"from": "Nobody"}});
    let mut asks = nobody.clone();
    asks["name"] = json!("asks");
    asks["hostname"] = json!("asks.test");
    asks["filters"] = json!({"requests": [{"type": "Firewall"}]});
    let mut version = https_listener("version", 443, "version.test", "wide");
    version["tls"]["options"] = json!({"projectsesame.io/min-version": "1.9"});
    let mut lower = http_listener("lower", 80, "lower.test");
    lower["protocol"] = json!("http");
    let mut objects = edge(&[
        http_listener("open", 80, ""),
        nobody,
        asks,
        lower,
        http_listener("upper", 80, "UPPER.test"),
        http_listener("one", 80, "twice.test"),
        http_listener("two", 80, "twice.test"),
        https_listener("secure-one", 443, "pair.test", "wide"),
        https_listener("secure-two", 443, "pair.test", "wide"),
        https_listener("wide", 443, "", "wide"),
        https_listener("absent", 443, "absent.test", "absent"),
        version,
    ]);
    objects.extend(served("main", &[main.address()]));
    objects.push(wide.secret("wide"));
    let all = [json!({"backendRefs": [backend_ref("main")]})];
    objects.push(http_route("all", &[], &all));
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
    let get = |sni: &str, host: &str| agent.get(443, host, "/").tls(sni, &authority.trust());
    agent.wait_ok(&agent.get(80, "free.test", "/")).await;
    agent.wait_ok(&get("wide.test", "wide.test")).await;
    let mut checks = Checks::default();
    let before = main.count();
    let refused = [
        "nobody.test",
        "asks.test",
        "lower.test",
        "upper.test",
        "twice.test",
    ];
    for host in refused {
        checks.status(agent.get(80, host, "/"), 500).await;
    }
    for host in ["absent.test", "version.test", "pair.test"] {
        // The handshake must fail before Envoy presents a certificate.
        let reply = get(host, host).send().await;
        checks.that(reply.is_err(), format_args!("{host}: {reply:?}"));
        // Status 421 makes the client open another connection.
        checks.status(get("wide.test", host), 421).await;
        checks.status(get("wide.test", host).http2(), 421).await;
    }
    checks.same("requests that passed", main.count() - before, 0);
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_protected_route_keeps_requests_from_wider_route() {
    let main = Backend::start("main").await;
    let mut objects = edge(&[http_listener("open", 80, "")]);
    objects.extend(served("main", &[main.address()]));
    let all = [json!({"backendRefs": [backend_ref("main")]})];
    let matches = json!([
        {"path": {"type": "Glob", "value": "/any/*"}, "headers": [{"name": "x-team", "value": "a"}]},
        {"path": {"value": "/good"}},
    ]);
    let mut narrow = http_route("parent", &["parent.test"], &[asked(&json!([]))]);
    narrow["spec"]["parentRefs"][0]["addressName"] = json!("inside");
    let many = vec![asked(&json!([])); 17];
    let expensive = ["/a{1000}", "/b{1000}", "/c{1000}", "/d{1000}"];
    let expensive =
        expensive.map(|value| json!({"path": {"type": "RegularExpression", "value": value}}));
    let hostnames: Vec<String> = (0..17).map(|number| format!("h{number}.test")).collect();
    let hostnames: Vec<&str> = hostnames.iter().map(String::as_str).collect();
    objects.extend(expressions());
    objects.extend([
        http_route("names", &hostnames, &[asked(&json!([]))]),
        http_route(
            "mistyped",
            &["Upper.test", "with_score.test"],
            &[asked(&json!([]))],
        ),
        http_route("wide", &[], &all),
        http_route("matches", &["matches.test"], &[asked(&matches)]),
        http_route("hostname", &["hostname.test", "a..b"], &[asked(&json!([]))]),
        http_route("many", &["many.test"], &many),
        http_route("cost", &["cost.test"], &[asked(&json!(expensive))]),
        narrow,
    ]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "free.test", "/")).await;
    let mut checks = Checks::default();
    let before = main.count();
    let team_request = agent.get(80, "matches.test", "/any/thing");
    checks.status(team_request.header("x-team", "a"), 500).await;
    for (host, path) in [
        ("matches.test", "/good"),
        ("hostname.test", "/"),
        ("many.test", "/"),
        ("cost.test", "/aaa"),
        ("parent.test", "/"),
        ("h0.test", "/"),
        ("h16.test", "/"),
        ("upper.test", "/"),
        ("with_score.test", "/"),
        ("shared.test", "/private/ac"),
        ("shared.test", "/private/other"),
    ] {
        checks.status(agent.get(80, host, path), 500).await;
    }
    checks.same("requests that passed", main.count() - before, 0);
    let elsewhere = agent.get(80, "shared.test", "/elsewhere");
    checks.backend(elsewhere, "main").await;
    let other_request = agent.get(80, "matches.test", "/any/thing");
    checks
        .backend(other_request.header("x-team", "b"), "main")
        .await;
    checks.finish();
}

/// The last route requires authorization. The others exhaust the limit for regular expressions.
fn expressions() -> Vec<Value> {
    let costs = |prefix: &str| {
        let value = format!("/{prefix}/[ab]*a?[ab]{{0,300}}c");
        json!({"path": {"type": "RegularExpression", "value": value}})
    };
    let open = |name: &str| {
        let matches = json!([costs(name), costs(&format!("{name}{name}"))]);
        let rule = json!({"matches": matches, "backendRefs": [backend_ref("main")]});
        http_route(name, &["shared.test"], &[rule])
    };
    let private = asked(&json!([costs("private")]));
    vec![
        open("a"),
        open("b"),
        open("c"),
        http_route("private", &["shared.test"], &[private]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_gateway_keeps_hostnames_from_merged_gateways() {
    let main = Backend::start("main").await;
    let class = json!({"fleet": {"gateways": "Merged"}, "publishing": {"type": "None"}});
    let mut objects = edge_with_parameters(&class);
    objects.truncate(2);
    let member = |name: &str, day: u8, hostname: &str| {
        let mut gateway = gateway(name, &[http_listener("http", 80, hostname)]);
        gateway["spec"]["gatewayClassName"] = json!("edge");
        gateway["metadata"]["creationTimestamp"] = json!(format!("2026-01-{day:02}T00:00:00Z"));
        gateway
    };
    let mut unknown = member("unknown", 2, "unknown.test");
    unknown["spec"]["firewall"] = json!({"deny": ["192.0.2.0/24"]});
    let mut settings = member("settings", 1, "settings.test");
    settings["metadata"]["annotations"] = json!({"projectsesame.io/request-timeout": "9s"});
    let mut all = http_route("all", &[], &[json!({"backendRefs": [backend_ref("main")]})]);
    all["spec"]["parentRefs"] =
        json!([{"name": "open"}, {"name": "unknown"}, {"name": "settings"}]);
    objects.extend([member("open", 3, ""), unknown, settings, all]);
    objects.extend(served("main", &[main.address()]));
    let mut agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let mut checks = Checks::default();
    // A configuration that rejects requests must not become the last good configuration.
    for number in 0..3 {
        agent
            .wait_backend(&agent.get(80, "free.test", &format!("/{number}")), "main")
            .await;
        let before = main.count();
        for host in ["unknown.test", "settings.test"] {
            checks.status(agent.get(80, host, "/"), 500).await;
        }
        checks.same("requests that passed", main.count() - before, 0);
        match number {
            0 => agent.write("more.yaml", &yaml(&served("more", &[main.address()]))),
            _ => agent.restart(),
        }
    }
    checks.finish();
}
