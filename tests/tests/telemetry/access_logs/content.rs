//! Access log content. Clients must not be able to forge lines or fields.

use std::time::Duration;

use serde_json::{Value, json};
use sesame_tests::agent::{Setup, arguments, words};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::datagrams::{self, DatagramBackend};
use sesame_tests::manifests::{
    backend_ref, edge, edge_with, edge_with_parameters, http_listener, http_route, https_listener,
    l4_listener, layered, on_listener, over_udp, route, rule_to, served, tls_listener, yaml,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::HOST;
use super::logs::{line, text};

#[tokio::test(flavor = "multi_thread")]
async fn access_log_line_describes_request_without_secrets() {
    let authority = Authority::new("gateway");
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, HOST, "cert"),
    ]);
    objects.push(authority.issue(&[HOST]).secret("cert"));
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    objects.extend(layered("web", "a"));
    let agent = Setup::with_ports(&[80, 443])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    let request = agent
        .get(80, HOST, "/plain?token=hunter1&a=b")
        .header("authorization", "Bearer hunter2")
        .header("cookie", "session=hunter3")
        .header("x-api-key", "hunter4")
        .header("x-request-id", "4711")
        .header("user-agent", "test/1.0");
    let mut checks = Checks::default();
    checks.status(request, 200).await;
    let secure = agent
        .get(443, HOST, "/secure")
        .tls(HOST, &authority.trust())
        .http2();
    checks.status(secure, 200).await;
    for (host, path, status) in [
        ("nobody.test", "/lost", 404),
        ("proxy.test", "/proxy", 200),
        ("ingress.test", "/ingress", 200),
    ] {
        checks.status(agent.get(80, host, path), status).await;
    }
    checks.finish();

    let plain = line(&agent, "path", &json!("/plain")).await;
    let mut checks = Checks::default();
    for (field, expected) in [
        ("gateway", json!("Gateway/default/edge")),
        ("port", json!(80)),
        ("route", json!("HTTPRoute/default/web/rules/0/matches/0")),
        ("backend", json!("Service/default/a/80")),
        ("method", json!("GET")),
        ("host", json!(HOST)),
        ("protocol", json!("HTTP/1.1")),
        ("status", json!(200)),
        ("user_agent", json!("test/1.0")),
        ("bytes_received", json!(0)),
        ("attempts", json!(1)),
    ] {
        checks.same(field, plain.get(field), Some(&expected));
    }
    let secure = line(&agent, "path", &json!("/secure")).await;
    for (field, expected) in [
        ("listener", "Gateway/default/edge/listeners/https"),
        ("protocol", "HTTP/2"),
        ("tls_version", "TLSv1.3"),
        ("tls_server_name", HOST),
    ] {
        checks.same(field, secure.get(field), Some(&json!(expected)));
    }
    for (path, kind) in [("/proxy", "HTTPProxy"), ("/ingress", "Ingress")] {
        let layered = line(&agent, "path", &json!(path)).await;
        let route = json!(format!("{kind}/default/web/rules/0/matches/0"));
        checks.same(path, layered.get("route"), Some(&route));
    }
    let lost = line(&agent, "path", &json!("/lost")).await;
    checks.same("status", lost.get("status"), Some(&json!(404)));
    checks.same("backend", lost.get("backend"), None);
    checks.that(!text(&agent).contains("hunter"), "a secret is logged");

    let runtime = agent.runtime();
    let logs = |more: &str| {
        let line = format!("logs --runtime-dir {} {more}", runtime.display());
        agent.command(&arguments(&line))
    };
    let printed = words(&logs("edge --lines 1000"));
    checks.that(printed.contains(" 404 GET nobody.test/lost "), &printed);
    let printed = words(&logs("--output json"));
    let found = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    checks.that(found.into_iter().any(|line| line == plain), &printed);
    checks.same(
        "code for no such Gateway",
        logs("other").status.code(),
        Some(3),
    );
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_forge_log_fields_or_lines() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    let long = "x".repeat(20_000);
    let huge = "y".repeat(100 << 10);
    let sent: [(&str, &[u8]); 6] = [
        ("quotes", br#"x","status":999,"forged":"yes"#),
        (
            "escapes",
            br#"x\",\"forged\":\"%REQ(AUTHORIZATION)%\\ %RESPONSE_CODE% %%"#,
        ),
        ("bytes", b"\xff\xfe\xc3\x28\tend"),
        ("control", b"a\x01\x1b[2Jb"),
        ("long", long.as_bytes()),
        ("huge", huge.as_bytes()),
    ];
    for (name, agent_name) in sent {
        let mut stream = TcpStream::connect(agent.address(80))
            .await
            .expect("a connection");
        let head = format!("GET /{name} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n");
        let forged = "x-envoy-original-path: /forged\r\nauthorization: hunter2\r\nuser-agent: ";
        let request = [head.as_bytes(), forged.as_bytes(), agent_name, b"\r\n\r\n"].concat();
        // Envoy may close the connection early.
        let _ = stream.write_all(&request).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let mut checks = Checks::default();
    // `line` panics on unknown fields.
    let quotes = line(&agent, "path", &json!("/quotes")).await;
    checks.same(
        "quotes",
        quotes["user_agent"].as_str(),
        Some(r#"x","status":999,"forged":"yes"#),
    );
    checks.same("status", quotes["status"].as_u64(), Some(200));
    let escapes = line(&agent, "path", &json!("/escapes")).await;
    let expected = r#"x\",\"forged\":\"%REQ(AUTHORIZATION)%\\ %RESPONSE_CODE% %%"#;
    checks.same("escapes", escapes["user_agent"].as_str(), Some(expected));
    let bytes = line(&agent, "path", &json!("/bytes")).await;
    checks.same("status", bytes["status"].as_u64(), Some(200));
    let long = line(&agent, "path", &json!("/long")).await;
    checks.same(
        "length",
        long["user_agent"].as_str().map(str::len),
        Some(256),
    );
    for status in [400, 431] {
        let refused = line(&agent, "status", &json!(status)).await;
        checks.same("route", refused.get("route"), None);
    }
    let text = text(&agent);
    let longest = text.lines().map(str::len).max().unwrap_or(0);
    checks.that(
        longest < 4096,
        format_args!("the longest line has {longest} bytes"),
    );
    for bad in ["hunter", "/forged", "\u{1b}"] {
        checks.that(
            !text.contains(bad),
            format_args!("{bad:?} is logged: {text}"),
        );
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_udp_sessions_are_logged_at_end() {
    let theirs = Authority::new("backends");
    let spec = json!({"edge": {"udpSessionTimeout": "1s"}});
    let listeners = [
        l4_listener("tcp", 5001, "TCP"),
        tls_listener("pass", 443, "*.pass.test", None),
        l4_listener("udp", 53, "UDP"),
    ];
    let mut objects = edge_with(&spec, &listeners);
    let leaf = theirs.issue(&["a.pass.test"]);
    let secure = Backend::start_tls("secure", &leaf).await;
    let dns = DatagramBackend::start("dns").await;
    let _backends = start_served(&["a"], &mut objects).await;
    objects.extend(served("secure", &[secure.address()]));
    objects.extend(over_udp(served("dns", &[dns.address()])));
    let on = |kind: &str, name: &str, hostnames: &[&str], service: &str| {
        let rule = json!({"backendRefs": [backend_ref(service)]});
        on_listener(route(kind, name, hostnames, &[rule]), name)
    };
    objects.extend([
        on("TCPRoute", "tcp", &[], "a"),
        on("TLSRoute", "pass", &["a.pass.test"], "secure"),
        on("UDPRoute", "udp", &[], "dns"),
    ]);
    let agent = Setup::with_ports(&[53, 443, 5001])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(5001, "any.test", "/")).await;
    let passed = agent
        .get(443, "a.pass.test", "/")
        .tls("a.pass.test", &theirs.trust());
    agent.wait_ok(&passed).await;
    let answer = datagrams::ask(agent.address(53), "x", Duration::from_secs(5)).await;
    assert_eq!(answer.expect("an answer"), "dns: x");
    let mut checks = Checks::default();
    for (protocol, port, kind, listener, service) in [
        ("tcp", 5001, "TCPRoute", "tcp", "a"),
        ("tls", 443, "TLSRoute", "pass", "secure"),
        ("udp", 53, "UDPRoute", "udp", "dns"),
    ] {
        let line = line(
            &agent,
            "route",
            &json!(format!("{kind}/default/{listener}/rules/0")),
        )
        .await;
        for (field, expected) in [
            ("gateway", json!("Gateway/default/edge")),
            (
                "listener",
                json!(format!("Gateway/default/edge/listeners/{listener}")),
            ),
            ("protocol", json!(protocol)),
            ("port", json!(port)),
        ] {
            checks.same(field, line.get(field), Some(&expected));
        }
        // The name may be followed by a digest of the backend's other properties.
        let backend = line
            .get("backend")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let name = format!("Service/default/{service}/80");
        checks.that(backend.starts_with(&name), &line);
        for bytes in ["bytes_received", "bytes_sent"] {
            checks.that(line[bytes].as_u64() > Some(0), &line);
        }
        let name = line.get("tls_server_name").and_then(Value::as_str);
        checks.same(
            "server name",
            name,
            (protocol == "tls").then_some("a.pass.test"),
        );
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn access_log_contains_only_requests_matching_rules() {
    let rules = json!({"accessLog": {"minStatus": 400, "minDuration": "1h"}});
    let mut objects = edge_with_parameters(&rules);
    let _backends = start_served(&["a"], &mut objects).await;
    objects.push(http_route("web", &[HOST], &[rule_to("a", &[])]));
    let agent = Setup::with_ports(&[80])
        .flag("--access-log-free-mib=0")
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/ready")).await;
    let mut checks = Checks::default();
    checks.status(agent.get(80, HOST, "/good"), 200).await;
    checks
        .status(agent.get(80, "nobody.test", "/lost"), 404)
        .await;
    let lost = line(&agent, "path", &json!("/lost")).await;
    checks.same("status", lost.get("status"), Some(&json!(404)));
    checks.finish();
    // Requests are logged in the order they end, so `/good` would be in the log by now.
    let all = text(&agent);
    assert!(!all.contains("/good"), "{all}");
}
