//! Dashboards and alerts. Files in `controller/deploy/monitoring` must match the tables here, and a
//! running system must export all metrics that they use. With `PROMETHEUS_TOOLS`, a real Prometheus
//! evaluates every expression.

mod alerts;
mod documents;
mod panels;
mod prometheus;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::client::Request;
use sesame_tests::cluster::Channel;
use sesame_tests::controller::{ControllerUnderTest, deployed};
use sesame_tests::envoy::workspace;
use sesame_tests::generated;
use sesame_tests::manifests::{
    access_policy, backend_tls_policy, edge, http_listener, http_route, https_listener, rule_to,
    served, verified_by, yaml,
};
use sesame_tests::ports::free_port;
use sesame_tests::wait::eventually;

use self::alerts::ALERTS;
use self::documents::{files, selected};
use self::panels::DASHBOARDS;
use self::prometheus::{Prometheus, check_rules, tools};

const DIRECTORY: &str = "controller/deploy/monitoring";

#[test]
fn monitoring_files_are_current() {
    for (name, wanted) in files() {
        generated::check(&format!("{DIRECTORY}/{name}"), |_| wanted);
    }
}

#[test]
fn alerts_page_matches_tables() {
    let page = std::fs::read_to_string(workspace().join("docs/alerts.md")).expect("the page");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells[0].strip_prefix("| `Sesame")?.strip_suffix('`')?;
        let metrics = cells[3].split(", ").map(|cell| cell.trim_matches('`'));
        let metrics: BTreeSet<&str> = metrics.collect();
        Some((format!("Sesame{name}"), (cells[1], metrics, cells[4])))
    });
    let rows: BTreeMap<String, _> = rows.collect();
    for alert in ALERTS {
        let (severity, metrics, after) = rows
            .get(alert.name)
            .unwrap_or_else(|| panic!("{} is not on the page", alert.name));
        assert_eq!(*severity, alert.severity, "{}", alert.name);
        let (named, _) = named(alert.value);
        let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(*metrics, named, "{}", alert.name);
        let lasts = match alert.lasts {
            "0m" => "at once".to_owned(),
            lasts => match lasts.split_at(lasts.len() - 1) {
                (number, "m") => format!("{number} min"),
                (number, unit) => format!("{number} {unit}"),
            },
        };
        assert_eq!(*after, lasts, "{}", alert.name);
    }
    assert_eq!(rows.len(), ALERTS.len(), "alerts on the page");
}

/// Returns all expressions, with selections that match every series.
fn expressions() -> Vec<String> {
    let panel_expressions = DASHBOARDS.iter().flat_map(|dashboard| {
        let panels = dashboard.rows.iter().flat_map(|row| row.panels);
        panels.flat_map(move |panel| {
            panel.series.iter().map(move |(expression, _)| {
                selected(expression, dashboard, |_| ".*".to_owned())
                    .replace("$__rate_interval", "1m")
                    .replace("$instance", ".*")
            })
        })
    });
    let alert_expressions = ALERTS.iter().map(|alert| alert.value.to_owned());
    panel_expressions.chain(alert_expressions).collect()
}

/// Returns the names of metrics and of labels, which appear in `by (…)` or before `=`.
fn named(expression: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let metrics = expression
        .split(|c| !is_word(c))
        .filter(|word| word.starts_with("sesame_"))
        .map(str::to_owned)
        .collect();
    let groupings = expression
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .flat_map(|(labels, _)| labels.split(','));
    let matched = expression
        .split(['{', ',', '}'])
        .filter_map(|part| part.split_once('=').map(|(label, _)| label))
        .filter(|label| label.chars().all(is_word));
    let labels = groupings
        .chain(matched)
        .map(|label| label.trim().to_owned());
    (metrics, labels.collect())
}

fn exported(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels
            .split("\",")
            .filter_map(|label| label.split_once("=\""));
        let known = all.entry(name.to_owned()).or_default();
        known.extend(labels.map(|(label, _)| label.to_owned()));
    }
    all
}

