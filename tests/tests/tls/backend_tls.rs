//! `BackendTLSPolicy` and the Gateway's client certificate on a real Envoy.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::echo::EchoTls;
use sesame_tests::grpc;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_tls_policy, edge, endpoint_slices, http_listener, http_route, on_listener, route,
    rule_to, served, service, tls_listener, verified_by, yaml,
};

const CHANGES: usize = 40;

fn host(name: &str) -> String {
    format!("{name}.policy.test")
}

fn behind_policy(name: &str, protocol: &str, backend: &Backend, validation: &Value) -> Vec<Value> {
    let mut objects = vec![
        service(name, protocol),
        backend_tls_policy(name, validation),
        on_listener(
            http_route(name, &[&host(name)], &[rule_to(name, &[])]),
            "http",
        ),
    ];
    objects.extend(endpoint_slices(name, &[backend.address()]));
    objects
}

fn with_names(mut validation: Value, names: &Value) -> Value {
    validation["subjectAltNames"] = names.clone();
    validation
}

fn showing(client: &str, mut objects: Vec<Value>) -> Vec<Value> {
    objects[1]["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": client}}});
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_tls_follows_policy() {
    let (ours, theirs, clients) = (
        Authority::new("backends"),
        Authority::new("others"),
        Authority::new("clients"),
    );
    let leaf = ours.issue_with_uris(
        &["good.test", "*.wild.test"],
        &["spiffe://good.test/backend"],
    );
    let client = clients.issue(&["gateway.test"]);
    let backend = Backend::start_tls("tls", &leaf).await;
    let mutual = Backend::start_mutual_tls("mutual", &leaf, &clients).await;
    let mut objects = showing(
        "client",
        edge(&[
            http_listener("http", 80, ""),
            tls_listener("end", 443, "end.test", Some("end")),
            tls_listener("names", 443, "names.test", Some("end")),
            tls_listener("pass", 443, "good.test", None),
        ]),
    );
    objects.extend([
        client.secret("client"),
        theirs.issue(&["end.test", "names.test"]).secret("end"),
        Authority::config_map("ours", &[&ours]),
        Authority::config_map("theirs", &[&theirs]),
        Authority::config_map("both", &[&theirs, &ours]),
    ]);
    let good = verified_by("ours", "good.test");
    let named = |type_: &str, member: &str, value: &str| {
        let names = json!([{"type": type_, member: value}]);
        with_names(verified_by("ours", "asked.test"), &names)
    };
    let mut hostname_only = good.clone();
    hostname_only["subjectAltNames"] = json!([{"type": "Hostname", "hostname": "other.test"}]);
    for (name, protocol, backend, validation) in [
        ("good", "", &backend, good.clone()),
        ("h2", "kubernetes.io/h2c", &backend, good.clone()),
        ("wss", "kubernetes.io/wss", &backend, good.clone()),
        ("both", "", &backend, verified_by("both", "good.test")),
        ("mutual", "", &mutual, good.clone()),
        (
            "dns",
            "",
            &backend,
            named("Hostname", "hostname", "good.test"),
        ),
        (
            "uri",
            "",
            &backend,
            named("URI", "uri", "spiffe://good.test/backend"),
        ),
        ("wild", "", &backend, verified_by("ours", "a.wild.test")),
        (
            "too-wild",
            "",
            &backend,
            verified_by("ours", "a.b.wild.test"),
        ),
        ("wrong-ca", "", &backend, verified_by("theirs", "good.test")),
        (
            "wrong-name",
            "",
            &backend,
            verified_by("ours", "other.test"),
        ),
        (
            "wrong-uri",
            "",
            &backend,
            named("URI", "uri", "spiffe://good.test/other"),
        ),
        ("hostname-only", "", &backend, hostname_only),
        (
            "absent-ca",
            "",
            &backend,
            verified_by("absent", "good.test"),
        ),
    ] {
        objects.extend(behind_policy(name, protocol, backend, &validation));
    }
    for (name, _) in CALLS {
        let (host, rules) = (grpc_host(name), [rule_to(name, &[])]);
        let calls = route("GRPCRoute", name, &[&host], &rules);
        objects.push(on_listener(calls, "http"));
    }
    for (listener, hostname, service) in [
        ("end", "end.test", "good"),
        ("names", "names.test", "uri"),
        ("pass", "good.test", "good"),
    ] {
        let rules = [json!({"backendRefs": [{"name": service, "port": 80}]})];
        objects.push(on_listener(
            route("TLSRoute", listener, &[hostname], &rules),
            listener,
        ));
    }
    let agent = Setup::with_ports(&[80, 443])
        .flag("--subscription-budget")
        .flag("100")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, &host("good"), "/")).await;

    let mut checks = Checks::default();
    verified(&agent, &mut checks, &client).await;
    for (name, status) in [
        ("wrong-ca", 503),
        ("wrong-name", 503),
        ("wrong-uri", 503),
        ("hostname-only", 503),
        // A wildcard in a certificate matches exactly one label.
        ("too-wild", 503),
        ("absent-ca", 500),
    ] {
        checks.status(agent.get(80, &host(name), "/"), status).await;
    }
    let wss = agent.get(80, &host("wss"), "/");
    match wss.websocket(b"open sesame").await {
        Ok(answer) => checks.same(&wss, answer, b"open sesame".to_vec()),
        Err(error) => checks.that(false, format!("{wss} over WebSocket: {error:#}")),
    }
    // Envoy terminates TLS and re-encrypts, or passes TLS through.
    for (server_name, trust, shown, asked) in [
        ("end.test", &theirs, None, "good.test"),
        ("names.test", &theirs, None, "asked.test"),
        ("good.test", &ours, Some(&leaf), "good.test"),
    ] {
        let request = agent
            .get(443, server_name, "/")
            .tls(server_name, &trust.trust());
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.same(&request, reply.status, 200);
        let through = shown.is_some();
        let same = reply.certificate.as_ref() == Some(&leaf.der);
        checks.same(format!("{request}: TLS passthrough"), same, through);
        let tls = reply.echo().tls.map(|tls| tls.server_name);
        checks.same(&request, tls.as_deref(), Some(asked));
    }
    calls(&agent, &mut checks).await;
    policies_say_so(&agent, &mut checks).await;
    checks.finish();
}

