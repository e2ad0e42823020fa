//! The fallback certificate of HTTPProxies, on a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    access_policy, class_with_parameters, gateway, http_listener, http_proxy, ingress_class, yaml,
};

/// The client library sends no server name for an address.
const NO_NAME: &str = "127.0.0.1";
const UNKNOWN: &str = "unknown.test";

fn class(settings: &Value) -> String {
    yaml(&class_with_parameters(
        "edge",
        "settings",
        &json!({"ingress": settings}),
    ))
}

fn host(name: &str, fqdn: &str, tls: &Value, service: &str) -> Value {
    let mut virtualhost = json!({"fqdn": fqdn, "tls": tls});
    virtualhost["tls"]["secretName"] = json!("own");
    let routes = json!([{"services": [{"name": service, "port": 80}]},
        {"conditions": [{"prefix": "/closed"}], "services": [{"name": service, "port": 80}],
            "ipDenyPolicy": [{"source": "Peer", "cidr": "127.0.0.0/8"}]}]);
    http_proxy(name, &json!({"virtualhost": virtualhost, "routes": routes}))
}

fn request(agent: &AgentUnderTest, authority: &Authority, sni: &str, host: &str) -> Request {
    agent.get(443, host, "/").tls(sni, &authority.trust())
}

#[tokio::test(flavor = "multi_thread")]
async fn fallback_certificate_opens_only_hosts_that_opt_in() {
    let authority = Authority::new("tests");
    let fallback = authority.issue(&[UNKNOWN, NO_NAME]);
    let mut all = vec![
        gateway("edge", &[http_listener("http", 80, "")]),
        ingress_class(),
        authority
            .issue(&["in.test", "out.test", "held.test", "*.wild.test"])
            .secret("own"),
        fallback.secret("fallback"),
    ];
    let _backends = start_served(&["a", "b"], &mut all).await;
    let opts_in = json!({"enableFallbackCertificate": true});
    let validating = json!({"enableFallbackCertificate": true,
        "clientValidation": {"skipClientCertValidation": true}});
    all.extend([
        host("in", "in.test", &opts_in, "a"),
        host("wild", "*.wild.test", &opts_in, "a"),
        host("out", "out.test", &json!({}), "b"),
        host("below", "below.wild.test", &json!({}), "b"),
        host("held", "held.test", &validating, "b"),
    ]);
    let files = [
        ("all.yaml", &*yaml(&all)),
        ("class.yaml", &class(&json!({}))),
    ];
    let agent = Setup::with_ports(&[80, 443]).start(&files);
    let get = |sni: &str, host: &str| request(&agent, &authority, sni, host);
    agent.wait_backend(&get("in.test", "in.test"), "a").await;
    let mut checks = Checks::default();
    for sni in [NO_NAME, UNKNOWN] {
        let refused = get(sni, "in.test").send().await.is_err();
        checks.that(
            refused,
            format_args!("{sni} must be refused without a fallback"),
        );
    }

    let settings = json!({"fallbackCertificate": {"namespace": "default", "name": "fallback"}});
    agent.write("class.yaml", &class(&settings));
    agent.wait_backend(&get(UNKNOWN, "in.test"), "a").await;
    for sni in [NO_NAME, UNKNOWN] {
        let reply = checks.reply(&get(sni, "in.test")).await;
        let presented = reply.and_then(|reply| reply.certificate);
        checks.that(
            presented.as_ref() == Some(&fallback.der),
            format_args!("{sni}: expected the fallback certificate"),
        );
        for request in [get(sni, "in.test"), get(sni, "in.test").http2()] {
            checks.backend(request, "a").await;
        }
        checks.backend(get(sni, "x.wild.test"), "a").await;
        let closed = agent.get(443, "in.test", "/closed");
        checks
            .status(closed.tls(sni, &authority.trust()), 403)
            .await;
        for (host, expected) in [
            ("out.test", 421),
            ("below.wild.test", 421),
            ("held.test", 421),
            (UNKNOWN, 404),
        ] {
            checks.status(get(sni, host), expected).await;
        }
    }
    for (sni, host, expected) in [
        ("in.test", "in.test", 200),
        ("out.test", "out.test", 200),
        ("out.test", "in.test", 421),
        ("in.test", "out.test", 421),
    ] {
        checks.status(get(sni, host), expected).await;
    }
    let held = get("held.test", "held.test").send().await;
    checks.that(
        held.is_err(),
        "a host with incompatible fields is not served",
    );
    let shown = agent.status().unwrap_or_default().to_string();
    checks.that(
        shown.contains("TLSIncompatibleFeatures"),
        format_args!("status must report the incompatible fields: {shown}"),
    );

    // The Gateway's policies also apply to clients without a known server name.
    let target = json!({"kind": "Gateway", "name": "edge"});
    let policy = access_policy("p", target, &json!({"ipFilter": {"deny": ["127.0.0.0/8"]}}));
    agent.write("policy.yaml", &yaml(&[policy]));
    let denied = |reply: &sesame_tests::client::Reply| reply.status == 403;
    agent.wait_served(&get("in.test", "in.test"), denied).await;
    for sni in [NO_NAME, UNKNOWN] {
        checks.status(get(sni, "in.test"), 403).await;
    }
    checks.finish();
}