fn missing(exported: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut missing = Vec::new();
    for expression in expressions() {
        let (metrics, labels) = named(&expression);
        assert!(!metrics.is_empty(), "{expression}");
        // Prometheus adds the label `instance`.
        let mut known = BTreeSet::from(["instance".to_owned()]);
        for metric in metrics {
            match exported.get(&metric) {
                Some(labels) => known.extend(labels.iter().cloned()),
                None => missing.push(format!("{metric} of {expression}")),
            }
        }
        let unknown = labels.difference(&known);
        missing.extend(unknown.map(|label| format!("{label} of {expression}")));
    }
    missing
}

fn agent(backend: &Backend, authority: &Authority, metrics: SocketAddr) -> AgentUnderTest {
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "", "tls"),
    ]);
    objects.push(authority.issue(&["a.test"]).secret("tls"));
    objects.push(Authority::config_map("ca", &[authority]));
    objects.extend(served("a", &[backend.address()]));
    objects.extend(served("protected", &[backend.address()]));
    objects.push(backend_tls_policy(
        "protected",
        &verified_by("ca", "b.test"),
    ));
    objects.push(http_route("a", &["a.test"], &[rule_to("a", &[])]));
    objects.push(http_route("b", &["b.test"], &[rule_to("protected", &[])]));
    objects.push(with_key_set());
    Setup::with_ports(&[80, 443])
        .flag("--metrics-address")
        .flag(&metrics.to_string())
        .start(&[("all.yaml", &yaml(&objects))])
}

/// Returns a policy whose key set cannot be fetched.
fn with_key_set() -> Value {
    let remote = json!({"uri": format!("https://127.0.0.1:{}/keys", free_port())});
    let provider = json!({"name": "a", "issuer": "a", "jwks": {"remote": remote}});
    let target = json!({"kind": "HTTPRoute", "name": "none"});
    access_policy("keys", target, &json!({"jwt": {"providers": [provider]}}))
}

async fn page(address: SocketAddr) -> String {
    let reply = Request::get(address, "metrics", "/metrics").send().await;
    reply.map_or_else(
        |error| format!("{error:#}"),
        |reply| String::from_utf8_lossy(&reply.body).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn running_system_exports_metrics_of_dashboards_and_alerts() {
    let backend = Backend::start("a").await;
    let authority = Authority::new("servers");
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let agent = agent(&backend, &authority, address);
    let cluster = deployed(Channel::Standard).await;
    let controller = ControllerUnderTest::start(&cluster, &[]).await;
    let public: SocketAddr = "192.0.2.1:80".parse().expect("an address");
    let mut objects = edge(&[https_listener("https", 443, "", "tls")]);
    objects.push(authority.issue(&["a.test"]).secret("tls"));
    objects.extend(served("a", &[public]));
    objects.push(http_route("a", &["a.test"], &[rule_to("a", &[])]));
    objects.push(with_key_set());
    cluster.apply_all(&objects).await;
    let good = agent.get(80, "a.test", "/");
    agent.wait_ok(&good).await;
    let refused = agent.get(443, "a.test", "/").send().await;
    assert!(refused.is_err(), "{refused:?}");
    let controller_address = controller.address();
    eventually("everything is exported", TEST_TIMEOUT, async || {
        let _ = good.send().await;
        let text = page(address).await + &page(controller_address).await;
        let missing = missing(&exported(&text));
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing.join("\n"))
        }
    })
    .await;
    let Some(tools) = tools() else {
        return;
    };
    let rules = workspace().join(DIRECTORY).join("alerts.yaml");
    check_rules(&tools, &rules);
    let prometheus = Prometheus::start(&tools, &[address, controller_address], &rules);
    let load = tokio::spawn(async move {
        loop {
            let _ = good.send().await;
            tokio::task::yield_now().await;
        }
    });
    for expression in expressions() {
        prometheus.wait_value(&expression).await;
    }
    load.abort();
    assert_eq!(prometheus.rule_errors().await, Vec::<String>::new());
}
