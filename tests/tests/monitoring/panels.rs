//! The panels of the dashboards. `@` in an expression is the selection at the top of its dashboard.

/// A dashboard.
pub struct Dashboard {
    /// Name of the file without its ending, and identity in Grafana.
    pub name: &'static str,
    pub title: &'static str,
    /// Labels that can be selected, with a metric that has them.
    pub selection: &'static [(&'static str, &'static str)],
    pub rows: &'static [Row],
}

pub struct Row {
    pub title: &'static str,
    pub panels: &'static [Panel],
}

pub struct Panel {
    pub title: &'static str,
    pub unit: &'static str,
    /// Expressions with the legends of their series.
    pub series: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    series: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        title,
        unit,
        series,
    }
}

pub const DASHBOARDS: [Dashboard; 2] = [
    Dashboard {
        name: "sesame-gateways",
        title: "Sesame: Gateways and hosts",
        selection: &[
            ("gateway_namespace", "sesame_gateway_serves"),
            ("gateway", "sesame_gateway_serves"),
            ("instance", "sesame_gateway_serves"),
        ],
        rows: &[TRAFFIC, BACKENDS, CONFIGURATION, HOSTS],
    },
    Dashboard {
        name: "sesame-controller",
        title: "Sesame: controller",
        selection: &[("instance", "sesame_controller_leader")],
        rows: &[CONTROLLER],
    },
];

