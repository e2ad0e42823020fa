//! Listener TLS settings, verified with handshakes.

use std::process::Command;

use rustls::{CipherSuite, ProtocolVersion, SignatureScheme};
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, arguments, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::handshakes::{Agreed, Handshake};
use sesame_tests::manifests::{
    edge, http_route, https_listener, rule_to, served, tls_listener, yaml,
};
use sesame_tests::wait::{eventually, holds};

fn with_options(mut listener: Value, options: &[(&str, &str)]) -> Value {
    for (name, value) in options {
        listener["tls"]["options"][format!("projectsesame.io/{name}")] = json!(value);
    }
    listener
}

fn accepted(status: &Value, listener: &str) -> (String, String) {
    let accepted = listener_condition(status, listener, "Accepted");
    let text = |field: &str| accepted[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_versions_suites_and_protocols_follow_listener() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let strict = |options: &[(&str, &str)]| {
        with_options(
            https_listener("strict", 443, "strict.test", "pair"),
            options,
        )
    };
    let objects = |strict: Value| {
        let mut objects = edge(&[
            strict,
            with_options(
                https_listener("old", 443, "old.test", "pair"),
                &[
                    ("max-version", "1.2"),
                    ("cipher-suites", "ECDHE-ECDSA-CHACHA20-POLY1305"),
                    ("alpn", "http/1.1"),
                ],
            ),
            https_listener("plain", 443, "plain.test", "pair"),
            with_options(
                tls_listener("mqtt", 443, "mqtt.test", Some("pair")),
                &[("alpn", "mqtt")],
            ),
        ]);
        objects.extend(served("a", &[backend.address()]));
        objects.push(http_route("a", &[], &[rule_to("a", &[])]));
        objects.push(json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "TLSRoute",
            "metadata": {"name": "mqtt", "namespace": "default"},
            "spec": {
                "parentRefs": [{"name": "edge", "sectionName": "mqtt"}],
                "hostnames": ["mqtt.test"],
                "rules": [{"backendRefs": [{"name": "a", "port": 80}]}],
            },
        }));
        yaml(&objects)
    };
    let names = ["strict.test", "old.test", "plain.test", "mqtt.test"];
    let secret = yaml(&[authority.issue(&names).secret("pair")]);
    let agent = Setup::with_ports(&[443]).start(&[
        ("all.yaml", &objects(strict(&[("min-version", "1.3")]))),
        ("secret.yaml", &secret),
    ]);
    agent.wait_healthy().await;
    let client = |sni: &str| {
        Handshake::with(agent.address(443), sni, &authority.trust()).alpn(&["h2", "http/1.1"])
    };
    let what = |agreed: Agreed| (agreed.version, agreed.alpn);
    let (tls12, tls13) = (ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3);
    let alpn = |name: &str| Some(name.to_owned());
    let mut checks = Checks::default();
    for (client, expected) in [
        (client("strict.test"), Some((tls13, alpn("h2")))),
        (client("strict.test").tls12(), None),
        (client("old.test"), Some((tls12, alpn("http/1.1")))),
        (
            client("old.test").suites(&[CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]),
            None,
        ),
        (client("plain.test"), Some((tls13, alpn("h2")))),
        (client("plain.test").tls12(), Some((tls12, alpn("h2")))),
        (
            client("plain.test").alpn(&["http/1.1"]),
            Some((tls13, alpn("http/1.1"))),
        ),
        (
            client("mqtt.test").alpn(&["x", "mqtt"]),
            Some((tls13, alpn("mqtt"))),
        ),
        (client("mqtt.test"), Some((tls13, None))),
    ] {
        let result = client.shake().await;
        let label = format!("{client:?}: {result:?}");
        checks.same(&label, result.ok().map(what), expected);
    }
    let suite = client("old.test").shake().await.expect("a handshake").suite;
    checks.same(
        "the suite",
        suite,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    );
    checks.finish();

    // An invalid option must close only its listener.
    agent.write("all.yaml", &objects(strict(&[("min-version", "TLSv1.3")])));
    agent
        .wait_status("the listener reports the reason", |status| {
            let (status, message) = accepted(status, "strict");
            status == "False" && message.contains("\"TLSv1.3\" is not 1.2 or 1.3")
        })
        .await;
    eventually("every client is rejected", TEST_TIMEOUT, async || {
        let result = client("strict.test").shake().await;
        holds(result.is_err(), || format!("{result:?}"))
    })
    .await;
    let result = client("plain.test").shake().await;
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gets_certificate_of_supported_key_type() {
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA", "-pkeyopt"])
        .arg("rsa_keygen_bits:2048")
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let key = String::from_utf8(made.stdout).expect("PEM");
    let authority = Authority::new("servers");
    let rsa = authority.issue_for_key(&["both.test"], &key);
    let ecdsa = authority.issue(&["both.test"]);
    let mut listener = https_listener("both", 443, "both.test", "rsa");
    listener["tls"]["certificateRefs"] = json!([{"name": "rsa"}, {"name": "ecdsa"}]);
    let mut objects = edge(&[listener]);
    objects.extend([rsa.secret("rsa"), ecdsa.secret("ecdsa")]);
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_healthy().await;
    let client = || Handshake::with(agent.address(443), "both.test", &authority.trust());
    let mut checks = Checks::default();
    for (what, client, expected) in [
        (
            "TLS 1.2, RSA",
            client()
                .tls12()
                .suites(&[CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256])
                // If the client sends `supported_versions`, Envoy selects the certificate by
                // signature scheme alone.
                .signatures(&[SignatureScheme::RSA_PSS_SHA256]),
            &rsa,
        ),
        (
            "TLS 1.2, ECDSA",
            client()
                .tls12()
                .suites(&[CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]),
            &ecdsa,
        ),
        (
            "TLS 1.3, RSA",
            client().signatures(&[SignatureScheme::RSA_PSS_SHA256]),
            &rsa,
        ),
        (
            "TLS 1.3, ECDSA",
            client().signatures(&[SignatureScheme::ECDSA_NISTP256_SHA256]),
            &ecdsa,
        ),
        ("everything", client(), &ecdsa),
    ] {
        let result = client.shake().await;
        let label = format!("{what}: {:?}", result.as_ref().map(|agreed| agreed.suite));
        checks.same(
            &label,
            result.ok().map(|it| it.certificate),
            Some(expected.der.clone()),
        );
    }
    list_is_whole(&agent, &mut checks).await;
    checks.finish();
}

