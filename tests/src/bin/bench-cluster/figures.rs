//! The measurements, printed with one column per size.

use std::io::Write as _;

use serde::Serialize;

use super::times::Times;

/// Times are in milliseconds, memory in MiB.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) routes: usize,
    pub(crate) route_change: Times,
    pub(crate) route_floor: Times,
    pub(crate) route_change_in_churn: Times,
    pub(crate) switch: Times,
    pub(crate) clusters_floor: Times,
    pub(crate) endpoint_change: Times,
    pub(crate) endpoint_change_in_churn: Times,
    pub(crate) endpoint_changes_a_second: f64,
    /// From the start of a killed controller until a change made in between is served.
    pub(crate) controller_restart: Times,
    pub(crate) writes_per_route_change: f64,
    pub(crate) writes_per_endpoint_change: f64,
    pub(crate) attached: Settled,
    /// CPU seconds while routes are created at a steady pace.
    pub(crate) creation_cpu: CreationCpu,
    pub(crate) detached: Settled,
    pub(crate) controller_rest_mib: f64,
    pub(crate) controller_start_peak_mib: f64,
    pub(crate) controller_peak_mib: f64,
    pub(crate) controller_rest_cpu_percent: f64,
    pub(crate) controller_churn_cpu_percent: f64,
    /// CPU time of Envoy's main thread, in seconds per minute.
    pub(crate) envoy_main_cpu: f64,
    pub(crate) agent_cpu: f64,
    pub(crate) agent_mib: f64,
    pub(crate) agent_peak_mib: f64,
    pub(crate) errors: usize,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Settled {
    pub(crate) ms: f64,
    pub(crate) writes: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct CreationCpu {
    /// Of the API server and etcd.
    pub(crate) servers: f64,
    pub(crate) controller: f64,
    pub(crate) agent: f64,
}

pub(crate) fn print(all: &[Figures]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| -> std::io::Result<()> {
        write!(out, "{name:<58}")?;
        for figures in all {
            write!(out, "{:>34}", cell(figures))?;
        }
        writeln!(out)
    };
    let settled = |s: &Settled| format!("{:.0} ms, {:.0} writes", s.ms, s.writes);
    row("HTTPRoutes", &|f| f.routes.to_string())?;
    row(
        "route change until served, ms (min / median / p99 / max)",
        &|f| Times::cell(&f.route_change),
    )?;
    row("  floor: the same files without the agent", &|f| {
        Times::cell(&f.route_floor)
    })?;
    row("  under churn", &|f| Times::cell(&f.route_change_in_churn))?;
    row("backend switch until served, ms", &|f| {
        Times::cell(&f.switch)
    })?;
    row(
        "  floor: cluster list, in addition to the route table",
        &|f| Times::cell(&f.clusters_floor),
    )?;
    row("endpoint change until served, ms", &|f| {
        Times::cell(&f.endpoint_change)
    })?;
    row("  under churn", &|f| {
        Times::cell(&f.endpoint_change_in_churn)
    })?;
    row("endpoint changes per second under churn", &|f| {
        format!("{:.0}", f.endpoint_changes_a_second)
    })?;
    row("killed controller started again, ms until served", &|f| {
        Times::cell(&f.controller_restart)
    })?;
    row("API writes per route change", &|f| {
        format!("{:.1}", f.writes_per_route_change)
    })?;
    row("API writes per endpoint change", &|f| {
        format!("{:.1}", f.writes_per_endpoint_change)
    })?;
    row("attachedRoutes correct after route creation", &|f| {
        settled(&f.attached)
    })?;
    row(
        "CPU of that, s (API server and etcd / controller / agent)",
        &|f| {
            let CreationCpu {
                servers,
                controller,
                agent,
            } = f.creation_cpu;
            format!("{servers:.1} / {controller:.1} / {agent:.1}")
        },
    )?;
    row("attachedRoutes correct after route deletion", &|f| {
        settled(&f.detached)
    })?;
    row(
        "controller memory, MiB (at rest / peak so far / peak)",
        &|f| {
            format!(
                "{:.1} / {:.1} / {:.1}",
                f.controller_rest_mib, f.controller_start_peak_mib, f.controller_peak_mib
            )
        },
    )?;
    row(
        "controller CPU, % of a core (at rest / under churn)",
        &|f| {
            format!(
                "{:.2} / {:.2}",
                f.controller_rest_cpu_percent, f.controller_churn_cpu_percent
            )
        },
    )?;
    row("Envoy main thread CPU under churn, s/min", &|f| {
        format!("{:.1}", f.envoy_main_cpu)
    })?;
    row("agent CPU under churn, s/min", &|f| {
        format!("{:.1}", f.agent_cpu)
    })?;
    row("agent memory, MiB (at rest / peak)", &|f| {
        format!("{:.1} / {:.1}", f.agent_mib, f.agent_peak_mib)
    })?;
    row("5xx responses during the run", &|f| f.errors.to_string())?;
    Ok(())
}
