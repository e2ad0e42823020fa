//! Dashboard panels about traffic.

use super::panels::{Row, panel};

pub(crate) const TRAFFIC: Row = Row {
    title: "Traffic",
    panels: &[
        panel(
            "Requests, by status",
            "reqps",
            &[(
                "sum by (code) (rate(sesame_gateway_requests_total{@}[$__rate_interval]))",
                "{{code}}",
            )],
        ),
        panel(
            "Share of requests that fail (5xx)",
            "percentunit",
            &[(
                "sum by (gateway_namespace, gateway) (rate(sesame_gateway_requests_total{@,code=\"5xx\"}[$__rate_interval]) or 0 * rate(sesame_gateway_requests_total{@}[$__rate_interval])) / clamp_min(sum by (gateway_namespace, gateway) (rate(sesame_gateway_requests_total{@}[$__rate_interval])), 0.001)",
                "{{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Time of requests",
            "s",
            &[
                (
                    "histogram_quantile(0.5, sum by (le) (rate(sesame_gateway_request_duration_seconds_bucket{@}[$__rate_interval])))",
                    "half",
                ),
                (
                    "histogram_quantile(0.95, sum by (le) (rate(sesame_gateway_request_duration_seconds_bucket{@}[$__rate_interval])))",
                    "95 %",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) (rate(sesame_gateway_request_duration_seconds_bucket{@}[$__rate_interval])))",
                    "99 %",
                ),
            ],
        ),
        panel(
            "Requests, by listener",
            "reqps",
            &[(
                "sum by (gateway_namespace, gateway, port, protocol) (rate(sesame_gateway_requests_total{@}[$__rate_interval]))",
                "{{gateway_namespace}}/{{gateway}} {{protocol}} {{port}}",
            )],
        ),
        panel(
            "Open requests and connections",
            "short",
            &[
                ("sum(sesame_gateway_requests_active{@})", "requests"),
                ("sum(sesame_gateway_connections_active{@})", "connections"),
            ],
        ),
        panel(
            "New connections",
            "cps",
            &[
                (
                    "sum by (protocol) (rate(sesame_gateway_connections_total{@}[$__rate_interval]))",
                    "{{protocol}}",
                ),
                (
                    "sum(rate(sesame_gateway_tls_handshakes_total{@}[$__rate_interval]))",
                    "TLS handshakes",
                ),
            ],
        ),
        panel(
            "Refused connections, by reason",
            "cps",
            &[(
                "sum by (reason) (rate(sesame_gateway_connections_refused_total{@}[$__rate_interval]))",
                "{{reason}}",
            )],
        ),
        panel(
            "Bytes",
            "Bps",
            &[
                (
                    "sum(rate(sesame_gateway_received_bytes_total{@}[$__rate_interval]))",
                    "from clients",
                ),
                (
                    "sum(rate(sesame_gateway_sent_bytes_total{@}[$__rate_interval]))",
                    "to clients",
                ),
            ],
        ),
    ],
};

pub(crate) const BACKENDS: Row = Row {
    title: "Backends",
    panels: &[
        panel(
            "Requests, by backend",
            "reqps",
            &[(
                "topk(20, sum by (backend) (rate(sesame_gateway_backend_requests_total{@}[$__rate_interval])))",
                "{{backend}}",
            )],
        ),
        panel(
            "Answers 5xx, by backend",
            "reqps",
            &[(
                "topk(20, sum by (backend) (rate(sesame_gateway_backend_requests_total{@,code=\"5xx\"}[$__rate_interval])))",
                "{{backend}}",
            )],
        ),
        panel(
            "Failures, by backend and reason",
            "cps",
            &[(
                "topk(20, sum by (backend, reason) (rate(sesame_gateway_backend_failures_total{@}[$__rate_interval])))",
                "{{backend}} {{reason}}",
            )],
        ),
        panel(
            "Retries, by backend",
            "reqps",
            &[(
                "topk(20, sum by (backend) (rate(sesame_gateway_backend_retries_total{@}[$__rate_interval])))",
                "{{backend}}",
            )],
        ),
        panel(
            "Requests in progress, by backend",
            "short",
            &[(
                "topk(20, sum by (backend) (sesame_gateway_backend_requests_active{@}))",
                "{{backend}}",
            )],
        ),
        panel(
            "Connections to backends",
            "short",
            &[(
                "topk(20, sum by (backend) (sesame_gateway_backend_connections_active{@}))",
                "{{backend}}",
            )],
        ),
        panel(
            "Bytes, of all backends",
            "Bps",
            &[
                (
                    "sum(rate(sesame_gateway_backend_sent_bytes_total{@}[$__rate_interval]))",
                    "to backends",
                ),
                (
                    "sum(rate(sesame_gateway_backend_received_bytes_total{@}[$__rate_interval]))",
                    "from backends",
                ),
            ],
        ),
    ],
};
