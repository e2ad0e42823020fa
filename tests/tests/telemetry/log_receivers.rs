//! Access logs as text, with selected fields, and over the network. Clients must not be able to
//! forge or suppress lines, and a failing receiver must not affect requests.

use std::net::TcpListener;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, arguments, words};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::collecting::Collecting;
use sesame_tests::http2;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge_with, http_listener, l4_listener, on_listener, plain_route, route, served, yaml,
};
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HOST: &str = "web.test";
/// Looks like additional JSON fields.
const FORGED: &str = "x\",\"status\":999,\"forged\":\"yes\tend";
/// Receivers reject an entire batch if one value is not valid UTF-8.
const BYTES: &[u8] = b"a\xff\xc3\x28";

fn objects(backend: &Backend, access_log: &Value) -> Vec<Value> {
    let spec = json!({"accessLog": access_log});
    let listeners = [
        http_listener("http", 80, ""),
        l4_listener("tcp", 5001, "TCP"),
    ];
    let mut objects = edge_with(&spec, &listeners);
    objects.extend(served("app", &[backend.address()]));
    objects.push(on_listener(plain_route("web", HOST, "app"), "http"));
    let rule = json!({"backendRefs": [{"name": "app", "port": 80}]});
    objects.push(on_listener(route("TCPRoute", "tcp", &[], &[rule]), "tcp"));
    objects
}

fn start(objects: &[Value]) -> AgentUnderTest {
    Setup::with_ports(&[80, 5001])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(objects))])
}

