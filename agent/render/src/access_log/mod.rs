//! Access logs: one line for each request, connection or session.
//!
//! Never log a query string, or a header that is neither in [`fields`] nor configured. Clients
//! cannot inject fields or lines: Envoy escapes JSON values, and text lines contain only values
//! that need no escaping.

mod fields;
mod filter;
mod line;
mod receivers;
mod written;

use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log::ConfigType};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use sesame_proto::schema::{LineForm, LogOutput};

use self::fields::{CONNECTION, Fields, REQUEST, SESSION};
use self::filter::TrafficKind;
use self::line::LogLine;
use crate::context::RenderContext;

/// Facts that are known before a client connects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedPlace<'a> {
    /// Used only if Envoy does not supply the protocol for each line.
    pub(crate) protocol: &'static str,
    /// The port that clients connect to.
    pub(crate) port: u32,
    /// `None` if several listeners share this log.
    pub(crate) listener: Option<&'a str>,
    /// `None` if it can differ between requests.
    pub(crate) route: Option<&'a str>,
    /// `None` without a backend, or if Envoy supplies the name for each line.
    pub(crate) backend: Option<&'a str>,
}

impl<'a> LoggedPlace<'a> {
    pub(crate) fn new(protocol: &'static str, port: u32, listener: Option<&'a str>) -> Self {
        Self {
            protocol,
            port,
            listener,
            route: None,
            backend: None,
        }
    }
}

pub(crate) fn of_requests(place: LoggedPlace<'_>, context: &RenderContext<'_>) -> Vec<AccessLog> {
    logs(REQUEST, TrafficKind::Requests, place, context)
}

/// Each connection is logged when it ends.
pub(crate) fn of_connections(
    place: LoggedPlace<'_>,
    context: &RenderContext<'_>,
) -> Vec<AccessLog> {
    logs(CONNECTION, TrafficKind::Connections, place, context)
}

/// Each session is logged when it ends.
pub(crate) fn of_sessions(place: LoggedPlace<'_>, context: &RenderContext<'_>) -> Vec<AccessLog> {
    logs(SESSION, TrafficKind::Sessions, place, context)
}

fn logs(
    fields: Fields,
    traffic: TrafficKind,
    place: LoggedPlace<'_>,
    context: &RenderContext<'_>,
) -> Vec<AccessLog> {
    let rules = context.edge.access_log.unwrap_or_default();
    if rules.off {
        return Vec::new();
    }
    let (usual, as_by_default) = (LogOutput::default(), LineForm::default());
    let LogOutput {
        form,
        not_on_host,
        sinks,
    } = context.log_output.unwrap_or(&usual);
    let form = form.as_ref().unwrap_or(&as_by_default);
    let line = LogLine::new(fields, traffic, place, context.gateway);
    let on_host = context.options.access_log.as_ref();
    let written = on_host
        .filter(|_| !not_on_host)
        .map(|place| written::log(place, &line, form));
    let sent = sinks
        .iter()
        .filter(|sink| context.has_cluster(&sink.backend))
        .flat_map(|sink| receivers::logs(sink, traffic, &line, form, context.gateway));
    let chosen = filter::render(rules, traffic);
    let logs = written.into_iter().chain(sent).map(|log| {
        let filters = chosen.iter().cloned().chain(log.filter.clone());
        AccessLog {
            filter: filter::all(filters.collect()),
            ..log
        }
    });
    logs.collect()
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
