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
    row("  floor: the same bytes renamed by hand", &|f| {
        Times::cell(&f.route_floor)
    })?;
    row("  ratio of the medians", &|f| format!("{:.2}", f.ratio))?;
    row("a route changes its backend, ms", &|f| {
        f.switches.switch.cell()
    })?;
    row("  floor of its list of clusters", &|f| {
        f.switches.clusters_floor.cell()
    })?;
    row("  ratio to both floors together", &|f| {
        format!("{:.2}", f.switches.ratio)
    })?;
    row("Services whose endpoints are in files", &|f| {
        f.endpoint_files.to_string()
    })?;
    row("endpoint change by file, ms", &|f| {
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
    row("  endpoint changes a second", &|f| {
        churn(f, |churn| format!("{:.0}", churn.endpoint_changes))
    })?;
    row("  CPU of Envoy / its main thread, s a minute", &|f| {
        churn(f, |churn| {
            format!("{:.1} / {:.1}", churn.envoy_cpu, churn.envoy_main_cpu)
        })
    })?;
    row("  CPU of the agent, s a minute", &|f| {
        churn(f, |churn| format!("{:.1}", churn.agent_cpu))
    })?;
    row("cold start to first response, ms", &|f| {
        format!("{:.0}", f.cold_start_ms)
    })?;
    row("  floor: Envoy alone on the same files", &|f| {
        format!("{:.0}", f.envoy_alone_cold_start_ms)
    })?;
    row("agent restart while Envoy serves, ms", &|f| {
        format!("{:.0}", f.life.agent_restart_ms)
    })?;
    row("Envoy is killed: first response, ms", &|f| {
        format!("{:.0}", f.life.envoy_killed_ms)
    })?;
    row("Envoy is replaced, hot / by handover, ms", &|f| {
        format!("{:.0} / {:.0}", f.life.hot_restart_ms, f.life.handover_ms)
    })?;
    row("  requests during it / failed", &|f| {
        format!("{} / {}", f.life.requests, f.life.failed)
    })?;
    row("resolve everything, ms", &|f| {
        format!("{:.2}", f.resolve_ms)
    })?;
    row("  a changed route by itself", &|f| {
        format!("{:.2}", f.resolve_route_ms)
    })?;
    row("  changed endpoints by themselves", &|f| {
        format!("{:.2}", f.resolve_endpoints_ms)
    })?;
    row("render alone, ms", &|f| format!("{:.1}", f.render_ms))?;
    row("agent memory, MiB (now / peak)", &|f| {
        format!("{:.1} / {:.1}", f.agent_rss_mib, f.agent_peak_mib)
    })?;
    row("agent CPU when idle, %", &|f| {
        format!("{:.2}", f.agent_idle_cpu_percent)
    })?;
    row("CPU of Envoy for a request, µs", &|f| {
        format!("{:.1}", f.request_cpu_us.logged)
    })?;
    row("  the same without access logs", &|f| {
        format!("{:.1}", f.request_cpu_us.unlogged)
    })?;
    row("  with a log in text", &|f| {
        format!("{:.1}", f.request_cpu_us.as_text)
    })?;
    row("  with lines by OTLP", &|f| {
        format!("{:.1}", f.request_cpu_us.by_otlp)
    })?;
    row("  with lines by Envoy's own service", &|f| {
        format!("{:.1}", f.request_cpu_us.by_als)
    })?;
    row("Envoy memory, MiB", &|f| format!("{:.1}", f.envoy_rss_mib))?;
    row("series of the agent's metrics", &|f| {
        f.agent_series.to_string()
    })?;
    row("  Envoy's own, which only the agent reads", &|f| {
        f.envoy_series.to_string()
    })?;
    row("5xx answers on the way", &|f| f.errors.to_string())?;
    let pays = |f: &&Figures| f.resolve_route_ms.max(f.resolve_endpoints_ms) < f.resolve_ms;
    match all.iter().filter(pays).map(|f| f.routes).min() {
        Some(routes) => writeln!(
            out,
            "incremental resolution pays from {routes} HTTPRoutes on"
        ),
        None => writeln!(out, "incremental resolution pays at none of these sizes"),
    }?;
    Ok(())
}
