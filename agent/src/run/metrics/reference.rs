//! Keeps the list of metrics in `docs/metrics.md` in sync with the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use jiff::Timestamp;

use super::backends::BackendTraffic;
use super::budgets::{Budgets, EnvoyBudgets, UsedBudget};
use super::counts::{ApplyCounts, ApplyOutcome};
use super::scrape::{GatewayFacts, Scrape};
use super::traffic::EnvoyTraffic;
use crate::host::processes::ProcessorTimes;
use crate::host::reserve::ReserveLevel;
use crate::run::report::{
    AgentReport, EnvoyReport, GatewayReport, RefusedReport, Report, SourceReport,
};

const BEGIN: &str = "<!-- What follows is written by a test; see CONTRIBUTING.md. -->\n";

/// Statistics of an Envoy, with a value for every family.
const ENVOY: &str = r#"envoy_http_downstream_cx_total{envoy_http_conn_manager_prefix="https-443"} 5
envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="https-443"} 1
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="https-443"} 11
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="https-443",le="+Inf"} 11
envoy_listener_no_filter_chain_match{envoy_listener_address="192.0.2.1_443"} 4
envoy_server_memory_allocated{} 6075792
envoy_vhost_upstream_rq_xx{envoy_response_code_class="2",envoy_virtual_host="a",sesame_route="HTTPRoute/shop/cart"} 3
envoy_vhost_upstream_rq_time_bucket{envoy_virtual_host="a",sesame_route="HTTPRoute/shop/cart",le="+Inf"} 3
"#;

fn backend(number: usize) -> (String, BackendTraffic) {
    let name = format!("Service/shop/backend-{number}/80");
    (name, BackendTraffic::default())
}

fn refused() -> RefusedReport {
    RefusedReport {
        kind: "HTTPRoute".to_owned(),
        namespace: "shop".to_owned(),
        name: "a".to_owned(),
        section: String::new(),
        effect: String::new(),
        envoy_words: String::new(),
        since: Timestamp::UNIX_EPOCH,
    }
}

/// Returns a scrape for this many Gateways, in which every family has a series.
// Long, because it sets every field of one value.
fn scrape(gateways: usize) -> Scrape {
    let names = (0..gateways).map(|number| format!("shop/edge-{number}"));
    let mut counts = ApplyCounts::default();
    counts.note(ApplyOutcome::Accepted, std::time::Duration::from_millis(3));
    let all: BTreeMap<String, GatewayFacts> = names
        .map(|name| {
            let facts = GatewayFacts {
                counts: counts.clone(),
                held: false,
                certificates: (0..500)
                    .map(|n| (format!("Secret/shop/{n}"), 1_800_000_000))
                    .collect(),
                authorities: [("ConfigMap/shop/ca".to_owned(), 1_900_000_000)].into(),
                backends: (0..40).map(backend).collect(),
                traffic: Some(EnvoyTraffic::read(ENVOY)),
            };
            (name, facts)
        })
        .collect();
    let reports = all.keys().map(|name| GatewayReport {
        gateway: name.clone(),
        state: sesame_gateway_api::status::AgentState::Degraded,
        message: String::new(),
        addresses: Vec::new(),
        wanted: "1".to_owned(),
        applied: "1".to_owned(),
        wanted_revision: String::new(),
        applied_revision: String::new(),
        applied_at: Some(Timestamp::UNIX_EPOCH),
        stored: "1".to_owned(),
        refused: vec![refused(); 500],
        unshown: BTreeMap::new(),
        refusal: Vec::new(),
        retained: Vec::new(),
        inline_backends: 0,
        draining: None,
        envoy: EnvoyReport {
            state: "Live".to_owned(),
            pid: 1,
            serves: true,
            version: "1.40.0".to_owned(),
            admin: PathBuf::new(),
        },
    });
    let used = UsedBudget {
        used: 1,
        limit: 128,
    };
    let files = EnvoyBudgets {
        open: used,
        watched: 1,
        processor: Some(ProcessorTimes::default()),
    };
    let envoys = all.keys().map(|name| (name.clone(), files));
    let budgets = Budgets {
        instances: Some(used),
        reserve: ReserveLevel::default(),
        open: Some(used),
        envoys: envoys.collect(),
    };
    Scrape {
        budgets,
        report: Report {
            healthy: true,
            reasons: Vec::new(),
            hints: Vec::new(),
            warnings: Vec::new(),
            starting: Vec::new(),
            agent: AgentReport {
                version: "0.1.0".to_owned(),
                pid: 1,
                ..AgentReport::default()
            },
            source: SourceReport {
                uncovered_hostnames: Some(1),
                ..SourceReport::default()
            },
            gateways: reports.collect(),
            objects: Vec::new(),
            inputs: String::new(),
        },
        gateways: all,
    }
}

/// Returns the list, generated from the text of a scrape.
fn list() -> String {
    let text = scrape(1).text(false);
    let mut list = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' '))
        else {
            continue;
        };
        let kind = lines
            .next()
            .and_then(|line| line.rsplit_once(' '))
            .map_or("", |(_, kind)| kind);
        // The page states this naming rule instead of each metric's type.
        let by_name = match name {
            name if name.ends_with("_total") => "counter",
            name if name.ends_with("_duration_seconds") => "histogram",
            _ => "gauge",
        };
        assert_eq!(kind, by_name, "{name}");
        let labels: Vec<String> = lines
            .peek()
            .and_then(|series| series.split_once('{')?.1.split_once('}'))
            .map(|(labels, _)| {
                let names = labels.split(',').filter_map(|label| label.split_once('='));
                // The page states once that every metric of a Gateway has these two labels.
                names
                    .filter(|(name, _)| !matches!(*name, "gateway_namespace" | "gateway"))
                    .map(|(name, _)| format!("`{name}`"))
                    .collect()
            })
            .unwrap_or_default();
        let help = help.trim_end_matches('.');
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!(" ({})", labels.join(", "))
        };
        let _ = writeln!(list, "- `{name}`{labels}: {help}");
    }
    list
}

#[test]
fn metrics_page_is_current() {
    sesame_kit::generated::check_end("docs/metrics.md", BEGIN, &list());
}

#[test]
fn every_family_has_series_and_counters_their_suffix() {
    let text = scrape(1).text(false);
    let families: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    for (name, kind) in families {
        let begins = |line: &str| {
            line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
        };
        let of_histogram = |line: &str| line.starts_with(&format!("{name}_bucket{{"));
        let found = if kind == "histogram" {
            text.lines().any(of_histogram)
        } else {
            text.lines().any(begins)
        };
        assert!(found, "{name} has no series:\n{text}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
    }
    assert!(!text.contains("# EOF"));
    assert!(scrape(1).text(true).ends_with("# EOF\n"));
}

#[test]
fn series_per_gateway_are_bounded() {
    let series = |gateways| {
        let text = scrape(gateways).text(false);
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    // 500 certificates and 500 rejected objects, 20 of each with a series, and 40 backends with 15
    // series each.
    let of_one = series(2) - series(1);
    assert!(of_one - 40 * 15 < 120, "{of_one}");
}
