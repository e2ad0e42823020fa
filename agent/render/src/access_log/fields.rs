//! The fields of a line, and Envoy's formats of their values.
//!
//! It must never name a header that may hold a credential, nor leave text that a client chooses without a limit.

/// Names of fields with the formats of their values.
pub(super) type Fields = &'static [(&'static str, &'static str)];

/// Fields of a request.
pub(super) const REQUEST: Fields = &[
    ("time", "%START_TIME%"),
    ("method", "%REQ(:METHOD):32%"),
    ("host", "%REQ(:AUTHORITY):256%"),
    // As the client sent it, without the query.
    ("path", "%PATH(NQ):1024%"),
    ("protocol", "%PROTOCOL%"),
    ("status", "%RESPONSE_CODE%"),
    ("grpc_status", "%GRPC_STATUS_NUMBER%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("details", "%RESPONSE_CODE_DETAILS%"),
    ("termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("duration_ms", "%DURATION%"),
    // Until the backend began to answer.
    ("response_duration_ms", "%RESPONSE_DURATION%"),
    // The parts of the duration, one after the other; of several tries, the last one has all but the first of them.
    (
        "before_backend_ms",
        "%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:ms)%",
    ),
    ("upload_ms", "%COMMON_DURATION(US_TX_BEG:US_TX_END:ms)%"),
    ("backend_ms", "%COMMON_DURATION(US_TX_END:US_RX_BEG:ms)%"),
    ("download_ms", "%COMMON_DURATION(US_RX_BEG:DS_TX_END:ms)%"),
    // By the names of the filters in `external_auth`.
    (
        "authorization_us",
        "%FILTER_STATE(external_auth:FIELD:latency_us)%",
    ),
    (
        "listener_authorization_us",
        "%FILTER_STATE(listener_external_auth/0:FIELD:latency_us)%",
    ),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("user_agent", "%REQ(USER-AGENT):256%"),
    ("request_id", "%REQ(X-REQUEST-ID):64%"),
    ("traceparent", "%REQ(TRACEPARENT):64%"),
    // As far as trusted proxies tell; the other is who connected.
    ("client_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("peer_address", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%"),
    ("connection_id", "%CONNECTION_ID%"),
    ("route", "%ROUTE_NAME%"),
    ("backend", "%UPSTREAM_CLUSTER%"),
    ("backend_address", "%UPSTREAM_HOST%"),
    ("attempts", "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"),
    ("backend_failure", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    ("tls_version", "%DOWNSTREAM_TLS_VERSION%"),
    ("tls_cipher", "%DOWNSTREAM_TLS_CIPHER%"),
    ("tls_server_name", "%REQUESTED_SERVER_NAME%"),
    ("client_certificate_subject", "%DOWNSTREAM_PEER_SUBJECT%"),
    (
        "client_certificate_sha256",
        "%DOWNSTREAM_PEER_FINGERPRINT_256%",
    ),
];

/// Fields of a connection that is passed on as it is.
pub(super) const CONNECTION: Fields = &[
    ("time", "%START_TIME%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("duration_ms", "%DURATION%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("client_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("connection_id", "%CONNECTION_ID%"),
    ("backend", "%UPSTREAM_CLUSTER%"),
    ("backend_address", "%UPSTREAM_HOST%"),
    ("backend_failure", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    ("tls_version", "%DOWNSTREAM_TLS_VERSION%"),
    ("tls_cipher", "%DOWNSTREAM_TLS_CIPHER%"),
    ("tls_server_name", "%REQUESTED_SERVER_NAME%"),
    ("client_certificate_subject", "%DOWNSTREAM_PEER_SUBJECT%"),
    (
        "client_certificate_sha256",
        "%DOWNSTREAM_PEER_FINGERPRINT_256%",
    ),
];

/// Fields of a session: datagrams from one address and port of a client.
pub(super) const SESSION: Fields = &[
    ("time", "%START_TIME%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("client_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("backend_address", "%UPSTREAM_HOST%"),
];