/// Lists certificates from the running agent, then from the state directory.
async fn list_is_whole(agent: &AgentUnderTest, checks: &mut Checks) {
    let runtime = format!("--runtime-dir {}", agent.runtime().display());
    let list = |arguments_of: &str| {
        let output = agent.command(&arguments(&format!("certs {arguments_of}")));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (_, text) = list(&format!("{runtime} -o json"));
    let found: Value = serde_json::from_str(&text).expect("JSON");
    checks.that(!text.contains("PRIVATE"), &text);
    for (number, (secret, key)) in [("ecdsa", "ECDSA P-256"), ("rsa", "RSA 2048")]
        .into_iter()
        .enumerate()
    {
        let one = &found[number];
        let actual = json!([
            one["object"],
            one["key"],
            one["names"],
            one["issuer"],
            one["file"],
            one["gateway"],
            one["role"],
            one["served"],
            one["usedBy"],
        ]);
        let expected = json!([
            format!("Secret/default/{secret}"),
            key,
            ["both.test"],
            "CN=servers",
            "all.yaml",
            "default/edge",
            "leaf",
            true,
            ["Gateway/default/edge/listeners/both"],
        ]);
        checks.same("a certificate", actual, expected);
    }
    checks.same(
        "the number of them",
        found.as_array().map(Vec::len),
        Some(2),
    );
    let (code, text) = list(&format!("{runtime} --check 14d"));
    checks.same(&text, code, Some(0));
    let (code, text) = list(&format!("{runtime} --check 1000000d"));
    checks.same("the exit code", code, Some(1));
    checks.that(text.matches("serves it").count() == 2, &text);
    let (code, text) = list(&format!("{runtime} --gateway default/none -o json"));
    checks.same("another Gateway", (code, text.trim()), (Some(0), "[]"));
    let (code, _) = list(&format!("{runtime} --check soon"));
    checks.same("a bad time", code, Some(2));

    let kept = format!("--state-dir {} -o json", agent.state().display());
    eventually("the accepted state is on disk", TEST_TIMEOUT, async || {
        let (code, text) = list(&kept);
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        let whole = found.as_array().is_some_and(|all| all.len() == 2)
            && found[0]["served"].is_null()
            && found[1]["object"] == "Secret/default/rsa";
        holds(whole && code == Some(0), || text)
    })
    .await;
}
