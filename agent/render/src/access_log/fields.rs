//! Loggable fields of requests, connections and UDP sessions, with their Envoy formats.
//!
//! Never log a header that may hold a credential, and limit the length of client-controlled text.

use sesame_proto::schema::line_form::Fact;

pub(super) type Fields = &'static [(Fact, &'static str)];

pub(super) const REQUEST: Fields = &[
    (Fact::Time, "%START_TIME%"),
    (Fact::Method, "%REQ(:METHOD):32%"),
    (Fact::Host, "%REQ(:AUTHORITY):256%"),
    (Fact::Path, "%PATH(NQ):1024%"),
    (Fact::Protocol, "%PROTOCOL%"),
    (Fact::Status, "%RESPONSE_CODE%"),
    (Fact::GrpcStatus, "%GRPC_STATUS_NUMBER%"),
    (Fact::ResponseFlags, "%RESPONSE_FLAGS%"),
    (Fact::Details, "%RESPONSE_CODE_DETAILS%"),
    (Fact::TerminationDetails, "%CONNECTION_TERMINATION_DETAILS%"),
    (Fact::DurationMs, "%DURATION%"),
    (Fact::ResponseDurationMs, "%RESPONSE_DURATION%"),
    // Consecutive phases of the total duration. For a retried request, all phases except the first
    // describe the last attempt.
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
    // Envoy stores the names of policies under the filter name from `address_filters`.
    (
        Fact::RefusedBy,
        "%DYNAMIC_METADATA(envoy.filters.http.rbac:enforced_effective_policy_id)%",
    ),
    (
        Fact::ReportedBy,
        "%DYNAMIC_METADATA(envoy.filters.http.rbac:reported_shadow_effective_policy_id)%",
    ),
    (Fact::BytesReceived, "%BYTES_RECEIVED%"),
    (Fact::BytesSent, "%BYTES_SENT%"),
    (Fact::UserAgent, "%REQ(USER-AGENT):256%"),
    (Fact::RequestId, "%REQ(X-REQUEST-ID):64%"),
    (Fact::Traceparent, "%REQ(TRACEPARENT):64%"),
    // As reported by trusted proxies; `PeerAddress` is the direct peer.
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

/// A session consists of all datagrams from one client address and port.
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
    fn log_fields_never_contain_secrets() {
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
