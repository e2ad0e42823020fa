//! `spec.edge.http3`: which ports answer over QUIC, which responses announce it, and how requests over
//! HTTP/3 are served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Request;
use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::http3::Connection;
use sesame_tests::manifests::{
    access_policy, class_with_parameters, gateway, http_listener, http_proxy, http_route,
    https_listener, ingress_class, plain_route, rule_to, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::net::UdpSocket;

/// Long enough for a busy machine, as most of the probes get no answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns true if a QUIC server listens: it must answer an unknown version with the versions that
/// it knows (RFC 9000, 6.1), and needs no handshake for that.
async fn speaks_quic(address: SocketAddr) -> Result<bool> {
    let socket = UdpSocket::bind((address.ip(), 0)).await?;
    socket.connect(address).await?;
    let mut packet = vec![0xC0, 0x1A, 0x2A, 0x3A, 0x4A];
    // Destination and source connection ids of 8 bytes each.
    for id in [b"\x08sesame-d", b"\x08sesame-s"] {
        packet.extend_from_slice(id);
    }
    // Servers ignore shorter datagrams.
    packet.resize(1200, 0);
    let mut answer = [0; 1500];
    for _ in 0..5 {
        // Fails if nothing listens on the port.
        if socket.send(&packet).await.is_err() {
            return Ok(false);
        }
        match tokio::time::timeout(PATIENCE, socket.recv(&mut answer)).await {
            Ok(Ok(length)) => {
                let is_negotiation = length > 23 && answer[0] >= 0x80 && answer[1..5] == [0; 4];
                let mut versions = answer[23..length].chunks(4);
                return Ok(is_negotiation && versions.any(|version| version == [0, 0, 0, 1]));
            }
            Ok(Err(_)) => return Ok(false),
            Err(_) => {}
        }
    }
    Ok(false)
}

fn objects(edge: &Value, ours: &Authority) -> Vec<Value> {
    let listeners = [
        http_listener("http", 80, ""),
        https_listener("https", 443, "a.test", "cert"),
        https_listener("clients", 444, "a.test", "cert"),
    ];
    let settings = json!({"edge": edge});
    let [parameters, class] = class_with_parameters("edge", "parameters", &settings);
    let mut gateway = gateway("edge", &listeners);
    gateway["spec"]["tls"] = json!({"frontend": {
        "default": {},
        "perPort": [{"port": 444, "tls": {"validation": {
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ours"}],
        }}}],
    }});
    vec![
        parameters,
        class,
        gateway,
        Authority::config_map("ours", &[ours]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn http3_is_served_and_announced_without_client_certificates() {
    let (servers, ours) = (Authority::new("gateway"), Authority::new("clients"));
    let mut all = objects(&json!({"http3": {}}), &ours);
    let _backends = start_served(&["a"], &mut all).await;
    all.push(servers.issue(&["a.test"]).secret("cert"));
    all.push(http_route("web", &["a.test"], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80, 443, 444]).start(&[("all.yaml", &yaml(&all))]);
    let request = |port: u16| agent.get(port, "a.test", "/");
    let over_tls = |port: u16| request(port).tls("a.test", &servers.trust());
    agent.wait_ok(&over_tls(443)).await;

    let mut checks = Checks::default();
    let client = ours.issue(&["client.test"]);
    for (request, announced) in [
        (request(80), None),
        (over_tls(443), Some("h3=\":443\"; ma=3600")),
        (over_tls(443).http2(), Some("h3=\":443\"; ma=3600")),
        (over_tls(444).showing(&client), None),
    ] {
        let reply = request.send().await.expect("a reply");
        checks.same("status", reply.status, 200);
        checks.same("alt-svc", reply.header("alt-svc"), announced);
    }
    for (port, expected) in [(80, false), (443, true), (444, false)] {
        let speaks = speaks_quic(agent.address(port)).await;
        checks.same(format!("QUIC on {port}"), speaks.ok(), Some(expected));
    }
    // Switched off again.
    let [parameters, _] = class_with_parameters("edge", "parameters", &json!({"edge": {}}));
    all[0] = parameters;
    agent.write("all.yaml", &yaml(&all));
    let without = |reply: &sesame_tests::client::Reply| reply.header("alt-svc").is_none();
    agent.wait_served(&over_tls(443), without).await;
    // Envoy closes the socket when the old listener has drained.
    eventually("no QUIC", TEST_TIMEOUT, async || {
        let speaks = speaks_quic(agent.address(443)).await;
        holds(matches!(speaks, Ok(false)), || format!("{speaks:?}"))
    })
    .await;
    checks.finish();
}

/// Distinguishable from Envoy's own address.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// Fails if there is no handshake in time: Envoy drops packets for unknown server names.
async fn connect(
    agent: &AgentUnderTest,
    client: IpAddr,
    sni: &str,
    servers: &Authority,
) -> Result<Connection> {
    let (address, trust) = (agent.address(443), servers.trust());
    let opened = Connection::open(client, address, sni, &trust);
    tokio::time::timeout(2 * PATIENCE, opened).await?
}

/// Repeats handshakes, because Envoy may not listen yet.
async fn connected(
    agent: &AgentUnderTest,
    client: IpAddr,
    sni: &str,
    servers: &Authority,
) -> Connection {
    let what = format!("a connection for {sni} from {client}");
    eventually(&what, TEST_TIMEOUT, async || {
        let opened = connect(agent, client, sni, servers).await;
        opened.map_err(|error| format!("{error:#}\n{}", agent.log_tail()))
    })
    .await
}

fn with_http3(listeners: &[Value]) -> Vec<Value> {
    let settings = json!({"edge": {"http3": {}}});
    let [parameters, class] = class_with_parameters("edge", "parameters", &settings);
    vec![parameters, class, gateway("edge", listeners)]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_http3_are_served_like_others() {
    let servers = Authority::new("gateway");
    let mut all = with_http3(&[https_listener("https", 443, "*.test", "cert")]);
    let _backends = start_served(&["a", "b"], &mut all).await;
    let names = ["open.test", "guarded.test"];
    all.push(servers.issue(&names).secret("cert"));
    all.push(plain_route("open", "open.test", "a"));
    all.push(plain_route("guarded", "guarded.test", "a"));
    let target = json!({"kind": "HTTPRoute", "name": "guarded"});
    let denied = json!({"ipFilter": {"deny": [format!("{CLIENT}/32")]}});
    all.push(access_policy("guarded", target, &denied));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&all))]);
    let mut checks = Checks::default();
    let mut connection = connected(&agent, CLIENT, "open.test", &servers).await;

    let reply = connection.get("open.test", "/shop?item=1").await;
    let reply = reply.expect("a reply");
    checks.same("status", reply.status, 200);
    let announced = Some("h3=\":443\"; ma=3600");
    checks.same("alt-svc", reply.header("alt-svc"), announced);
    let echo = reply.echo();
    checks.same("method", echo.method.as_str(), "GET");
    checks.same("host", echo.host.as_str(), "open.test");
    checks.same("path", echo.path.as_str(), "/shop?item=1");
    let client = CLIENT.to_string();
    for (header, expected) in [
        ("x-forwarded-for", client.as_str()),
        ("x-forwarded-proto", "https"),
    ] {
        checks.same(header, echo.value(header), Some(expected));
    }

    // The backend waits for this many bytes, which exceed a stream's window. The client lets the
    // kernel combine its datagrams, as fast networks do.
    let body = Bytes::from(vec![b'x'; 200_000]);
    let request = Request::post("https://open.test/upload").header("content-length", body.len());
    let reply = connection
        .send(request.body(body).expect("a request"))
        .await;
    let reply = reply.expect("a reply to a body");
    checks.same("status of POST", reply.status, 200);
    let echo = reply.echo();
    checks.same("method", echo.method.as_str(), "POST");
    checks.same("length", echo.value("content-length"), Some("200000"));

    let other = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut allowed = connected(&agent, other, "guarded.test", &servers).await;
    for (connection, expected) in [(&mut connection, 403), (&mut allowed, 200)] {
        let reply = connection.get("guarded.test", "/").await;
        checks.same("guarded", reply.expect("a reply").status, expected);
    }

    // A changed route applies to the open connection. No request on it fails meanwhile.
    let changed = plain_route("open", "open.test", "b");
    let is_open = |it: &&mut Value| it["kind"] == "HTTPRoute" && it["metadata"]["name"] == "open";
    *all.iter_mut().find(is_open).expect("the route") = changed;
    agent.write("all.yaml", &yaml(&all));
    eventually("the new backend", TEST_TIMEOUT, async || {
        let reply = connection.get("open.test", "/").await.expect("a reply");
        match (reply.status, reply.backend().as_deref()) {
            (200, Some("b")) => Ok(()),
            (200, Some("a")) => Err(agent.log_tail()),
            other => panic!("{other:?}"),
        }
    })
    .await;
    checks.that(connection.is_open(), "the connection is closed");
    checks.finish();
}

/// HTTPProxies may ask for client certificates on a port with listeners that do not.
#[tokio::test(flavor = "multi_thread")]
async fn http3_bypasses_no_client_certificates() {
    let (servers, ours) = (Authority::new("gateway"), Authority::new("clients"));
    let mut all = with_http3(&[
        https_listener("one", 443, "a.test", "cert"),
        https_listener("wide", 443, "*.wide.test", "cert"),
    ]);
    let _backends = start_served(&["a"], &mut all).await;
    // Nothing but Envoy prevents a connection for `none.test`.
    let names = ["a.test", "clients.test", "none.test", "*.wide.test"];
    all.push(servers.issue(&names).secret("cert"));
    all.push(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "ca", "namespace": "default"},
        "data": {"ca.crt": STANDARD.encode(ours.pem())}}),
    );
    all.push(ingress_class());
    let hosts = ["clients.test", "clients.wide.test"];
    for host in hosts {
        let tls = json!({"secretName": "cert", "clientValidation": {"caSecret": "ca"}});
        let spec = json!({"virtualhost": {"fqdn": host, "tls": tls},
            "routes": [{"services": [{"name": "a", "port": 80}]}]});
        all.push(http_proxy(host, &spec));
    }
    let rules = [rule_to("a", &[])];
    all.push(http_route("web", &["a.test", "*.wide.test"], &rules));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &yaml(&all))]);
    let known = ours.issue(&["client.test"]);
    let mut checks = Checks::default();
    for host in hosts {
        let over_tls = agent.get(443, host, "/").tls(host, &servers.trust());
        agent.wait_ok(&over_tls.clone().showing(&known)).await;
        let refused = over_tls.send().await.is_err();
        checks.that(refused, format!("{host}: served without a certificate"));
    }

    // The first has no HTTP/3 listener, and the last matches the wide one.
    for (sni, expected) in [
        ("clients.test", None),
        ("none.test", None),
        ("a.test", Some(200)),
        ("a.wide.test", Some(200)),
        ("clients.wide.test", Some(421)),
    ] {
        let mut status = None;
        if let Ok(mut connection) = connect(&agent, CLIENT, sni, &servers).await {
            let reply = connection.get(sni, "/").await.expect("a reply");
            status = Some(reply.status);
            for host in hosts {
                let reply = connection.get(host, "/").await.expect("a reply");
                let what = format!("{host} through {sni}");
                checks.same(what, reply.status, 421);
            }
        }
        checks.same(format!("SNI {sni}"), status, expected);
    }
    checks.finish();
}
