//! Renders one static bootstrap for `envoy --mode validate`, which ignores dynamic resource files.
//!
//! Any subset of the resources can be validated. Keys are inline, so the caller must write the file
//! with mode 0600.

use bytes::Bytes;
use envoy_types::pb::envoy::config::bootstrap::v3::{Bootstrap, bootstrap::StaticResources};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{
    TransportSocket, TypedExtensionConfig, transport_socket,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::oauth2::v3::{
    OAuth2PerRoute, o_auth2_credentials::TokenFormation,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier, http_filter,
};
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, Secret, UpstreamTlsContext,
    common_tls_context::ValidationContextType,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::{DecodeError, Message, Name};

use crate::clusters::fleet;
use crate::connection_ids;
use crate::http::oidc;
use crate::rendered::{Rendered, Resource, find};

/// Returns an error only if the bytes do not come from `render`.
pub fn static_bootstrap(rendered: &Rendered) -> Result<Bytes, DecodeError> {
    let Rendered {
        listeners,
        route_tables,
        clusters,
        endpoints,
        secrets,
        filters,
        // Connection shares cannot make the configuration invalid.
        shares: _,
        fleet_hosts: _,
        problems: _,
        inline: _,
        in_files: _,
        subscriptions: _,
    } = rendered;
    let listeners = listeners
        .iter()
        .map(|it| listener(it, route_tables, filters));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let mut over_udp = listeners
        .iter()
        .filter_map(|it| it.udp_listener_config.as_ref());
    let is_http3 = over_udp.any(|it| it.quic_options.is_some());
    let clusters = clusters.iter().map(|it| cluster(it, endpoints));
    let clusters = clusters.chain([Ok(fleet::alone())]);
    let secrets = secrets.iter().map(|it| Secret::decode(&*it.bytes));
    let secrets = secrets.chain(is_http3.then(|| Ok(connection_ids::example())));
    let bootstrap = Bootstrap {
        node: Some(super::node()),
        cluster_manager: Some(fleet::manager()),
        layered_runtime: Some(super::runtime()),
        static_resources: Some(StaticResources {
            listeners,
            clusters: clusters.collect::<Result<_, _>>()?,
            secrets: secrets.collect::<Result<_, _>>()?,
        }),
        ..Default::default()
    };
    Ok(bootstrap.encode_to_vec().into())
}

fn listener(
    resource: &Resource,
    tables: &[Resource],
    filters: &[Resource],
) -> Result<Listener, DecodeError> {
    let mut listener = Listener::decode(&*resource.bytes)?;
    for chain in &mut listener.filter_chains {
        for filter in &mut chain.filters {
            if let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type {
                change(config, |manager: &mut HttpConnectionManager| {
                    for it in &mut manager.http_filters {
                        if let Some(resource) = find(filters, &it.name) {
                            let inline = TypedExtensionConfig::decode(&*resource.bytes)?;
                            let config = inline
                                .typed_config
                                .map(http_filter::ConfigType::TypedConfig);
                            it.config_type = config;
                        }
                    }
                    let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier else {
                        return Ok(());
                    };
                    let name = rds.route_config_name.as_str();
                    let mut table = match find(tables, name) {
                        Some(table) => RouteConfiguration::decode(&*table.bytes)?,
                        None => RouteConfiguration {
                            name: name.to_owned(),
                            ..Default::default()
                        },
                    };
                    let hosts = table.virtual_hosts.iter_mut();
                    for route in hosts.flat_map(|host| &mut host.routes) {
                        if let Some(login) = route.typed_per_filter_config.get_mut(oidc::FILTER) {
                            static_login(login)?;
                        }
                    }
                    manager.route_specifier = Some(RouteSpecifier::RouteConfig(table));
                    Ok(())
                })?;
            }
        }
        static_secrets(chain.transport_socket.as_mut())?;
    }
    Ok(listener)
}

fn cluster(resource: &Resource, endpoints: &[Resource]) -> Result<Cluster, DecodeError> {
    let mut cluster = Cluster::decode(&*resource.bytes)?;
    if let Some(eds) = cluster.eds_cluster_config.take() {
        let mut assignment = match find(endpoints, &eds.service_name) {
            Some(resource) => ClusterLoadAssignment::decode(&*resource.bytes)?,
            None => ClusterLoadAssignment::default(),
        };
        assignment.cluster_name.clone_from(&cluster.name);
        cluster.load_assignment = Some(assignment);
        cluster.cluster_discovery_type = Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Static.into(),
        ));
    }
    static_secrets(cluster.transport_socket.as_mut())?;
    Ok(cluster)
}

/// Removes the sources of the socket's secrets, so that Envoy looks them up among the static
/// secrets.
fn static_secrets(socket: Option<&mut TransportSocket>) -> Result<(), DecodeError> {
    let Some(transport_socket::ConfigType::TypedConfig(config)) =
        socket.and_then(|socket| socket.config_type.as_mut())
    else {
        return Ok(());
    };
    let without_files = |context: &mut Option<CommonTlsContext>| {
        let Some(context) = context else {
            return Ok(());
        };
        for secret in &mut context.tls_certificate_sds_secret_configs {
            secret.sds_config = None;
        }
        let validation = match &mut context.validation_context_type {
            Some(ValidationContextType::ValidationContextSdsSecretConfig(secret)) => Some(secret),
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                combined.validation_context_sds_secret_config.as_mut()
            }
            _ => None,
        };
        if let Some(secret) = validation {
            secret.sds_config = None;
        }
        Ok(())
    };
    let terminated = |tls: &mut DownstreamTlsContext| {
        // Session ticket keys belong to the host and need no validation.
        tls.session_ticket_keys_type = None;
        without_files(&mut tls.common_tls_context)
    };
    change(config, terminated)?;
    change(config, |quic: &mut QuicDownstreamTransport| {
        quic.downstream_tls_context
            .as_mut()
            .map_or(Ok(()), terminated)
    })?;
    change(config, |tls: &mut UpstreamTlsContext| {
        without_files(&mut tls.common_tls_context)
    })?;
    change(config, |header: &mut ProxyProtocolUpstreamTransport| {
        static_secrets(header.transport_socket.as_mut())
    })
}

/// Removes the sources of a login's secrets, as [`static_secrets`] does.
fn static_login(config: &mut Any) -> Result<(), DecodeError> {
    change(config, |login: &mut OAuth2PerRoute| {
        let credentials = login.config.as_mut().and_then(|it| it.credentials.as_mut());
        if let Some(credentials) = credentials {
            let cookies = credentials.token_formation.as_mut();
            let cookies = cookies.map(|TokenFormation::HmacSecret(secret)| secret);
            for secret in credentials.token_secret.iter_mut().chain(cookies) {
                secret.sds_config = None;
            }
        }
        Ok(())
    })
}

fn change<M: Message + Name + Default>(
    config: &mut Any,
    change: impl FnOnce(&mut M) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    if config.type_url != M::type_url() {
        return Ok(());
    }
    let mut message = M::decode(config.value.as_slice())?;
    change(&mut message)?;
    *config = pack_any(message);
    Ok(())
}
