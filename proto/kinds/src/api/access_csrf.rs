//! The part of an `AccessPolicy` that rejects forged requests.

use schemars::JsonSchema;
use serde::Deserialize;

/// Rejects forged requests (CSRF). `POST`, `PUT`, `PATCH` and `DELETE` requests get 403 unless the
/// host and port of their `Origin` header equal the request's `Host`, or are an additional origin.
/// If `Origin` is missing, `Referer` is compared instead, and requests with neither header get 403.
/// Clients other than browsers, such as gRPC clients, usually send neither. Schemes are not
/// compared. Other methods, including WebSocket requests, are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsrfProtection {
    /// Other origins that may send requests, as `host` or `host:port` in lower case. Include the
    /// port unless it is the scheme's default, which browsers omit. `null`, wildcards and schemes
    /// are not allowed. None by default. If several policies check a request, only origins that all
    /// of them list are accepted.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 259)))]
    pub additional_origins: Vec<String>,
}
