//! TLS in HTTPProxies: client certificates, and `tcpproxy` connections.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    backend_tls_policy, edge, http_listener, http_proxy, ingress, ingress_class, ingress_rule,
    route, served, tls_listener, verified_by, yaml,
};
use sesame_tests::wait::eventually;

const FORWARDED: &str = "x-forwarded-client-cert";

fn entry(name: &str, key: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": "default"}, "data": {key: STANDARD.encode(text)}})
}

fn validating(name: &str, clients: &Value) -> Value {
    let tls = json!({"secretName": "pair", "clientValidation": clients});
    http_proxy(
        name,
        &json!({"virtualhost": {"fqdn": format!("{name}.test"), "tls": tls},
            "routes": [{"services": [{"name": "a", "port": 80}]}]}),
    )
}

fn https(agent: &AgentUnderTest, servers: &Authority, host: &str) -> Request {
    agent.get(443, host, "/").tls(host, &servers.trust())
}

async fn status(request: &Request) -> Option<u16> {
    request.send().await.ok().map(|reply| reply.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_proxy_are_validated_as_written() {
    let (servers, ours, theirs) = (
        Authority::new("servers"),
        Authority::new("clients"),
        Authority::new("strangers"),
    );
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    let hosts = ["required", "optional", "any-one", "any-or-none", "broken"];
    let names = hosts.map(|host| format!("{host}.test"));
    all.push(
        servers
            .issue(&names.each_ref().map(String::as_str))
            .secret("pair"),
    );
    all.push(entry("ca", "ca.crt", ours.pem()));
    all.push(ingress_class());
    let subject_and_dns = json!({"subject": true, "dns": true});
    for (host, clients) in [
        (
            "required",
            json!({"caSecret": "ca", "forwardClientCertificate": subject_and_dns}),
        ),
        (
            "optional",
            json!({"caSecret": "ca", "optionalClientCertificate": true}),
        ),
        (
            "any-one",
            json!({"caSecret": "ca", "skipClientCertValidation": true}),
        ),
        (
            "any-or-none",
            json!({"skipClientCertValidation": true, "forwardClientCertificate": subject_and_dns}),
        ),
        ("broken", json!({"caSecret": "gone"})),
    ] {
        all.push(validating(host, &clients));
    }
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let request = |host: &str| https(&agent, &servers, &format!("{host}.test"));
    agent.wait_ok(&request("any-or-none")).await;

    let (known, stranger) = (ours.issue(&["client.test"]), theirs.issue(&["client.test"]));
    let mut checks = Checks::default();
    for (host, without, with_known, with_stranger) in [
        ("required", false, true, false),
        ("optional", true, true, false),
        ("any-one", false, true, true),
        ("any-or-none", true, true, true),
        ("broken", false, false, false),
    ] {
        for (request, let_in) in [
            (request(host), without),
            (request(host).showing(&known), with_known),
            (request(host).showing(&stranger), with_stranger),
        ] {
            let expected = let_in.then_some(200);
            checks.same(format!("{request}"), status(&request).await, expected);
        }
        let plain = agent.get(80, &format!("{host}.test"), "/");
        checks.status(plain, 301).await;
    }
    for (request, expected) in [
        (
            request("required").showing(&known),
            "Hash=…;Subject=\"CN=rcgen self signed cert\";DNS=client.test",
        ),
        (
            request("any-or-none").showing(&stranger),
            "Hash=…;Subject=\"CN=rcgen self signed cert\";DNS=client.test",
        ),
        (request("any-or-none"), ""),
        (request("optional").showing(&known), ""),
    ] {
        let forged = request.header(FORWARDED, "Subject=\"CN=forged\"");
        let reply = checks.reply(&forged).await;
        let echo = reply.map(|reply| reply.echo());
        let values = echo.map(|echo| echo.values(FORWARDED).join("|"));
        let shown = values.unwrap_or_default();
        // The digest differs in each run.
        let shown = match shown.split_once(';') {
            Some((hash, rest)) if hash.starts_with("Hash=") => format!("Hash=…;{rest}"),
            _ => shown,
        };
        checks.same(format!("{forged}"), &shown.as_str(), &expected);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_revocation_list_refuses_client_without_restart() {
    let (servers, ours) = (Authority::new("servers"), Authority::new("clients"));
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.push(servers.issue(&["shop.test"]).secret("pair"));
    all.push(entry("ca", "ca.crt", ours.pem()));
    all.push(ingress_class());
    let clients = json!({"caSecret": "ca", "crlSecret": "crl"});
    all.push(validating("shop", &clients));
    let list = |revoked: &[&Leaf]| {
        let list = ours.revocation_list(revoked, true);
        yaml(&[entry("crl", "crl.pem", &list)])
    };
    let agent =
        Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all)), ("crl.yaml", &list(&[]))]);
    let (good, bad) = (ours.issue(&["good.test"]), ours.issue(&["bad.test"]));
    let request = |leaf| https(&agent, &servers, "shop.test").showing(leaf);
    for leaf in [&good, &bad] {
        agent.wait_ok(&request(leaf)).await;
    }
    let envoys = agent.envoys();
    agent.write("crl.yaml", &list(&[&bad]));
    eventually(
        "a revoked client is refused",
        TEST_TIMEOUT,
        async || match status(&request(&bad)).await {
            None => Ok(()),
            Some(status) => Err(format!("{status}")),
        },
    )
    .await;
    assert_eq!(status(&request(&good)).await, Some(200));
    // With an invalid revocation list, every client is rejected.
    agent.write("crl.yaml", &yaml(&[entry("crl", "crl.pem", "broken")]));
    eventually(
        "every client is rejected",
        TEST_TIMEOUT,
        async || match status(&request(&good)).await {
            None => Ok(()),
            Some(status) => Err(format!("{status}")),
        },
    )
    .await;
    assert_eq!(agent.envoys().len(), envoys.len());
}

