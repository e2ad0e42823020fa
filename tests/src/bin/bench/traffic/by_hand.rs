//! An Envoy with a small configuration for one route, written by hand.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sesame_tests::certs::Leaf;

use super::super::manifests;

const TYPES: &str = "type.googleapis.com/envoy";

pub(super) struct ByHand {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl ByHand {
    /// Starts an Envoy. `copied` contains fields from Sesame's configuration, for each of
    /// `bootstrap`, `manager`, `listener`, `quic`, `cluster` and `table`.
    pub(super) fn start(
        program: &Path,
        leaf: &Leaf,
        backend: u16,
        copied: &Value,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("sb").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let file = dir.path().join("envoy.json");
        let mut bootstrap = bootstrap(port, backend, leaf, copied);
        merge(&mut bootstrap, &copied["bootstrap"]);
        std::fs::write(&file, serde_json::to_vec(&bootstrap)?)?;
        let process = Command::new(program)
            .args(["--disable-hot-restart", "--log-level", "error"])
            .args(["--concurrency", "1", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self {
            process,
            port,
            _dir: dir,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Adds or replaces fields of an object.
fn merge(object: &mut Value, fields: &Value) {
    let fields = fields.as_object().into_iter().flatten();
    for (name, value) in fields {
        object[name] = value.clone();
    }
}

fn bootstrap(port: u16, backend: u16, leaf: &Leaf, copied: &Value) -> Value {
    let tcp = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let udp = json!({"socket_address": {
        "protocol": "UDP", "address": "127.0.0.1", "port_value": port,
    }});
    let endpoint = json!({"endpoint": {"address": tcp(backend)}});
    let mut cluster = json!({
        "name": "backend",
        "load_assignment": {
            "cluster_name": "backend", "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    });
    merge(&mut cluster, &copied["cluster"]);
    let certificate = json!({
        "certificate_chain": {"inline_string": leaf.certificate_pem}, "private_key": {"inline_string": leaf.key_pem},
    });
    let context = |protocols: &[&str]| {
        json!({"common_tls_context": {
            "tls_certificates": [certificate], "alpn_protocols": protocols,
        }})
    };
    let mut tls = context(&["h2", "http/1.1"]);
    tls["@type"] = json!(format!(
        "{TYPES}.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
    ));
    let quic = json!({
        "@type": format!("{TYPES}.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"),
        "downstream_tls_context": context(&["h3"]),
    });
    let listener = |name: &str, address: &Value, codec: &str, socket: Value| {
        json!({
            "name": name,
            "address": address,
            "filter_chains": [{
                "filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager(codec, copied),
                }],
                "transport_socket": socket,
            }],
        })
    };
    let mut over_tcp = listener(
        "tcp",
        &tcp(port),
        "AUTO",
        json!({"name": "envoy.transport_sockets.tls", "typed_config": tls}),
    );
    merge(&mut over_tcp, &copied["listener"]);
    let mut over_udp = listener(
        "udp",
        &udp,
        "HTTP3",
        json!({"name": "envoy.transport_sockets.quic", "typed_config": quic}),
    );
    over_udp["udp_listener_config"] = json!({"quic_options": {}});
    merge(&mut over_udp, &copied["quic"]);
    json!({
        "static_resources": {"clusters": [cluster], "listeners": [over_tcp, over_udp]},
        "node": {"id": "by-hand", "cluster": "by-hand"},
    })
}

fn manager(codec: &str, copied: &Value) -> Value {
    let header = json!({"key": "x-revision", "value": "first"});
    let mut table = json!({
        "name": "routes",
        "virtual_hosts": [{
            "name": "host",
            "domains": [manifests::hostname(0)],
            "routes": [{
                "match": {"prefix": "/"},
                "route": {"cluster": "backend", "timeout": "0s"},
                "response_headers_to_add": [
                    {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
                ],
            }],
        }],
    });
    merge(&mut table, &copied["table"]);
    let mut manager = json!({
        "@type": format!(
            "{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
        ),
        "stat_prefix": "http",
        "codec_type": codec,
        "route_config": table,
        "http_filters": [{"name": "router", "typed_config": {
            "@type": format!("{TYPES}.extensions.filters.http.router.v3.Router"),
        }}],
    });
    merge(&mut manager, &copied["manager"]);
    manager
}
