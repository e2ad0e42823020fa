//! Renders dashboards and Prometheus rules from the tables.

use serde_json::{Value, json};

use super::alerts::{ALERTS, worded};
use super::panels::{DASHBOARDS, Dashboard, Panel};

/// Grafana dashboards are 24 units wide.
const ABREAST: usize = 3;
const WIDTH: usize = 8;
const HEIGHT: usize = 7;

/// Returns each file's name and content.
pub(crate) fn files() -> Vec<(String, String)> {
    let dashboards = DASHBOARDS.iter().map(|dashboard| {
        let text = serde_json::to_string_pretty(&document(dashboard)).expect("values are JSON");
        (format!("{}.json", dashboard.name), format!("{text}\n"))
    });
    dashboards
        .chain([("alerts.yaml".to_owned(), alerts())])
        .collect()
}

/// Replaces `@` with the dashboard's label selection; `value` returns a label's value.
pub(crate) fn selected(
    expression: &str,
    dashboard: &Dashboard,
    value: impl Fn(&str) -> String,
) -> String {
    let selection: Vec<String> = dashboard
        .selection
        .iter()
        .map(|(label, _)| format!("{label}=~\"{}\"", value(label)))
        .collect();
    expression.replace('@', &selection.join(","))
}

fn document(dashboard: &Dashboard) -> Value {
    let Dashboard {
        name,
        title,
        selection,
        rows,
    } = dashboard;
    let mut panels = Vec::new();
    let mut y = 0;
    for row in *rows {
        let id = panels.len() + 1;
        panels.push(
            json!({"id": id, "type": "row", "title": row.title, "collapsed": false,
            "panels": [], "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}}),
        );
        y += 1;
        for (index, panel) in row.panels.iter().enumerate() {
            let place = (index % ABREAST * WIDTH, y + index / ABREAST * HEIGHT);
            panels.push(drawn(panel, dashboard, panels.len() + 1, place));
        }
        y += row.panels.len().div_ceil(ABREAST) * HEIGHT;
    }
    let source = json!({"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"});
    let variables = selection.iter().map(|(label, metric)| {
        json!({"name": label, "label": label, "type": "query", "datasource": datasource(),
            "query": {"query": format!("label_values({metric}, {label})"), "refId": label},
            "refresh": 2, "includeAll": true, "multi": true, "allValue": ".*", "sort": 1,
            "current": {"text": "All", "value": "$__all"}})
    });
    let variables: Vec<Value> = [source].into_iter().chain(variables).collect();
    json!({
        "uid": name,
        "title": title,
        "tags": ["sesame"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    })
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn drawn(panel: &Panel, dashboard: &Dashboard, id: usize, (x, y): (usize, usize)) -> Value {
    let Panel {
        title,
        unit,
        series,
    } = panel;
    let targets = series
        .iter()
        .enumerate()
        .map(|(index, (expression, legend))| {
            let expression = selected(expression, dashboard, |label| format!("${label}"));
            json!({"refId": format!("{index}"), "datasource": datasource(), "expr": expression,
            "legendFormat": legend, "range": true})
        });
    json!({
        "id": id,
        "type": "timeseries",
        "title": title,
        "datasource": datasource(),
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 10, "showPoints": "never"}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets.collect::<Vec<_>>(),
    })
}

fn alerts() -> String {
    let rules: Vec<Value> = ALERTS
        .iter()
        .map(|alert| {
            json!({
                "alert": alert.name,
                "expr": format!("{} {}", alert.value, alert.condition),
                "for": alert.lasts,
                "labels": {"severity": alert.severity},
                "annotations": {"summary": worded(alert.summary), "description": worded(alert.description)},
            })
        })
        .collect();
    let all = json!({"groups": [{"name": "sesame", "rules": rules}]});
    let text = serde_saphyr::to_string(&all).expect("values are YAML");
    format!(
        "# Written by a test from its table of alerts; docs/metrics.md says how to use it.\n{text}"
    )
}
