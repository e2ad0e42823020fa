//! The same configuration without files, for `envoy --mode validate`, which reads none of them.
//!
//! Works on any subset of what was rendered, so that a culprit can be looked for by halves. Keys are
//! inline: the caller writes the file 0600.

use std::collections::BTreeMap;

use bytes::Bytes;
use envoy_types::pb::envoy::config::bootstrap::v3::{Bootstrap, bootstrap::StaticResources};
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter};
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, Secret, UpstreamTlsContext,
    common_tls_context::ValidationContextType,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use prost::{DecodeError, Message, Name};

use super::{Rendered, Resource, bootstrap};

/// The rendered resources as one static bootstrap. Fails only on bytes that `render` did not write.
pub fn static_bootstrap(rendered: &Rendered) -> Result<Bytes, DecodeError> {
    let Rendered {
        listeners,
        route_tables,
        clusters,
        endpoints,
        secrets,
        // The binary does not need to know how much there is of anything to judge what uses it.
        shares: _,
        problems: _,
    } = rendered;
    let tables = by_name(route_tables);
    let endpoints = by_name(endpoints);
    let bootstrap = Bootstrap {
        node: Some(bootstrap::node()),
        layered_runtime: Some(bootstrap::runtime()),
        static_resources: Some(StaticResources {
            listeners: listeners
                .iter()
                .map(|resource| listener(resource, &tables))
                .collect::<Result<_, _>>()?,
            clusters: clusters
                .iter()
                .map(|resource| cluster(resource, &endpoints))
                .collect::<Result<_, _>>()?,
            secrets: secrets
                .iter()
                .map(|resource| Secret::decode(&*resource.bytes))
                .collect::<Result<_, _>>()?,
        }),
        ..Default::default()
    };
    Ok(bootstrap.encode_to_vec().into())
}

fn by_name(resources: &[Resource]) -> BTreeMap<&str, &Resource> {
    resources.iter().map(|r| (r.name.as_str(), r)).collect()
}

/// Route tables and secrets move inline.
fn listener(
    resource: &Resource,
    tables: &BTreeMap<&str, &Resource>,
) -> Result<Listener, DecodeError> {
    let mut listener = Listener::decode(&*resource.bytes)?;
    for chain in &mut listener.filter_chains {
        for filter in &mut chain.filters {
            if let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type {
                change(config, |manager: &mut HttpConnectionManager| {
                    let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier else {
                        return Ok(());
                    };
                    let name = rds.route_config_name.as_str();
                    // Not among this subset: a table without routes takes its place.
                    let table = match tables.get(name) {
                        Some(table) => RouteConfiguration::decode(&*table.bytes)?,
                        None => RouteConfiguration {
                            name: name.to_owned(),
                            ..Default::default()
                        },
                    };
                    manager.route_specifier = Some(RouteSpecifier::RouteConfig(table));
                    Ok(())
                })?;
            }
        }
        static_secrets(chain.transport_socket.as_mut())?;
    }
    Ok(listener)
}

fn cluster(
    resource: &Resource,
    endpoints: &BTreeMap<&str, &Resource>,
) -> Result<Cluster, DecodeError> {
    let mut cluster = Cluster::decode(&*resource.bytes)?;
    if let Some(eds) = cluster.eds_cluster_config.take() {
        let mut assignment = match endpoints.get(eds.service_name.as_str()) {
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

fn static_secrets(socket: Option<&mut TransportSocket>) -> Result<(), DecodeError> {
    let Some(transport_socket::ConfigType::TypedConfig(config)) =
        socket.and_then(|socket| socket.config_type.as_mut())
    else {
        return Ok(());
    };
    change(config, |tls: &mut DownstreamTlsContext| {
        without_files(tls.common_tls_context.as_mut());
        Ok(())
    })?;
    change(config, |tls: &mut UpstreamTlsContext| {
        without_files(tls.common_tls_context.as_mut());
        Ok(())
    })
}

/// A secret without a source is a static one.
fn without_files(context: Option<&mut CommonTlsContext>) {
    let Some(context) = context else { return };
    for secret in &mut context.tls_certificate_sds_secret_configs {
        secret.sds_config = None;
    }
    match &mut context.validation_context_type {
        Some(ValidationContextType::ValidationContextSdsSecretConfig(secret)) => {
            secret.sds_config = None;
        }
        Some(ValidationContextType::CombinedValidationContext(combined)) => {
            if let Some(secret) = &mut combined.validation_context_sds_secret_config {
                secret.sds_config = None;
            }
        }
        _ => {}
    }
}

/// Changes what is inside if it is of this type.
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
