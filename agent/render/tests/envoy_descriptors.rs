//! Generates `data/envoy-api.binpb.zst`, the descriptors for printing Envoy resources.
//!
//! The file contains only the types that rendered messages need, and no comments, options or
//! services. After updating `envoy-types` or `ROOTS`, run `make regenerate`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test reads and writes one of this crate's files"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use envoy_types::pb::google::protobuf::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, FileDescriptorProto, FileDescriptorSet,
    MessageOptions,
};
use prost::Message as _;
use sesame_kit::generated::is_requested;

const ROOTS: &[&str] = &[
    ".envoy.config.bootstrap.v3.Bootstrap",
    ".envoy.config.cluster.v3.Cluster",
    ".envoy.config.core.v3.TypedExtensionConfig",
    ".envoy.config.endpoint.v3.ClusterLoadAssignment",
    ".envoy.config.listener.v3.Listener",
    ".envoy.config.route.v3.RouteConfiguration",
    ".envoy.config.trace.v3.OpenTelemetryConfig",
    ".envoy.extensions.access_loggers.file.v3.FileAccessLog",
    ".envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
    ".envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    ".envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
    ".envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
    ".envoy.extensions.clusters.aggregate.v3.ClusterConfig",
    ".envoy.extensions.clusters.composite.v3.ClusterConfig",
    ".envoy.extensions.common.matching.v3.ExtensionWithMatcher",
    ".envoy.extensions.compression.brotli.compressor.v3.Brotli",
    ".envoy.extensions.compression.gzip.compressor.v3.Gzip",
    ".envoy.extensions.compression.zstd.compressor.v3.Zstd",
    ".envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
    ".envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth",
    ".envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimit",
    ".envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
    ".envoy.extensions.filters.http.buffer.v3.Buffer",
    ".envoy.extensions.filters.http.composite.v3.Composite",
    ".envoy.extensions.filters.http.compressor.v3.Compressor",
    ".envoy.extensions.filters.http.cors.v3.Cors",
    ".envoy.extensions.filters.http.cors.v3.CorsPolicy",
    ".envoy.extensions.filters.http.csrf.v3.CsrfPolicy",
    ".envoy.extensions.filters.http.custom_response.v3.CustomResponse",
    ".envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
    ".envoy.extensions.filters.http.fault.v3.HTTPFault",
    ".envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
    ".envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
    ".envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
    ".envoy.extensions.filters.http.header_to_metadata.v3.Config",
    ".envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    ".envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig",
    ".envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
    ".envoy.extensions.filters.http.oauth2.v3.OAuth2",
    ".envoy.extensions.filters.http.oauth2.v3.OAuth2PerRoute",
    ".envoy.extensions.filters.http.ratelimit.v3.RateLimit",
    ".envoy.extensions.filters.http.rbac.v3.RBAC",
    ".envoy.extensions.filters.http.router.v3.Router",
    ".envoy.extensions.filters.http.set_filter_state.v3.Config",
    ".envoy.extensions.filters.http.set_metadata.v3.Config",
    ".envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
    ".envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
    ".envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
    ".envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    ".envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    ".envoy.extensions.filters.udp.udp_proxy.v3.Route",
    ".envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
    ".envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy",
    ".envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
    ".envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig",
    ".envoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfig",
    ".envoy.extensions.http.original_ip_detection.xff.v3.XffConfig",
    ".envoy.extensions.internal_redirect.previous_routes.v3.PreviousRoutesConfig",
    ".envoy.extensions.internal_redirect.safe_cross_scheme.v3.SafeCrossSchemeConfig",
    ".envoy.extensions.load_balancing_policies.maglev.v3.Maglev",
    ".envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash",
    ".envoy.extensions.matching.common_inputs.network.v3.SourceIPInput",
    ".envoy.extensions.matching.common_inputs.network.v3.SourcePortInput",
    ".envoy.extensions.matching.input_matchers.consistent_hashing.v3.ConsistentHashing",
    ".envoy.extensions.matching.input_matchers.ip.v3.Ip",
    ".envoy.extensions.quic.connection_id_generator.quic_lb.v3.Config",
    ".envoy.extensions.rbac.principals.mtls_authenticated.v3.Config",
    ".envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
    ".envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
    ".envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig",
    ".envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig",
    ".envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
    ".envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport",
    ".envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    ".envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    ".envoy.extensions.transport_sockets.tls.v3.Secret",
    ".envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    ".envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    ".envoy.service.discovery.v3.DiscoveryResponse",
    ".envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
    ".envoy.type.matcher.v3.HttpResponseLocalReplyMatchInput",
    ".envoy.type.matcher.v3.HttpResponseStatusCodeClassMatchInput",
    ".envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput",
];

