//! Hand-written Envoy resources: minimal valid resources, and some that Envoy rejects.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use envoy_types::pb::envoy::config::bootstrap::v3::{
    Admin as AdminConfig, Bootstrap, LayeredRuntime, RuntimeLayer, bootstrap,
    runtime_layer::LayerSpecifier,
};
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
use envoy_types::pb::google::protobuf::{
    Any, Duration as PbDuration, Struct, UInt32Value, Value, value,
};
use prost::{Message, Name};
use sesame_render::Resource;
use sesame_render::layout::XdsLayout;

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

/// Returns a bootstrap with an admin socket and file-based listeners and clusters.
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
        // With its default limit, Envoy would reject ordinary regular expressions.
        layered_runtime: Some(LayeredRuntime {
            layers: vec![RuntimeLayer {
                name: "test".to_owned(),
                layer_specifier: Some(LayerSpecifier::StaticLayer(Struct {
                    fields: HashMap::from([(
                        "re2.max_program_size.error_level".to_owned(),
                        Value {
                            kind: Some(value::Kind::NumberValue(10_000.0)),
                        },
                    )]),
                })),
            }],
        }),
        ..Bootstrap::default()
    }
    .encode_to_vec()
}

/// Returns an encoded bootstrap that Envoy rejects. Append it to a valid bootstrap, because
/// concatenated messages merge.
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

/// Returns a cluster with file-based endpoints.
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

/// Returns a route table that routes to one cluster.
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

/// Returns a listener with a file-based route table and optional certificate.
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

/// Returns a listener whose HTTP connection manager Envoy rejects.
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

/// Returns a self-signed certificate and its serial number in hexadecimal.
pub fn key_pair(name: &str, number: u8) -> (Resource, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    params.serial_number = Some(rcgen::SerialNumber::from(vec![0x4e, number]));
    let certificate = params.self_signed(&key).unwrap();
    let secret = pair_secret(name, &certificate.pem(), &key.serialize_pem());
    (secret, format!("4E:{number:02X}"))
}

/// Returns a secret with the given certificate and key.
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
