//! Converts access log settings.
//!
//! Logs must never contain headers with credentials, or values that could end a line or field of a
//! text log.

use sesame_proto::log_facts;
use sesame_proto::schema::line_form::Fact;
use sesame_proto::schema::{self, ExtraField, LineForm, extra_field::Source, log_sink::Protocol};

use super::collector_headers;
use crate::syntax::{limits, names};
use sesame_kinds::api::{
    AccessLogFormat, AccessLogFormatType, AccessLogProtocol, ExtraLogField, LogReceiver,
    LoggedQueries,
};

/// All access log settings except the rules that select requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredLog {
    pub(crate) format: Option<AccessLogFormat>,
    pub(crate) on_host: Option<bool>,
    pub(crate) sinks: Option<ConfiguredSinks>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredSinks {
    /// Namespace of the receivers' backends.
    pub(crate) namespace: String,
    pub(crate) sinks: Vec<LogReceiver>,
}

const MAX_EXTRA_FIELDS: usize = 32;
const MAX_SINKS: usize = 4;
const MAX_LITERAL: usize = 1024;

/// Returns errors that start with the field path.
pub(super) fn faults_of_format(format: &AccessLogFormat) -> Vec<String> {
    read_form(format).err().into_iter().collect()
}

/// Returns errors that start with the field path.
pub(super) fn faults_of_sinks(sinks: &[LogReceiver]) -> Vec<String> {
    if let Err(why) = limits::entries("sinks", sinks.len(), 0..=MAX_SINKS) {
        return vec![why];
    }
    let outcomes = sinks.iter().enumerate().map(|(i, sink)| {
        let wrong = read_sink(sink).err()?;
        Some(format!("sinks[{i}].{wrong}"))
    });
    outcomes.flatten().collect()
}

/// The error names the field.
pub(crate) fn read_form(format: &AccessLogFormat) -> Result<LineForm, String> {
    let AccessLogFormat {
        type_,
        fields,
        extra_fields,
    } = format;
    let text = match type_ {
        None | Some(AccessLogFormatType::Json) => false,
        Some(AccessLogFormatType::Text) => true,
        Some(AccessLogFormatType::Other(other)) => {
            return Err(format!(
                "format.type {other:?} is not one of {}",
                AccessLogFormatType::WORDS.join(", ")
            ));
        }
    };
    if text && fields.is_empty() {
        return Err("format.fields is required with type Text".to_owned());
    }
    if text && !extra_fields.is_empty() {
        return Err(
            "format.extraFields is not supported with type Text, in which values could be \
            mistaken for other fields; use type JSON"
                .to_owned(),
        );
    }
    let mut facts = read_fields(fields, text)?;
    if !text {
        facts.sort_unstable();
    }
    Ok(LineForm {
        text,
        facts: facts.into_iter().map(i32::from).collect(),
        extra: read_extra(extra_fields)?,
    })
}

fn read_fields(fields: &[String], text: bool) -> Result<Vec<Fact>, String> {
    limits::entries("format.fields", fields.len(), 0..=log_facts::all().count())?;
    let mut facts: Vec<Fact> = Vec::with_capacity(fields.len());
    for (i, name) in fields.iter().enumerate() {
        let at = format!("format.fields[{i}]");
        let Some(fact) = log_facts::named(name) else {
            let name: String = name.chars().take(log_facts::MAX_FIELD_NAME).collect();
            let known: Vec<String> = log_facts::all().map(log_facts::name).collect();
            return Err(format!("{at}: {name:?} is not one of {}", known.join(", ")));
        };
        if facts.contains(&fact) {
            return Err(format!("{at}: {name:?} is listed twice"));
        }
        if text && !log_facts::is_plain(fact) {
            return Err(format!(
                "{at}: {name:?} is not supported with type Text: peers may write tabs and quotes into it, which Envoy does not escape \
                 there; leave it out, or use type JSON"
            ));
        }
        facts.push(fact);
    }
    Ok(facts)
}

fn read_extra(fields: &[ExtraLogField]) -> Result<Vec<ExtraField>, String> {
    limits::entries("format.extraFields", fields.len(), 0..=MAX_EXTRA_FIELDS)?;
    let mut found: Vec<ExtraField> = Vec::with_capacity(fields.len());
    for (i, field) in fields.iter().enumerate() {
        let at = format!("format.extraFields[{i}]");
        found.push(read_extra_field(field).map_err(|why| format!("{at}.{why}"))?);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    match found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(format!(
            "format.extraFields contains duplicate name {:?}",
            pair[0].name
        )),
        None => Ok(found),
    }
}

/// The error starts with the field path relative to `field`.
fn read_extra_field(field: &ExtraLogField) -> Result<ExtraField, String> {
    let ExtraLogField {
        name,
        request_header,
        response_header,
        literal,
    } = field;
    limits::max_bytes("name", name, log_facts::MAX_FIELD_NAME)?;
    if !log_facts::is_free_name(name) {
        return Err(format!(
            "name {name:?} is the name of a default field, or has characters other than a-z, 0-9 \
            and _.-; choose another one"
        ));
    }
    let header = |at: &str, header: &String| {
        names::check_token(format_args!("{at}"), header)?;
        match log_facts::secret(header) {
            None if !log_facts::is_loggable(header) => Err(format!(
                "{at} {header:?} is not logged, because its name is too long or has characters \
                other than letters, digits and _.-; choose another one"
            )),
            Some(part) => Err(format!(
                "{at} {header:?} is not logged, because headers with {part:?} in their names may hold credentials; leave it out"
            )),
            None => Ok(header.to_ascii_lowercase()),
        }
    };
    let source = match (request_header, response_header, literal) {
        (Some(name), None, None) => Source::RequestHeader(header("requestHeader", name)?),
        (None, Some(name), None) => Source::ResponseHeader(header("responseHeader", name)?),
        (None, None, Some(text)) => {
            limits::max_bytes("literal", text, MAX_LITERAL)?;
            if text.is_empty() || text.chars().any(char::is_control) {
                return Err(format!(
                    "literal {text:?} must not be empty or contain control characters"
                ));
            }
            Source::Literal(text.clone())
        }
        _ => {
            return Err("set exactly one of requestHeader, responseHeader and literal".to_owned());
        }
    };
    Ok(ExtraField {
        name: name.clone(),
        source: Some(source),
    })
}

