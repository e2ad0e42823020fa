//! Listeners are selected by hostname and SNI. Misdirected requests get 421.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, https_listener, on_listener, path, route,
    rule_to, served, tls_listener, yaml,
};

#[tokio::test(flavor = "multi_thread")]
async fn request_reaches_only_most_specific_listener() {
    let backend = Backend::start("a").await;
    // Columns: listener, its hostname, and a host that it serves.
    let listeners = [
        ("empty", "", "bar.com"),
        ("wild", "*.example.com", "bar.example.com"),
        ("wild-foo", "*.foo.example.com", "bar.foo.example.com"),
        ("exact", "abc.foo.example.com", "abc.foo.example.com"),
    ];
    let mut objects = edge(&listeners.map(|(name, hostname, _)| http_listener(name, 80, hostname)));
    objects.extend(served("a", &[backend.address()]));
    for (name, _, _) in listeners {
        let rules = [rule_to("a", &[path("PathPrefix", &format!("/{name}"))])];
        objects.push(on_listener(http_route(name, &[], &rules), name));
    }
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "bar.com", "/empty")).await;
    let mut checks = Checks::default();
    for (owner, _, host) in listeners {
        for (name, _, _) in listeners {
            let request = agent.get(80, host, &format!("/{name}"));
            checks
                .status(request, if name == owner { 200 } else { 404 })
                .await;
        }
    }
    // A wildcard matches one or more labels.
    for (host, path, status) in [
        ("a.b.example.com", "/wild", 200),
        ("example.com", "/empty", 200),
        ("example.com", "/wild", 404),
        ("foo.example.com", "/wild", 200),
        ("bar.com.", "/empty", 200),
        ("abc.foo.example.com.", "/exact", 200),
        ("abc.foo.example.com.:80", "/exact", 200),
        ("abc.foo.example.com.", "/empty", 404),
        ("other,abc.foo.example.com", "/wild-foo", 400),
        ("user@abc.foo.example.com", "/wild-foo", 400),
        ("other,nowhere", "/empty", 400),
    ] {
        checks.status(agent.get(80, host, path), status).await;
    }
    checks.finish();
}

struct Tls {
    authority: Authority,
    exact: Leaf,
    wild: Leaf,
    other: Leaf,
}

impl Tls {
    fn new() -> Self {
        let authority = Authority::new("tests");
        Self {
            exact: authority.issue(&["a.tls.test"]),
            wild: authority.issue(&["*.tls.test", "x.y.tls.test"]),
            other: authority.issue(&["other.test", "unknown.test", "only.test", "two.test"]),
            authority,
        }
    }

    fn secrets(&self) -> Vec<Value> {
        vec![
            self.exact.secret("exact"),
            self.wild.secret("wild"),
            self.other.secret("other"),
        ]
    }

