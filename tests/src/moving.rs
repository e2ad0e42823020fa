//! Hosts of other controllers that move to Sesame, and clients that must not notice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sesame_kit::envoy::envoy_binary;
use tokio::task::JoinSet;

use crate::agent::TEST_TIMEOUT;
use crate::client::Request;
use crate::manifests::{http_proxy, ingress, ingress_class, ingress_rule};
use crate::wait::{eventually, holds};

/// Hosts of [`foreign`].
pub const HOSTS: [&str; 3] = ["a.test", "b.test", "c.test"];
/// `b.test` rewrites paths, and `c.test` includes another HTTPProxy.
pub const PATH: &str = "/api/users";

/// Returns an Ingress or HTTPProxy of another class.
pub fn of_class(mut object: Value, class: &str) -> Value {
    object["spec"]["ingressClassName"] = json!(class);
    object
}

/// Ingresses for ingress-nginx and HTTPProxies for Contour.
pub fn foreign() -> Vec<Value> {
    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/ingress-nginx"}});
    let spec = json!({"rules": HOSTS[..2].iter().map(|host| {
        ingress_rule(host, &[("/api(/|$)(.*)", "ImplementationSpecific", "shop")])
    }).collect::<Vec<_>>()});
    let rewrite = json!({"nginx.ingress.kubernetes.io/rewrite-target": "/$2"});
    let root = json!({"virtualhost": {"fqdn": HOSTS[2]}, "includes": [{"name": "child"}]});
    let child = json!({"routes": [{"conditions": [{"prefix": "/api"}],
        "services": [{"name": "shop", "port": 80}]}]});
    vec![
        class,
        of_class(ingress("shop", &rewrite, &spec), "nginx"),
        of_class(http_proxy("root", &root), "contour"),
        of_class(http_proxy("child", &child), "contour"),
    ]
}

/// Returns the class `edge`, which reads annotations of ingress-nginx.
pub fn our_class() -> Value {
    let mut class = ingress_class();
    class["metadata"]["annotations"] = json!({"projectsesame.io/annotations": "Nginx"});
    class
}

/// A gateway that does not belong to Sesame.
pub struct OldGateway {
    envoy: Child,
    /// Address of its listener.
    pub address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl OldGateway {
    /// Starts the gateway, and waits until it serves.
    ///
    /// # Panics
    /// If it does not serve.
    pub async fn start(backend: SocketAddr) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 18_080));
        let rewritten = json!({"pattern": {"regex": "^/api(/|$)(.*)"}, "substitution": "/\\2"});
        let route = |host: &str| match host {
            "c.test" => json!({"match": {"prefix": "/api"}, "route": {"cluster": "shop"}}),
            _ => json!({"match": {"prefix": "/api"},
                        "route": {"cluster": "shop", "regex_rewrite": rewritten}}),
        };
        let hosts =
            HOSTS.map(|host| json!({"name": host, "domains": [host], "routes": [route(host)]}));
        let socket = |address: SocketAddr| json!({"socket_address": {"address": address.ip(), "port_value": address.port()}});
        let manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "old",
            "route_config": {"virtual_hosts": hosts},
            "http_filters": [{"name": "router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        });
        let endpoint = json!({"endpoint": {"address": socket(backend)}});
        let bootstrap = json!({"static_resources": {
            "listeners": [{"address": socket(address),
                "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}],
            "clusters": [{"name": "shop", "connect_timeout": "5s", "load_assignment": {
                "cluster_name": "shop", "endpoints": [{"lb_endpoints": [endpoint]}]}}],
        }});
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("envoy.json");
        std::fs::write(&file, bootstrap.to_string()).expect("a file");
        let envoy = Command::new(envoy_binary())
            .args(["--use-dynamic-base-id", "--concurrency", "1", "-c"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("Envoy runs");
        let gateway = Self {
            envoy,
            address,
            _directory: directory,
        };
        serves(address, HOSTS[0]).await;
        gateway
    }

    /// Stops the gateway.
    pub fn stop(&mut self) {
        // Ignore an Envoy that has exited already.
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

impl Drop for OldGateway {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Clients that look up a host's address before each request.
pub struct Clients {
    records: Arc<Mutex<BTreeMap<&'static str, SocketAddr>>>,
    sent: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    workers: JoinSet<Vec<String>>,
}

impl Clients {
    /// Starts a client for each host.
    pub fn start(address: SocketAddr) -> Self {
        let records = HOSTS.map(|host| (host, address));
        let records = Arc::new(Mutex::new(BTreeMap::from(records)));
        let (sent, stopped) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let mut workers = JoinSet::new();
        for host in HOSTS {
            let (records, sent) = (Arc::clone(&records), Arc::clone(&sent));
            let stopped = Arc::clone(&stopped);
            workers.spawn(async move {
                let mut failures = Vec::new();
                while !stopped.load(Ordering::Relaxed) {
                    let address = records.lock().expect("a lock")[host];
                    let expected = if host == "c.test" { PATH } else { "/users" };
                    match Request::get(address, host, PATH).send().await {
                        Ok(reply) if reply.status == 200 && reply.echo().path == expected => {}
                        Ok(reply) => failures.push(format!("{host} at {address}: {reply:?}")),
                        Err(error) => failures.push(format!("{host} at {address}: {error:#}")),
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                failures
            });
        }
        Self {
            records,
            sent,
            stopped,
            workers,
        }
    }

    /// Changes the address of a host.
    ///
    /// # Panics
    /// If a client has panicked.
    pub fn shift(&self, host: &'static str, address: SocketAddr) {
        self.records.lock().expect("a lock").insert(host, address);
    }

    /// Waits until the clients have sent more requests.
    pub async fn pass(&self, count: u64) {
        let target = self.sent.load(Ordering::Relaxed) + count;
        eventually("the clients continue", TEST_TIMEOUT, async || {
            let sent = self.sent.load(Ordering::Relaxed);
            holds(sent >= target, || format!("{sent} of {target} requests"))
        })
        .await;
    }

    /// Stops the clients. Returns the number of requests.
    ///
    /// # Panics
    /// If a request has failed.
    pub async fn stop(self) -> u64 {
        self.stopped.store(true, Ordering::Relaxed);
        let failures = self.workers.join_all().await.concat();
        let sent = self.sent.load(Ordering::Relaxed);
        let failed = failures.len();
        assert_eq!(
            failed, 0,
            "{failed} of {sent} requests failed: {failures:#?}"
        );
        sent
    }
}

/// Waits until a gateway serves a host.
pub async fn serves(address: SocketAddr, host: &str) {
    let what = format!("{address} serves {host}");
    eventually(&what, TEST_TIMEOUT, async || {
        let reply = Request::get(address, host, PATH).send().await;
        holds(reply.as_ref().is_ok_and(|it| it.status == 200), || {
            format!("{reply:?}")
        })
    })
    .await;
}

/// Returns a log of nginx with requests for a host.
pub fn access_log(host: &str) -> String {
    let lines = [PATH, "/none", "/api"].map(|path| {
        format!("{host} 192.0.2.1 - - [t] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\"\n")
    });
    lines.concat()
}

/// Returns the arguments of `sesame-agent` that compare the answers of two gateways.
pub fn comparison(log: &Path, old: SocketAddr, new: SocketAddr) -> [String; 7] {
    let (old, new) = (format!("http://{old}"), format!("http://{new}"));
    let log = log.display().to_string();
    let [compare, requests, old_flag, new_flag] =
        ["compare", "--requests", "--old", "--new"].map(str::to_owned);
    [compare, requests, log, old_flag, old, new_flag, new]
}
