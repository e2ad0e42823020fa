//! Trust bundles that change while in use: rotation and revocation.

mod cut_off;
mod namesakes;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::{Connection, Request};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_tls_policy, edge, endpoint_slices, http_listener, http_route, https_listener, rule_to,
    service, verified_by, yaml,
};
use sesame_tests::wait::eventually;

const OVERLAP: &str = "--bundle-overlap-seconds=3600";
const SHORT: &str = "--bundle-overlap-seconds=1";

fn objects(servers: &Authority) -> Vec<Value> {
    // A second listener is required, because the agent never removes Envoy's last one.
    let mut objects = edge(&[
        https_listener("https", 443, "", "pair"),
        http_listener("http", 80, ""),
    ]);
    let clients = json!([{"group": "", "kind": "ConfigMap", "name": "clients"}]);
    let validation = json!({"caCertificateRefs": clients});
    objects[1]["spec"]["tls"] = json!({"frontend": {"default": {"validation": validation}}});
    objects.push(servers.issue(&["a.test"]).secret("pair"));
    for name in ["first", "second", "third"] {
        objects.extend([
            service(name, ""),
            backend_tls_policy(name, &verified_by("backends", "backend.test")),
            http_route(
                name,
                &[],
                &[rule_to(
                    name,
                    &[json!({"path": {"type": "PathPrefix", "value": format!("/{name}")}})],
                )],
            ),
        ]);
    }
    objects
}

/// Returns one bundle for clients and one for backends.
fn bundles(clients: &[&Authority], backends: &[&Authority]) -> String {
    yaml(&[
        Authority::config_map("clients", clients),
        Authority::config_map("backends", backends),
    ])
}

async fn wait_refused(agent: &AgentUnderTest, request: &Request) {
    eventually(
        "the client is refused",
        TEST_TIMEOUT,
        async || match request.send().await {
            Ok(reply) => Err(format!("status {}\n{}", reply.status, agent.log_tail())),
            Err(_) => Ok(()),
        },
    )
    .await;
}

fn applied(status: &Value) -> String {
    let applied = status["gateways"][0]["applied"].as_str();
    applied.unwrap_or_default().to_owned()
}

/// Works only if Envoy has no open connections to the backend, because those stay trusted.
async fn wait_untrusted(agent: &AgentUnderTest, request: &Request) {
    agent
        .wait_served(request, |reply| reply.status == 503)
        .await;
}

/// Returns the certificates that stay trusted during an overlap, as `bundle subject until`.
fn retained(status: &Value) -> Vec<String> {
    let all = status["gateways"][0]["retained"].as_array();
    let all = all.into_iter().flatten();
    let one = |it: &Value| format!("{} {} {}", it["bundle"], it["subject"], it["until"]);
    all.map(one).collect()
}

