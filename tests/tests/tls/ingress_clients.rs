//! Client certificates for Ingresses with annotations of ingress-nginx.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{edge, http_listener, ingress, ingress_class, ingress_rule, yaml};

const PREFIX: &str = "nginx.ingress.kubernetes.io/auth-tls-";

fn annotated(name: &str, path: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations = annotations.iter();
    let annotations = annotations.map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)));
    ingress(
        name,
        &Value::Object(annotations.collect()),
        &json!({"tls": [{"hosts": ["bank.test"], "secretName": "pair"}],
            "rules": [ingress_rule("bank.test", &[(path, "Prefix", "a")])]}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn ingress_serves_only_clients_with_valid_certificates() {
    let (servers, ours, theirs) = (
        Authority::new("servers"),
        Authority::new("clients"),
        Authority::new("strangers"),
    );
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a"], &mut all).await;
    let mut class = ingress_class();
    class["metadata"]["annotations"] = json!({"projectsesame.io/annotations": "Nginx"});
    let ca = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "ca", "namespace": "default"},
        "data": {"ca.crt": STANDARD.encode(ours.pem())}});
    all.extend([
        class,
        ca,
        servers.issue(&["bank.test"]).secret("pair"),
        annotated("bank", "/", &[("secret", "default/ca")]),
        annotated(
            "passing",
            "/passing",
            &[("secret", "ca"), ("pass-certificate-to-upstream", "true")],
        ),
        annotated("other", "/other", &[("secret", "missing")]),
    ]);
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let to = |path: &str| {
        let request = agent.get(443, "bank.test", path);
        request.tls("bank.test", &servers.trust())
    };
    let (known, stranger) = (ours.issue(&["client.test"]), theirs.issue(&["client.test"]));
    agent.wait_ok(&to("/").showing(&known)).await;
    let before = backends[0].count();
    let mut checks = Checks::default();
    for request in [to("/"), to("/").showing(&stranger)] {
        checks.that(request.send().await.is_err(), format_args!("{request}"));
    }
    checks.status(agent.get(80, "bank.test", "/"), 308).await;
    checks.status(to("/other").showing(&known), 500).await;
    checks.same("requests without a check", backends[0].count(), before);
    for (path, is_passed) in [("/", false), ("/passing", true)] {
        let forged = [
            "ssl-client-verify",
            "ssl-client-subject-dn",
            "ssl-client-cert",
        ];
        let request = to(path).showing(&known);
        let request = forged
            .iter()
            .fold(request, |request, name| request.header(name, "forged"));
        if let Some(reply) = checks.reply(&request).await {
            let echo = reply.echo();
            checks.same("verify", echo.values("ssl-client-verify"), vec!["SUCCESS"]);
            let subject = echo.values("ssl-client-subject-dn");
            checks.same("subject", subject, vec!["CN=rcgen self signed cert"]);
            let certificate = echo.values("ssl-client-cert").join("");
            let is_whole = certificate.starts_with("-----BEGIN%20CERTIFICATE-----");
            checks.same(path, is_whole, is_passed);
            checks.same(path, certificate.is_empty(), !is_passed);
        }
    }
    checks.finish();
}
