//! Access log settings in a SesameConfiguration.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::enums::open_enum;
use super::{BackendObjectRef, Header};

open_enum! {
    /// Format of access log lines.
    AccessLogFormatType {
        /// One object per line.
        Json = "JSON",
        /// Values separated by tabs.
        Text = "Text",
    }
}

open_enum! {
    /// Protocol for sending log lines.
    AccessLogProtocol {
        /// OpenTelemetry.
        Otlp = "OTLP",
        /// Envoy's access log service.
        EnvoyAls = "EnvoyALS",
    }
}

#[expect(
    clippy::derivable_impls,
    reason = "most open enumerations have no default, so the macro does not derive it"
)]
impl Default for AccessLogProtocol {
    fn default() -> Self {
        Self::Otlp
    }
}

open_enum! {
    /// Whether log lines contain query strings.
    LoggedQueries {
        /// Log lines contain query strings.
        Included = "Included",
    }
}

/// Selects the traffic to log; everything by default. If `minStatus`, `minDuration` or `percent` is
/// set, only traffic that matches at least one of them is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogRules {
    /// `false` disables the Gateway's access log.
    pub enabled: Option<bool>,
    /// Selects requests with at least this response status; for gRPC, the HTTP status.
    #[schemars(range(min = 100, max = 599))]
    pub min_status: Option<i32>,
    /// Selects requests and connections that took at least this long: `1ms` to `24h`.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub min_duration: Option<String>,
    /// Selects this percentage of all requests, connections and sessions at random.
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<i32>,
    /// Format of log lines on hosts, and the fields in all log lines. If several configurations set
    /// `format`, only the last one applies.
    pub format: Option<AccessLogFormat>,
    /// `false` disables logging to files and standard output on hosts, regardless of the hosts'
    /// settings.
    pub on_host: Option<bool>,
    /// Network receivers for all log lines. If several configurations set `sinks`, only the last
    /// one applies.
    #[schemars(length(max = 4))]
    pub sinks: Option<Vec<LogReceiver>>,
}

/// Format and fields of log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessLogFormat {
    /// `JSON`, the default, writes one object per line. `Text` writes the values of `fields` in
    /// order, separated by tabs, with `-` for unknown values.
    #[serde(rename = "type")]
    pub type_: Option<AccessLogFormatType>,
    /// Names of the fields in a line, as listed in docs/access-logs.md; all by default. JSON always
    /// includes some of them.
    #[schemars(
        length(max = 39),
        inner(length(max = 64), regex(pattern = r"^[a-z][a-z0-9_]*$"))
    )]
    pub fields: Vec<String>,
    /// Additional fields; not allowed with `Text`.
    #[schemars(length(max = 32))]
    pub extra_fields: Vec<ExtraLogField>,
}

/// Additional field in a line. Exactly one of `requestHeader`, `responseHeader` and `literal` must
/// be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraLogField {
    /// Name of the field, which must differ from all default field names.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z][a-z0-9_.-]*$"))]
    pub name: String,
    /// A request header; its first 256 bytes are logged. Credential headers are rejected.
    #[schemars(length(min = 1, max = 256))]
    pub request_header: Option<String>,
    /// A response header; its first 256 bytes are logged. Credential headers are rejected.
    #[schemars(length(min = 1, max = 256))]
    pub response_header: Option<String>,
    /// A constant string.
    #[schemars(length(min = 1, max = 1024))]
    pub literal: Option<String>,
}

/// Network receiver of log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogReceiver {
    /// `OTLP` sends OpenTelemetry log records; `EnvoyALS` uses Envoy's access log service.
    #[serde(default)]
    pub protocol: AccessLogProtocol,
    /// The receiver's Service. OTLP uses gRPC, or HTTP if the port's `appProtocol` is `http` or
    /// `https`.
    pub backend_ref: BackendObjectRef,
    /// Headers to send.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub headers: Vec<Header>,
    /// `Included` permits sending query strings and referers. `EnvoyALS` requires this, because
    /// Envoy's protocol cannot omit them; not allowed with `OTLP`.
    pub queries: Option<LoggedQueries>,
}
