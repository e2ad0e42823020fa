//! The agent verifies new certificates with handshakes, and reports failures until one succeeds.

use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::manifests::{class_with_parameters, edge, gateway, https_listener, yaml};
use sesame_tests::shared_port::open_rival_sockets;
use sesame_tests::wait::{eventually, holds};

use super::site::{Site, admin};

const SHOWN: &str = "projectsesame.io/CertificatesShown";

#[tokio::test(flavor = "multi_thread")]
async fn unshown_certificate_is_reported_until_it_is_served() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let setup = Setup::with_ports(&[443]);
    let agent = site.start(setup, backend.address(), |it| it).await;
    let old = site.issue(0);
    let beside = open_rival_sockets(agent.address(443), &old);
    let unshown_reason = |status: &Value| {
        let unshown = &status["gateways"][0]["unshown"];
        unshown["Gateway/default/edge/listeners/l0"].clone()
    };
    let named = |status: &Value| {
        let why = unshown_reason(status).to_string();
        why.contains("returned the certificate with serial number")
            && why.contains(", expected the certificate of Secret/default/pair-0")
            && listener_condition(status, "l0", SHOWN)["status"] == "False"
    };
    // All handshakes may reach Envoy instead of the other process, so retry with a new certificate.
    let status = eventually("the listener is reported", TEST_TIMEOUT, async || {
        Site::write(&agent, 0, &site.issue(0));
        let waited = agent.wait_status("the listener is reported", named);
        let waited = tokio::time::timeout(Duration::from_secs(10), waited).await;
        waited.map_err(|_| "every handshake reached Envoy".to_owned())
    })
    .await;
    assert_eq!(status["healthy"], false);
    let programmed = listener_condition(&status, "l0", "Programmed");
    assert_eq!(
        programmed["status"], "True",
        "the listener must still be served"
    );
    let reasons = status["reasons"].to_string();
    assert!(
        reasons.contains("does not present its newest certificate"),
        "{reasons}"
    );
    drop(beside);
    let status = agent.wait_healthy().await;
    assert_eq!(unshown_reason(&status), Value::Null);
    assert_eq!(listener_condition(&status, "l0", SHOWN), &Value::Null);
}

/// Returns listeners that each use the Secret of the same name.
fn every_kind() -> Vec<Value> {
    let with = |name: &str, options: &Value| {
        let hostname = format!("{name}.test");
        let mut listener = https_listener(name, 443, &hostname, name);
        listener["tls"]["options"] = options.clone();
        listener
    };
    vec![
        with("plain", &json!({})),
        with("old", &json!({"projectsesame.io/max-version": "1.2"})),
        with("new", &json!({"projectsesame.io/min-version": "1.3"})),
        with("one", &json!({"projectsesame.io/alpn": "h2"})),
        https_listener("wild", 443, "*.wild.test", "wild"),
        https_listener("rest", 443, "", "rest"),
        // Port 444 requires client certificates.
        https_listener("closed", 444, "closed.test", "closed"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn proof_covers_every_listener_kind() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let listeners = every_kind();
    let names: Vec<String> = listeners
        .iter()
        .map(|listener| listener["name"].as_str().expect("a name").to_owned())
        .collect();
    let mut objects = edge(&listeners);
    objects[1]["spec"]["tls"] = json!({"frontend": {
        "default": {},
        "perPort": [{"port": 444, "tls": {"validation": {
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "clients"}],
        }}}],
    }});
    objects.push(Authority::config_map("clients", &[&clients]));
    let mut agent = Setup::with_ports(&[443, 444]).prepare();
    agent.write("site.yaml", &yaml(&objects));
    let secrets = || {
        let hostname = |name: &String| match name.as_str() {
            "wild" => "*.wild.test".to_owned(),
            name => format!("{name}.test"),
        };
        let all: Vec<Value> = names
            .iter()
            .map(|name| servers.issue(&[&hostname(name)]).secret(name))
            .collect();
        yaml(&all)
    };
    agent.write("secrets.yaml", &secrets());
    agent.restart();
    agent.wait_healthy().await;
    let admin = admin(&agent).await;
    let asked = async || {
        let filter = r"^listener\..*\.ssl\.(handshake|fail_verify_no_cert|connection_error)$";
        let counters = admin.counters(filter).await.map_err(|e| e.to_string())?;
        let of = |end: &str| -> u64 {
            let own = counters.iter().filter(|(name, _)| name.ends_with(end));
            own.map(|(_, value)| value).sum()
        };
        Ok::<_, String>((of("ssl.handshake"), of("no_cert"), of("connection_error")))
    };
    assert_eq!(asked().await, Ok((0, 0, 0)), "no handshake yet");
    for round in 1..=3 {
        agent.write("secrets.yaml", &secrets());
        // The handshake on port 444 fails, but only after Envoy has sent its certificate.
        let expected = (round * (names.len() as u64 - 1), round, 0);
        eventually("every listener is verified", TEST_TIMEOUT, async || {
            let found = asked().await?;
            holds(found == expected, || format!("{found:?}"))
        })
        .await;
        let status = agent.wait_healthy().await;
        assert_eq!(status["gateways"][0]["unshown"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proof_sends_proxy_protocol_header() {
    let servers = Authority::new("servers");
    let settings = json!({"edge": {"proxyProtocol": {"mode": "Required"}}});
    let [parameters, class] = class_with_parameters("edge", "parameters", &settings);
    let listener = https_listener("a", 443, "a.test", "a");
    let objects = [parameters, class, gateway("edge", &[listener])];
    let mut agent = Setup::with_ports(&[443]).prepare();
    agent.write("site.yaml", &yaml(&objects));
    let secret = || yaml(&[servers.issue(&["a.test"]).secret("a")]);
    agent.write("secret.yaml", &secret());
    agent.restart();
    agent.wait_healthy().await;
    let admin = admin(&agent).await;
    for round in 1..=3 {
        agent.write("secret.yaml", &secret());
        eventually("the listener is verified", TEST_TIMEOUT, async || {
            let filter = r"^listener\..*\.ssl\.handshake$";
            let counters = admin.counters(filter).await.map_err(|e| e.to_string())?;
            let found: u64 = counters.values().sum();
            holds(found == round, || format!("{found}, expected {round}"))
        })
        .await;
        let status = agent.wait_healthy().await;
        assert_eq!(status["gateways"][0]["unshown"], Value::Null);
    }
}