#[test]
fn envoy_descriptors_are_current() -> Result<(), Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/envoy-api.binpb.zst");
    let derived = derive()?;
    // Different compressor versions may write different bytes.
    if zstd::decode_all(&*std::fs::read(&file)?)? != derived {
        assert!(
            is_requested(),
            "{} is out of date: run `make regenerate`",
            file.display()
        );
        std::fs::write(&file, zstd::encode_all(&*derived, 19)?)?;
    }
    Ok(())
}

fn derive() -> Result<Vec<u8>, Box<dyn Error>> {
    let all = FileDescriptorSet::decode(&*std::fs::read(source()?)?)?;
    let files: BTreeMap<&str, &FileDescriptorProto> =
        all.file.iter().map(|file| (file.name(), file)).collect();
    let mut home = BTreeMap::new();
    for file in files.values() {
        let scope = match file.package() {
            "" => String::new(),
            package => format!(".{package}"),
        };
        for message in &file.message_type {
            define(&scope, message, file.name(), &mut home);
        }
        for kind in &file.enum_type {
            home.insert(format!("{scope}.{}", kind.name()), file.name());
        }
    }
    let mut wanted = BTreeSet::new();
    let mut open: Vec<&str> = ROOTS
        .iter()
        .map(|root| home.get(*root).copied().ok_or(format!("{root} is gone")))
        .collect::<Result<_, _>>()?;
    let mut imports = BTreeMap::new();
    while let Some(name) = open.pop() {
        if !wanted.insert(name) {
            continue;
        }
        let file = files.get(name).ok_or(format!("{name} is gone"))?;
        let mut types = BTreeSet::new();
        for message in &file.message_type {
            references(message, &mut types);
        }
        let needed: BTreeSet<&str> = types
            .iter()
            .filter_map(|name| home.get(*name).copied())
            .filter(|other| *other != name)
            .collect();
        open.extend(&needed);
        imports.insert(name, needed);
    }
    // The source lists imports first, so keep its order.
    let file = all
        .file
        .iter()
        .filter_map(|file| Some((file, imports.get(file.name())?)))
        .map(|(file, imports)| FileDescriptorProto {
            name: file.name.clone(),
            package: file.package.clone(),
            syntax: file.syntax.clone(),
            dependency: imports.iter().map(|&import| import.to_owned()).collect(),
            message_type: file.message_type.iter().map(plain).collect(),
            enum_type: file.enum_type.clone().into_iter().map(plain_enum).collect(),
            ..Default::default()
        })
        .collect();
    Ok(FileDescriptorSet { file }.encode_to_vec())
}

fn source() -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        // Omit `--offline`, because crates for other platforms may not have been downloaded.
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "envoy-types")
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or("cargo metadata does not list envoy-types")?;
    Ok(Path::new(manifest).with_file_name("src/generated/types.bin"))
}

fn define<'a>(
    scope: &str,
    message: &DescriptorProto,
    file: &'a str,
    home: &mut BTreeMap<String, &'a str>,
) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        define(&name, nested, file, home);
    }
    for kind in &message.enum_type {
        home.insert(format!("{name}.{}", kind.name()), file);
    }
    home.insert(name, file);
}

fn references<'a>(message: &'a DescriptorProto, types: &mut BTreeSet<&'a str>) {
    types.extend(
        message
            .field
            .iter()
            .filter_map(|field| field.type_name.as_deref()),
    );
    for nested in &message.nested_type {
        references(nested, types);
    }
}

fn plain(message: &DescriptorProto) -> DescriptorProto {
    let mut message = message.clone();
    // Keep the option that marks map entries.
    message.options = message
        .options
        .and_then(|options| options.map_entry)
        .map(|map_entry| MessageOptions {
            map_entry: Some(map_entry),
            ..Default::default()
        });
    message.reserved_range.clear();
    message.reserved_name.clear();
    for field in &mut message.field {
        field.options = None;
        // The default JSON name is derived from the field's name.
        field.json_name = None;
    }
    for oneof in &mut message.oneof_decl {
        oneof.options = None;
    }
    message.enum_type = message.enum_type.into_iter().map(plain_enum).collect();
    message.nested_type = message.nested_type.iter().map(plain).collect();
    message
}

fn plain_enum(mut kind: EnumDescriptorProto) -> EnumDescriptorProto {
    // Keep the option that allows two names for the same number.
    kind.options = kind
        .options
        .and_then(|options| options.allow_alias)
        .map(|allow_alias| EnumOptions {
            allow_alias: Some(allow_alias),
            ..Default::default()
        });
    kind.reserved_range.clear();
    kind.reserved_name.clear();
    for value in &mut kind.value {
        value.options = None;
    }
    kind
}