async fn verified(agent: &AgentUnderTest, checks: &mut Checks, client: &Leaf) {
    for (name, server_name, protocol, shown) in [
        ("good", "good.test", "HTTP/1.1", false),
        ("h2", "good.test", "HTTP/2.0", false),
        ("both", "good.test", "HTTP/1.1", false),
        ("dns", "asked.test", "HTTP/1.1", false),
        ("uri", "asked.test", "HTTP/1.1", false),
        ("wild", "a.wild.test", "HTTP/1.1", false),
        ("mutual", "good.test", "HTTP/1.1", true),
    ] {
        let request = agent.get(80, &host(name), "/");
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.same(&request, reply.status, 200);
        if reply.status != 200 {
            continue;
        }
        let echo = reply.echo();
        checks.same(&request, echo.protocol.as_str(), protocol);
        checks.same(format!("{request}: Host"), echo.host, host(name));
        let client_certificate = if shown {
            STANDARD.encode(&client.der)
        } else {
            String::new()
        };
        let expected = EchoTls {
            server_name: server_name.to_owned(),
            client_certificate,
        };
        checks.same(&request, echo.tls, Some(expected));
    }
}

/// Routes, each with the server name that its backend sees.
const CALLS: [(&str, Option<&str>); 4] = [
    ("good", Some("good.test")),
    ("uri", Some("asked.test")),
    ("wrong-uri", None),
    ("absent-ca", None),
];

fn grpc_host(name: &str) -> String {
    format!("{name}.grpc.test")
}

async fn calls(agent: &AgentUnderTest, checks: &mut Checks) {
    for (name, asked) in CALLS {
        let request = grpc::call(agent.address(80), &grpc_host(name), "shop.Cart/Add");
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        let code = asked.map_or(grpc::code::UNAVAILABLE, |_| grpc::code::OK);
        checks.same(&request, grpc::status(&reply), Some(code));
        let tls = grpc::echo(&reply).and_then(|echo| echo.tls);
        checks.same(
            &request,
            tls.as_ref().map(|tls| tls.server_name.as_str()),
            asked,
        );
    }
}

async fn policies_say_so(agent: &AgentUnderTest, checks: &mut Checks) {
    let status = agent
        .wait_status("policies have a status", |status| {
            policy(status, "good").is_some()
        })
        .await;
    for (name, accepted, reason) in [
        ("good", "True", "Accepted"),
        ("wrong-ca", "True", "Accepted"),
        ("absent-ca", "False", "NoValidCACertificate"),
    ] {
        let actual = policy(&status, name).map(|ancestor| {
            let condition = &ancestor["conditions"][0];
            [
                &condition["type"],
                &condition["status"],
                &condition["reason"],
            ]
            .map(Value::to_string)
        });
        let expected = ["Accepted", accepted, reason].map(|word| format!("{word:?}"));
        checks.same(name, actual, Some(expected));
    }
}

