//! Clients that HTTPS listeners let in (`Gateway.spec.tls.frontend`). Asked of a real agent with a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    edge, http_route, https_listener, listener_set, on_listener_set, rule_to, served, yaml,
};

fn validation(config_map: &str, mode: &str) -> Value {
    json!({"validation": {
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": config_map}],
        "mode": mode,
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_validated_as_their_port_says() {
    let backend = Backend::start("a").await;
    let (servers, ours, theirs) = (
        Authority::new("servers"),
        Authority::new("clients"),
        Authority::new("strangers"),
    );
    let mut objects = edge(&[
        https_listener("default", 443, "", "pair"),
        https_listener("fallback", 444, "", "pair"),
        https_listener("open", 445, "", "pair"),
        https_listener("broken", 446, "", "pair"),
    ]);
    objects[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    objects[1]["spec"]["tls"] = json!({"frontend": {
        "default": validation("ours", "AllowValidOnly"),
        "perPort": [
            {"port": 444, "tls": validation("ours", "AllowInsecureFallback")},
            {"port": 445, "tls": {}},
            {"port": 446, "tls": validation("absent", "AllowValidOnly")},
        ],
    }});
    // What a ListenerSet adds is validated like the Gateway's own.
    objects.push(listener_set(
        "set",
        &[https_listener("set", 447, "", "pair")],
    ));
    objects.push(Authority::config_map("ours", &[&ours]));
    objects.push(servers.issue(&["a.test"]).secret("pair"));
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("gateway", &[], &[rule_to("a", &[])]));
    objects.push(on_listener_set(
        http_route("set", &[], &[rule_to("a", &[])]),
        "set",
    ));
    let agent =
        Setup::with_ports(&[443, 444, 445, 446, 447]).start(&[("all.yaml", &yaml(&objects))]);
    let request = |port| {
        agent
            .get(port, "a.test", "/")
            .tls("a.test", &servers.trust())
    };
    agent.wait_ok(&request(445)).await;

    let (known, stranger) = (ours.issue(&["client.test"]), theirs.issue(&["client.test"]));
    let mut checks = Checks::default();
    for (port, without, with_known, with_stranger) in [
        (443, false, true, false),
        (444, true, true, true),
        (445, true, true, true),
        // Nobody can be validated: closed, not open.
        (446, false, false, false),
        (447, false, true, false),
    ] {
        for (request, let_in) in [
            (request(port), without),
            (request(port).showing(&known), with_known),
            (request(port).showing(&stranger), with_stranger),
        ] {
            let status = request.send().await.ok().map(|reply| reply.status);
            let expected = let_in.then_some(200);
            checks.same(format!("{request} on {port}"), status, expected);
        }
    }
    checks.finish();
}