    fn get(&self, agent: &AgentUnderTest, port: u16, sni: &str, host: &str) -> Request {
        agent.get(port, host, "/").tls(sni, &self.authority.trust())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_name_selects_listener_and_certificate() {
    let backend = Backend::start("a").await;
    let tls = Tls::new();
    let mut both = https_listener("both", 445, "", "exact");
    both["tls"]["certificateRefs"] = json!([{"name": "exact"}, {"name": "other"}]);
    let mut objects = edge(&[
        https_listener("exact", 443, "a.tls.test", "exact"),
        https_listener("wild", 443, "*.tls.test", "wild"),
        https_listener("any", 443, "", "other"),
        https_listener("only", 444, "only.test", "other"),
        both,
    ]);
    objects.extend(served("a", &[backend.address()]));
    objects.extend(tls.secrets());
    let all = [rule_to("a", &[])];
    for (name, hostnames) in [
        ("exact", &["a.tls.test"][..]),
        ("wild", &["*.tls.test"]),
        ("any", &["other.test"]),
        ("only", &["only.test"]),
        ("both", &[]),
    ] {
        objects.push(on_listener(http_route(name, hostnames, &all), name));
    }
    let agent = Setup::with_ports(&[443, 444, 445]).start(&[("all.yaml", &yaml(&objects))]);
    agent
        .wait_ok(&tls.get(&agent, 445, "two.test", "two.test"))
        .await;

    let mut checks = Checks::default();
    for (port, sni, leaf) in [
        (443, "a.tls.test", &tls.exact),
        (443, "b.tls.test", &tls.wild),
        (443, "x.y.tls.test", &tls.wild),
        (443, "other.test", &tls.other),
        (444, "only.test", &tls.other),
        (445, "a.tls.test", &tls.exact),
        (445, "two.test", &tls.other),
    ] {
        for request in [
            tls.get(&agent, port, sni, sni),
            tls.get(&agent, port, sni, sni).http2(),
        ] {
            let Some(reply) = checks.reply(&request).await else {
                continue;
            };
            checks.same(&request, reply.status, 200);
            checks.that(
                reply.certificate.as_ref() == Some(&leaf.der),
                format!("{request}: certificate"),
            );
        }
    }
    let stranger = tls
        .get(&agent, 444, "a.tls.test", "a.tls.test")
        .send()
        .await;
    checks.that(
        stranger.is_err(),
        "a TLS connection with an unknown server name",
    );

    // A different listener serves the host, so the client must open another connection.
    for (sni, host) in [
        ("a.tls.test", "b.tls.test"),
        ("b.tls.test", "a.tls.test"),
        ("a.tls.test", "unknown.test"),
        ("b.tls.test", "other.test"),
        ("b.tls.test", "a.tls.test."),
        ("b.tls.test", "a.tls.test.:443"),
        ("other.test", "a.tls.test"),
        ("other.test", "b.tls.test"),
    ] {
        let request = tls.get(&agent, 443, sni, host);
        checks.status(request.clone(), 421).await;
        checks.status(request.http2(), 421).await;
    }
    // The same listener or no listener serves the host.
    for (port, sni, host, status) in [
        (443, "b.tls.test", "c.tls.test", 200),
        (443, "other.test", "unknown.test", 404),
        (444, "only.test", "unknown.test", 404),
        (443, "a.tls.test", "a.tls.test:443", 200),
        (443, "a.tls.test", "a.tls.test.", 200),
        (443, "a.tls.test", "a.tls.test.:443", 200),
    ] {
        let request = tls.get(&agent, port, sni, host);
        checks.status(request, status).await;
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn request_for_passthrough_host_is_misdirected() {
    let (ours, theirs) = (Authority::new("gateway"), Authority::new("backends"));
    let ended = Backend::start("ended").await;
    let passed = Backend::start_tls("passed", &theirs.issue(&["pass.tls.test"])).await;
    let mut objects = edge(&[
        https_listener("https", 443, "*.tls.test", "wild"),
        tls_listener("pass", 443, "pass.tls.test", None),
    ]);
    objects.push(ours.issue(&["*.tls.test"]).secret("wild"));
    for backend in [&ended, &passed] {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    // The wildcard covers the passthrough listener's host.
    let hostnames = ["*.tls.test", "pass.tls.test"];
    objects.push(on_listener(
        http_route("all", &hostnames, &[rule_to("ended", &[])]),
        "https",
    ));
    let through = [json!({"backendRefs": [backend_ref("passed")]})];
    objects.push(on_listener(
        route("TLSRoute", "pass", &["pass.tls.test"], &through),
        "pass",
    ));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&objects))]);
    let at = |host: &str| agent.get(443, host, "/").tls("a.tls.test", &ours.trust());
    agent.wait_ok(&at("a.tls.test")).await;
    let mut checks = Checks::default();
    for request in [at("pass.tls.test"), at("pass.tls.test:443")] {
        checks.status(request.clone(), 421).await;
        checks.status(request.http2(), 421).await;
    }
    checks.backend(at("b.tls.test"), "ended").await;
    let passed = agent.get(443, "pass.tls.test", "/");
    let passed = passed.tls("pass.tls.test", &theirs.trust());
    checks.backend(passed, "passed").await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_rotates_without_a_failed_request() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("tests");
    let mut objects = edge(&[https_listener("https", 443, "", "pair")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("all", &[], &[rule_to("a", &[])]));
    let mut leaf = authority.issue(&["a.test"]);
    let agent = Setup::with_ports(&[443]).start(&[
        ("all.yaml", &yaml(&objects)),
        ("secret.yaml", &yaml(&[leaf.secret("pair")])),
    ]);
    let request = agent
        .get(443, "a.test", "/")
        .tls("a.test", &authority.trust());
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone(), request.clone().http2()]));
    for _ in 0..10 {
        load.pass(20).await;
        leaf = authority.issue(&["a.test"]);
        agent.write("secret.yaml", &yaml(&[leaf.secret("pair")]));
        let expected = Some(leaf.der.clone());
        agent
            .wait_served(&request, |reply| reply.certificate == expected)
            .await;
    }
    load.stop().await.assert_clean();
}