fn policy<'s>(status: &'s Value, name: &str) -> Option<&'s Value> {
    let objects = status["objects"].as_array()?;
    let object = objects
        .iter()
        .find(|object| object["kind"] == "BackendTLSPolicy" && object["name"] == name)?;
    match object["status"]["ancestors"].as_array()?.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_policies_and_keys_change_without_failed_request() {
    let (old, new, clients) = (
        Authority::new("old"),
        Authority::new("new"),
        Authority::new("clients"),
    );
    let names = ["one.test", "two.test"];
    let leaf = old.issue(&names);
    let backend = Backend::start_mutual_tls("tls", &leaf, &clients).await;
    let client = |leaf: &Leaf| yaml(&[leaf.secret("client")]);
    let policy = |name: &str| yaml(&[backend_tls_policy("tls", &verified_by("ca", name))]);
    let bundle = |of: &[&Authority]| yaml(&[Authority::config_map("ca", of)]);
    let mut objects = showing("client", edge(&[http_listener("http", 80, "")]));
    objects.extend(served("tls", &[backend.address()]));
    objects.push(http_route("tls", &[&host("tls")], &[rule_to("tls", &[])]));
    let mut shown = clients.issue(&["gateway.test"]);
    let agent = Setup::with_ports(&[80]).start(&[
        ("all.yaml", &yaml(&objects)),
        ("client.yaml", &client(&shown)),
        ("policy.yaml", &policy(names[0])),
        ("bundle.yaml", &bundle(&[&old])),
    ]);
    let request = agent.get(80, &host("tls"), "/");
    agent.wait_ok(&request).await;

    let load = Load::start(&Plan::new(vec![request.clone()]));
    for change in 1..=CHANGES {
        match change % 4 {
            0 => agent.write("bundle.yaml", &bundle(&[&old, &new])),
            2 => agent.write("bundle.yaml", &bundle(&[&old])),
            _ => {
                shown = clients.issue(&["gateway.test"]);
                agent.write("client.yaml", &client(&shown));
            }
        }
        // A new server name forces new connections with the latest key.
        let name = names[change % 2];
        agent.write("policy.yaml", &policy(name));
        let certificate = STANDARD.encode(&shown.der);
        agent
            .wait_served(&request, |reply| {
                let tls = (reply.status == 200).then(|| reply.echo().tls).flatten();
                tls.is_some_and(|tls| {
                    tls.server_name == name && tls.client_certificate == certificate
                })
            })
            .await;
    }
    load.stop().await.assert_clean();

    agent.write("bundle.yaml", &bundle(&[&new]));
    agent.write("policy.yaml", &policy(names[1]));
    agent
        .wait_served(&request, |reply| reply.status == 503)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_come_and_go_without_a_failed_request() {
    let (authority, clients) = (Authority::new("backends"), Authority::new("clients"));
    let leaf = authority.issue(&["good.test"]);
    let backend = Backend::start_either("either", &leaf).await;
    let gateway = edge(&[http_listener("http", 80, "")]);
    let with_key = yaml(&showing("client", gateway.clone()));
    let gateway = yaml(&gateway);
    let policy = yaml(&[backend_tls_policy(
        "either",
        &verified_by("ca", "good.test"),
    )]);
    let mut objects = served("either", &[backend.address()]);
    objects.push(http_route(
        "either",
        &[&host("either")],
        &[rule_to("either", &[])],
    ));
    objects.push(Authority::config_map("ca", &[&authority]));
    objects.push(clients.issue(&["gateway.test"]).secret("client"));
    let agent = Setup::with_ports(&[80])
        .start(&[("gateway.yaml", &gateway), ("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, &host("either"), "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone()]));
    for change in 1..=CHANGES {
        let encrypted = change % 4 != 0;
        match change % 4 {
            1 => agent.write("policy.yaml", &policy),
            2 => agent.write("gateway.yaml", &with_key),
            3 => agent.write("gateway.yaml", &gateway),
            _ => agent.remove("policy.yaml"),
        }
        agent
            .wait_served(&request, |reply| {
                reply.status == 200 && reply.echo().tls.is_some() == encrypted
            })
            .await;
        load.pass(20).await;
    }
    load.stop().await.assert_clean();
}