async fn wait_retained(agent: &AgentUnderTest, count: usize) -> Vec<String> {
    let what = format!("{count} replaced certificates are still trusted");
    let status = agent
        .wait_status(&what, |status| {
            let applied = status["gateways"][0]["applied"] == status["gateways"][0]["wanted"];
            applied && retained(status).len() == count
        })
        .await;
    retained(&status)
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_authority_overlap_ends_on_time_after_kill() {
    let servers = Authority::new("servers");
    let (old, new) = (Authority::new("clients"), Authority::new("clients 2"));
    let (old_backends, new_backends) = (Authority::new("backends"), Authority::new("backends 2"));
    let first = Backend::start_tls("first", &old_backends.issue(&["backend.test"])).await;
    let second = Backend::start_tls("second", &new_backends.issue(&["backend.test"])).await;
    let mut all = objects(&servers);
    all.extend(endpoint_slices("first", &[first.address()]));
    all.extend(endpoint_slices("second", &[second.address()]));
    // The first request to `third` comes after the overlap, so Envoy has no open connections.
    all.extend(endpoint_slices("third", &[first.address()]));
    let mut agent = Setup::with_ports(&[443, 80]).flag(OVERLAP).start(&[
        ("all.yaml", &yaml(&all)),
        ("bundles.yaml", &bundles(&[&old], &[&old_backends])),
    ]);
    let (old_client, new_client) = (old.issue(&["client.test"]), new.issue(&["client.test"]));
    let address = agent.address(443);
    let request = |path: &str| {
        let request = Request::get(address, "a.test", path);
        request.tls("a.test", &servers.trust())
    };
    let by_old = request("/first").showing(&old_client);
    let by_new = request("/second").showing(&new_client);
    agent.wait_ok(&by_old).await;
    wait_refused(&agent, &by_new).await;
    wait_untrusted(&agent, &request("/second").showing(&old_client)).await;

    let old_load = Load::start(&Plan::new(vec![by_old.clone()]));
    old_load.pass(50).await;
    agent.write("bundles.yaml", &bundles(&[&new], &[&new_backends]));
    agent.wait_ok(&by_new).await;
    let new_load = Load::start(&Plan::new(vec![by_new.clone()]));
    let before = wait_retained(&agent, 2).await;
    assert!(
        before[0].contains("ConfigMap/default/backends"),
        "{before:?}"
    );
    assert!(before[1].contains("CN=clients"), "{before:?}");
    let certs = agent.command(&[
        "certs",
        "--runtime-dir",
        &agent.runtime().display().to_string(),
    ]);
    let certs = String::from_utf8_lossy(&certs.stdout).into_owned();
    assert_eq!(certs.matches("(authority until ").count(), 2, "{certs}");
    old_load.pass(50).await;
    agent.wait_stored().await;
    agent.restart();
    // The restart must not change when the overlaps end.
    assert_eq!(wait_retained(&agent, 2).await, before);
    old_load.pass(50).await;
    old_load
        .stop()
        .await
        .clean("the old authority during its rotation");

    // Overlaps start when the bundle changes, so the shorter ones have already ended.
    agent.wait_stored().await;
    agent.change_flag(OVERLAP, SHORT);
    agent.restart();
    wait_refused(&agent, &by_old).await;
    wait_retained(&agent, 0).await;
    wait_untrusted(&agent, &request("/third").showing(&new_client)).await;
    new_load.pass(50).await;
    new_load.stop().await.clean("the new authority");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_authority_is_cut_off_at_once() {
    let servers = Authority::new("servers");
    let (one, other, third) = (
        Authority::new("one"),
        Authority::new("other"),
        Authority::new("third"),
    );
    let backend = Backend::start_tls("first", &servers.issue(&["backend.test"])).await;
    let mut all = objects(&servers);
    all.extend(endpoint_slices("first", &[backend.address()]));
    let mut agent = Setup::with_ports(&[443, 80]).flag(OVERLAP).start(&[
        ("all.yaml", &yaml(&all)),
        ("bundles.yaml", &bundles(&[&one, &other], &[&servers])),
    ]);
    let address = agent.address(443);
    let request = |client: &Authority| {
        let request = Request::get(address, "a.test", "/first");
        let request = request.tls("a.test", &servers.trust());
        request.showing(&client.issue(&["client.test"]))
    };
    let (by_one, by_other, by_third) = (request(&one), request(&other), request(&third));
    agent.wait_ok(&by_one).await;
    agent.wait_ok(&by_other).await;
    agent.write("bundles.yaml", &bundles(&[&one], &[&servers]));
    wait_refused(&agent, &by_other).await;
    agent.wait_ok(&by_one).await;
    wait_retained(&agent, 0).await;

    // Restarting with `--bundle-overlap-seconds=0` must end the overlap.
    agent.write("bundles.yaml", &bundles(&[&third], &[&servers]));
    agent.wait_ok(&by_third).await;
    agent.wait_ok(&by_one).await;
    wait_retained(&agent, 1).await;
    agent.wait_stored().await;
    agent.change_flag(OVERLAP, "--bundle-overlap-seconds=0");
    agent.restart();
    wait_refused(&agent, &by_one).await;
    agent.wait_ok(&by_third).await;
    agent.write("bundles.yaml", &bundles(&[&other], &[&servers]));
    agent.wait_ok(&by_other).await;
    wait_refused(&agent, &by_third).await;
    wait_retained(&agent, 0).await;
}

fn with_lists(name: &str, authorities: &[&Authority], lists: &str) -> Value {
    let mut map = Authority::config_map(name, authorities);
    map["data"]["ca.crl"] = json!(lists);
    map
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_client_is_refused_at_next_handshake() {
    let servers = Authority::new("servers");
    let (ours, others) = (Authority::new("clients"), Authority::new("others"));
    let leaf = servers.issue(&["backend.test"]);
    let backend = Backend::start_tls("first", &leaf).await;
    let mut all = objects(&servers);
    for name in ["first", "second"] {
        all.extend(endpoint_slices(name, &[backend.address()]));
    }
    let agent = Setup::with_ports(&[443, 80]).start(&[
        ("all.yaml", &yaml(&all)),
        ("bundles.yaml", &bundles(&[&ours, &others], &[&servers])),
    ]);
    let (good, bad) = (ours.issue(&["good.test"]), ours.issue(&["bad.test"]));
    let other = others.issue(&["other.test"]);
    let request = |client: &Leaf| {
        let request = agent.get(443, "a.test", "/first");
        let request = request.tls("a.test", &servers.trust());
        request.showing(client)
    };
    let (by_good, by_bad, by_other) = (request(&good), request(&bad), request(&other));
    for request in [&by_good, &by_bad, &by_other] {
        agent.wait_ok(request).await;
    }
    let mut established = Connection::open(&by_bad).await.expect("a connection");
    let clients = |lists: &str| {
        agent.write(
            "bundles.yaml",
            &yaml(&[
                with_lists("clients", &[&ours, &others], lists),
                Authority::config_map("backends", &[&servers]),
            ]),
        );
    };
    let (our_list, other_list) = (
        ours.revocation_list(&[&bad], true),
        others.revocation_list(&[], true),
    );

    clients(&format!("{our_list}{other_list}"));
    wait_refused(&agent, &by_bad).await;
    agent.wait_ok(&by_good).await;
    agent.wait_ok(&by_other).await;
    let reply = established.send(&by_bad).await.expect("an answer");
    assert_eq!(reply.status, 200);

    // If one authority has a revocation list, Envoy requires a list for every authority.
    clients(&our_list);
    wait_refused(&agent, &by_other).await;
    agent.wait_ok(&by_good).await;
    let status = agent.status().expect("a status");
    let condition = listener_condition(&status, "https", "ResolvedRefs");
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("ca.crl has no list from CN=others"),
        "{condition}"
    );

    // An expired list makes its authority's certificates invalid.
    clients(&format!(
        "{}{other_list}",
        ours.revocation_list(&[&bad], false)
    ));
    wait_refused(&agent, &by_good).await;
    agent.wait_ok(&by_other).await;
    let expired = |reason: &Value| {
        let reason = reason.as_str().unwrap_or_default();
        reason.contains("the revocation list of CN=clients in ConfigMap/default/clients expired")
    };
    agent
        .wait_status("the expired list is reported", |status| {
            let reasons = status["reasons"].as_array();
            reasons.into_iter().flatten().any(expired)
        })
        .await;

    // A malformed list blocks all clients.
    clients("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
    wait_refused(&agent, &by_other).await;
    agent
        .wait_status("the malformed list is reported", |status| {
            let condition = listener_condition(status, "https", "ResolvedRefs");
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == "InvalidCACertificateRef"
                && message.contains("ConfigMap default/clients ca.crl list 0 is malformed")
        })
        .await;

    agent.write("bundles.yaml", &bundles(&[&ours], &[&servers]));
    agent.wait_ok(&by_bad).await;
    let backends = with_lists(
        "backends",
        &[&servers],
        &servers.revocation_list(&[&leaf], true),
    );
    let before = applied(&agent.wait_healthy().await);
    agent.write(
        "bundles.yaml",
        &yaml(&[Authority::config_map("clients", &[&ours]), backends]),
    );
    agent
        .wait_status("the list is applied", |status| {
            let now = applied(status);
            now != before && status["gateways"][0]["wanted"] == now.as_str()
        })
        .await;
    // Use another Service, because open connections survive the new list.
    let other_backend = agent.get(443, "a.test", "/second");
    let other_backend = other_backend.tls("a.test", &servers.trust());
    wait_untrusted(&agent, &other_backend.showing(&good)).await;
}
