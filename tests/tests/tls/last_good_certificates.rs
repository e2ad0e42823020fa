//! A broken Secret does not affect its listener. The last good certificate remains in use until the
//! Secret is deleted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::{Setup, arguments};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{
    ControllerUnderTest, TEST_TIMEOUT, condition, deployed, keys, publication,
};
use sesame_tests::manifests::{
    self, edge, edge_name, http_listener, http_route, https_listener, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};

fn says_kept(status: &Value) -> bool {
    let listener = &status["listeners"][0]["conditions"];
    let resolved = condition(listener, "ResolvedRefs");
    resolved["status"] == "False"
        && resolved["reason"] == "InvalidCertificateRef"
        && resolved["message"]
            .as_str()
            .is_some_and(|message| message.contains("last valid certificate, which expires at"))
}

async fn refused(request: &Request) {
    eventually("the request fails", TEST_TIMEOUT, async || {
        match request.send().await {
            Ok(reply) => Err(format!("status {}", reply.status)),
            Err(_) => Ok(()),
        }
    })
    .await;
}

fn gateway_status(status: &Value) -> Value {
    let objects = status["objects"].as_array().into_iter().flatten();
    let mut gateways = objects.filter(|object| object["kind"] == "Gateway");
    gateways.next().map_or(Value::Null, |g| g["status"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_survives_broken_secret_but_not_deletion() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let (first, second) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    // A second listener is required, because the agent never removes Envoy's last one.
    let mut objects = edge(&[
        https_listener("https", 443, "", "pair"),
        http_listener("http", 80, ""),
    ]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let mut mismatched = first.secret("pair");
    mismatched["data"]["tls.key"] = second.secret("pair")["data"]["tls.key"].clone();
    let mut without_key = first.secret("pair");
    without_key["data"] = json!({"tls.crt": without_key["data"]["tls.crt"]});

    let mut agent = Setup::with_ports(&[443, 80]).start(&[
        ("all.yaml", &yaml(&objects)),
        ("secret.yaml", &yaml(&[first.secret("pair")])),
    ]);
    let request = agent
        .get(443, "a.test", "/")
        .tls("a.test", &authority.trust());
    agent.wait_ok(&request).await;

    for broken in [&mismatched, &without_key] {
        agent.write("secret.yaml", &yaml(std::slice::from_ref(broken)));
        agent
            .wait_status("the certificate is kept and served", |status| {
                let gateway = gateway_status(status);
                let listener = &gateway["listeners"][0]["conditions"];
                says_kept(&gateway) && condition(listener, "Programmed")["status"] == "True"
            })
            .await;
        assert_eq!(request.send().await.expect("an answer").status, 200);
    }

    // Restart the agent alone, then together with Envoy.
    let kept = |number: u8| {
        let mut rule = rule_to("a", &[]);
        rule["filters"] = json!([{
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-round", "value": number.to_string()}]},
        }]);
        let mut objects = objects.clone();
        objects.pop();
        objects.push(http_route("a", &[], &[rule]));
        yaml(&objects)
    };
    for number in 0..2_u8 {
        agent.wait_stored().await;
        agent.kill9();
        if number == 1 {
            agent.kill9_envoy();
        }
        agent.write("all.yaml", &kept(number));
        agent.restart();
        agent
            .wait_served(&request, |reply| {
                reply.header("x-round") == Some(&number.to_string())
            })
            .await;
        agent
            .wait_status("the certificate is still kept", |status| {
                says_kept(&gateway_status(status))
            })
            .await;
    }

    agent.remove("secret.yaml");
    refused(&request).await;
    // After a deletion, a broken Secret must not bring the certificate back.
    agent.write("secret.yaml", &yaml(&[mismatched]));
    let status = agent
        .wait_status("the Secret is broken", |status| {
            let gateway = gateway_status(status);
            let resolved = condition(&gateway["listeners"][0]["conditions"], "ResolvedRefs");
            let message = resolved["message"].as_str().unwrap_or_default();
            message.contains("tls.key")
        })
        .await;
    assert!(!says_kept(&gateway_status(&status)));
    assert!(request.send().await.is_err());
    agent.write("secret.yaml", &yaml(&[second.secret("pair")]));
    agent.wait_ok(&request).await;
}

/// Returns a Secret whose RSA key is too short for Envoy, although resolution accepts the pair.
fn weak_secret(name: &str, host: &str) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let [certificate, key] = ["crt", "key"].map(|file| directory.path().join(file));
    let made = std::process::Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:1024", "-nodes", "-days", "30",
        ])
        .args(["-subj", &format!("/CN={host}")])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let encoded = |path| STANDARD.encode(std::fs::read(path).expect("a file"));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": encoded(certificate), "tls.key": encoded(key)},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_survives_key_rejected_by_envoy_until_fixed() {
    let backend = Backend::start("a").await;
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    // A second listener is required, because the agent never removes Envoy's last one.
    let mut objects = edge(&[
        https_listener("https", 443, "", "pair"),
        http_listener("http", 80, ""),
    ]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let mut agent = Setup::with_ports(&[443, 80]).start(&[
        ("all.yaml", &yaml(&objects)),
        (
            "secret.yaml",
            &yaml(&[before.issue(&["a.test"]).secret("pair")]),
        ),
    ]);
    let [old, new] = [&before, &after].map(|authority| {
        let request = agent.get(443, "a.test", "/");
        request.tls("a.test", &authority.trust())
    });
    agent.wait_ok(&old).await;

    // Envoy rejects the new key pair, and the listener keeps serving the previous one.
    let is_refused = |status: &Value| {
        let gateway = gateway_status(status);
        let listener = &gateway["listeners"][0]["conditions"];
        let refused = &status["gateways"][0]["refused"];
        let effect = refused[0]["effect"].as_str().unwrap_or_default();
        let words = refused[0]["envoyWords"].as_str().unwrap_or_default();
        refused.as_array().is_some_and(|all| all.len() == 1)
            && (&refused[0]["kind"], &refused[0]["name"]) == (&json!("Secret"), &json!("pair"))
            && effect.contains("previously accepted key pair is used; its certificate expires at")
            && words.contains("2048-bit or larger")
            && condition(listener, "Programmed")["status"] == "True"
    };
    for _ in 0..2 {
        agent.write("secret.yaml", &yaml(&[weak_secret("pair", "a.test")]));
        let status = agent
            .wait_status("the weak key is refused", is_refused)
            .await;
        assert_eq!(status["healthy"], false, "{status:#}");
        assert_eq!(old.send().await.expect("an answer").status, 200);
    }
    for number in 0..2_u8 {
        agent.wait_stored().await;
        agent.kill9();
        if number == 1 {
            agent.kill9_envoy();
        }
        agent.restart();
        agent
            .wait_status("the weak key is still refused", is_refused)
            .await;
        agent.wait_ok(&old).await;
    }

    agent.write(
        "secret.yaml",
        &yaml(&[after.issue(&["a.test"]).secret("pair")]),
    );
    agent.wait_ok(&new).await;
    agent.wait_healthy().await;
    agent.write("secret.yaml", &yaml(&[weak_secret("pair", "a.test")]));
    agent
        .wait_status("the weak key is refused", is_refused)
        .await;
    agent.remove("secret.yaml");
    refused(&new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_reports_expiring_certificates() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let mut objects = edge(&[
        https_listener("soon", 443, "soon.test", "soon"),
        https_listener("over", 443, "over.test", "over"),
        https_listener("good", 443, "good.test", "good"),
    ]);
    objects.push(authority.issue_until(&["soon.test"], 5).secret("soon"));
    objects.push(authority.issue_until(&["over.test"], -5).secret("over"));
    objects.push(authority.issue(&["good.test"]).secret("good"));
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    let names_once = |list: &Value, what: &str| {
        let texts = list.as_array().into_iter().flatten();
        texts
            .filter(|text| text.as_str().is_some_and(|text| text.contains(what)))
            .count()
            == 1
    };
    let status = agent
        .wait_status("both problems are reported", |status| {
            names_once(&status["reasons"], "Secret/default/over expired at")
                && names_once(&status["warnings"], "Secret/default/soon expires at")
        })
        .await;
    assert_eq!(status["healthy"], false);
    assert!(!status.to_string().contains("Secret/default/good expires"));
    let request = agent
        .get(443, "good.test", "/")
        .tls("good.test", &authority.trust());
    agent.wait_ok(&request).await;
    for text in [
        "Secret/default/over expired at",
        "Secret/default/soon expires at",
    ] {
        eventually("the agent warns", TEST_TIMEOUT, async || {
            let log = agent.log();
            holds(log.contains(text), || agent.log_tail())
        })
        .await;
    }
    let text = String::from_utf8_lossy(&agent.status_command().stdout).into_owned();
    assert!(text.contains("Secret/default/soon expires at"), "{text}");
    let manifests = agent.manifests();
    let validated = format!("validate --manifests {}", manifests.display());
    let validated = agent.command(&arguments(&validated));
    let text = String::from_utf8_lossy(&validated.stdout);
    for warning in ["over expired at", "soon expires at"] {
        let warning =
            format!("warning: Gateway/default/edge: the certificate of Secret/default/{warning}");
        assert!(text.contains(&warning), "{text}");
    }
}

#[tokio::test]
async fn published_keys_survive_broken_secret_in_cluster() {
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge";
    const SECRET: &str = "/api/v1/namespaces/default/secrets/pair";
    let cluster = deployed(Channel::Experimental).await;
    let mut controller = ControllerUnderTest::start(&cluster, &[]).await;
    controller.wait_ready().await;
    let edge = edge_name();
    let authority = Authority::new("servers");
    let (first, second) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    let mut all = manifests::edge(&[https_listener("https", 443, "", "pair")]);
    all.push(first.secret("pair"));
    cluster.apply_all(&all).await;

    let published = async |what: &str, domain: &str, expected: Option<&str>| {
        eventually(what, TEST_TIMEOUT, async || {
            let publication = publication(cluster.admin(), &edge).await?;
            let snapshot = &publication.snapshot;
            let mut hosts = snapshot.route_tables.iter().flat_map(|t| &t.virtual_hosts);
            let pairs = keys(cluster.admin(), &edge).await;
            let certificate = |pem: &str| pem.lines().collect::<String>();
            let chains: Vec<String> = pairs
                .iter()
                .map(|pair| certificate(&String::from_utf8_lossy(&pair.certificate_chain)))
                .collect();
            let expected: Vec<String> = expected.into_iter().map(certificate).collect();
            let route = domain.is_empty() || hosts.any(|host| host.domain == domain);
            if chains == expected && snapshot.ports.len() == expected.len() && route {
                Ok(())
            } else {
                Err(format!("{snapshot:?}"))
            }
        })
        .await;
    };
    published(
        "the first certificate is published",
        "",
        Some(&first.certificate_pem),
    )
    .await;

    let other_key = &second.secret("pair")["data"]["tls.key"];
    let broken = json!({"data": {"tls.key": other_key}});
    cluster.merge(SECRET, &broken).await;
    let wait_kept = async || {
        let kept = |gateway: &Value| says_kept(&gateway["status"]);
        let what = "the certificate is kept";
        cluster.until(what, GATEWAY, kept).await;
    };
    wait_kept().await;
    published("the first is kept", "", Some(&first.certificate_pem)).await;

    controller.kill9();
    // Add a route, because the previous publication would pass the check too.
    let route = http_route("a", &["a.test"], &[rule_to("none", &[])]);
    cluster.apply_all(&[route]).await;
    controller.restart();
    controller.wait_ready().await;
    published(
        "the certificate is kept across a restart",
        "a.test",
        Some(&first.certificate_pem),
    )
    .await;
    wait_kept().await;

    cluster.delete(SECRET).await;
    published("the certificate is withdrawn", "", None).await;
    cluster.apply_all(&[second.secret("pair")]).await;
    published(
        "the second certificate is published",
        "a.test",
        Some(&second.certificate_pem),
    )
    .await;

    let soon = authority.issue_until(&["a.test"], 5);
    cluster.apply_all(&[soon.secret("pair")]).await;
    published(
        "the last certificate is published",
        "a.test",
        Some(&soon.certificate_pem),
    )
    .await;
    cluster
        .until(
            "the expiry is reported in the condition",
            GATEWAY,
            |gateway| {
                let resolved = condition(&gateway["status"]["conditions"], "ResolvedRefs");
                let message = resolved["message"].as_str().unwrap_or_default();
                resolved["status"] == "True" && message.contains("Secret/default/pair expires at")
            },
        )
        .await;
    cluster
        .until("an Event reports it too", EVENTS, |events| {
            let items = events["items"].as_array().into_iter().flatten();
            let note = |event: &Value| event["note"].as_str().unwrap_or_default().to_owned();
            let matching = items.filter(|event| {
                event["reason"] == "CertificateExpires"
                    && event["regarding"]["kind"] == "Gateway"
                    && event["regarding"]["uid"].is_string()
                    && note(event).contains("Secret/default/pair expires at")
            });
            matching.count() == 1
        })
        .await;
    let name = "certificate_expiry_timestamp_seconds";
    let time = controller.metric(name, "Secret/default/pair").await;
    assert!(time > 1_700_000_000.0, "{time}");
}
