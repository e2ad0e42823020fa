//! `spec.edge.forwardClientCertificate`: the header `x-forwarded-client-cert`.

use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    class_with_parameters, gateway, http_listener, http_route, https_listener, rule_to, yaml,
};
use sesame_tests::wait::{eventually, holds};

const HEADER: &str = "x-forwarded-client-cert";
const SENT: &str = "Subject=\"CN=forged\"";

fn configuration(settings: &Value) -> Vec<Value> {
    let edge = json!({"edge": {"forwardClientCertificate": settings}});
    class_with_parameters("edge", "parameters", &edge).into()
}

/// Returns the header that the backend received, without the digest, which differs in each run.
async fn received(request: &Request) -> Result<String, String> {
    let reply = request.clone().header(HEADER, SENT).send().await;
    let echo = reply.map_err(|error| format!("{error:#}"))?.echo();
    let received = echo.values(HEADER).join("|");
    Ok(match received.split_once("Hash=") {
        Some((before, rest)) => {
            let after = rest.find(';').map_or("", |at| &rest[at..]);
            format!("{before}Hash=…{after}")
        }
        None => received,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn header_names_only_verified_clients() {
    let (servers, ours) = (Authority::new("servers"), Authority::new("clients"));
    let validation = |mode: &str| {
        json!({"validation": {"mode": mode,
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ours"}]}})
    };
    let mut edge = gateway(
        "edge",
        &[
            http_listener("plain", 80, ""),
            https_listener("verified", 443, "", "pair"),
            https_listener("fallback", 444, "", "pair"),
            https_listener("open", 445, "", "pair"),
        ],
    );
    edge["spec"]["tls"] = json!({"frontend": {
        "default": validation("AllowValidOnly"),
        "perPort": [
            {"port": 444, "tls": validation("AllowInsecureFallback")},
            {"port": 445, "tls": {}},
        ],
    }});
    let mut objects = vec![
        edge,
        Authority::config_map("ours", &[&ours]),
        servers.issue(&["a.test"]).secret("pair"),
        http_route("web", &[], &[rule_to("a", &[])]),
    ];
    let _backends = start_served(&["a"], &mut objects).await;
    let agent = Setup::with_ports(&[80, 443, 444, 445]).start(&[
        ("all.yaml", &yaml(&objects)),
        ("settings.yaml", &yaml(&configuration(&json!({})))),
    ]);
    let client = ours.issue(&["client.test"]);
    let request = |port| {
        let request = agent.get(port, "a.test", "/");
        request.tls("a.test", &servers.trust())
    };
    agent.wait_ok(&request(443).showing(&client)).await;
    let mut checks = Checks::default();
    for (settings, expected) in [
        (
            json!({"mode": "SanitizeSet", "details": ["DNS"]}),
            "Hash=…;DNS=client.test",
        ),
        (json!({"mode": "ForwardOnly"}), "Subject=\"CN=forged\""),
        (
            json!({"mode": "AppendForward", "details": ["DNS"]}),
            "Subject=\"CN=forged\",Hash=…;DNS=client.test",
        ),
        (json!({"mode": "Sanitize"}), ""),
    ] {
        agent.write("settings.yaml", &yaml(&configuration(&settings)));
        eventually("the setting takes effect", TEST_TIMEOUT, async || {
            let found = received(&request(443).showing(&client)).await?;
            holds(found == expected, || format!("{settings}: {found}"))
        })
        .await;
        for request in [
            agent.get(80, "a.test", "/"),
            request(444),
            request(444).showing(&client),
            request(445),
            request(445).showing(&client),
        ] {
            let found = received(&request).await;
            checks.same(format!("{request}, {settings}"), found, Ok(String::new()));
        }
    }
    checks.finish();
}
