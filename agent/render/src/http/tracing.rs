//! Tracing: Envoy sends one span per request and per attempt to a collector over OTLP.
//!
//! Never delay a request; drop spans instead. Never put a possible secret into a span unless the
//! user configures it.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::trace::v3::{
    OpenTelemetryConfig,
    tracing::{Http, http},
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing as ManagerTracing;
use envoy_types::pb::envoy::extensions::tracers::opentelemetry::samplers::v3::{
    ParentBasedSamplerConfig, TraceIdRatioBasedSamplerConfig,
};
use envoy_types::pb::envoy::r#type::tracing::v3::{
    CustomTag,
    custom_tag::{Header as HeaderTag, Literal, Type},
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use envoy_types::util::pack_any;
use sesame_proto::schema::{RequestFact, SpanAttribute, Tracing, span_attribute::Source};

use super::headers;
use crate::collectors;
use crate::context::RenderContext;
use crate::wrappers;

const PATH: &str = "/v1/traces";
/// Maximum number of buffered spans; further spans are dropped.
const MAX_WAITING: u32 = 1_024;
const MILLION: u32 = 1_000_000;

/// Returns `None` if tracing is disabled or its backend has no cluster.
pub(crate) fn render(context: &RenderContext<'_>) -> Option<ManagerTracing> {
    let Tracing {
        backend,
        http,
        headers,
        sampled_per_million,
        ignores_parent,
        service_name,
        span_name,
        attributes,
    } = context.tracing?;
    if !context.has_cluster(backend) {
        return None;
    }
    let (grpc_service, http_service) = if *http {
        (None, Some(collectors::http_service(backend, PATH, headers)))
    } else {
        (Some(collectors::grpc_service(backend, headers)), None)
    };
    let config = OpenTelemetryConfig {
        grpc_service,
        http_service,
        service_name: if service_name.is_empty() {
            collectors::host(context.gateway)
        } else {
            service_name.clone()
        },
        sampler: Some(sampler(*sampled_per_million, *ignores_parent)),
        max_cache_size: wrappers::uint32(MAX_WAITING),
        ..Default::default()
    };
    Some(ManagerTracing {
        provider: Some(Http {
            name: "envoy.tracers.opentelemetry".to_owned(),
            config_type: Some(http::ConfigType::TypedConfig(pack_any(config))),
        }),
        spawn_upstream_span: wrappers::boolean(true),
        // Envoy's own path attribute includes the query, so a custom attribute replaces it.
        max_path_tag_length: wrappers::uint32(0),
        operation: wrappers::literal(span_name),
        custom_tags: tags(attributes),
        ..Default::default()
    })
}

/// Clients cannot force recording with an Envoy header.
fn sampler(per_million: u32, ignores_parent: bool) -> TypedExtensionConfig {
    let by_rate = TraceIdRatioBasedSamplerConfig {
        sampling_percentage: Some(FractionalPercent {
            numerator: per_million.min(MILLION),
            denominator: DenominatorType::Million.into(),
        }),
    };
    let name = "envoy.tracers.opentelemetry.samplers.trace_id_ratio_based";
    let by_rate = wrappers::extension(name, pack_any(by_rate));
    if ignores_parent {
        return by_rate;
    }
    let wrapped_sampler = Some(by_rate);
    let by_parent = ParentBasedSamplerConfig { wrapped_sampler };
    let name = "envoy.tracers.opentelemetry.samplers.parent_based";
    wrappers::extension(name, pack_any(by_parent))
}

fn tags(attributes: &[SpanAttribute]) -> Vec<CustomTag> {
    let path = SpanAttribute {
        name: "url.path".to_owned(),
        source: Some(Source::Fact(RequestFact::UrlPath.into())),
    };
    let has_path = attributes.iter().any(|it| it.name == path.name);
    let own = (!has_path).then_some(&path);
    let all = attributes.iter().chain(own);
    let mut tags: Vec<CustomTag> = all.filter_map(tag).collect();
    tags.sort_by(|a, b| a.tag.cmp(&b.tag));
    tags
}

fn tag(attribute: &SpanAttribute) -> Option<CustomTag> {
    let SpanAttribute { name, source } = attribute;
    let value = match source.as_ref()? {
        Source::Header(header) => {
            headers::check_name(header).ok()?;
            Type::RequestHeader(HeaderTag {
                name: header.clone(),
                default_value: String::new(),
            })
        }
        Source::Literal(value) if value.is_empty() => return None,
        Source::Literal(value) => Type::Literal(Literal {
            value: value.clone(),
        }),
        Source::Fact(fact) => Type::Value(format(RequestFact::try_from(*fact).ok()?)?.to_owned()),
    };
    (!name.is_empty()).then(|| CustomTag {
        tag: name.clone(),
        r#type: Some(value),
    })
}

fn format(fact: RequestFact) -> Option<&'static str> {
    Some(match fact {
        RequestFact::UnknownFact => return None,
        RequestFact::ClientAddress => "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        RequestFact::ClientPort => "%DOWNSTREAM_REMOTE_PORT%",
        RequestFact::HttpRequestMethod => "%REQ(:METHOD):32%",
        RequestFact::HttpRequestBodySize => "%BYTES_RECEIVED%",
        RequestFact::HttpResponseBodySize => "%BYTES_SENT%",
        RequestFact::HttpResponseStatusCode => "%RESPONSE_CODE%",
        RequestFact::NetworkPeerAddress => "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
        RequestFact::NetworkPeerPort => "%DOWNSTREAM_DIRECT_REMOTE_PORT%",
        RequestFact::RpcGrpcStatusCode => "%GRPC_STATUS_NUMBER%",
        RequestFact::ServerAddress => "%REQ(:AUTHORITY):256%",
        RequestFact::TlsCipher => "%DOWNSTREAM_TLS_CIPHER%",
        RequestFact::TlsClientServerName => "%REQUESTED_SERVER_NAME%",
        RequestFact::TlsClientSubject => "%DOWNSTREAM_PEER_SUBJECT%",
        RequestFact::UrlPath => "%PATH(NQ):1024%",
        RequestFact::UrlScheme => "%REQ(:SCHEME):16%",
        RequestFact::UserAgentOriginal => "%REQ(USER-AGENT):256%",
    })
}
