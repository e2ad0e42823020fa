//! Input that reaches a running agent from outside.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sesame_agent::cli;
use sesame_engine::commands::CommandRequest;
use sesame_engine::report::Report;
use sesame_envoy::Admin;

use super::campaign::{run, scratch};
use super::edit::Form;

/// The first byte of each response identifies the request.
fn recorded() -> Vec<Vec<u8>> {
    let files = [
        "ready",
        "server_info",
        "versions",
        "gauges",
        "certs",
        "warming",
        "labelled_versions",
        "counters",
    ];
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/admin");
    let mut answers = Vec::new();
    for (number, file) in (0u8..).zip(files) {
        let body = std::fs::read(path.join(file)).expect("a recorded answer");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        answers.push([&[number][..], &body].concat());
        // If the high bit of the prefix is set, the input is a whole HTTP response.
        answers.push([&[number | 0x80][..], head.as_bytes(), &body].concat());
    }
    answers
}

fn answering(socket: &std::path::Path) -> Arc<Mutex<Vec<u8>>> {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let listener = UnixListener::bind(socket).expect("a socket");
    let next = Arc::clone(&answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let bytes = next
                .lock()
                .expect("no thread panics while holding this lock")
                .clone();
            // The client may close the connection early.
            let _ = stream.write_all(&bytes);
        }
    });
    answer
}

#[test]
fn admin_interface() {
    let dir = scratch();
    let socket = dir.path().join("admin.sock");
    let answer = answering(&socket);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    run("admin_interface", Form::Text, &recorded(), |input| {
        let (which, bytes) = input.split_first().unwrap_or((&0, &[]));
        let whole = if which & 0x80 == 0 {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
            [head.as_bytes(), bytes].concat()
        } else {
            bytes.to_vec()
        };
        *answer
            .lock()
            .expect("no thread panics while holding this lock") = whole;
        let asked = async {
            let admin = Admin::new(&socket).with_timeout(Duration::from_secs(5));
            match which & 0x7f {
                0 => admin.ready().await.is_ok(),
                1 => admin
                    .server_info()
                    .await
                    .is_ok_and(|info| info.lineage().is_some()),
                2 => admin.version_texts().await.is_ok(),
                3 => admin.active_connections().await.is_ok() && admin.warming().await.is_ok(),
                4 => admin.certificate_serials().await.is_ok(),
                5 => admin.warming_clusters().await.is_ok(),
                6 => admin.versions_of_lists_and_route_tables().await.is_ok(),
                _ => admin.counters(".").await.is_ok(),
            }
        };
        Ok(runtime.block_on(asked))
    });
}

#[test]
fn orders() {
    let orders = [
        r#"{"gateway": "default/edge", "order": {"restart": {"strategy": "hot"}}}"#,
        r#"{"order": {"drain": {"timeoutSeconds": 30, "lameDuckSeconds": 5, "untilConnections": 0}}}"#,
        r#"{"order": "undrain"}"#,
        r#"{"order": "accept"}"#,
        r#"{"order": {"rollback": {"generation": 7}}}"#,
        r#"{"order": "resume"}"#,
    ];
    let mut seeds: Vec<Vec<u8>> = orders
        .map(|order| order.replace(", ", ",\n").into_bytes())
        .to_vec();
    seeds.push(include_bytes!("../../data/status.json").to_vec());
    run("orders", Form::Text, &seeds, |bytes| {
        let report: Option<Report> = serde_json::from_slice(bytes).ok();
        let Ok(order) = serde_json::from_slice::<CommandRequest>(bytes) else {
            return Ok(report.is_some());
        };
        let text = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
        let again: CommandRequest =
            serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if again == order {
            Ok(true)
        } else {
            Err(format!("{order:?} becomes {again:?} after a round trip"))
        }
    });
}

#[test]
fn command_line() {
    let lines = [
        "run\n--manifests\n/etc/sesame\n--port-map\n80:8080,443:8443\n--address\n127.0.0.1,::1\n--drain-seconds\n30",
        "run\n--snapshot-dir\n/mnt\n--address-pool\n192.0.2.0/24\n--max-removal-share\n50\n--health-address\n[::1]:8080",
        "run\n--kube\n--fleet\nedge\n--gateway\ndefault/edge\n--concurrency\n2\n--trusted-hops\n1\n--host\na",
        "drain\n--runtime-dir\n/run/sesame\n--lame-duck\n5\n--timeout\n30\n--until-connections\n0",
        "rollback\n7\n--gateway\ndefault/edge",
        "diff\n1\n2",
        "restart\n--strategy\nhandover",
    ];
    let seeds: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).to_vec();
    run("command_line", Form::Text, &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        Ok(cli::understands(
            std::iter::once("sesame-agent").chain(text.split('\n')),
        ))
    });
}