async fn send(agent: &AgentUnderTest, request: &[u8]) {
    let stream = TcpStream::connect(agent.address(80)).await;
    let mut stream = stream.expect("a connection");
    // Envoy may close the connection early.
    let _ = stream.write_all(request).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

fn written(agent: &AgentUnderTest) -> Vec<u8> {
    let logs = agent.visible(&agent.state().join("access-logs"));
    let directories = std::fs::read_dir(logs).into_iter().flatten().flatten();
    let files = directories.map(|it| std::fs::read(it.path().join("access.log")));
    files.flat_map(Result::unwrap_or_default).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn log_receivers_get_selected_fields_without_forgery() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    let tenant = json!([{"name": "x-receiver", "value": "shop"}]);
    let mut all = objects(
        &backend,
        &json!({
            "format": {
                "fields": ["path", "user_agent", "host"],
                "extraFields": [
                    {"name": "tenant", "requestHeader": "X-Tenant"},
                    {"name": "type", "responseHeader": "content-type"},
                    {"name": "share", "literal": "100%PROTOCOL%"},
                ],
            },
            "onHost": false,
            "sinks": [
                {"backendRef": {"name": "over-grpc", "port": 80}, "headers": tenant},
                {"backendRef": {"name": "over-http", "port": 80}, "headers": tenant},
                {"backendRef": {"name": "over-grpc", "port": 80}, "protocol": "EnvoyALS", "queries": "Included"},
            ],
        }),
    );
    all.extend(served("over-grpc", &[collecting.address()]));
    let mut over_http = served("over-http", &[collecting.address()]);
    over_http[0]["spec"]["ports"][0]["appProtocol"] = json!("http");
    all.extend(over_http);
    let agent = start(&all);
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    let head = format!(
        "GET /forged HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\nx-tenant: a\",\"b\r\nuser-agent: "
    );
    send(&agent, format!("{head}{FORGED}\r\n\r\n").as_bytes()).await;
    let head = "GET /%ff HTTP/1.1\r\nhost: bytes.test\r\nconnection: close\r\nx-tenant: ";
    send(
        &agent,
        &[
            head.as_bytes(),
            BYTES,
            b"\r\nuser-agent: ",
            BYTES,
            b"\r\n\r\n",
        ]
        .concat(),
    )
    .await;
    let path = [b"/%00", BYTES].concat();
    let refused = http2::ask(agent.address(80), HOST, &path, BYTES).await;
    refused.expect("a connection");
    let request = agent
        .get(80, HOST, "/asked?token=hunter1")
        .header("x-tenant", "shop")
        .header("authorization", "Bearer hunter2")
        .header("cookie", "hunter3");
    assert_eq!(request.send().await.expect("an answer").status, 200);
    agent.wait_ok(&agent.get(5001, "any.test", "/")).await;

    let mut checks = Checks::default();
    for path in ["/v1/logs", "LogsService/Export"] {
        let asked = collecting.record(path, "path", "/asked").await;
        for (name, value) in [
            ("gateway", Some("Gateway/default/edge")),
            ("port", Some("80")),
            ("route", Some("HTTPRoute/default/web/rules/0/matches/0")),
            ("backend", Some("Service/default/app/80")),
            ("status", Some("200")),
            ("host", Some(HOST)),
            ("tenant", Some("shop")),
            ("share", Some("100%PROTOCOL%")),
            // `method` is not selected.
            ("method", None),
        ] {
            checks.same(name, asked.attribute(name), value);
        }
        checks.same("type", asked.attribute("type"), None);
        checks.same("service", asked.service.as_str(), "edge.default");
        checks.same("header", asked.header("x-receiver"), Some("shop"));
        let forged = collecting.record(path, "path", "/forged").await;
        checks.same("forged", forged.attribute("forged"), None);
        checks.same("tenant", forged.attribute("tenant"), Some("a\",\"b"));
        checks.same("agent", forged.attribute("user_agent"), Some(FORGED));
        // Path, user agent and tenant are not valid UTF-8.
        let bytes = collecting.record(path, "host", "bytes.test").await;
        for (name, value) in [
            ("status", Some("404")),
            ("path", None),
            ("user_agent", None),
            ("tenant", None),
        ] {
            checks.same(name, bytes.attribute(name), value);
        }
        let connection = collecting.record(path, "protocol", "tcp").await;
        let route = connection.attribute("route");
        checks.same("route", route, Some("TCPRoute/default/tcp/rules/0"));
    }
    let all = collecting.records();
    let otlp_records = all.iter().filter(|it| !it.service.starts_with("Gateway/"));
    let otlp_records = format!("{:?}", otlp_records.collect::<Vec<_>>());
    checks.that(!otlp_records.contains("hunter"), &otlp_records);
    // Queries are included for this receiver, so only the secrets in headers must be absent.
    let stream = "/StreamAccessLogs";
    let asked = collecting
        .record(stream, "path", "/asked?token=hunter1")
        .await;
    for (name, value) in [
        ("gateway", "Gateway/default/edge"),
        ("port", "80"),
        ("route", "HTTPRoute/default/web/rules/0/matches/0"),
        ("status", "200"),
        ("x-tenant", "shop"),
        ("share", "100%PROTOCOL%"),
    ] {
        checks.same(name, asked.attribute(name), Some(value));
    }
    checks.same("log", asked.service.as_str(), "Gateway/default/edge");
    collecting.record(stream, "path", "/forged").await;
    let route = "TCPRoute/default/tcp/rules/0";
    collecting.record(stream, "route", route).await;
    let all = format!("{:?}", collecting.records());
    for secret in ["hunter2", "hunter3"] {
        checks.that(!all.contains(secret), &all);
    }
    checks.same("bytes on the host", written(&agent).len(), 0);
    checks.finish();
}

const COLUMNS: [&str; 10] = [
    "gateway",
    "port",
    "method",
    "host",
    "path",
    "status",
    "duration_ms",
    "protocol",
    "client_address",
    "route",
];

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_break_text_lines_or_move_columns() {
    let backend = Backend::start("app").await;
    let format = json!({"format": {"type": "Text", "fields": COLUMNS}});
    let agent = start(&objects(&backend, &format));
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    agent.wait_ok(&agent.get(5001, "any.test", "/")).await;
    let nasty: [&[u8]; 12] = [
        b"/a\tb",
        b"/a b",
        b"/a\nb",
        b"/a\rb",
        b"/a\"b",
        b"/%0a%09b",
        b"/%00\tb",
        b"/%00\"b",
        b"/a\x0bb\x0c\x1b",
        b"/\xe2\x80\xa8\xc2\x85",
        b"/#\tb",
        b"*\t",
    ];
    for path in nasty {
        let version = format!(" HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n");
        send(&agent, &[b"GET ", path, version.as_bytes()].concat()).await;
        let asked = http2::ask(agent.address(80), HOST, path, BYTES).await;
        asked.expect("a connection");
    }
    for (method, host, more) in [
        ("G\tET", HOST, ""),
        ("G\"ET", HOST, ""),
        ("GET", "a\tb", ""),
        ("GET", "", ""),
        ("GET", "-\t200", ""),
        ("GET", HOST, "x-forwarded-for: 1.2.3.4\t5\r\n"),
        ("GET", HOST, "x-envoy-original-path: /a\tb\r\n"),
        ("GET", HOST, "x\tb: c\r\n"),
    ] {
        let request =
            format!("{method} / HTTP/1.1\r\nhost: {host}\r\n{more}connection: close\r\n\r\n");
        send(&agent, request.as_bytes()).await;
    }
    http2::ask(agent.address(80), "a\tb", b"/", b"")
        .await
        .expect("a connection");
    agent.wait_ok(&agent.get(80, HOST, "/last")).await;
    let text = eventually("the last line", TEST_TIMEOUT, async || {
        let text = written(&agent);
        let shown = String::from_utf8_lossy(&text).into_owned();
        holds(shown.contains("/last\t200"), || shown)?;
        Ok(text)
    })
    .await;
    let mut checks = Checks::default();
    let mut client_lines = 0;
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let shown = String::from_utf8_lossy(line);
        let columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        checks.same(&*shown, columns.len(), COLUMNS.len());
        checks.same(&*shown, columns[0], &b"Gateway/default/edge"[..]);
        let plain = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        checks.that(columns.iter().all(|it| it.iter().all(plain)), &*shown);
        client_lines += usize::from(columns[5] == b"400" || columns[5] == b"200");
    }
    checks.that(client_lines > nasty.len(), format!("{client_lines} lines"));

    let runtime = agent.runtime();
    let command = |line: &str| {
        let line = format!("{line} --runtime-dir {}", runtime.display());
        agent.command(&arguments(&line))
    };
    let printed = words(&command("logs"));
    checks.that(printed.contains("GET\tweb.test\t/last\t200"), &printed);
    for line in ["logs --status 200", "top --once"] {
        let output = command(line);
        checks.that(!output.status.success(), line);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        checks.that(
            why.contains("spec.accessLog.format"),
            format!("{line}: {why}"),
        );
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_or_stalled_log_receiver_fails_no_request() {
    let backend = Backend::start("app").await;
    let collecting = Collecting::start().await;
    // This receiver accepts connections but never reads from them.
    let stalled = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let sink = |name: &str| json!({"backendRef": {"name": name, "port": 80}});
    let als = |name: &str| json!({"backendRef": {"name": name, "port": 80}, "protocol": "EnvoyALS", "queries": "Included"});
    let sinks = [
        sink("collector"),
        als("collector"),
        sink("stalled"),
        als("stalled"),
    ];
    let mut all = objects(&backend, &json!({"sinks": sinks}));
    all.extend(served("collector", &[collecting.address()]));
    all.extend(served(
        "stalled",
        &[stalled.local_addr().expect("the socket is bound")],
    ));
    let agent = start(&all);
    let request = agent.get(80, HOST, "/load");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request]));
    for path in ["LogsService/Export", "/StreamAccessLogs"] {
        collecting.record(path, "path", "/load").await;
    }
    drop(collecting);
    load.pass(5_000).await;
    let report = load.stop().await;
    report.print("the receivers go away");
    report.assert_clean();
}
