//! Authorities with the same subject and serial number, but different keys.

use serde_json::json;
use sesame_tests::agent::{Setup, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{endpoint_slices, yaml};

use super::{bundles, objects, wait_untrusted};

fn twin() -> Authority {
    Authority::with_serial("twins", 7)
}

#[tokio::test(flavor = "multi_thread")]
async fn twin_authorities_are_trusted_only_if_listed() {
    let servers = Authority::new("servers");
    let clients = [twin(), twin(), twin()];
    let backends = [twin(), twin(), twin()];
    let mut all = objects(&servers);
    let mut running = Vec::new();
    for (name, authority) in ["first", "second", "third"].into_iter().zip(&backends) {
        let leaf = authority.issue_with_key_identifier(&["backend.test"]);
        let backend = Backend::start_tls(name, &leaf).await;
        all.extend(endpoint_slices(name, &[backend.address()]));
        running.push(backend);
    }
    let [first, second, _] = &clients;
    let [first_backend, second_backend, _] = &backends;
    let agent = Setup::with_ports(&[443, 80]).start(&[
        ("all.yaml", &yaml(&all)),
        (
            "bundles.yaml",
            &bundles(&[first, second], &[first_backend, second_backend]),
        ),
    ]);
    let request = |path: &str, client: &Leaf| {
        let request = Request::get(agent.address(443), "a.test", path);
        request.tls("a.test", &servers.trust()).showing(client)
    };
    let [by_first, by_second, by_third] = clients
        .each_ref()
        .map(|authority| authority.issue_with_key_identifier(&["client.test"]));
    let mut checks = Checks::default();
    for path in ["/first", "/second"] {
        agent.wait_ok(&request(path, &by_first)).await;
        agent.wait_ok(&request(path, &by_second)).await;
        let status = request(path, &by_third).send().await.ok();
        checks.same(path, status.map(|reply| reply.status), None);
    }
    wait_untrusted(&agent, &request("/third", &by_first)).await;
    // Without a key identifier, Envoy finds authorities by name and tries only the first key.
    for (authority, status) in [(first, Some(200)), (second, None)] {
        let client = authority.issue(&["client.test"]);
        let reply = request("/first", &client).send().await.ok();
        let found = reply.map(|reply| reply.status);
        checks.same("without an identifier", found, status);
    }
    let both =
        "2 CA certificates with different keys have the subject CN=twins (serial numbers 7, 7)";
    let status = agent.status().expect("a status");
    let listener = listener_condition(&status, "https", "ResolvedRefs");
    let message = listener["message"].as_str().unwrap_or_default();
    checks.that(message.contains(both), format!("{listener}"));
    checks.same(message, &listener["status"], &json!("True"));
    let problems = status["source"]["problems"]
        .as_array()
        .into_iter()
        .flatten();
    let backend_problems = problems.filter(|problem| {
        let text = problem.to_string();
        text.contains("BackendTLSPolicy") && text.contains(both)
    });
    checks.same(format!("{status:#}"), backend_problems.count(), 3);
    let certs = agent.order(&["certs"]).await;
    let certs = String::from_utf8_lossy(&certs.stdout).into_owned();
    for bundle in ["ConfigMap/default/clients", "ConfigMap/default/backends"] {
        let rows = certs.lines().filter(|row| {
            row.contains(bundle) && row.contains("CN=twins") && row.contains("(authority)")
        });
        checks.same(format!("{bundle}: {certs}"), rows.count(), 2);
    }
    checks.finish();
}
