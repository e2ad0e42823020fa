//! Listeners and routes that may protect something and cannot be served, on a real Envoy beside wider ones that are: their
//! requests are refused, and the wider ones never have them.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, https_listener, served, yaml,
};

/// A rule with these matches about which somebody is asked.
fn asked(matches: &Value) -> Value {
    let auth = json!({"protocol": "HTTP", "backendRef": backend_ref("main"), "http": {}});
    let filter = json!({"type": "ExternalAuth", "externalAuth": auth});
    json!({"matches": matches, "filters": [filter], "backendRefs": [backend_ref("main")]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_cannot_be_served_gives_its_hostname_to_no_wider_one() {
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
    let mut objects = edge(&[
        http_listener("open", 80, ""),
        nobody,
        asks,
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
    for host in ["nobody.test", "asks.test"] {
        checks.status(agent.get(80, host, "/"), 500).await;
    }
    for host in ["absent.test", "version.test"] {
        // No certificate is shown at all.
        let reply = get(host, host).send().await;
        checks.that(reply.is_err(), format_args!("{host}: {reply:?}"));
        // A client that has a connection already is sent to another one.
        checks.status(get("wide.test", host), 421).await;
        checks.status(get("wide.test", host).http2(), 421).await;
    }
    checks.same("requests that passed", main.count() - before, 0);
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_asks_and_is_not_valid_gives_its_requests_to_no_wider_one() {
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
    objects.extend([
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
    let of_team = agent.get(80, "matches.test", "/any/thing");
    checks.status(of_team.header("x-team", "a"), 500).await;
    for (host, path) in [
        ("matches.test", "/good"),
        ("hostname.test", "/"),
        ("many.test", "/"),
        ("cost.test", "/aaa"),
        ("parent.test", "/"),
    ] {
        checks.status(agent.get(80, host, path), 500).await;
    }
    checks.same("requests that passed", main.count() - before, 0);
    // What it cannot match is still another's.
    let of_others = agent.get(80, "matches.test", "/any/thing");
    checks
        .backend(of_others.header("x-team", "b"), "main")
        .await;
    checks.finish();
}
