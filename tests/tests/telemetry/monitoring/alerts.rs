//! Alert definitions. `value` always yields a result, and `condition` decides if the alert fires.

pub(crate) struct Alert {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    pub(crate) condition: &'static str,
    /// How long the condition must be true before the alert fires.
    pub(crate) lasts: &'static str,
    pub(crate) severity: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
}

const fn alert(
    (name, severity, lasts): (&'static str, &'static str, &'static str),
    (value, condition): (&'static str, &'static str),
    summary: &'static str,
    description: &'static str,
) -> Alert {
    Alert {
        name,
        value,
        condition,
        lasts,
        severity,
        summary,
        description,
    }
}

const GATEWAY: &str =
    "Gateway {{ $labels.gateway_namespace }}/{{ $labels.gateway }} on {{ $labels.instance }}";

/// Replaces `GATEWAY` with a template that names the Gateway and the host.
pub(crate) fn worded(text: &str) -> String {
    text.replace("GATEWAY", GATEWAY)
}

pub(crate) const ALERTS: &[Alert] = &[
    alert(
        ("SesameHostNotReady", "critical", "2m"),
        ("sesame_agent_ready", "== 0"),
        "{{ $labels.instance }} does not serve",
        "sesame-agent status on the host shows the cause; see docs/when-things-fail.md.",
    ),
    alert(
        ("SesameHostUnhealthy", "warning", "10m"),
        ("sesame_agent_healthy", "== 0"),
        "{{ $labels.instance }} has problems",
        "sesame-agent status and sesame-agent doctor on the host list them.",
    ),
    alert(
        ("SesameSourceUnavailable", "warning", "10m"),
        ("sesame_agent_source_available", "== 0"),
        "{{ $labels.instance }} cannot read its configuration",
        "The last accepted configuration is served. sesame-agent status on the host shows the cause.",
    ),
    alert(
        ("SesameGatewayNotServed", "critical", "2m"),
        ("sesame_gateway_serves", "== 0"),
        "GATEWAY serves nothing",
        "sesame-agent status on the host shows the cause.",
    ),
    alert(
        ("SesameGatewayBehind", "warning", "10m"),
        ("sesame_gateway_newest", "== 0"),
        "GATEWAY does not serve the newest configuration",
        "sesame-agent status shows the desired and the served generation, and the cause; sesame-agent diff shows the difference.",
    ),
    alert(
        ("SesameRevisionHeld", "warning", "1m"),
        ("sesame_gateway_held", "== 1"),
        "GATEWAY holds back a revision that removes too much",
        "Check it with sesame-agent diff, then run sesame-agent accept or correct its source.",
    ),
    alert(
        ("SesameConfigurationRefused", "warning", "5m"),
        ("sesame_gateway_refused_parts", "> 0"),
        "GATEWAY leaves out {{ $value }} parts that Envoy rejects",
        "sesame_gateway_refused_part_info and sesame-agent why OBJECT show the parts and the reasons.",
    ),
    alert(
        ("SesameEnvoyKeepsDying", "warning", "0m"),
        (
            "increase(sesame_gateway_envoy_processes_total{reason=\"death\"}[1h])",
            "> 3",
        ),
        "GATEWAY lost {{ $value | humanize }} Envoys within an hour",
        "sesame-agent status and envoy.log in the Gateway's runtime directory show why they exited.",
    ),
    alert(
        ("SesameEnvoyWaitsForProcessor", "warning", "10m"),
        (
            "rate(sesame_gateway_envoy_cpu_wait_seconds_total[5m]) / (rate(sesame_gateway_envoy_cpu_wait_seconds_total[5m]) + rate(sesame_gateway_envoy_cpu_seconds_total[5m]))",
            // A ratio of tiny numbers is meaningless.
            "> 0.5 and rate(sesame_gateway_envoy_cpu_wait_seconds_total[5m]) > 0.2",
        ),
        "GATEWAY waits {{ $value | humanizePercentage }} of the time for a CPU",
        "Give its Envoy more CPU time (CPUWeight, CPUQuota, resources), or move competing processes. sesame-agent top shows the current wait; see docs/slow.md.",
    ),
    alert(
        ("SesameHostRunsOutOfWatches", "warning", "10m"),
        (
            "sesame_agent_inotify_instances / sesame_agent_inotify_instances_limit",
            "> 0.9",
        ),
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its inotify instances",
        "Raise fs.inotify.max_user_instances; sesame-agent doctor on the host shows the value.",
    ),
    alert(
        ("SesameAgentRunsOutOfFiles", "warning", "10m"),
        (
            "sesame_agent_open_files / sesame_agent_open_files_limit",
            "> 0.9",
        ),
        "The agent of {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its open-file limit",
        "Raise LimitNOFILE in its unit, or its container's limit.",
    ),
    alert(
        ("SesameEnvoyRunsOutOfFiles", "warning", "5m"),
        (
            "sesame_gateway_envoy_open_files / sesame_gateway_envoy_open_files_limit",
            "> 0.9",
        ),
        "The Envoy of GATEWAY uses {{ $value | humanizePercentage }} of its open-file limit",
        "Each client or backend connection uses one file. Raise the launcher's LimitNOFILE, or add hosts.",
    ),
    alert(
        ("SesameEnvoySilent", "warning", "5m"),
        ("sesame_gateway_envoy_answers", "== 0"),
        "GATEWAY does not return its statistics",
        "Its Envoy is not running, or is overloaded.",
    ),
    alert(
        ("SesameCertificateExpires", "warning", "1h"),
        (
            "sesame_gateway_certificate_expiry_timestamp_seconds - time() and sesame_gateway_certificate_warning_timestamp_seconds",
            "< time()",
        ),
        "The certificate {{ $labels.key }} expires in {{ $value | humanizeDuration }}",
        "The certificate was not renewed in time. Check its issuer and its Secret.",
    ),
    alert(
        ("SesameTrustBundleExpires", "warning", "1h"),
        (
            "sesame_gateway_trust_bundle_expiry_timestamp_seconds - time() and sesame_gateway_trust_bundle_warning_timestamp_seconds",
            "< time()",
        ),
        "An authority or revocation list of {{ $labels.bundle }} expires in {{ $value | humanizeDuration }}",
        "Replace it before then; see docs/trust-bundles.md.",
    ),
    alert(
        ("SesameCertificateNotShown", "warning", "10m"),
        ("sesame_gateway_listeners_unshown", "> 0"),
        "{{ $value }} listeners of GATEWAY do not present the newest certificate",
        "sesame-agent certs on the host lists them.",
    ),
    alert(
        ("SesameHostnameNotCovered", "warning", "15m"),
        (
            "(sesame_agent_uncovered_hostnames or max(sesame_controller_uncovered_hostnames))",
            "> 0",
        ),
        "{{ $value }} listener hostnames are not covered by a certificate",
        "Clients reject their certificates. HostnameNotCovered Events and sesame-agent status on the host list the hostnames.",
    ),
    alert(
        ("SesameKeySetOutdated", "warning", "10m"),
        (
            // Without a key set, the metric has no series.
            "(time() - max by (uri) (sesame_agent_key_set_fetched_timestamp_seconds or sesame_controller_key_set_fetched_timestamp_seconds) or vector(0))",
            "> 7200",
        ),
        "The keys at {{ $labels.uri }} were last fetched {{ $value | humanizeDuration }} ago",
        "Tokens are verified with the last good keys, for at most seven days. The status of the policy or HTTPProxy shows the error.",
    ),
    alert(
        ("SesameRequestsFail", "critical", "10m"),
        (
            "sum by (gateway_namespace, gateway) (rate(sesame_gateway_requests_total{code=\"5xx\"}[5m]) or 0 * rate(sesame_gateway_requests_total[5m])) / clamp_min(sum by (gateway_namespace, gateway) (rate(sesame_gateway_requests_total[5m])), 0.2)",
            "> 0.05",
        ),
        "{{ $value | humanizePercentage }} of the requests to Gateway {{ $labels.gateway_namespace }}/{{ $labels.gateway }} fail",
        "The dashboard shows failures by backend; sesame-agent logs shows individual requests.",
    ),
    alert(
        ("SesameBackendFails", "warning", "10m"),
        (
            "sum by (gateway_namespace, gateway, backend, reason) (rate(sesame_gateway_backend_failures_total[5m]))",
            "> 1",
        ),
        "{{ $labels.backend }} behind Gateway {{ $labels.gateway_namespace }}/{{ $labels.gateway }} fails: {{ $labels.reason }}",
        "connect: nothing accepts connections at its endpoints. no_endpoint: it has no endpoints. timeout, reset: it accepts requests but does not answer them. overflow: too many requests are waiting.",
    ),
    alert(
        ("SesameControllerDoesNotWrite", "critical", "2m"),
        ("sum(sesame_controller_leader)", "!= 1"),
        "{{ $value }} controller replicas are writing, expected exactly one",
        "Hosts serve their last configuration. The replicas' logs show the state of the Lease.",
    ),
    alert(
        ("SesameControllerWithoutApiServer", "warning", "5m"),
        ("sesame_controller_api_server_answers", "== 0"),
        "The API server does not respond to the controller {{ $labels.instance }}",
        "Its log shows the error.",
    ),
    alert(
        ("SesameObjectsSkipped", "warning", "15m"),
        ("sesame_controller_skipped_objects", "> 0"),
        "{{ $value }} objects cannot be decoded",
        "The controller's log lists them.",
    ),
    alert(
        ("SesameWatchesFail", "warning", "10m"),
        (
            "sum by (kind) (increase(sesame_controller_watch_failures_total[15m]))",
            "> 10",
        ),
        "The watch of {{ $labels.kind }} keeps failing",
        "The controller's log shows the cause: missing permissions, or API server errors.",
    ),
    alert(
        ("SesameHostsLost", "warning", "5m"),
        ("max(sesame_controller_hosts_lost)", "> 0"),
        "{{ $value }} hosts have been silent for too long",
        "Their addresses were removed from their Gateways. Check the hosts.",
    ),
    alert(
        ("SesameReportsRefused", "warning", "10m"),
        ("max(sesame_controller_reports_refused)", "> 0"),
        "{{ $value }} GatewayAgents are ignored",
        "No permitted host wrote them; the controller's log lists them.",
    ),
];
