//! Access logs: one JSON object a line for each request, connection or session.
//!
//! It must never log what may be a secret: the path is without its query, and of the headers only those of [`fields`] are
//! read. A client cannot add a field or a line: the object is typed, and Envoy escapes every value that it puts into it.

mod fields;
mod filter;

use std::collections::BTreeMap;
use std::path::Path;

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log::ConfigType};
use envoy_types::pb::envoy::extensions::access_loggers::file::v3::FileAccessLog;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::google::protobuf::{Any, Value, value::Kind};
use prost::{Message, Name};

use self::fields::{CONNECTION, Fields, REQUEST, SESSION};
use self::filter::TrafficKind;
use crate::context::{AccessLogSink, RenderContext};

/// Place in the Gateway that a line is about, as far as it is known before a client comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedPlace<'a> {
    /// Protocol of the listener, where lines do not tell it themselves.
    pub(crate) protocol: &'static str,
    /// Port as clients see it.
    pub(crate) port: u32,
    /// Listener, unless several share what is logged.
    pub(crate) listener: Option<&'a str>,
    /// Route, unless each request has one of its own.
    pub(crate) route: Option<&'a str>,
    /// Backend, where lines do not tell it themselves and there is one.
    pub(crate) backend: Option<&'a str>,
}

/// Returns the logs of an HTTP connection manager: a line for each request.
pub(crate) fn of_requests(place: LoggedPlace<'_>, context: &RenderContext<'_>) -> Vec<AccessLog> {
    logs(REQUEST, TrafficKind::Requests, place, context)
}

/// Returns the logs of connections that are passed on as they are: a line for each when it ends.
pub(crate) fn of_connections(
    place: LoggedPlace<'_>,
    context: &RenderContext<'_>,
) -> Vec<AccessLog> {
    logs(CONNECTION, TrafficKind::Connections, place, context)
}

/// Returns the logs of datagrams: a line for each session when it ends.
pub(crate) fn of_sessions(place: LoggedPlace<'_>, context: &RenderContext<'_>) -> Vec<AccessLog> {
    logs(SESSION, TrafficKind::Sessions, place, context)
}

fn logs(
    fields: Fields,
    traffic: TrafficKind,
    place: LoggedPlace<'_>,
    context: &RenderContext<'_>,
) -> Vec<AccessLog> {
    let Some(sink) = &context.options.access_log else {
        return Vec::new();
    };
    let rules = context.edge.access_log.unwrap_or_default();
    if rules.off {
        return Vec::new();
    }
    let format = LineFormat {
        json_format: Some(object(fields, place, context)),
        // A line says what is known.
        omit_empty_values: true,
    };
    let log = match sink {
        AccessLogSink::File(path) => to_file(path, format),
        AccessLogSink::Stdout => to_stdout(format),
    };
    vec![AccessLog {
        filter: filter::of(rules, traffic),
        ..log
    }]
}

/// Returns the fields of a line and Envoy's formats of their values.
fn object(fields: Fields, place: LoggedPlace<'_>, context: &RenderContext<'_>) -> LineObject {
    let LoggedPlace {
        protocol,
        port,
        listener,
        route,
        backend,
    } = place;
    let format = |format: &str| Kind::StringValue(format.to_owned());
    let literal = |text: &str| Kind::StringValue(escaped(text));
    let mut kinds: BTreeMap<&str, Kind> = fields
        .iter()
        .map(|(name, value)| (*name, format(value)))
        .collect();
    let known = [
        ("backend", backend),
        ("gateway", Some(context.gateway)),
        ("listener", listener),
        ("protocol", Some(protocol)),
        ("route", route),
    ];
    for (name, text) in known {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            // A format of the same name knows more.
            kinds.entry(name).or_insert_with(|| literal(text));
        }
    }
    kinds.insert("port", Kind::NumberValue(port.into()));
    let fields = kinds.into_iter().map(|(name, kind)| {
        let kind = Some(kind);
        (name.to_owned(), Value { kind })
    });
    LineObject {
        fields: fields.collect(),
    }
}

/// Returns a text as a format that gives it as it is.
fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

