//! The alerts. Each has an expression that always returns a value, and a condition on it.

pub(crate) struct Alert {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    pub(crate) condition: &'static str,
    /// How long the condition must hold.
    pub(crate) lasts: &'static str,
    pub(crate) severity: &'static str,
    pub(crate) summary: &'static str,
    /// Instructions for the operator.
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

/// Replaces `GATEWAY` in a text.
pub(crate) fn worded(text: &str) -> String {
    text.replace("GATEWAY", GATEWAY)
}

pub(crate) const ALERTS: &[Alert] = &[
    alert(
        ("SesameHostNotReady", "critical", "2m"),
        ("sesame_agent_ready", "== 0"),
        "{{ $labels.instance }} does not serve",
        "sesame-agent status on the host says why; docs/when-things-fail.md.",
    ),
    alert(
        ("SesameHostUnhealthy", "warning", "10m"),
        ("sesame_agent_healthy", "== 0"),
        "Something is wrong on {{ $labels.instance }}",
        "sesame-agent status and sesame-agent doctor on the host say what.",
    ),
    alert(
        ("SesameSourceUnavailable", "warning", "10m"),
        ("sesame_agent_source_available", "== 0"),
        "{{ $labels.instance }} cannot read its configuration",
        "What was accepted before is served. sesame-agent status on the host says what is in the way.",
    ),
    alert(
        ("SesameGatewayNotServed", "critical", "2m"),
        ("sesame_gateway_serves", "== 0"),
        "GATEWAY serves nothing",
        "sesame-agent status on the host says why.",
    ),
    alert(
        ("SesameGatewayBehind", "warning", "10m"),
        ("sesame_gateway_newest", "== 0"),
        "GATEWAY does not serve the newest configuration",
        "sesame-agent status says which generation is wanted, which is served and what is in the way; sesame-agent diff shows the difference.",
    ),
    alert(
        ("SesameRevisionHeld", "warning", "1m"),
        ("sesame_gateway_held", "== 1"),
        "GATEWAY holds back a revision that removes too much",
        "Look at it with sesame-agent diff, and let it pass or correct its source.",
    ),
    alert(
        ("SesameConfigurationRefused", "warning", "5m"),
        ("sesame_gateway_refused_parts", "> 0"),
        "GATEWAY leaves out {{ $value }} parts that Envoy refuses",
        "sesame_gateway_refused_part_info and sesame-agent why OBJECT say which and why.",
    ),
    alert(
        ("SesameEnvoyKeepsDying", "warning", "0m"),
        (
            "increase(sesame_gateway_envoy_processes_total{reason=\"death\"}[1h])",
            "> 3",
        ),
        "GATEWAY lost {{ $value | humanize }} Envoys within an hour",
        "sesame-agent status and envoy.log in the Gateway's runtime directory say why they ended.",
    ),
    alert(
        ("SesameEnvoyWaitsForProcessor", "warning", "10m"),
        (
            "rate(sesame_gateway_envoy_cpu_wait_seconds_total[5m]) / (rate(sesame_gateway_envoy_cpu_wait_seconds_total[5m]) + rate(sesame_gateway_envoy_cpu_seconds_total[5m]))",
            // A ratio of tiny values is meaningless.
            "> 0.5 and rate(sesame_gateway_envoy_cpu_wait_seconds_total[5m]) > 0.2",
        ),
        "GATEWAY waits {{ $value | humanizePercentage }} of the time for a processor",
        "Give its Envoy more of the processor (CPUWeight, CPUQuota, resources), or move what competes; sesame-agent top shows it now, docs/slow.md.",
    ),
    alert(
        ("SesameHostRunsOutOfWatches", "warning", "10m"),
        (
            "sesame_agent_inotify_instances / sesame_agent_inotify_instances_limit",
            "> 0.9",
        ),
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its inotify instances",
        "Raise fs.inotify.max_user_instances; sesame-agent doctor on the host says to what.",
    ),
    alert(
        ("SesameAgentRunsOutOfFiles", "warning", "10m"),
        (
            "sesame_agent_open_files / sesame_agent_open_files_limit",
            "> 0.9",
        ),
        "The agent of {{ $labels.instance }} uses {{ $value | humanizePercentage }} of the files that it may open",
        "Raise LimitNOFILE of its unit, or the limit of its container.",
    ),
    alert(
        ("SesameEnvoyRunsOutOfFiles", "warning", "5m"),
        (
            "sesame_gateway_envoy_open_files / sesame_gateway_envoy_open_files_limit",
            "> 0.9",
        ),
        "The Envoy of GATEWAY uses {{ $value | humanizePercentage }} of the files that it may open",
        "Each connection takes one, to clients and to backends. Raise LimitNOFILE of its launcher, or add hosts.",
    ),
    alert(
        ("SesameEnvoySilent", "warning", "5m"),
        ("sesame_gateway_envoy_answers", "== 0"),
        "GATEWAY does not tell what it counts",
        "Its Envoy is not running, or is overloaded.",
    ),
    alert(
        ("SesameCertificateExpires", "warning", "1h"),
        (
            "sesame_gateway_certificate_expiry_timestamp_seconds - time()",
            "< 14 * 86400",
        ),
        "The certificate {{ $labels.key }} expires in {{ $value | humanizeDuration }}",
        "Whatever renews it has not done so: look at its Secret.",
    ),
    alert(
        ("SesameTrustBundleExpires", "warning", "1h"),
        (
            "sesame_gateway_trust_bundle_expiry_timestamp_seconds - time()",
            "< 14 * 86400",
        ),
        "An authority or revocation list of {{ $labels.bundle }} expires in {{ $value | humanizeDuration }}",
        "Exchange it before then; docs/trust-bundles.md.",
    ),
    alert(
        ("SesameCertificateNotShown", "warning", "10m"),
        ("sesame_gateway_listeners_unshown", "> 0"),
        "{{ $value }} listeners of GATEWAY do not show the newest certificate",
        "sesame-agent certs on the host says which.",
    ),
    alert(
        ("SesameRequestsFail", "critical", "10m"),
        (
            "sum by (gateway_namespace, gateway) (rate(sesame_gateway_requests_total{code=\"5xx\"}[5m]) or 0 * rate(sesame_gateway_requests_total[5m])) / clamp_min(sum by (gateway_namespace, gateway) (rate(sesame_gateway_requests_total[5m])), 0.2)",
            "> 0.05",
        ),
        "{{ $value | humanizePercentage }} of the requests to Gateway {{ $labels.gateway_namespace }}/{{ $labels.gateway }} fail",
        "The dashboard shows by backend where; sesame-agent logs shows single requests.",
    ),
    alert(
        ("SesameBackendFails", "warning", "10m"),
        (
            "sum by (gateway_namespace, gateway, backend, reason) (rate(sesame_gateway_backend_failures_total[5m]))",
            "> 1",
        ),
        "{{ $labels.backend }} behind Gateway {{ $labels.gateway_namespace }}/{{ $labels.gateway }} fails: {{ $labels.reason }}",
        "connect: nothing accepts connections at its endpoints. no_endpoint: there is none. timeout, reset: it takes requests and does not answer them. overflow: more wait than may.",
    ),
    alert(
        ("SesameControllerDoesNotWrite", "critical", "2m"),
        ("sum(sesame_controller_leader)", "!= 1"),
        "{{ $value }} replicas of the controller write, in place of one",
        "Hosts serve what they have. The logs of the replicas say what became of the Lease.",
    ),
    alert(
        ("SesameControllerWithoutApiServer", "warning", "5m"),
        ("sesame_controller_api_server_answers", "== 0"),
        "The API server does not answer the controller {{ $labels.instance }}",
        "Its log says what it was told.",
    ),
    alert(
        ("SesameObjectsSkipped", "warning", "15m"),
        ("sesame_controller_skipped_objects", "> 0"),
        "{{ $value }} objects cannot be decoded",
        "The log of the controller names them.",
    ),
    alert(
        ("SesameWatchesFail", "warning", "10m"),
        (
            "sum by (kind) (increase(sesame_controller_watch_failures_total[15m]))",
            "> 10",
        ),
        "The watch of {{ $labels.kind }} keeps failing",
        "The log of the controller says why: rights, or the API server.",
    ),
    alert(
        ("SesameHostsLost", "warning", "5m"),
        ("max(sesame_controller_hosts_lost)", "> 0"),
        "{{ $value }} hosts have been silent for too long",
        "Their addresses have left their Gateways. Look at the hosts.",
    ),
    alert(
        ("SesameReportsRefused", "warning", "10m"),
        ("max(sesame_controller_reports_refused)", "> 0"),
        "{{ $value }} GatewayAgents count for nothing",
        "No host may have written them; the log of the controller names them.",
    ),
];
