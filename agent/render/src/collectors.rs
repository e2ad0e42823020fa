//! Clients for the collectors of Envoy's spans and access logs.
//!
//! Never make a request wait for a collector. Data that it does not accept in time is lost.

use envoy_types::pb::envoy::config::core::v3::{
    GrpcService, HeaderValue, HttpService, HttpUri, grpc_service,
    header_value_option::HeaderAppendAction, http_uri,
};
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::Header;

use crate::{header_checks, wrappers};

const TIMEOUT_MS: u64 = 5_000;

pub(crate) fn grpc_service(backend: &str, headers: &[Header]) -> GrpcService {
    let metadata = usable(headers).map(|Header { name, value, .. }| HeaderValue {
        key: name.clone(),
        value: value.clone(),
        ..Default::default()
    });
    GrpcService {
        timeout: wrappers::milliseconds(TIMEOUT_MS),
        initial_metadata: metadata.collect(),
        ..service(backend)
    }
}

/// Returns a gRPC client of a backend.
pub(crate) fn service(backend: &str) -> GrpcService {
    let client = grpc_service::EnvoyGrpc {
        cluster_name: backend.to_owned(),
        authority: host(backend),
        ..Default::default()
    };
    GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(client)),
        ..Default::default()
    }
}

pub(crate) fn http_service(backend: &str, path: &str, headers: &[Header]) -> HttpService {
    let action = HeaderAppendAction::OverwriteIfExistsOrAdd;
    let added = usable(headers)
        .map(|Header { name, value, .. }| wrappers::header(name, value.clone(), action));
    HttpService {
        http_uri: Some(HttpUri {
            uri: format!("http://{}{path}", host(backend)),
            timeout: wrappers::milliseconds(TIMEOUT_MS),
            http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(backend.to_owned())),
        }),
        request_headers_to_add: added.collect(),
        ..Default::default()
    }
}

/// Omits headers that would make Envoy reject the listener.
fn usable(headers: &[Header]) -> impl Iterator<Item = &Header> {
    headers.iter().filter(|Header { name, value, parts }| {
        // Over gRPC, an escaped `%` stays escaped, and an unescaped `%` might be rejected.
        let is_plain = !value.contains('%') && parts.is_empty();
        is_plain
            && header_checks::check_writable(name).is_ok()
            && header_checks::check_value(value).is_ok()
    })
}

/// Returns `name.namespace`, as for a Service in the cluster.
pub(crate) fn host(object: &str) -> String {
    match Provenance::parse(object) {
        Ok(Provenance {
            namespace, name, ..
        }) => format!("{name}.{namespace}"),
        Err(_) => "sesame".to_owned(),
    }
}
