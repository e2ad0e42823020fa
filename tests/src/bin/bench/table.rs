//! Prints the measurements as a table with one column per size.

use std::io::Write as _;

use super::Figures;
use super::churn::Churn;
use super::times::Times;

fn churn(figures: &Figures, cell: impl Fn(&Churn) -> String) -> String {
    figures.churn.as_ref().map_or_else(|| "-".to_owned(), cell)
}

pub(crate) fn print(all: &[Figures]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| -> std::io::Result<()> {
        write!(out, "{name:<46}")?;
        for figures in all {
            write!(out, "{:>34}", cell(figures))?;
        }
        writeln!(out)
    };
    let maybe = |value: &Option<Times>| value.as_ref().map_or_else(|| "-".to_owned(), Times::cell);
    row("HTTPRoutes", &|f| f.routes.to_string())?;
    row("route change, ms (min / median / p99 / max)", &|f| {
        Times::cell(&f.route_change)
    })?;
    row("  floor: the same files without the agent", &|f| {
        Times::cell(&f.route_floor)
    })?;
    row("  ratio of the medians", &|f| format!("{:.2}", f.ratio))?;
    row("backend switch, ms", &|f| f.switches.switch.cell())?;
    row("  floor: cluster list", &|f| {
        f.switches.clusters_floor.cell()
    })?;
    row("  ratio to the sum of both floors", &|f| {
        format!("{:.2}", f.switches.ratio)
    })?;
    row("Services with endpoint files", &|f| {
        f.endpoint_files.to_string()
    })?;
    row("endpoint change in a file, ms", &|f| {
        maybe(&f.endpoint_change_by_file)
    })?;
    row("endpoint change inline, ms", &|f| {
        maybe(&f.endpoint_change_inline)
    })?;
    row("under churn: route change, ms", &|f| {
        churn(f, |churn| churn.route_change.cell())
    })?;
    row("  endpoint change, ms", &|f| {
        churn(f, |churn| churn.endpoint_change.cell())
    })?;
    row("  endpoint changes per second", &|f| {
        churn(f, |churn| format!("{:.0}", churn.endpoint_changes))
    })?;
    row("  CPU of Envoy / its main thread, s/min", &|f| {
        churn(f, |churn| {
            format!("{:.1} / {:.1}", churn.envoy_cpu, churn.envoy_main_cpu)
        })
    })?;
    row("  agent CPU, s/min", &|f| {
        churn(f, |churn| format!("{:.1}", churn.agent_cpu))
    })?;
    row("cold start to first response, ms", &|f| {
        format!("{:.0}", f.cold_start_ms)
    })?;
    row("  floor: Envoy without the agent", &|f| {
        format!("{:.0}", f.envoy_alone_cold_start_ms)
    })?;
    row("agent restart while Envoy serves, ms", &|f| {
        format!("{:.0}", f.life.agent_restart_ms)
    })?;
    row("Envoy killed: first response after, ms", &|f| {
        format!("{:.0}", f.life.envoy_killed_ms)
    })?;
    row("Envoy replacement, hot restart / handover, ms", &|f| {
        format!("{:.0} / {:.0}", f.life.hot_restart_ms, f.life.handover_ms)
    })?;
    row("  requests / failed during replacements", &|f| {
        format!("{} / {}", f.life.requests, f.life.failed)
    })?;
    row("resolve everything, ms", &|f| {
        format!("{:.2}", f.resolve_ms)
    })?;
    row("  only a changed route", &|f| {
        format!("{:.2}", f.resolve_route_ms)
    })?;
    row("  only changed endpoints", &|f| {
        format!("{:.2}", f.resolve_endpoints_ms)
    })?;
    row("render alone, ms", &|f| format!("{:.1}", f.render_ms))?;
    row("agent memory, MiB (now / peak)", &|f| {
        format!("{:.1} / {:.1}", f.agent_rss_mib, f.agent_peak_mib)
    })?;
    row("agent CPU when idle, %", &|f| {
        format!("{:.2}", f.agent_idle_cpu_percent)
    })?;
    row("Envoy CPU per request, µs", &|f| {
        format!("{:.1}", f.request_cpu_us.logged)
    })?;
    row("  without access logs", &|f| {
        format!("{:.1}", f.request_cpu_us.unlogged)
    })?;
    row("  with a text access log", &|f| {
        format!("{:.1}", f.request_cpu_us.as_text)
    })?;
    row("  with an OTLP access log", &|f| {
        format!("{:.1}", f.request_cpu_us.by_otlp)
    })?;
    row("  with Envoy's gRPC access log service", &|f| {
        format!("{:.1}", f.request_cpu_us.by_als)
    })?;
    row("Envoy memory, MiB", &|f| format!("{:.1}", f.envoy_rss_mib))?;
    row("metric series of the agent", &|f| {
        f.agent_series.to_string()
    })?;
    row("  Envoy's own series, read only by the agent", &|f| {
        f.envoy_series.to_string()
    })?;
    row("5xx responses during the run", &|f| f.errors.to_string())?;
    let pays = |f: &&Figures| f.resolve_route_ms.max(f.resolve_endpoints_ms) < f.resolve_ms;
    match all.iter().filter(pays).map(|f| f.routes).min() {
        Some(routes) => writeln!(
            out,
            "incremental resolution is faster from {routes} HTTPRoutes"
        ),
        None => writeln!(
            out,
            "incremental resolution is not faster at any of these sizes"
        ),
    }?;
    Ok(())
}
