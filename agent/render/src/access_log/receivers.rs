//! Access logs sent to remote receivers over OTLP or Envoy's access log service.
//!
//! Never make a request wait for a receiver, and never buffer an unlimited number of lines.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::accesslog::v3::AccessLog;
use envoy_types::pb::envoy::config::core::v3::ApiVersion;
use envoy_types::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use envoy_types::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use envoy_types::pb::envoy::r#type::tracing::v3::{
    CustomTag,
    custom_tag::{Literal, Type},
};
use envoy_types::pb::opentelemetry::proto::common::v1::{
    AnyValue, KeyValue, KeyValueList, any_value,
};
use prost::Name as _;
use sesame_proto::schema::{
    ExtraField, LineForm, LogSink, extra_field::Source, log_sink::Protocol,
};

use super::filter::{self, TrafficKind};
use super::line::{LogLine, LoggedValue};
use super::logger;
use crate::{collectors, wrappers};

const PATH: &str = "/v1/logs";
const FLUSH_MS: u64 = 1_000;
/// Buffer size per worker, in bytes. A full buffer is sent at once, or dropped if the receiver is
/// unavailable.
const MAX_GATHERED: u32 = 64 * 1024;

/// Returns an empty list if this version does not support the receiver's protocol.
pub(super) fn logs(
    sink: &LogSink,
    traffic: TrafficKind,
    line: &LogLine,
    form: &LineForm,
    gateway: &str,
) -> Vec<AccessLog> {
    let LogSink {
        backend: _,
        protocol,
        headers: _,
    } = sink;
    match Protocol::try_from(*protocol) {
        Ok(Protocol::Otlp) => records(sink, false, line, form, gateway),
        Ok(Protocol::OtlpHttp) => records(sink, true, line, form, gateway),
        Ok(Protocol::Envoy) => vec![messages(sink, traffic, line, form, gateway)],
        Err(_) => Vec::new(),
    }
}

/// Receivers reject a whole message if any value is not UTF-8. Requests with a non-ASCII value in a
/// logged header go to a separate log that omits such headers. Response headers are never sent,
/// because access log filters cannot check them.
fn records(
    sink: &LogSink,
    http: bool,
    line: &LogLine,
    form: &LineForm,
    gateway: &str,
) -> Vec<AccessLog> {
    let mut fields = line.object(form);
    fields.retain(|_, value| !value.is_of_answer());
    let headers: BTreeSet<String> = fields
        .values()
        .filter_map(LoggedValue::request_header)
        .collect();
    let filters = |expected: bool| {
        let filters = headers.iter();
        filters
            .map(|name| filter::is_ascii(name, expected))
            .collect()
    };
    let whole = AccessLog {
        filter: filter::all(filters(true)),
        ..of_attributes(sink, http, &fields, gateway)
    };
    if headers.is_empty() {
        return vec![whole];
    }
    fields.retain(|_, value| value.request_header().is_none());
    let rest = AccessLog {
        filter: filter::any(filters(false)),
        ..of_attributes(sink, http, &fields, gateway)
    };
    vec![whole, rest]
}

fn of_attributes(
    sink: &LogSink,
    http: bool,
    fields: &BTreeMap<String, LoggedValue>,
    gateway: &str,
) -> AccessLog {
    let (backend, headers) = (&sink.backend, &sink.headers);
    let (grpc_service, http_service) = if http {
        let service = collectors::http_service(backend, PATH, headers);
        (None, Some(service))
    } else {
        (Some(collectors::grpc_service(backend, headers)), None)
    };
    let attributes = fields
        .iter()
        .map(|(name, value)| attribute(name, value.format()));
    // Resource attributes are literal text, not formats.
    let service = attribute("service.name", collectors::host(gateway));
    let config = OpenTelemetryAccessLogConfig {
        grpc_service,
        http_service,
        log_name: gateway.to_owned(),
        // The built-in labels describe Envoy's node, which has only placeholder values.
        disable_builtin_labels: true,
        resource_attributes: Some(KeyValueList {
            values: vec![service],
        }),
        attributes: Some(KeyValueList {
            values: attributes.collect(),
        }),
        buffer_flush_interval: wrappers::milliseconds(FLUSH_MS),
        buffer_size_bytes: wrappers::uint32(MAX_GATHERED),
        ..Default::default()
    };
    logger(
        "envoy.access_loggers.open_telemetry",
        OpenTelemetryAccessLogConfig::type_url(),
        &config,
    )
}

fn attribute(name: &str, value: String) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        }),
        ..Default::default()
    }
}

/// Envoy's access log service has fixed request fields. Tags add facts that are known in advance.
fn messages(
    sink: &LogSink,
    traffic: TrafficKind,
    line: &LogLine,
    form: &LineForm,
    gateway: &str,
) -> AccessLog {
    let tags = line.object(form).into_iter().filter_map(|(tag, value)| {
        let value = match value {
            LoggedValue::Format(_) => return None,
            LoggedValue::Literal(text) => text,
            LoggedValue::Number(number) => number.to_string(),
        };
        let value = Some(Type::Literal(Literal { value }));
        Some(CustomTag { tag, r#type: value })
    });
    let common = CommonGrpcAccessLogConfig {
        log_name: gateway.to_owned(),
        grpc_service: Some(collectors::grpc_service(&sink.backend, &sink.headers)),
        transport_api_version: ApiVersion::V3.into(),
        buffer_flush_interval: wrappers::milliseconds(FLUSH_MS),
        buffer_size_bytes: wrappers::uint32(MAX_GATHERED),
        custom_tags: tags.collect(),
        ..Default::default()
    };
    if traffic != TrafficKind::Requests {
        let config = TcpGrpcAccessLogConfig {
            common_config: Some(common),
        };
        let url = TcpGrpcAccessLogConfig::type_url();
        return logger("envoy.access_loggers.tcp_grpc", url, &config);
    }
    let mut config = HttpGrpcAccessLogConfig {
        common_config: Some(common),
        ..Default::default()
    };
    for ExtraField { name: _, source } in &form.extra {
        let (headers, name) = match source {
            Some(Source::RequestHeader(name)) => {
                (&mut config.additional_request_headers_to_log, name)
            }
            Some(Source::ResponseHeader(name)) => {
                (&mut config.additional_response_headers_to_log, name)
            }
            Some(Source::Literal(_)) | None => continue,
        };
        if line.has_header(name) {
            headers.push(name.clone());
        }
    }
    let url = HttpGrpcAccessLogConfig::type_url();
    logger("envoy.access_loggers.http_grpc", url, &config)
}
