//! Fields that can be logged for requests, connections and UDP sessions, with the Envoy format of
//! each value.
//!
//! Never include a header that may contain a credential, and never log text from clients without a
//! length limit.

use sesame_proto::schema::line_form::Fact;

/// Facts to log, each with its Envoy format.
pub(super) type Fields = &'static [(Fact, &'static str)];

/// Fields logged for a request.
pub(super) const REQUEST: Fields = &[
    (Fact::Time, "%START_TIME%"),
    (Fact::Method, "%REQ(:METHOD):32%"),
    (Fact::Host, "%REQ(:AUTHORITY):256%"),
    // The path as sent by the client, without the query.
    (Fact::Path, "%PATH(NQ):1024%"),
    (Fact::Protocol, "%PROTOCOL%"),
    (Fact::Status, "%RESPONSE_CODE%"),
    (Fact::GrpcStatus, "%GRPC_STATUS_NUMBER%"),
    (Fact::ResponseFlags, "%RESPONSE_FLAGS%"),
    (Fact::Details, "%RESPONSE_CODE_DETAILS%"),
    (Fact::TerminationDetails, "%CONNECTION_TERMINATION_DETAILS%"),
    (Fact::DurationMs, "%DURATION%"),
    // Time from the start of the request until the response starts.
    (Fact::ResponseDurationMs, "%RESPONSE_DURATION%"),
    // The total duration, divided into consecutive phases. If a request is retried, all phases
    // except the first describe the last attempt.
    (
        Fact::BeforeBackendMs,
        "%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:ms)%",
    ),
    (Fact::UploadMs, "%COMMON_DURATION(US_TX_BEG:US_TX_END:ms)%"),
    (Fact::BackendMs, "%COMMON_DURATION(US_TX_END:US_RX_BEG:ms)%"),
    (
        Fact::DownloadMs,
        "%COMMON_DURATION(US_RX_BEG:DS_TX_END:ms)%",
    ),
    // Envoy stores these times under the filter names from `external_auth`.
    (
        Fact::AuthorizationUs,
        "%FILTER_STATE(external_auth:FIELD:latency_us)%",
    ),
    (
        Fact::ListenerAuthorizationUs,
        "%FILTER_STATE(listener_external_auth/0:FIELD:latency_us)%",
    ),
    (Fact::BytesReceived, "%BYTES_RECEIVED%"),
    (Fact::BytesSent, "%BYTES_SENT%"),
    (Fact::UserAgent, "%REQ(USER-AGENT):256%"),
    (Fact::RequestId, "%REQ(X-REQUEST-ID):64%"),
    (Fact::Traceparent, "%REQ(TRACEPARENT):64%"),
    // The client address as reported by trusted proxies. `PeerAddress` is the direct peer's
    // address.
    (Fact::ClientAddress, "%DOWNSTREAM_REMOTE_ADDRESS%"),
    (Fact::PeerAddress, "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%"),
    (Fact::ConnectionId, "%CONNECTION_ID%"),
    (Fact::Route, "%ROUTE_NAME%"),
    (Fact::Backend, "%UPSTREAM_CLUSTER%"),
    (Fact::BackendAddress, "%UPSTREAM_HOST%"),
    (Fact::Attempts, "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"),
    (Fact::BackendFailure, "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    (Fact::TlsVersion, "%DOWNSTREAM_TLS_VERSION%"),
    (Fact::TlsCipher, "%DOWNSTREAM_TLS_CIPHER%"),
    (Fact::TlsServerName, "%REQUESTED_SERVER_NAME%"),
    (Fact::ClientCertificateSubject, "%DOWNSTREAM_PEER_SUBJECT%"),
    (
        Fact::ClientCertificateSha256,
        "%DOWNSTREAM_PEER_FINGERPRINT_256%",
    ),
];

/// Fields logged for a connection that is proxied without interpreting its content.
pub(super) const CONNECTION: Fields = &[
    (Fact::Time, "%START_TIME%"),
    (Fact::ResponseFlags, "%RESPONSE_FLAGS%"),
    (Fact::TerminationDetails, "%CONNECTION_TERMINATION_DETAILS%"),
    (Fact::DurationMs, "%DURATION%"),
    (Fact::BytesReceived, "%BYTES_RECEIVED%"),
    (Fact::BytesSent, "%BYTES_SENT%"),
    (Fact::ClientAddress, "%DOWNSTREAM_REMOTE_ADDRESS%"),
    (Fact::ConnectionId, "%CONNECTION_ID%"),
    (Fact::Backend, "%UPSTREAM_CLUSTER%"),
    (Fact::BackendAddress, "%UPSTREAM_HOST%"),
    (Fact::BackendFailure, "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    (Fact::TlsVersion, "%DOWNSTREAM_TLS_VERSION%"),
    (Fact::TlsCipher, "%DOWNSTREAM_TLS_CIPHER%"),
    (Fact::TlsServerName, "%REQUESTED_SERVER_NAME%"),
    (Fact::ClientCertificateSubject, "%DOWNSTREAM_PEER_SUBJECT%"),
    (
        Fact::ClientCertificateSha256,
        "%DOWNSTREAM_PEER_FINGERPRINT_256%",
    ),
];

/// Fields logged for a UDP session, which consists of all datagrams from one client address and
/// port.
pub(super) const SESSION: Fields = &[
    (Fact::Time, "%START_TIME%"),
    (Fact::BytesReceived, "%BYTES_RECEIVED%"),
    (Fact::BytesSent, "%BYTES_SENT%"),
    (Fact::ClientAddress, "%DOWNSTREAM_REMOTE_ADDRESS%"),
    (Fact::BackendAddress, "%UPSTREAM_HOST%"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_may_be_a_secret_is_read() {
        for (fact, format) in [REQUEST, CONNECTION, SESSION].concat() {
            for secret in [
                "AUTHORIZATION",
                "COOKIE",
                "X-API-KEY",
                "PATH(WQ",
                "(:PATH",
                "RESP(",
            ] {
                assert!(
                    !format.to_uppercase().contains(secret),
                    "{fact:?}: {format}"
                );
            }
            // Client-controlled text has a length limit.
            let chosen = ["%REQ(", "%PATH("];
            if chosen.iter().any(|start| format.starts_with(start)) {
                let end = format
                    .rsplit_once("):")
                    .and_then(|(_, end)| end.strip_suffix('%'));
                let bytes: usize = end.expect(format).parse().expect(format);
                assert!(bytes <= 1024, "{fact:?}: {format}");
            }
        }
    }
}
