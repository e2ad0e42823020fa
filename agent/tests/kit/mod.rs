//! One real Envoy with hand-made resources, backends to route to and clients to complain.

#![allow(dead_code, reason = "each test binary uses its part of the kit")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "all of it is test code"
)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::bootstrap::v3::{Admin as AdminConfig, Bootstrap, bootstrap};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{
    Address, ApiVersion, ConfigSource, Node, PathConfigSource, Pipe, SocketAddress,
    TransportSocket, address, config_source, socket_address, transport_socket,
};
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route, route_action,
    route_match,
};
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager, http_filter,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret, TlsCertificate, secret,
};
use envoy_types::pb::google::protobuf::{Any, Duration as PbDuration, UInt32Value};
use prost::{Message, Name};
use sesame_agent::apply::{Applier, Report, Wanted};
use sesame_agent::envoy::process::Process;
use sesame_agent::envoy::process::identity::Identity;
use sesame_agent::envoy::{Admin, State, Supervisor, SupervisorConfig};
use sesame_render::layout::XdsLayout;
use sesame_render::{Rendered, Resource};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How long anything that should happen may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The directories of one Envoy, short enough for a socket path.
pub(crate) struct Host {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) layout: XdsLayout,
}

/// An Envoy outlives whoever dropped its supervisor, but not its test.
impl Drop for Host {
    fn drop(&mut self) {
        let run = self.directory.path().join("run");
        let note = std::fs::read(run.join("envoy.pid.json")).unwrap_or_default();
        if let Ok(identity) = serde_json::from_slice::<Identity>(&note)
            && let Ok(Some(process)) = Process::adopt(identity.pid, identity.start_time)
        {
            process.kill();
        }
    }
}

impl Host {
    /// An agent in another process works in this one's directories: the environment says where.
    pub(crate) const DIRECTORY: &str = "SESAME_TEST_DIRECTORY";

    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("sx").tempdir().unwrap();
        let layout = XdsLayout::new(directory.path().join("xds"));
        Self { directory, layout }
    }

    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.directory.path().join("admin.sock")
    }

    pub(crate) fn config(&self) -> SupervisorConfig {
        let binary = sesame_agent::envoy::locate::locate(None)
            .expect("these tests need a real Envoy: set $ENVOY or put `envoy` into PATH");
        let mut config = SupervisorConfig::new(
            binary,
            self.directory.path().join("run"),
            self.admin_socket(),
            bootstrap(&self.layout, &self.admin_socket()),
        );
        config.concurrency = Some(1);
        config.drain_time = Duration::from_secs(2);
        // Long enough to be seen by whoever waits for it on a busy machine.
        config.backoff.at_once = Duration::from_millis(500);
        config.backoff.first = Duration::from_millis(500);
        config
    }

    /// Files first, then Envoy, then proof.
    pub(crate) async fn start(&self, rendered: &Rendered) -> (Applier, Supervisor) {
        let config = self.config();
        let (mut applier, _) = Applier::open(self.layout.clone(), config.log(), None)
            .await
            .unwrap();
        apply(&mut applier, rendered, None).await;
        let supervisor = Supervisor::start(config).unwrap();
        assert!(supervisor.live().await);
        (applier, supervisor)
    }
}

pub(crate) async fn apply(
    applier: &mut Applier,
    rendered: &Rendered,
    envoy: Option<&Admin>,
) -> Report {
    let wanted = Wanted {
        rendered,
        serials: &BTreeMap::new(),
        may_empty: false,
    };
    applier.apply(wanted, envoy).await.unwrap()
}

/// Waits for a condition on the supervisor's state.
pub(crate) async fn until_state(
    supervisor: &Supervisor,
    wanted: impl FnMut(&State) -> bool,
) -> State {
    let mut state = supervisor.state();
    let seen = tokio::time::timeout(SOON, state.wait_for(wanted)).await;
    seen.expect("the state was not reached in time")
        .unwrap()
        .clone()
}

pub(crate) fn live_pid(state: &State) -> u32 {
    match state {
        State::Live { pid, .. } => *pid,
        other => panic!("not live: {other:?}"),
    }
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

fn resource(name: &str, message: &impl Message) -> Resource {
    Resource {
        name: name.to_owned(),
        bytes: message.encode_to_vec().into(),
    }
}

fn file(path: &Path) -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(config_source::ConfigSourceSpecifier::PathConfigSource(
            PathConfigSource {
                path: path.to_str().unwrap().to_owned(),
                ..PathConfigSource::default()
            },
        )),
        ..ConfigSource::default()
    }
}

fn socket(address: SocketAddr) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: address.ip().to_string(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(
                address.port().into(),
            )),
            ..SocketAddress::default()
        })),
    }
}