/// Reads all fields except the backend. The error starts with the field path relative to `sink`.
pub(crate) fn read_sink(sink: &LogReceiver) -> Result<schema::LogSink, String> {
    let LogReceiver {
        protocol,
        backend_ref: _,
        headers,
        queries,
    } = sink;
    if let Some(LoggedQueries::Other(other)) = queries {
        return Err(format!(
            "queries {other:?} is not one of {}",
            LoggedQueries::WORDS.join(", ")
        ));
    }
    let protocol = match (protocol, queries) {
        (AccessLogProtocol::Otlp, None) => Protocol::Otlp,
        (AccessLogProtocol::Otlp, Some(_)) => {
            return Err("protocol OTLP never sends queries; remove this field".to_owned());
        }
        (AccessLogProtocol::EnvoyAls, Some(_)) => Protocol::Envoy,
        (AccessLogProtocol::EnvoyAls, None) => {
            return Err(
                "protocol EnvoyALS sends the queries and referers of requests, which may hold \
                credentials; set queries to Included to accept this, or use OTLP"
                    .to_owned(),
            );
        }
        (AccessLogProtocol::Other(other), _) => {
            return Err(format!(
                "protocol {other:?} is not one of {}",
                AccessLogProtocol::WORDS.join(", ")
            ));
        }
    };
    Ok(schema::LogSink {
        backend: String::new(),
        protocol: protocol.into(),
        headers: collector_headers::read("headers", headers).map_err(|(_, why)| why)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: bool, fields: &[&str]) -> AccessLogFormat {
        AccessLogFormat {
            type_: text.then_some(AccessLogFormatType::Text),
            fields: fields.iter().map(|name| (*name).to_owned()).collect(),
            extra_fields: Vec::new(),
        }
    }

    #[test]
    fn text_format_keeps_order_and_refuses_unsafe_fields() {
        let form = read_form(&format(true, &["status", "time", "path"])).unwrap();
        let facts: Vec<Fact> = form.facts().collect();
        assert_eq!(facts, [Fact::Status, Fact::Time, Fact::Path]);
        let form = read_form(&format(false, &["user_agent", "path"])).unwrap();
        let facts: Vec<Fact> = form.facts().collect();
        assert_eq!(facts, [Fact::Path, Fact::UserAgent]);
        for (text, fields, words) in [
            (
                true,
                &["status", "user_agent"][..],
                "fields[1]: \"user_agent\" is not supported with type Text",
            ),
            (true, &["request_id"], "not supported"),
            (true, &["tls_server_name"], "not supported"),
            (true, &[], "is required"),
            (false, &["query"], "\"query\" is not one of time, method"),
            (false, &["path", "path"], "twice"),
        ] {
            let why = read_form(&format(text, fields)).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn extra_fields_cannot_forge_others_or_hold_credentials() {
        let of = |name: &str, request_header: Option<&str>, literal: Option<&str>| {
            let field = ExtraLogField {
                name: name.to_owned(),
                request_header: request_header.map(str::to_owned),
                literal: literal.map(str::to_owned),
                ..ExtraLogField::default()
            };
            read_form(&AccessLogFormat {
                extra_fields: vec![field],
                ..AccessLogFormat::default()
            })
        };
        assert!(of("tenant", Some("X-Tenant"), None).is_ok());
        assert!(of("env", None, Some("100%")).is_ok());
        for (name, header, literal, words) in [
            ("status", Some("x-a"), None, "a default field"),
            ("a\":1,\"b", Some("x-a"), None, "characters other"),
            ("a", Some("Authorization"), None, "credentials"),
            ("a", Some("x-api-key"), None, "credentials"),
            ("a", Some(":path"), None, "requestHeader"),
            ("a", Some("x-a)%\n%REQ(cookie"), None, "requestHeader"),
            ("a", None, Some("b\nc"), "control characters"),
            ("a", Some("x-a"), Some("b"), "exactly one"),
            ("a", None, None, "exactly one"),
        ] {
            let why = of(name, header, literal).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn receivers_require_matching_query_setting() {
        let of = |protocol: &str, queries: Option<&str>| {
            read_sink(&LogReceiver {
                protocol: protocol.into(),
                queries: queries.map(LoggedQueries::from),
                ..LogReceiver::default()
            })
        };
        assert!(of("OTLP", None).is_ok());
        assert!(of("EnvoyALS", Some("Included")).is_ok());
        for (protocol, queries) in [
            ("EnvoyALS", None),
            ("OTLP", Some("Included")),
            ("EnvoyALS", Some("Redacted")),
            ("syslog", None),
        ] {
            assert!(of(protocol, queries).is_err(), "{protocol} {queries:?}");
        }
    }
}
