//! OpenID providers whose endpoints an agent discovers: changes, outages and invalid documents.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::client::{Reply, Request};
use sesame_tests::issuing::Issuing;
use sesame_tests::logging_in::location;
use sesame_tests::manifests::{
    NAMESPACE, access_policy, backend_tls_policy, edge, http_listener, plain_route, served_at,
    verified_by, yaml,
};

use crate::access_tokens::route_target;

fn document(issuer: &str, authorization: &str) -> String {
    json!({"issuer": issuer, "authorization_endpoint": authorization,
        "token_endpoint": "https://id.test/token", "jwks_uri": "https://id.test/keys"})
    .to_string()
}

fn policy(name: &str, issuer: &str) -> Value {
    let provider = json!({"issuer": issuer, "caCertificateRef": {"name": "ca"},
        "backendRef": {"name": "id", "port": 80}});
    let login = json!({"oidc": {"provider": provider, "clientID": "shop",
        "clientSecret": {"name": "client"}, "hostnames": [format!("{name}.test")]}});
    access_policy(name, route_target(name), &login)
}

fn objects(authority: &Authority, hosts: &[(&str, String)]) -> Vec<Value> {
    let mut all = served_at("id", "192.0.2.1:443");
    all.extend([
        backend_tls_policy("id", &verified_by("ca", "id.test")),
        Authority::config_map("ca", &[authority]),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "client", "namespace": NAMESPACE},
            "stringData": {"client-secret": "hush-hush-hush-hush"}}),
        plain_route("open", "open.test", "a"),
    ]);
    for (name, issuer) in hosts {
        all.push(plain_route(name, &format!("{name}.test"), "a"));
        all.push(policy(name, issuer));
    }
    all
}

fn page(agent: &AgentUnderTest, name: &str) -> Request {
    let request = agent.get(80, &format!("{name}.test"), "/");
    request.header("accept", "text/html")
}

fn leads_to(url: &'static str) -> impl Fn(&Reply) -> bool {
    move |reply| reply.status == 302 && location(reply).starts_with(url)
}

fn errors(status: &Value) -> Vec<&str> {
    let sets = status["source"]["keySets"].as_array();
    let sets = sets.into_iter().flatten();
    sets.filter_map(|it| it["error"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn discovered_endpoints_change_and_survive_outages() {
    let authority = Authority::new("issuer");
    let server = Issuing::start(&authority, "").await;
    let issuer = server.uri();
    server.publish(200, &document(&issuer, "https://id.test/auth"));
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects(&authority, &[("shop", issuer.clone())]));
    let mut agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let first = leads_to("https://id.test/auth?");
    agent.wait_served(&page(&agent, "shop"), &first).await;

    server.stop();
    agent.end();
    agent.restart();
    agent.wait_served(&page(&agent, "shop"), &first).await;
    let is_reported = |status: &Value| !errors(status).is_empty();
    agent
        .wait_status("the error is reported", is_reported)
        .await;
    let reply = page(&agent, "shop").send().await.expect("a reply");
    assert!(first(&reply), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_documents_reject_only_their_requests() {
    let [authority, other] = ["issuer", "other"].map(Authority::new);
    let auth = "https://id.test/auth";
    let cases = [
        ("untrusted", 200, "invalid peer certificate"),
        ("missing", 404, "status 404"),
        ("redirect", 302, "redirects are not followed"),
        ("foreign", 200, "names another issuer"),
        ("plain", 200, "invalid authorization_endpoint"),
        ("large", 200, "more than 65536 bytes"),
    ];
    let (mut hosts, mut running) = (Vec::new(), Vec::new());
    for (name, status, _) in cases {
        let signer = if name == "untrusted" {
            &other
        } else {
            &authority
        };
        let server = Issuing::start(signer, "").await;
        let issuer = server.uri();
        let body = match name {
            "foreign" => document("https://evil.test", auth),
            "plain" => document(&issuer, "http://id.test/auth"),
            "large" => document(&issuer, auth) + &" ".repeat(70_000),
            _ => document(&issuer, auth),
        };
        server.publish(status, &body);
        hosts.push((name, issuer));
        running.push(server);
    }
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(objects(&authority, &hosts));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "open.test", "/")).await;
    for (name, _, why) in cases {
        let is_reported = |status: &Value| errors(status).iter().any(|it| it.contains(why));
        agent.wait_status(why, is_reported).await;
        let reply = page(&agent, name).send().await.expect("a reply");
        assert_eq!(reply.status, 500, "{name}");
    }
    // A corrected document is fetched again.
    let (index, fixed) = (1, leads_to("https://id.test/auth?"));
    running[index].publish(200, &document(&hosts[index].1, auth));
    agent
        .wait_served(&page(&agent, hosts[index].0), fixed)
        .await;
}
