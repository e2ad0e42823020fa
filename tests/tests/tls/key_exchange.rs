//! Key exchange groups of listeners, verified with handshakes of clients that limit their own.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use rustls::NamedGroup;
use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT, listener_condition, words};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{edge, http_route, https_listener, rule_to, served, yaml};
use sesame_tests::ports::free_port;
use sesame_tests::wait::{eventually, holds};

const GROUPS: &str = "projectsesame.io/key-exchange-groups";

fn listener(name: &str, groups: &str) -> Value {
    let mut listener = https_listener(name, 443, &format!("{name}.test"), "pair");
    if !groups.is_empty() {
        listener["tls"]["options"][GROUPS] = json!(groups);
    }
    listener
}

/// Runs a client that offers only these groups. Returns the session that it prints.
fn openssl(address: SocketAddr, sni: &str, groups: &str) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &address.to_string()]);
    client.args(["-servername", sni, "-groups", groups]);
    client.stdin(std::process::Stdio::null());
    words(&client.output().expect("openssl"))
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_use_groups_of_listener() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let names = ["plain", "strong", "ordered", "future"].map(|name| format!("{name}.test"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut objects = edge(&[
        listener("plain", ""),
        listener("strong", "P-384"),
        listener("ordered", "P-256, X25519"),
        listener("future", "X25519MLKEM768"),
        listener("wrong", "P-224"),
    ]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    objects.push(authority.issue(&names).secret("pair"));
    for envoy in [envoy_binary(), older_envoy_binary()] {
        let agent = Setup::with_ports(&[443])
            .envoy(&envoy)
            .start(&[("all.yaml", &yaml(&objects))]);
        let plain = agent.get(443, "plain.test", "/");
        agent
            .wait_ok(&plain.tls("plain.test", &authority.trust()))
            .await;
        let (x25519, p256, p384) = (
            NamedGroup::X25519,
            NamedGroup::secp256r1,
            NamedGroup::secp384r1,
        );
        let mut checks = Checks::default();
        for (name, offered, expected) in [
            ("plain", &[x25519, p256, p384][..], Some(x25519)),
            ("plain", &[p384], None),
            ("strong", &[x25519, p256, p384], Some(p384)),
            ("strong", &[x25519, p256], None),
            ("ordered", &[x25519, p256, p384], Some(p256)),
            ("ordered", &[x25519], Some(x25519)),
            ("ordered", &[p384], None),
            ("future", &[x25519, p256, p384], None),
        ] {
            let sni = format!("{name}.test");
            for tls12 in [false, true] {
                let client = Handshake::with(agent.address(443), &sni, &authority.trust());
                let client = client.groups(offered);
                let client = if tls12 { client.tls12() } else { client };
                let agreed = client.shake().await.ok().map(|agreed| agreed.group);
                // In TLS 1.2, the groups also limit the curve of the certificate.
                let expected = expected.filter(|_| !tls12 || offered.contains(&p256));
                checks.same(format!("{name} {offered:?} {tls12}"), agreed, expected);
            }
        }
        for (sni, groups, expected) in [
            ("strong.test", "P-384", true),
            ("strong.test", "X25519:P-256", false),
            ("plain.test", "X25519:P-256", true),
            ("plain.test", "P-384", false),
        ] {
            let printed = openssl(agent.address(443), sni, groups);
            let is_agreed = printed.contains("Cipher is TLS_");
            checks.that(is_agreed == expected, format!("{sni} {groups}: {printed}"));
        }
        for (groups, expected) in [("X25519MLKEM768", true), ("X25519", false)] {
            let found = through_envoy(agent.address(443), "future.test", groups).await;
            checks.that(found == expected, format!("an Envoy with {groups}"));
        }
        checks.finish();
        let is_refused = |status: &Value| {
            let accepted = listener_condition(status, "wrong", "Accepted");
            let expected = "\"P-224\" is not one of X25519MLKEM768, X25519, P-256, P-384";
            let message = accepted["message"].as_str().unwrap_or_default();
            message.contains(expected)
        };
        agent.wait_status("the group is rejected", is_refused).await;
    }
}

/// Sends a request through an Envoy whose client offers only these groups. Returns true if the
/// handshake succeeds. No other client here supports post-quantum groups.
async fn through_envoy(address: SocketAddr, sni: &str, groups: &str) -> bool {
    let port = free_port();
    let own = SocketAddr::from(([127, 0, 0, 1], port));
    let socket = |at: SocketAddr| json!({"socket_address": {"address": "127.0.0.1", "port_value": at.port()}});
    let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.{name}");
    let config = json!({"static_resources": {
        "listeners": [{"address": socket(own), "filter_chains": [{"filters": [{
            "name": "tcp", "typed_config": {
                "@type": kind("filters.network.tcp_proxy.v3.TcpProxy"),
                "stat_prefix": "tcp", "cluster": "sesame", "max_connect_attempts": 1,
            },
        }]}]}],
        "clusters": [{
            "name": "sesame", "type": "STATIC",
            "load_assignment": {"cluster_name": "sesame", "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": socket(address)}},
            ]}]},
            "transport_socket": {"name": "tls", "typed_config": {
                "@type": kind("transport_sockets.tls.v3.UpstreamTlsContext"), "sni": sni,
                "common_tls_context": {"tls_params": {
                    "ecdh_curves": [groups], "tls_maximum_protocol_version": "TLSv1_3",
                }},
            }},
        }],
    }});
    let mut file = tempfile::Builder::new()
        .suffix(".json")
        .tempfile()
        .expect("a file");
    write!(file, "{config}").expect("the configuration is written");
    let mut envoy = tokio::process::Command::new(envoy_binary())
        .args([
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "error",
            "-c",
        ])
        .arg(file.path())
        .kill_on_drop(true)
        .spawn()
        .expect("envoy");
    eventually("the client's Envoy listens", TEST_TIMEOUT, async || {
        let connected = tokio::net::TcpStream::connect(own).await;
        holds(connected.is_ok(), || format!("{connected:?}"))
    })
    .await;
    let reply = Request::get(own, sni, "/").send().await;
    envoy.kill().await.expect("the process is ours");
    reply.is_ok_and(|reply| reply.status == 200)
}