fn connecting(name: &str, tls: &Value, tcp: &Value) -> Value {
    http_proxy(
        name,
        &json!({"virtualhost": {"fqdn": format!("{name}.test"), "tls": tls}, "tcpproxy": tcp,
            "routes": [{"services": [{"name": "a", "port": 80}]}]}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_reach_services_by_server_name() {
    let (servers, backends) = (Authority::new("servers"), Authority::new("backends"));
    let mut all = edge(&[
        http_listener("http", 80, ""),
        tls_listener("tls", 443, "", None),
    ]);
    let _plain = start_served(&["a"], &mut all).await;
    let names = [
        "pass.test",
        "again.test",
        "mixed.test",
        "route.test",
        "backend.test",
    ];
    let leaf = backends.issue(&names);
    let secure = Backend::start_tls("b", &leaf).await;
    all.extend(served("b", &[secure.address()]));
    all.extend(served("c", &[secure.address()]));
    all.push(backend_tls_policy("c", &verified_by("ca", "backend.test")));
    all.push(Authority::config_map("ca", &[&backends]));
    let hosts = ["ends.test", "again.test", "broken.test", "route.test"];
    all.push(servers.issue(&hosts).secret("pair"));
    all.push(ingress_class());
    let to = |service: &str| json!({"services": [{"name": service, "port": 80}]});
    let pass = json!({"passthrough": true});
    let ends = json!({"secretName": "pair"});
    all.extend([
        connecting("pass", &pass, &json!({"include": {"name": "team"}})),
        http_proxy(
            "team",
            &json!({"tcpproxy": {"includes": {"name": "services"}}}),
        ),
        http_proxy("services", &json!({"tcpproxy": to("b")})),
        connecting("ends", &ends, &to("a")),
        connecting("again", &ends, &to("c")),
        connecting("broken", &ends, &to("gone")),
        // The TLSRoute takes precedence over this HTTPProxy.
        connecting("route", &ends, &to("a")),
        route(
            "TLSRoute",
            "route",
            &["route.test"],
            &[json!({"backendRefs": [{"name": "b", "port": 80}]})],
        ),
    ]);
    for host in ["pass.test", "broken.test"] {
        all.push(ingress(
            host,
            &json!({}),
            &json!({"tls": [{"hosts": [host], "secretName": "pair"}],
                "rules": [ingress_rule(host, &[("/ingress", "Prefix", "a")])]}),
        ));
    }
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let request = |host: &str, authority: &Authority| https(&agent, authority, host);
    agent
        .wait_backend(&request("pass.test", &backends), "b")
        .await;
    let mut checks = Checks::default();
    for (host, authority, backend) in [
        ("ends.test", &servers, "a"),
        ("again.test", &servers, "b"),
        ("route.test", &backends, "b"),
    ] {
        checks.backend(request(host, authority), backend).await;
    }
    for (host, authority) in [("pass.test", &servers), ("broken.test", &servers)] {
        checks.same(host, status(&request(host, authority)).await, None);
    }
    for host in ["pass.test", "ends.test", "broken.test", "route.test"] {
        checks.status(agent.get(80, host, "/"), 301).await;
    }
    checks
        .backend(agent.get(80, "pass.test", "/ingress"), "a")
        .await;
    // `explain` reads the stored configuration.
    agent.wait_stored().await;
    let runtime = agent.runtime().display().to_string();
    let explained = agent.command(&["explain", "--runtime-dir", &runtime, "https://pass.test/"]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    checks.that(
        explained.contains("HTTPProxy") && explained.contains("services"),
        format_args!("explain must name the HTTPProxy `services`: {explained}"),
    );
    let shown = agent.status().unwrap_or_default().to_string();
    checks.that(
        shown.contains("ServiceUnresolvedReference"),
        format_args!("status must report the missing Service: {shown}"),
    );
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_one_certificate_stay_apart() {
    let servers = Authority::new("servers");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a", "b"], &mut all).await;
    all.push(servers.issue(&["*.x.test"]).secret("pair"));
    all.push(ingress_class());
    for name in ["a", "b"] {
        let host = json!({"fqdn": format!("{name}.x.test"), "tls": {"secretName": "pair"}});
        let routes = json!([{"services": [{"name": name, "port": 80}]}]);
        all.push(http_proxy(
            name,
            &json!({"virtualhost": host, "routes": routes}),
        ));
    }
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    for host in ["a.x.test", "b.x.test"] {
        agent.wait_ok(&https(&agent, &servers, host)).await;
    }
    let mut checks = Checks::default();
    for (host, expected) in [
        ("a.x.test", 200),
        ("a.x.test:443", 200),
        ("A.X.Test", 200),
        ("a.x.test.", 200),
        ("b.x.test", 421),
        ("B.X.Test", 421),
        ("b.x.test:443", 421),
        ("b.x.test.", 421),
    ] {
        let request = agent.get(443, host, "/").tls("a.x.test", &servers.trust());
        checks.status(request.clone(), expected).await;
        checks.status(request.http2(), expected).await;
    }
    checks.finish();
}
