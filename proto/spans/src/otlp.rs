//! Encodes spans as an OTLP 1 message. The OpenTelemetry crates are not used, because they require
//! a process-wide provider, random ids and a dozen additional crates.

use bytes::Bytes;
use prost::Message;

use crate::exporter::Reporting;
use crate::span::{ChangeSpan, SpanValue, since_1970};

const INTERNAL: i32 = 1;
const ERROR: i32 = 2;

pub(crate) fn encode(reporting: &Reporting, spans: &[ChangeSpan]) -> Bytes {
    let Reporting {
        service,
        version,
        host,
    } = reporting;
    let attributes = [
        ("service.name", service.as_str()),
        ("service.version", version),
        ("service.instance.id", host),
        ("host.name", host),
    ];
    let attributes = attributes.map(|(name, value)| key_value(name, OneValue::Text(value.into())));
    let message = ExportRequest {
        resources: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.into(),
            }),
            scopes: vec![ScopeSpans {
                scope: Some(Scope {
                    name: "sesame".to_owned(),
                }),
                spans: spans.iter().map(message).collect(),
            }],
        }],
    };
    message.encode_to_vec().into()
}

fn message(span: &ChangeSpan) -> SpanMessage {
    let ChangeSpan {
        trace,
        id,
        parent,
        name,
        start,
        end,
        attributes,
        failure,
    } = span;
    let attributes = attributes.iter().map(|(name, value)| {
        let value = match value {
            SpanValue::Text(text) => OneValue::Text(text.clone()),
            SpanValue::Number(number) => {
                OneValue::Number(i64::try_from(*number).unwrap_or(i64::MAX))
            }
        };
        key_value(name, value)
    });
    SpanMessage {
        trace: trace.0.to_vec(),
        id: id.0.to_vec(),
        parent: parent.map(|parent| parent.0.to_vec()).unwrap_or_default(),
        name: name.clone(),
        kind: INTERNAL,
        start: since_1970(*start),
        end: since_1970(*end),
        attributes: attributes.collect(),
        status: failure.clone().map(|message| Status {
            message,
            code: ERROR,
        }),
    }
}

fn key_value(key: &str, value: OneValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 3")]
    value: Option<OneValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OneValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}