pub(crate) fn bootstrap(layout: &XdsLayout, admin: &Path) -> Vec<u8> {
    Bootstrap {
        node: Some(Node {
            id: "test".to_owned(),
            cluster: "test".to_owned(),
            ..Node::default()
        }),
        admin: Some(AdminConfig {
            address: Some(Address {
                address: Some(address::Address::Pipe(Pipe {
                    path: admin.to_str().unwrap().to_owned(),
                    mode: 0o600,
                })),
            }),
            ..AdminConfig::default()
        }),
        dynamic_resources: Some(bootstrap::DynamicResources {
            cds_config: Some(file(&layout.cds())),
            lds_config: Some(file(&layout.lds())),
            ..bootstrap::DynamicResources::default()
        }),
        ..Bootstrap::default()
    }
    .encode_to_vec()
}

/// To be appended to a bootstrap, which merges: a static cluster that Envoy refuses.
pub(crate) fn static_cluster_without_eds(name: &str) -> Vec<u8> {
    Bootstrap {
        static_resources: Some(bootstrap::StaticResources {
            clusters: vec![Cluster {
                name: name.to_owned(),
                cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
                    cluster::DiscoveryType::Eds.into(),
                )),
                ..Cluster::default()
            }],
            ..bootstrap::StaticResources::default()
        }),
        ..Bootstrap::default()
    }
    .encode_to_vec()
}

/// A cluster with its endpoints in a file.
pub(crate) fn cluster(layout: &XdsLayout, name: &str) -> Resource {
    let message = Cluster {
        name: name.to_owned(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        )),
        connect_timeout: Some(PbDuration {
            seconds: 2,
            nanos: 0,
        }),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(file(&layout.eds(name))),
            ..cluster::EdsClusterConfig::default()
        }),
        ..Cluster::default()
    };
    resource(name, &message)
}

pub(crate) fn endpoints(name: &str, addresses: &[SocketAddr]) -> Resource {
    let message = ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: addresses
                .iter()
                .map(|address| LbEndpoint {
                    host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(Endpoint {
                        address: Some(socket(*address)),
                        ..Endpoint::default()
                    })),
                    load_balancing_weight: Some(UInt32Value { value: 1 }),
                    ..LbEndpoint::default()
                })
                .collect(),
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    };
    resource(name, &message)
}

/// A route table that sends everything to one cluster.
pub(crate) fn route_table(name: &str, cluster: &str) -> Resource {
    let message = RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "all".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![Route {
                r#match: Some(RouteMatch {
                    path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
                    ..RouteMatch::default()
                }),
                action: Some(route::Action::Route(RouteAction {
                    cluster_specifier: Some(route_action::ClusterSpecifier::Cluster(
                        cluster.to_owned(),
                    )),
                    ..RouteAction::default()
                })),
                ..Route::default()
            }],
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    };
    resource(name, &message)
}

/// A listener that gets its route table, and with `key` its certificate, by file.
pub(crate) fn listener(
    layout: &XdsLayout,
    at: SocketAddr,
    table: &str,
    key: Option<&str>,
) -> Resource {
    let name = at.to_string();
    let hcm = HttpConnectionManager {
        stat_prefix: format!("http:{}", at.port()),
        route_specifier: Some(http_connection_manager::RouteSpecifier::Rds(Rds {
            config_source: Some(file(&layout.rds(table))),
            route_config_name: table.to_owned(),
        })),
        http_filters: vec![HttpFilter {
            name: "router".to_owned(),
            config_type: Some(http_filter::ConfigType::TypedConfig(
                any(&Router::default()),
            )),
            ..HttpFilter::default()
        }],
        ..HttpConnectionManager::default()
    };
    let tls = |key: &str| DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![SdsSecretConfig {
                name: key.to_owned(),
                sds_config: Some(file(&layout.sds(key))),
            }],
            ..CommonTlsContext::default()
        }),
        ..DownstreamTlsContext::default()
    };
    let message = Listener {
        name: name.clone(),
        address: Some(socket(at)),
        filter_chains: vec![FilterChain {
            filters: vec![Filter {
                name: "http".to_owned(),
                config_type: Some(filter::ConfigType::TypedConfig(any(&hcm))),
            }],
            transport_socket: key.map(|key| TransportSocket {
                name: "tls".to_owned(),
                config_type: Some(transport_socket::ConfigType::TypedConfig(any(&tls(key)))),
            }),
            ..FilterChain::default()
        }],
        ..Listener::default()
    };
    resource(&name, &message)
}

/// A listener whose HTTP configuration Envoy refuses.
pub(crate) fn bad_listener(at: SocketAddr) -> Resource {
    let name = at.to_string();
    let message = Listener {
        name: name.clone(),
        address: Some(socket(at)),
        filter_chains: vec![FilterChain {
            filters: vec![Filter {
                name: "http".to_owned(),
                config_type: Some(filter::ConfigType::TypedConfig(Any {
                    type_url: HttpConnectionManager::type_url(),
                    value: HttpConnectionManager::default().encode_to_vec(),
                })),
            }],
            ..FilterChain::default()
        }],
        ..Listener::default()
    };
    resource(&name, &message)
}

/// A self-signed pair as a secret, with the serial number of its certificate in hexadecimal.
pub(crate) fn key_pair(name: &str, number: u8) -> (Resource, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from(vec![0x4e, number]));
    let certificate = params.self_signed(&key).unwrap();
    let secret = pair_secret(name, &certificate.pem(), &key.serialize_pem());
    (secret, format!("4E:{number:02X}"))
}

