//! Access logs, as configured by a SesameConfiguration.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::enums::open_enum;
use super::{CollectorRef, Header};

open_enum! {
    /// Form of the lines of an access log.
    AccessLogFormatType {
        /// An object a line.
        Json = "JSON",
        /// Values with tabs between them.
        Text = "Text",
    }
}

open_enum! {
    /// Protocol by which lines are sent.
    AccessLogProtocol {
        /// OpenTelemetry's.
        Otlp = "OTLP",
        /// Envoy's access log service.
        EnvoyAls = "EnvoyALS",
    }
}

#[expect(
    clippy::derivable_impls,
    reason = "the macro derives what all open enumerations have, and few have a default"
)]
impl Default for AccessLogProtocol {
    fn default() -> Self {
        Self::Otlp
    }
}

open_enum! {
    /// Treatment of queries of logged requests.
    LoggedQueries {
        /// They are sent along.
        Included = "Included",
    }
}

/// Rules for what of the traffic is logged: everything by default. Where `minStatus`, `minDuration` or `percent` are set, only what one of
/// them chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogRules {
    /// `false` logs nothing of the Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Chooses requests that were answered with this status or a higher one, and gRPC requests by their HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 599))]
    pub min_status: Option<i32>,
    /// Chooses requests and connections that took this time or longer: `1ms` to `24h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub min_duration: Option<String>,
    /// Chooses this share of all requests, connections and sessions at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<i32>,
    /// Form of the lines on hosts, and what they say everywhere. Of several configurations the last one that says it counts, as a
    /// whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<AccessLogFormat>,
    /// `false` writes nothing to the file or standard output of hosts, whatever they say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_host: Option<bool>,
    /// Receivers that each line is sent to over the network. Of several configurations the last one that says it counts, as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4))]
    pub sinks: Option<Vec<LogReceiver>>,
}

/// Form of lines, and what they say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogFormat {
    /// `JSON`, the default, is an object a line. `Text` is the values of `fields` in their order with tabs between them, `-` for what
    /// is not known.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<AccessLogFormatType>,
    /// Names of the fields that a line has, as docs/access-logs.md lists them; all by default. JSON has some of them always.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 39),
        inner(length(max = 64), regex(pattern = r"^[a-z][a-z0-9_]*$"))
    )]
    pub fields: Vec<String>,
    /// Fields besides. Not with `Text`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub extra_fields: Vec<ExtraLogField>,
}

/// Field of a line that is not there by default. One of its values is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraLogField {
    /// Name of the field, which no field has by default.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z][a-z0-9_.-]*$"))]
    pub name: String,
    /// A header of the request, of which 256 bytes are logged. Those that are made for credentials are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub request_header: Option<String>,
    /// A header of the answer, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub response_header: Option<String>,
    /// A text that is the same in each line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub literal: Option<String>,
}

/// Receiver of lines over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogReceiver {
    /// `OTLP` sends OpenTelemetry's log records; `EnvoyALS` speaks Envoy's access log service.
    #[serde(default)]
    pub protocol: AccessLogProtocol,
    /// Service of the receiver. OTLP is spoken over gRPC, or over HTTP where `appProtocol` of the port is `http` or `https`.
    pub backend_ref: CollectorRef,
    /// Headers that are sent along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<Header>,
    /// `Included` agrees to queries and referers of requests being sent, which Envoy's own protocol cannot leave out: `EnvoyALS`
    /// needs it, and `OTLP` does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<LoggedQueries>,
}