const TRAFFIC: Row = Row {
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
            "Requests and connections that are open",
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
                    "handshakes of TLS",
                ),
            ],
        ),
        panel(
            "Connections that got no answer",
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

const BACKENDS: Row = Row {
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
            "Requests that wait for a backend",
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

const CONFIGURATION: Row = Row {
    title: "Configuration",
    panels: &[
        panel(
            "Changes, by outcome",
            "short",
            &[(
                "sum by (outcome) (increase(sesame_gateway_applies_total{@}[$__rate_interval]))",
                "{{outcome}}",
            )],
        ),
        panel(
            "Time from a change to its proof, since agents started",
            "s",
            &[(
                "histogram_quantile(0.99, sum by (le) (sesame_gateway_apply_duration_seconds_bucket{@}))",
                "99 %",
            )],
        ),
        panel(
            "Hosts that are behind, hold a revision back or drain",
            "short",
            &[
                ("sum(1 - sesame_gateway_newest{@})", "behind"),
                ("sum(sesame_gateway_held{@})", "hold back"),
                ("sum(sesame_gateway_draining{@})", "drain"),
            ],
        ),
        panel(
            "Age of what is served",
            "s",
            &[(
                "time() - min by (gateway_namespace, gateway) (sesame_gateway_applied_timestamp_seconds{@})",
                "{{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Parts that Envoy refuses",
            "short",
            &[(
                "max by (gateway_namespace, gateway) (sesame_gateway_refused_parts{@})",
                "{{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Certificates that expire first",
            "s",
            &[(
                "bottomk(10, min by (key) (sesame_gateway_certificate_expiry_timestamp_seconds{@}) - time())",
                "{{key}}",
            )],
        ),
        panel(
            "Trust bundles that expire first",
            "s",
            &[(
                "bottomk(10, min by (bundle) (sesame_gateway_trust_bundle_expiry_timestamp_seconds{@}) - time())",
                "{{bundle}}",
            )],
        ),
        panel(
            "Certificates, and listeners that do not show the newest",
            "short",
            &[
                (
                    "max by (gateway_namespace, gateway) (sesame_gateway_certificates{@})",
                    "certificates of {{gateway_namespace}}/{{gateway}}",
                ),
                (
                    "sum(sesame_gateway_listeners_unshown{@})",
                    "listeners with an older one",
                ),
            ],
        ),
    ],
};

const HOSTS: Row = Row {
    title: "Hosts",
    panels: &[
        panel(
            "Hosts",
            "short",
            &[
                ("count(sesame_agent_ready{instance=~\"$instance\"})", "all"),
                ("sum(sesame_agent_ready{instance=~\"$instance\"})", "ready"),
                (
                    "sum(sesame_agent_healthy{instance=~\"$instance\"})",
                    "healthy",
                ),
                (
                    "sum(sesame_agent_source_available{instance=~\"$instance\"})",
                    "that can read their source",
                ),
            ],
        ),
        panel(
            "Gateways of hosts, by state",
            "short",
            &[(
                "sum by (state) (sesame_agent_gateways{instance=~\"$instance\"})",
                "{{state}}",
            )],
        ),
        panel(
            "Problems of sources",
            "short",
            &[(
                "sum by (severity) (sesame_agent_source_problems{instance=~\"$instance\"})",
                "{{severity}}",
            )],
        ),
        panel(
            "Gateways that are served",
            "short",
            &[
                ("sum(sesame_gateway_serves{@})", "serve"),
                (
                    "sum(sesame_gateway_envoy_answers{@})",
                    "tell what they count",
                ),
            ],
        ),
        panel(
            "Envoys that came into service",
            "short",
            &[(
                "sum by (gateway_namespace, gateway) (increase(sesame_gateway_envoy_processes_total{@}[$__rate_interval]))",
                "{{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Memory of Envoys",
            "bytes",
            &[(
                "max by (instance, gateway_namespace, gateway) (sesame_gateway_envoy_memory_bytes{@})",
                "{{instance}} {{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Versions of agents",
            "short",
            &[(
                "count by (version) (sesame_agent_build_info{instance=~\"$instance\"})",
                "{{version}}",
            )],
        ),
        panel(
            "Versions of Envoys",
            "short",
            &[(
                "count by (version) (sesame_gateway_envoy_info{@})",
                "{{version}}",
            )],
        ),
        panel(
            "Time since agents started",
            "s",
            &[(
                "time() - sesame_agent_start_time_seconds{instance=~\"$instance\"}",
                "{{instance}}",
            )],
        ),
    ],
};

const CONTROLLER: Row = Row {
    title: "Controller",
    panels: &[
        panel(
            "Replicas",
            "short",
            &[
                ("count(sesame_controller_leader{@})", "all"),
                ("sum(sesame_controller_leader{@})", "that write"),
                (
                    "sum(sesame_controller_api_server_answers{@})",
                    "that the API server answers",
                ),
            ],
        ),
        panel(
            "Gateways",
            "short",
            &[
                ("max(sesame_controller_gateways{@})", "Gateways"),
                (
                    "max(sesame_controller_skipped_objects{@})",
                    "objects that cannot be decoded",
                ),
            ],
        ),
        panel(
            "Objects, by kind",
            "short",
            &[("max by (kind) (sesame_controller_objects{@})", "{{kind}}")],
        ),
        panel(
            "Time to resolve, since replicas started",
            "s",
            &[(
                "histogram_quantile(0.99, sum by (le) (sesame_controller_resolution_seconds_bucket{@}))",
                "99 %",
            )],
        ),
        panel(
            "Writes of ConfigMaps and Secrets",
            "wps",
            &[(
                "sum by (part, verb) (rate(sesame_controller_publish_writes_total{@}[$__rate_interval]))",
                "{{verb}} {{part}}",
            )],
        ),
        panel(
            "Writes of statuses",
            "wps",
            &[(
                "sum by (kind) (rate(sesame_controller_status_writes_total{@}[$__rate_interval]))",
                "{{kind}}",
            )],
        ),
        panel(
            "Lists and watches that failed",
            "cps",
            &[
                (
                    "sum(rate(sesame_controller_lists_total{@}[$__rate_interval]))",
                    "lists",
                ),
                (
                    "sum(rate(sesame_controller_watch_failures_total{@}[$__rate_interval]))",
                    "watches that failed",
                ),
            ],
        ),
        panel(
            "Hosts",
            "short",
            &[
                ("max(sesame_controller_hosts_lost{@})", "lost"),
                (
                    "max(sesame_controller_reports_refused{@})",
                    "reports that count for nothing",
                ),
            ],
        ),
        panel(
            "Certificates that expire first",
            "s",
            &[(
                "bottomk(10, min by (gateway, key) (sesame_controller_certificate_expiry_timestamp_seconds{@}) - time())",
                "{{gateway}} {{key}}",
            )],
        ),
        panel(
            "Versions",
            "short",
            &[(
                "count by (version) (sesame_controller_build_info{@})",
                "{{version}}",
            )],
        ),
    ],
};