pub(crate) fn pair_secret(name: &str, certificate: &str, key: &str) -> Resource {
    use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
    let inline = |text: &str| {
        Some(DataSource {
            specifier: Some(Specifier::InlineBytes(text.as_bytes().to_vec())),
            ..DataSource::default()
        })
    };
    let message = Secret {
        name: name.to_owned(),
        r#type: Some(secret::Type::TlsCertificate(TlsCertificate {
            certificate_chain: inline(certificate),
            private_key: inline(key),
            ..TlsCertificate::default()
        })),
    };
    resource(name, &message)
}

/// A port of an address that no other process has: a port of 127.0.0.1 that was let go may be somebody's connection's
/// the moment after, and what listens there is copied into every process that is being started.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | (a & 63), b, c);
    (own, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// An HTTP/1 server that answers everything with its name.
pub(crate) async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = Vec::new();
                let mut chunk = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut chunk).await {
                    buffer.extend_from_slice(&chunk[..len]);
                    while let Some(end) = find(&buffer, b"\r\n\r\n") {
                        buffer.drain(..end + 4);
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
                            name.len()
                        );
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// One request on a connection of its own: status and body.
pub(crate) async fn get(address: SocketAddr) -> std::io::Result<(u16, String)> {
    get_path(address, "/").await
}

/// The same for a path.
pub(crate) async fn get_path(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut client = Client::connect(address).await?;
    client.get(path).await
}

/// Waits until a path is answered like this. Envoy's workers have a moment later what it says to have taken.
pub(crate) async fn until_answered(address: SocketAddr, path: &str, expected: (u16, &str)) {
    until_answer(address, path, |status, body| (status, body) == expected).await;
}

/// The same, whatever is said beside the status.
pub(crate) async fn until_status(address: SocketAddr, path: &str, expected: u16) {
    until_answer(address, path, |status, _| status == expected).await;
}

async fn until_answer(address: SocketAddr, path: &str, good: impl Fn(u16, &str) -> bool) {
    let deadline = Instant::now() + SOON;
    loop {
        let answer = get_path(address, path).await;
        if answer
            .as_ref()
            .is_ok_and(|(status, body)| good(*status, body))
        {
            return;
        }
        assert!(Instant::now() < deadline, "{address}{path}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A keep-alive connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    pub(crate) closing: bool,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            stream: TcpStream::connect(address).await?,
            buffer: Vec::new(),
            closing: false,
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> std::io::Result<(u16, String)> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let head_end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            self.fill().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_lowercase();
        self.buffer.drain(..head_end + 4);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        self.closing = head.contains("\r\nconnection: close");
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.trim().parse().unwrap());
        while self.buffer.len() < length {
            self.fill().await?;
        }
        let body = String::from_utf8_lossy(&self.buffer[..length]).into_owned();
        self.buffer.drain(..length);
        Ok((status, body))
    }

    async fn fill(&mut self) -> std::io::Result<()> {
        let mut chunk = [0; 4096];
        let len = self.stream.read(&mut chunk).await?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.buffer.extend_from_slice(&chunk[..len]);
        Ok(())
    }
}

/// Clients in a tight loop, and what went wrong for them.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    clients: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, clients: usize) -> Self {
        Self::over(address, clients, &["/".to_owned()])
    }

    /// Each client asks for one path after the other.
    pub(crate) fn over(address: SocketAddr, clients: usize, paths: &[String]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(AtomicU64::new(0));
        let clients = (0..clients)
            .map(|_| {
                let (stop, requests) = (Arc::clone(&stop), Arc::clone(&requests));
                let paths = paths.to_vec();
                tokio::spawn(async move {
                    let mut paths = paths.iter().cycle();
                    let mut failures = Vec::new();
                    let mut client = None;
                    while !stop.load(Ordering::Relaxed) {
                        let mut open = match client.take() {
                            Some(open) => open,
                            None => match Client::connect(address).await {
                                Ok(open) => open,
                                Err(error) => {
                                    failures.push(format!("connect: {error}"));
                                    continue;
                                }
                            },
                        };
                        requests.fetch_add(1, Ordering::Relaxed);
                        match open.get(paths.next().unwrap()).await {
                            Ok((200, _)) if open.closing => {}
                            Ok((200, _)) => client = Some(open),
                            Ok((status, body)) => failures.push(format!("{status} {body}")),
                            Err(error) => failures.push(error.to_string()),
                        }
                    }
                    failures
                })
            })
            .collect();
        Self {
            stop,
            requests,
            clients,
        }
    }

    /// How many requests were sent so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Waits until more requests have been sent.
    pub(crate) async fn more(&self, count: u64) {
        let wanted = self.requests() + count;
        until("requests are sent", || self.requests() >= wanted).await;
    }

    /// Ends it; what failed.
    pub(crate) async fn finish(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        for client in self.clients {
            failures.extend(client.await.unwrap());
        }
        failures
    }
}

/// Waits for a condition, with a deadline that fails the test.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