fn to_file(path: &Path, log_format: LineFormat) -> AccessLog {
    let file = LogToFile {
        path: path.to_string_lossy().into_owned(),
        log_format: Some(log_format),
    };
    logger(
        "envoy.access_loggers.file",
        FileAccessLog::type_url(),
        &file,
    )
}

fn to_stdout(log_format: LineFormat) -> AccessLog {
    let stdout = LogToStdout {
        log_format: Some(log_format),
    };
    logger(
        "envoy.access_loggers.stdout",
        StdoutAccessLog::type_url(),
        &stdout,
    )
}

fn logger(name: &str, type_url: String, config: &impl Message) -> AccessLog {
    AccessLog {
        name: name.to_owned(),
        config_type: Some(ConfigType::TypedConfig(Any {
            type_url,
            value: config.encode_to_vec(),
        })),
        ..Default::default()
    }
}

/// `FileAccessLog`, as far as it is used. This and the messages below are those of the Envoy API with the object in the
/// order of its keys: prost writes maps of others in random order.
#[derive(Clone, PartialEq, Message)]
struct LogToFile {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(message, optional, tag = "5")]
    log_format: Option<LineFormat>,
}

/// `StdoutAccessLog`.
#[derive(Clone, PartialEq, Message)]
struct LogToStdout {
    #[prost(message, optional, tag = "1")]
    log_format: Option<LineFormat>,
}

/// `SubstitutionFormatString`.
#[derive(Clone, PartialEq, Message)]
struct LineFormat {
    #[prost(message, optional, tag = "2")]
    json_format: Option<LineObject>,
    #[prost(bool, tag = "3")]
    omit_empty_values: bool,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
struct LineObject {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
    use envoy_types::pb::envoy::extensions::access_loggers::file::v3::file_access_log::AccessLogFormat;

    use super::*;

    #[test]
    fn what_is_encoded_is_what_envoy_reads() {
        let value = |text: &str| Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let fields = [("a", "%PROTOCOL%"), ("b", "100%%"), ("c", "c")];
        let format = LineFormat {
            json_format: Some(LineObject {
                fields: fields
                    .iter()
                    .map(|(name, text)| ((*name).to_owned(), value(text)))
                    .collect(),
            }),
            omit_empty_values: true,
        };
        let log = to_file(Path::new("/logs/access.log"), format);
        let Some(ConfigType::TypedConfig(any)) = log.config_type else {
            panic!("{log:?}");
        };
        assert_eq!(any.type_url, FileAccessLog::type_url());
        let read = FileAccessLog::decode(any.value.as_slice()).unwrap();
        assert_eq!(read.path, "/logs/access.log");
        let Some(AccessLogFormat::LogFormat(format)) = read.access_log_format else {
            panic!("{read:?}");
        };
        assert!(format.omit_empty_values);
        let Some(Format::JsonFormat(object)) = format.format else {
            panic!("{format:?}");
        };
        assert_eq!(object.fields.len(), fields.len());
        for (name, text) in fields {
            assert_eq!(object.fields[name], value(text));
        }
    }

    #[test]
    fn a_name_with_a_percent_sign_is_no_format() {
        assert_eq!(escaped("a%PROTOCOL%b"), "a%%PROTOCOL%%b");
    }

    #[test]
    fn nothing_that_may_be_a_secret_is_read() {
        for (name, format) in [REQUEST, CONNECTION, SESSION].concat() {
            for secret in [
                "AUTHORIZATION",
                "COOKIE",
                "X-API-KEY",
                "PATH(WQ",
                "(:PATH",
                "RESP(",
            ] {
                assert!(!format.to_uppercase().contains(secret), "{name}: {format}");
            }
            // Text that a client chooses has an end.
            let chosen = ["%REQ(", "%PATH("];
            if chosen.iter().any(|start| format.starts_with(start)) {
                let end = format
                    .rsplit_once("):")
                    .and_then(|(_, end)| end.strip_suffix('%'));
                let bytes: usize = end.expect(format).parse().expect(format);
                assert!(bytes <= 1024, "{name}: {format}");
            }
        }
    }
}
