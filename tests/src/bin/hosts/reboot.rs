//! Reboots an isolated host, and compares how soon it and an Envoy without an agent respond.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::inside::Inside;
use crate::life::in_runtime;
use crate::machine::Machine;
use crate::objects::{backend, version, wait_version};
use crate::packages::Packages;

const PLAIN_PORT: u16 = 8080;

/// Responds with 503, like the agent's Envoy after the reboot.
const PLAIN_UNIT: &str = "[Service]
ExecStart=/usr/lib/sesame/envoy --config-path /etc/plain.yaml --disable-hot-restart
[Install]
WantedBy=multi-user.target
";
const PLAIN: &str = r#"
static_resources:
  listeners:
  - address: {socket_address: {address: 0.0.0.0, port_value: 8080}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: plain
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 503}}]}
"#;

pub(crate) fn scenario(packages: &Packages) {
    let mut machine = Machine::with_packages("reboot", packages);
    let inside = machine.inside();
    fs::write(inside.path("/etc/plain.yaml"), PLAIN).expect("a file");
    fs::write(inside.path("/etc/systemd/system/plain.service"), PLAIN_UNIT).expect("a file");
    inside.ok(&[
        "systemctl",
        "enable",
        "--quiet",
        "--now",
        "plain.service",
        "sesame.target",
    ]);
    inside.backend_address();
    machine.part("serve");
    // Only the accepted version remains on the host.
    inside.ok(&["rm", "-r", "/etc/sesame/manifests"]);
    machine.reboot();
    machine.part("race");
}

pub(crate) fn serve(inside: &Inside) {
    in_runtime(async {
        let backend = backend().await;
        inside.serve(&version(backend.address(), 1));
        wait_version(1).await;
        let kept = |inside: &Inside| {
            let history = inside.output(&["sesame-agent", "history"]);
            (history.lines().count() > 1).then_some(()).ok_or(history)
        };
        inside.wait("the accepted version is kept", kept).await;
    });
}

/// After the reboot, the backend is gone, so the route responds with 503.
pub(crate) fn race(inside: &Inside) {
    let begun = started(inside);
    let [sesame, plain] = [80, PLAIN_PORT].map(|port| {
        std::thread::spawn(move || {
            while !answers(port) {
                assert!(
                    begun.elapsed() < crate::inside::TIMEOUT,
                    "port {port} does not respond"
                );
                std::thread::sleep(Duration::from_millis(2));
            }
            begun.elapsed()
        })
    });
    let sesame = sesame.join().expect("the host serves again");
    let plain = plain.join().expect("an Envoy serves");
    println!(
        "host: first response after a reboot: {} ms; from an Envoy with a static configuration and no agent: {} ms",
        sesame.as_millis(),
        plain.as_millis()
    );
    inside.wait_for("the agent is ready", |inside| {
        let state = inside.property("sesame-agent.service", "ActiveState");
        (state == "active").then_some(()).ok_or(state)
    });
}

fn started(inside: &Inside) -> Instant {
    let age = inside.age();
    Instant::now()
        .checked_sub(age)
        .expect("the clock is older than the machine")
}

fn answers(port: u16) -> bool {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    let request = b"GET /1 HTTP/1.1\r\nhost: host.test\r\nconnection: close\r\n\r\n";
    let mut answer = [0; 12];
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .is_ok()
        && stream.write_all(request).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"HTTP/1.1 503"
}
