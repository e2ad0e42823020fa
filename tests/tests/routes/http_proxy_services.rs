//! `HTTPProxy` services on a real Envoy: protocols and backend verification.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::echo::EchoTls;
use sesame_tests::manifests::{
    backend_tls_policy, edge, edge_with_parameters, endpoint_slices, http_listener, http_proxy,
    ingress, ingress_class, ingress_rule, served, service, verified_by, yaml,
};
use sesame_tests::wait::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) fn authority_secret(name: &str, authority: &Authority) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": {"ca.crt": authority.pem()}})
}

/// `more` contains fields for the Service's entry.
fn to(prefix: &str, service: &str, more: Value) -> Value {
    let mut entry = json!({"name": service, "port": 80});
    if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
        entry.extend(more);
    }
    json!({"conditions": [{"prefix": prefix}], "services": [entry]})
}

fn root(host: &str, routes: &[Value]) -> Value {
    let spec = json!({"virtualhost": {"fqdn": host}, "routes": routes});
    http_proxy(&host.replace('.', "-"), &spec)
}

fn verified(protocol: &str, secret: &str, name: &str) -> Value {
    json!({"protocol": protocol, "validation": {"caSecret": secret, "subjectName": name}})
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_reached_by_protocol_and_verified() {
    let (ours, theirs, clients) = (
        Authority::new("backends"),
        Authority::new("others"),
        Authority::new("clients"),
    );
    let leaf = ours.issue(&["good.test"]);
    let client = clients.issue(&["gateway.test"]);
    let plain = Backend::start("plain").await;
    let secure = Backend::start_either("secure", &leaf).await;
    let mutual = Backend::start_mutual_tls("mutual", &leaf, &clients).await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    all[1]["spec"]["tls"] = json!({"backend": {"clientCertificateRef": {"name": "client"}}});
    for backend in [&plain, &secure, &mutual] {
        all.extend(served(backend.name(), &[backend.address()]));
    }
    all.extend([
        ingress_class(),
        client.secret("client"),
        authority_secret("ours", &ours),
        authority_secret("theirs", &theirs),
    ]);
    let mut host = to("/host", "secure", verified("tls", "ours", "good.test"));
    host["requestHeadersPolicy"] = json!({"set": [{"name": "Host", "value": "other.test"}]});
    all.push(root(
        "shop.test",
        &[
            to("/h2c", "plain", json!({"protocol": "h2c"})),
            to("/tls", "secure", verified("tls", "ours", "good.test")),
            to("/h2", "secure", verified("h2", "ours", "good.test")),
            to("/mutual", "mutual", verified("tls", "ours", "good.test")),
            host,
            to("/name", "secure", verified("tls", "ours", "bad.test")),
            to(
                "/authority",
                "secure",
                verified("tls", "theirs", "good.test"),
            ),
            to("/missing", "secure", verified("tls", "gone", "good.test")),
            to("/unverified", "secure", json!({"protocol": "tls"})),
            to(
                "/plain",
                "secure",
                json!({"validation": {"caSecret": "ours", "subjectName": "good.test"}}),
            ),
            to("/unknown", "plain", json!({"protocol": "h3"})),
        ],
    ));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let get = |path: &str| agent.get(80, "shop.test", path);
    agent.wait_backend(&get("/tls"), "secure").await;
    let mut checks = Checks::default();
    let certificate = STANDARD.encode(&client.der);
    let handshake = |server_name: &str| {
        Some(EchoTls {
            server_name: server_name.to_owned(),
            client_certificate: String::new(),
        })
    };
    let shown = handshake("good.test").map(|tls| EchoTls {
        client_certificate: certificate,
        ..tls
    });
    for (path, backend, protocol, tls) in [
        ("/h2c", "plain", "HTTP/2.0", None),
        ("/tls", "secure", "HTTP/1.1", handshake("good.test")),
        ("/h2", "secure", "HTTP/2.0", handshake("good.test")),
        ("/mutual", "mutual", "HTTP/1.1", shown),
        ("/host", "secure", "HTTP/1.1", handshake("other.test")),
    ] {
        if let Some(reply) = checks.reply(&get(path)).await {
            let echo = reply.echo();
            let found = (echo.backend.as_str(), echo.protocol.as_str(), echo.tls);
            checks.same(path, found, (backend, protocol, tls));
        }
    }
    let before = secure.count() + plain.count();
    for path in [
        "/name",
        "/authority",
        "/missing",
        "/unverified",
        "/plain",
        "/unknown",
    ] {
        checks.status(get(path), 503).await;
    }
    checks.same(
        "refused requests sent",
        secure.count() + plain.count() - before,
        0,
    );
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn annotated_services_are_reached_by_protocol() {
    let authority = Authority::new("backends");
    let leaf = authority.issue(&["good.test"]);
    let backend = Backend::start_either("backend", &leaf).await;
    let annotated = |name: &str, protocol: &str, port: &str| {
        let mut object = service(name, "");
        let annotation = format!("projectcontour.io/upstream-protocol.{protocol}");
        object["metadata"]["annotations"] = json!({annotation: port});
        let mut objects = endpoint_slices(name, &[backend.address()]);
        objects.push(object);
        objects
    };
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.extend([
        ingress_class(),
        Authority::config_map("ours", &[&authority]),
    ]);
    let services = [
        ("h2c", "h2c", "80", "HTTP/2.0", None),
        ("h2", "h2", "http", "HTTP/2.0", Some("good.test")),
        ("tls", "tls", "8080, http", "HTTP/1.1", Some("good.test")),
        ("other", "tls", "8080", "HTTP/1.1", None),
    ];
    let (mut routes, mut paths) = (Vec::new(), Vec::new());
    let names: Vec<String> = services.iter().map(|it| format!("/{}", it.0)).collect();
    for (path, (name, protocol, port, _, tls)) in names.iter().zip(services) {
        all.extend(annotated(name, protocol, port));
        if tls.is_some() {
            all.push(backend_tls_policy(name, &verified_by("ours", "good.test")));
        }
        routes.push(to(path, name, json!({})));
        paths.push((path.as_str(), "Prefix", name));
    }
    all.extend(annotated("unverified", "tls", "80"));
    routes.push(to("/unverified", "unverified", json!({})));
    paths.push(("/unverified", "Prefix", "unverified"));
    all.push(root("shop.test", &routes));
    let rules = json!({"rules": [ingress_rule("ingress.test", &paths)]});
    all.push(ingress("shop", &json!({}), &rules));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/tls")).await;
    let mut checks = Checks::default();
    for host in ["shop.test", "ingress.test"] {
        for (path, (_, _, _, protocol, tls)) in names.iter().zip(services) {
            if let Some(reply) = checks.reply(&agent.get(80, host, path)).await {
                let echo = reply.echo();
                let server_name = echo.tls.as_ref().map(|tls| tls.server_name.as_str());
                let what = format!("{host}{path}");
                checks.same(what, (echo.protocol.as_str(), server_name), (protocol, tls));
            }
        }
        checks.status(agent.get(80, host, "/unverified"), 503).await;
    }
    checks.finish();
}

/// The receiver is notified when the connection is closed.
async fn one_answer() -> (SocketAddr, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (ended, end) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = [0; 4096];
        let read = stream.read(&mut request).await.expect("a request");
        assert!(read > 0, "a request");
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("an answer is sent");
        while stream.read(&mut request).await.is_ok_and(|read| read > 0) {}
        // The test may already have dropped the receiver.
        let _ = ended.send(());
    });
    (address, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_end_at_route_timeout() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    let (short, ended) = one_answer().await;
    let (endless, mut lasting) = one_answer().await;
    let ready = Backend::start("ready").await;
    let timed = |prefix: &str, service: &str, timeout: &str| {
        let mut route = to(prefix, service, json!({}));
        route["timeoutPolicy"] = json!({"idleConnection": timeout});
        route
    };
    all.extend(served("short", &[short]));
    all.extend(served("endless", &[endless]));
    all.extend(served("ready", &[ready.address()]));
    all.push(root(
        "shop.test",
        &[
            timed("/ready", "ready", "1m"),
            timed("/short", "short", "1s"),
            timed("/endless", "endless", "infinity"),
            timed("/bad", "ready", "soon"),
        ],
    ));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let get = |path: &str| agent.get(80, "shop.test", path);
    agent.wait_backend(&get("/ready"), "ready").await;
    let mut checks = Checks::default();
    for path in ["/endless", "/short"] {
        checks.status(get(path), 200).await;
    }
    checks.status(get("/bad"), 500).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
    checks.that(ended.is_ok(), "the idle connection for /short is closed");
    let lasts = lasting.try_recv() == Err(oneshot::error::TryRecvError::Empty);
    checks.that(lasts, "the connection for /endless stays open");
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn cookie_keeps_a_client_at_its_endpoint() {
    let ends = [Backend::start("one").await, Backend::start("two").await];
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    all.extend(served("a", &ends.each_ref().map(Backend::address)));
    let sticky = |prefix: &str, strategy: &str| {
        let mut route = to(prefix, "a", json!({}));
        route["loadBalancerPolicy"] = json!({"strategy": strategy});
        route
    };
    let routes = [sticky("/kept", "Cookie"), sticky("/hash", "RequestHash")];
    all.push(root("shop.test", &routes));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let get = |path: &str| agent.get(80, "shop.test", path);
    agent.wait_ok(&get("/kept")).await;
    let mut checks = Checks::default();
    for _ in 0..4 {
        let Some(reply) = checks.reply(&get("/kept")).await else {
            continue;
        };
        let cookie = reply.header("set-cookie").unwrap_or_default().to_owned();
        let is_whole = cookie.starts_with("X-Contour-Session-Affinity=");
        checks.that(is_whole && cookie.contains("; Path=/;"), &cookie);
        let pair = cookie.split(';').next().unwrap_or_default();
        let first = reply.backend().unwrap_or_default();
        for _ in 0..10 {
            let request = get("/kept").header("cookie", pair);
            checks.backend(request, &first).await;
        }
    }
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        if let Some(reply) = checks.reply(&get("/hash")).await {
            seen.extend(reply.backend());
            checks.same("cookie of /hash", reply.header("set-cookie"), None);
        }
    }
    checks.same("endpoints of /hash", seen.len(), 2);
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_gets_copies_and_answers_nothing() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    let backends = start_served(&["a", "b"], &mut all).await;
    let mut route = to("/", "a", json!({}));
    route["services"] =
        json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "mirror": true}]);
    // All entries of one Service count.
    let mut twice = to("/twice", "a", json!({}));
    twice["services"] =
        json!([{"name": "a", "port": 80, "weight": 1}, {"name": "a", "port": 80, "weight": 2}]);
    let alone = to("/alone", "a", json!({}));
    all.push(root("shop.test", &[route, twice, alone]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let get = |path: &str| agent.get(80, "shop.test", path);
    agent.wait_backend(&get("/alone"), "a").await;
    let mut checks = Checks::default();
    for path in ["/copied", "/copied", "/copied", "/alone", "/twice"] {
        checks.backend(get(path), "a").await;
    }
    checks.finish();
    // Envoy does not wait for mirrored requests.
    eventually("b gets copies", TEST_TIMEOUT, async || {
        match backends.iter().map(Backend::count).collect::<Vec<_>>()[1] {
            3 => Ok(()),
            count => Err(format!("{count} copies")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_services_and_endpoints_heal() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    all.push(ingress_class());
    let backend = Backend::start("a").await;
    let names = ["late", "empty"];
    let paths = names.map(|name| format!("/{name}"));
    let routes = [0, 1].map(|i| to(&paths[i], names[i], json!({})));
    all.push(root("shop.test", &routes));
    let rules = [0, 1].map(|i| (paths[i].as_str(), "Prefix", names[i]));
    let spec = json!({"rules": [ingress_rule("ingress.test", &rules)]});
    all.push(ingress("shop", &json!({}), &spec));
    all.extend(served("a", &[backend.address()]));
    all.push(root("ready.test", &[to("/", "a", json!({}))]));
    let empty = yaml(&served("empty", &[]));
    let agent =
        Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all)), ("empty.yaml", &empty)]);
    agent.wait_ok(&agent.get(80, "ready.test", "/")).await;
    let requests = ["shop.test", "ingress.test"]
        .iter()
        .flat_map(|host| paths.each_ref().map(|path| agent.get(80, host, path)));
    let requests: Vec<Request> = requests.collect();
    let mut checks = Checks::default();
    for request in &requests {
        checks.status(request.clone(), 503).await;
    }
    let address = [backend.address()];
    agent.write("late.yaml", &yaml(&served("late", &address)));
    agent.write("empty.yaml", &yaml(&served("empty", &address)));
    for request in &requests {
        agent.wait_backend(request, "a").await;
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn unverified_services_are_reached_only_if_allowed() {
    let leaf = Authority::new("unknown").issue(&["any.test"]);
    let secure = Backend::start_either("secure", &leaf).await;
    let with = |backend_tls: Value| {
        let mut all = edge_with_parameters(&json!({"ingress": {"backendTls": backend_tls}}));
        all.extend(served(secure.name(), &[secure.address()]));
        all.push(ingress_class());
        let route = to("/", "secure", json!({"protocol": "tls"}));
        all.push(root("shop.test", &[route]));
        yaml(&all)
    };
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &with(json!({})))]);
    let request = agent.get(80, "shop.test", "/");
    agent.wait_served(&request, |it| it.status == 503).await;
    for limit in [json!({"minVersion": "1.3"}), json!({"maxVersion": "1.2"})] {
        let mut settings = limit;
        settings["allowUnverified"] = json!(true);
        agent.write("all.yaml", &with(settings));
        agent.wait_backend(&request, "secure").await;
    }
    agent.write("all.yaml", &with(json!({"minVersion": "1.3"})));
    agent.wait_served(&request, |it| it.status == 503).await;
}
