//! Conditions on client certificates in AccessPolicies. Only validated certificates match.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{
    access_policy, edge, http_listener, https_listener, plain_route, yaml,
};

use crate::access_tokens::route_target;

/// The subject of all certificates in this test.
const SUBJECT: &str = "CN=rcgen self signed cert";

fn rule(action: &str, certificates: &Value) -> Value {
    let others = if action == "Allow" { "Deny" } else { "Allow" };
    json!({"authorization": {
        "rules": [{"action": action, "certificates": certificates}],
        "defaultAction": others,
    }})
}

fn objects() -> Vec<Value> {
    let names = |type_: &str, values: &[&str]| {
        let values = values.iter().map(|it| json!({"type": type_, "value": it}));
        json!({"subjectAltNames": values.collect::<Vec<_>>()})
    };
    let uris = names("URI", &["spiffe://a/cart", "spiffe://a/ns/*"]);
    let mut cart = names("URI", &["spiffe://a/cart"]);
    cart["subject"] = json!(SUBJECT);
    let mut nobody = names("URI", &["spiffe://a/cart"]);
    nobody["subject"] = json!("CN=admin");
    let policies = [
        ("uri", rule("Allow", &json!([uris]))),
        (
            "dns",
            rule(
                "Allow",
                &json!([
                    names("DNS", &["client.test"]),
                    names("DNS", &["*.clients.test"])
                ]),
            ),
        ),
        ("subject", rule("Allow", &json!([{"subject": SUBJECT}]))),
        ("admin", rule("Allow", &json!([{"subject": "CN=admin"}]))),
        ("both", rule("Allow", &json!([cart]))),
        ("neither", rule("Allow", &json!([nobody]))),
        (
            "denied",
            rule("Deny", &json!([names("DNS", &["client.test"])])),
        ),
    ];
    let objects = policies.iter().flat_map(|(name, spec)| {
        let route = plain_route(name, &format!("{name}.test"), "a");
        [route, access_policy(name, route_target(name), spec)]
    });
    objects.collect()
}

/// Port 443 requires valid certificates, and port 444 also admits clients without them.
fn listeners(ours: &Authority) -> Vec<Value> {
    let validation = |mode: &str| {
        json!({"validation": {
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ours"}],
            "mode": mode,
        }})
    };
    let mut all = edge(&[
        http_listener("http", 80, ""),
        https_listener("required", 443, "", "pair"),
        https_listener("fallback", 444, "", "pair"),
    ]);
    all[1]["spec"]["tls"] = json!({"frontend": {
        "default": validation("AllowValidOnly"),
        "perPort": [{"port": 444, "tls": validation("AllowInsecureFallback")}],
    }});
    all.push(Authority::config_map("ours", &[ours]));
    all
}

/// Each host, whether its policy admits the certificates `cart`, `other`, `wildcard` and `forged`,
/// and whether it admits a client without a valid certificate.
const CASES: [(&str, [bool; 4], bool); 7] = [
    ("uri.test", [true, true, false, false], false),
    ("dns.test", [true, true, false, false], false),
    ("subject.test", [true, true, true, true], false),
    ("admin.test", [false, false, false, false], false),
    ("both.test", [true, false, false, false], false),
    ("neither.test", [false, false, false, false], false),
    ("denied.test", [false, true, true, true], true),
];

#[tokio::test(flavor = "multi_thread")]
async fn only_validated_certificates_match_rules() {
    let [servers, ours, theirs] = ["servers", "clients", "strangers"].map(Authority::new);
    let mut all = listeners(&ours);
    let _backends = start_served(&["a"], &mut all).await;
    let mut hosts = CASES.map(|(host, ..)| host).to_vec();
    hosts.push("open.test");
    all.push(servers.issue(&hosts).secret("pair"));
    all.push(plain_route("open", "open.test", "a"));
    all.extend(objects());
    let agent = Setup::with_ports(&[80, 443, 444]).start(&[("all.yaml", &yaml(&all))]);
    let request = |port: u16, host: &str, shown: Option<&Leaf>| {
        let request = agent.get(port, host, "/");
        if port == 80 {
            return request;
        }
        let request = request.tls(host, &servers.trust());
        match shown {
            Some(leaf) => request.showing(leaf),
            None => request,
        }
    };
    agent.wait_ok(&request(444, "open.test", None)).await;

    let known = [
        ours.issue_with_uris(&["client.test"], &["spiffe://a/cart"]),
        ours.issue_with_uris(&["x.clients.test"], &["spiffe://a/ns/b"]),
        ours.issue_with_uris(&["*.test"], &["spiffe://a/cart/x"]),
        // This URI looks like a subject.
        ours.issue_with_uris(&["clients.test"], &["CN=admin"]),
    ];
    let stranger = theirs.issue_with_uris(&["client.test"], &["spiffe://a/cart"]);
    let mut checks = Checks::default();
    let status = |passes: bool| if passes { 200 } else { 403 };
    for (host, passes, passes_without) in CASES {
        for (i, (leaf, passes)) in known.iter().zip(passes).enumerate() {
            for port in [443, 444] {
                let request = request(port, host, Some(leaf));
                for request in [request.clone(), request.http2()] {
                    let found = checks.reply(&request).await.map(|reply| reply.status);
                    let what = format!("{request} on {port} with certificate {i}");
                    checks.same(what, found, Some(status(passes)));
                }
            }
        }
        for (port, shown) in [(80, None), (444, None), (444, Some(&stranger))] {
            let request = request(port, host, shown);
            let forged = request.header("x-forwarded-client-cert", "URI=spiffe://a/cart");
            let found = checks.reply(&forged).await.map(|reply| reply.status);
            let what = format!("{forged} on {port}, unverified: {}", shown.is_some());
            checks.same(what, found, Some(status(passes_without)));
        }
    }
    checks.finish();
}
