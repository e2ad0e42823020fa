//! One real Envoy with hand-made resources, for tests of what lies below `sesame-agent run`: applying, supervising, leaving out
//! what is refused.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

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
use sesame_agent::envoy::identity::Identity;
use sesame_agent::envoy::process::Process;
use sesame_agent::envoy::{Admin, State, Supervisor, SupervisorConfig};
use sesame_render::layout::XdsLayout;
use sesame_render::{Rendered, Resource};

use crate::agent::SOON;
use crate::backend::Backend;
use crate::client::Request;
use crate::envoy::envoy_binary;
use crate::load::{Load, Plan};
use crate::wait::eventually;

/// Holds the directories of one Envoy, short enough for a socket path.
pub struct Host {
    /// Directory of all the others.
    pub directory: tempfile::TempDir,
    /// Files that Envoy watches.
    pub layout: XdsLayout,
}

/// Ends the Envoy: it outlives its supervisor, but not its test.
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

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Variable that tells an agent in another process to work in this one's directories.
    pub const DIRECTORY: &str = "SESAME_TEST_DIRECTORY";

    /// Makes new directories.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("sx").tempdir().unwrap();
        let layout = XdsLayout::new(directory.path().join("xds"));
        Self { directory, layout }
    }

    /// Returns the path of the admin socket.
    pub fn admin_socket(&self) -> PathBuf {
        self.directory.path().join("admin.sock")
    }

    /// Returns a configuration with short waits.
    pub fn config(&self) -> SupervisorConfig {
        let binary = envoy_binary();
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

    /// Writes the files, then starts Envoy, then waits until it is live.
    pub async fn start(&self, rendered: &Rendered) -> (Applier, Supervisor) {
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

/// Applies the resources as one transaction.
pub async fn apply(applier: &mut Applier, rendered: &Rendered, envoy: Option<&Admin>) -> Report {
    let wanted = Wanted {
        rendered,
        serials: &BTreeMap::new(),
        may_empty: false,
    };
    applier.apply(wanted, envoy).await.unwrap()
}

/// Waits until the supervisor's state is as wanted, and returns it.
pub async fn until_state(supervisor: &Supervisor, wanted: impl FnMut(&State) -> bool) -> State {
    let mut state = supervisor.state();
    let seen = tokio::time::timeout(SOON, state.wait_for(wanted)).await;
    seen.expect("the state was not reached in time")
        .unwrap()
        .clone()
}

/// Returns the process of a live Envoy.
pub fn live_pid(state: &State) -> u32 {
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

/// Returns a bootstrap with an admin socket and files of listeners and clusters.
pub fn bootstrap(layout: &XdsLayout, admin: &Path) -> Vec<u8> {
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

/// Returns a static cluster that Envoy refuses, to be appended to a bootstrap: encoded messages merge.
pub fn static_cluster_without_eds(name: &str) -> Vec<u8> {
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

/// Returns a cluster with its endpoints in a file.
pub fn cluster(layout: &XdsLayout, name: &str) -> Resource {
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

/// Returns the endpoints of a cluster.
pub fn endpoints(name: &str, addresses: &[SocketAddr]) -> Resource {
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

/// Returns a route table that sends everything to one cluster.
pub fn route_table(name: &str, cluster: &str) -> Resource {
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

/// Returns a listener that gets its route table, and with `key` its certificate, by file.
pub fn listener(layout: &XdsLayout, at: SocketAddr, table: &str, key: Option<&str>) -> Resource {
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

/// Returns a listener whose HTTP configuration Envoy refuses.
pub fn bad_listener(at: SocketAddr) -> Resource {
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

/// Returns a self-signed pair as a secret, and the serial number of its certificate in hexadecimal.
pub fn key_pair(name: &str, number: u8) -> (Resource, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from(vec![0x4e, number]));
    let certificate = params.self_signed(&key).unwrap();
    let secret = pair_secret(name, &certificate.pem(), &key.serialize_pem());
    (secret, format!("4E:{number:02X}"))
}

/// Returns a certificate and its key as a secret.
pub fn pair_secret(name: &str, certificate: &str, key: &str) -> Resource {
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

/// Returns a port of an address that no other process has: a port of 127.0.0.1 that was let go may be somebody's
/// connection's the moment after, and what listens there is copied into every process that is being started.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | (a & 63), b, c);
    (own, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// Starts a backend that serves until the test ends, and returns its address.
pub async fn backend(name: &str) -> SocketAddr {
    let backend = Backend::start(name).await;
    let address = backend.address();
    // It would end with its value.
    std::mem::forget(backend);
    address
}

/// Returns a GET of this path.
pub fn request(address: SocketAddr, path: &str) -> Request {
    Request::get(address, "example.com", path)
}

/// Sends one request on a connection of its own; returns the status, and the backend's name or the body.
pub async fn get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let reply = request(address, path).send().await?;
    let body = || String::from_utf8_lossy(&reply.body).into_owned();
    Ok((reply.status, reply.backend().unwrap_or_else(body)))
}

/// Waits until a path is answered like this: Envoy's workers have a moment later what it says to have taken.
pub async fn until_answered(address: SocketAddr, path: &str, expected: (u16, &str)) {
    until_answer(address, path, |status, body| (status, body) == expected).await;
}

/// Waits until a path is answered with this status.
pub async fn until_status(address: SocketAddr, path: &str, expected: u16) {
    until_answer(address, path, |status, _| status == expected).await;
}

async fn until_answer(address: SocketAddr, path: &str, good: impl Fn(u16, &str) -> bool) {
    eventually(path, SOON, async || match get(address, path).await {
        Ok((status, body)) if good(status, &body) => Ok(()),
        answer => Err(format!("{answer:?}")),
    })
    .await;
}

/// Starts clients that keep a connection each and ask for one path after the other.
pub fn load_of(address: SocketAddr, clients: usize, paths: &[String]) -> Load {
    let requests = paths.iter().map(|path| request(address, path)).collect();
    Load::start(&Plan {
        keep_alive: clients,
        share: true,
        fresh: 0,
        ..Plan::new(requests)
    })
}

/// Starts load of one path.
pub fn load(address: SocketAddr, clients: usize) -> Load {
    load_of(address, clients, &["/".to_owned()])
}

/// Waits for a condition, with a deadline that fails the test.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, SOON, async || {
        condition().then_some(()).ok_or_else(String::new)
    })
    .await;
}
