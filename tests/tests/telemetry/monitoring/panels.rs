//! Dashboard panels. In expressions, `@` stands for the label selection.

use super::traffic::{BACKENDS, TRAFFIC};

pub(crate) struct Dashboard {
    /// File name, and unique ID in Grafana.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Labels, each with a metric that has the label.
    pub(crate) selection: &'static [(&'static str, &'static str)],
    pub(crate) rows: &'static [Row],
}

pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) panels: &'static [Panel],
}

pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// Expressions, each with its legend.
    pub(crate) series: &'static [(&'static str, &'static str)],
}

pub(crate) const fn panel(
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

pub(crate) const DASHBOARDS: [Dashboard; 2] = [
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
            "Time to apply and verify changes, since agents started",
            "s",
            &[(
                "histogram_quantile(0.99, sum by (le) (sesame_gateway_apply_duration_seconds_bucket{@}))",
                "99 %",
            )],
        ),
        panel(
            "Time spent on changes, by phase and part",
            "s",
            &[(
                "sum by (phase, part) (increase(sesame_gateway_apply_phase_seconds_total{@}[$__rate_interval]))",
                "{{phase}}: {{part}}",
            )],
        ),
        panel(
            "Hosts behind, holding a revision, or draining",
            "short",
            &[
                ("sum(1 - sesame_gateway_newest{@})", "behind"),
                ("sum(sesame_gateway_held{@})", "hold back"),
                ("sum(sesame_gateway_draining{@})", "drain"),
            ],
        ),
        panel(
            "Age of the served configuration",
            "s",
            &[(
                "time() - min by (gateway_namespace, gateway) (sesame_gateway_applied_timestamp_seconds{@})",
                "{{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Parts that Envoy rejects",
            "short",
            &[(
                "max by (gateway_namespace, gateway) (sesame_gateway_refused_parts{@})",
                "{{gateway_namespace}}/{{gateway}}",
            )],
        ),
        panel(
            "Next certificates to expire",
            "s",
            &[(
                "bottomk(10, min by (key) (sesame_gateway_certificate_expiry_timestamp_seconds{@}) - time())",
                "{{key}}",
            )],
        ),
        panel(
            "Next trust bundles to expire",
            "s",
            &[(
                "bottomk(10, min by (bundle) (sesame_gateway_trust_bundle_expiry_timestamp_seconds{@}) - time())",
                "{{bundle}}",
            )],
        ),
        panel(
            "Certificates, and listeners with outdated certificates",
            "short",
            &[
                (
                    "max by (gateway_namespace, gateway) (sesame_gateway_certificates{@})",
                    "certificates of {{gateway_namespace}}/{{gateway}}",
                ),
                (
                    "sum(sesame_gateway_listeners_unshown{@})",
                    "listeners with outdated certificates",
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
                    "with an available source",
                ),
            ],
        ),
        panel(
            "Gateways on hosts, by state",
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
            "Served Gateways",
            "short",
            &[
                ("sum(sesame_gateway_serves{@})", "serve"),
                ("sum(sesame_gateway_envoy_answers{@})", "return statistics"),
            ],
        ),
        panel(
            "New Envoy processes, by reason",
            "short",
            &[(
                "sum by (gateway_namespace, gateway, reason) (increase(sesame_gateway_envoy_processes_total{@}[$__rate_interval]))",
                "{{gateway_namespace}}/{{gateway}}: {{reason}}",
            )],
        ),
        panel(
            "Processors of Envoys",
            "short",
            &[
                (
                    "sum by (gateway_namespace, gateway) (rate(sesame_gateway_envoy_cpu_seconds_total{@}[$__rate_interval]))",
                    "{{gateway_namespace}}/{{gateway}}: kept busy",
                ),
                (
                    "sum by (gateway_namespace, gateway) (rate(sesame_gateway_envoy_cpu_wait_seconds_total{@}[$__rate_interval]))",
                    "{{gateway_namespace}}/{{gateway}}: waited for",
                ),
            ],
        ),
        panel(
            "Budgets in use",
            "percentunit",
            &[
                (
                    "max by (instance) (sesame_agent_inotify_instances{instance=~\"$instance\"} / sesame_agent_inotify_instances_limit{instance=~\"$instance\"})",
                    "{{instance}} inotify instances",
                ),
                (
                    "max by (instance) (sesame_agent_open_files{instance=~\"$instance\"} / sesame_agent_open_files_limit{instance=~\"$instance\"})",
                    "{{instance}} files of the agent",
                ),
                (
                    "max by (instance, gateway_namespace, gateway) (sesame_gateway_envoy_open_files{@} / sesame_gateway_envoy_open_files_limit{@})",
                    "{{instance}} files of {{gateway_namespace}}/{{gateway}}",
                ),
            ],
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
            "Time since agent start",
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
                    "connected to the API server",
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
            "Resolution time, since replicas started",
            "s",
            &[(
                "histogram_quantile(0.99, sum by (le) (sesame_controller_resolution_seconds_bucket{@}))",
                "99 %",
            )],
        ),
        panel(
            "ConfigMap and Secret writes",
            "wps",
            &[(
                "sum by (part, verb) (rate(sesame_controller_publish_writes_total{@}[$__rate_interval]))",
                "{{verb}} {{part}}",
            )],
        ),
        panel(
            "Status writes",
            "wps",
            &[(
                "sum by (kind) (rate(sesame_controller_status_writes_total{@}[$__rate_interval]))",
                "{{kind}}",
            )],
        ),
        panel(
            "Failed lists and watches",
            "cps",
            &[
                (
                    "sum(rate(sesame_controller_lists_total{@}[$__rate_interval]))",
                    "lists",
                ),
                (
                    "sum(rate(sesame_controller_watch_failures_total{@}[$__rate_interval]))",
                    "failed watches",
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
                    "ignored reports",
                ),
            ],
        ),
        panel(
            "Next certificates to expire",
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
