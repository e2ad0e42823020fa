//! Access logs that Envoy writes to a local file or standard output, as JSON or text.

use std::collections::BTreeMap;
use std::path::Path;

use envoy_types::pb::envoy::config::accesslog::v3::AccessLog;
use envoy_types::pb::envoy::config::core::v3::DataSource;
use envoy_types::pb::envoy::extensions::access_loggers::file::v3::FileAccessLog;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::google::protobuf::{Value, value::Kind};
use prost::{Message, Name};
use sesame_proto::schema::LineForm;

use super::line::{LogLine, LoggedValue};
use super::logger;
use crate::context::AccessLogSink;
use crate::wrappers;

/// Envoy's own placeholder for unknown values.
const UNKNOWN: &str = "-";

pub(super) fn log(place: &AccessLogSink, line: &LogLine, form: &LineForm) -> AccessLog {
    let format = if form.text {
        text(line, form)
    } else {
        object(line, form)
    };
    match place {
        AccessLogSink::File(path) => to_file(path, format),
        AccessLogSink::Stdout => to_stdout(format),
    }
}

fn object(line: &LogLine, form: &LineForm) -> LineFormat {
    let fields = line.object(form).into_iter().map(|(name, value)| {
        let kind = match value {
            LoggedValue::Number(number) => Kind::NumberValue(number.into()),
            value => Kind::StringValue(value.format()),
        };
        (name, Value { kind: Some(kind) })
    });
    LineFormat {
        json_format: Some(LineObject {
            fields: fields.collect(),
        }),
        omit_empty_values: true,
        text_format_source: None,
    }
}

/// Writes a placeholder for each unknown value, so that the columns stay aligned.
fn text(line: &LogLine, form: &LineForm) -> LineFormat {
    let values = line.text(form);
    let values = values.map(|value| value.map_or_else(|| UNKNOWN.to_owned(), LoggedValue::format));
    let columns: Vec<String> = values.collect();
    LineFormat {
        json_format: None,
        omit_empty_values: false,
        text_format_source: Some(wrappers::text(columns.join("\t") + "\n")),
    }
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

/// Encoded like Envoy's `FileAccessLog`, but with sorted JSON keys, because prost writes map
/// entries in random order.
#[derive(Clone, PartialEq, Message)]
struct LogToFile {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(message, optional, tag = "5")]
    log_format: Option<LineFormat>,
}

#[derive(Clone, PartialEq, Message)]
struct LogToStdout {
    #[prost(message, optional, tag = "1")]
    log_format: Option<LineFormat>,
}

#[derive(Clone, PartialEq, Message)]
struct LineFormat {
    #[prost(message, optional, tag = "2")]
    json_format: Option<LineObject>,
    #[prost(bool, tag = "3")]
    omit_empty_values: bool,
    #[prost(message, optional, tag = "5")]
    text_format_source: Option<DataSource>,
}

#[derive(Clone, PartialEq, Message)]
struct LineObject {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::accesslog::v3::access_log::ConfigType;
    use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
    use envoy_types::pb::envoy::extensions::access_loggers::file::v3::file_access_log::AccessLogFormat;

    use super::*;

    #[test]
    fn encoded_log_format_matches_envoy_types() {
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
            text_format_source: None,
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
}
