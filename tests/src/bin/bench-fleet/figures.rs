//! Prints the measurements with one column per size, and extrapolations to larger fleets.

use std::io::Write as _;

use serde::{Deserialize, Serialize};

use super::model::Model;
use super::usage::Usage;

const PREDICTED_HOSTS: [u32; 2] = [10_000, 50_000];

/// CPU time in milliseconds, sizes in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) apiserver_cpu: f64,
    pub(crate) apiserver_kib: f64,
    pub(crate) etcd_cpu: f64,
    pub(crate) etcd_kib: f64,
    pub(crate) controller_cpu: f64,
    pub(crate) requests: f64,
    pub(crate) too_many: f64,
}

impl From<Usage> for Cost {
    fn from(usage: Usage) -> Self {
        Self {
            apiserver_cpu: usage.apiserver_cpu * 1000.0,
            apiserver_kib: usage.apiserver_bytes / 1024.0,
            etcd_cpu: usage.etcd_cpu * 1000.0,
            etcd_kib: usage.etcd_bytes / 1024.0,
            controller_cpu: usage.controller_cpu * 1000.0,
            requests: usage.requests,
            too_many: usage.too_many,
        }
    }
}

/// Median milliseconds until half or all of the clients have a change.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Arrival {
    pub(crate) half: f64,
    pub(crate) all: f64,
}

/// Times in milliseconds, memory in MiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) hosts: u32,
    pub(crate) routes: usize,
    pub(crate) identity: String,
    pub(crate) start_all_have: f64,
    pub(crate) start_programmed: f64,
    pub(crate) start: Cost,
    pub(crate) start_in_flight: f64,
    pub(crate) start_in_queue: f64,
    pub(crate) idle: Cost,
    pub(crate) route: Arrival,
    pub(crate) route_reported: f64,
    pub(crate) route_cost: Cost,
    pub(crate) floor: Arrival,
    pub(crate) floor_cost: Cost,
    pub(crate) gateway_have: f64,
    pub(crate) gateway_programmed: f64,
    pub(crate) gateway_writes: f64,
    pub(crate) key: Arrival,
    pub(crate) key_cost: Cost,
    pub(crate) controller_mib: f64,
    pub(crate) controller_peak_mib: f64,
    pub(crate) controller_ready: f64,
    pub(crate) controller_leads: f64,
    pub(crate) controller_restart: Cost,
    pub(crate) controller_restart_peak_mib: f64,
    pub(crate) back_half_minute: f64,
    pub(crate) back: f64,
    pub(crate) back_change: f64,
    pub(crate) back_cost: Cost,
    pub(crate) back_in_flight: f64,
    pub(crate) back_in_queue: f64,
    pub(crate) apiserver_peak_mib: f64,
    pub(crate) etcd_peak_mib: f64,
    pub(crate) agent_mib: f64,
}

type Row = (&'static str, fn(&Figures) -> f64);

const ROWS: &[Row] = &[
    ("simultaneous start: revision on all hosts, ms", |f| {
        f.start_all_have
    }),
    ("  Programmed counts all hosts, ms", |f| f.start_programmed),
    ("  API server CPU time, ms", |f| f.start.apiserver_cpu),
    ("  API server writes, KiB", |f| f.start.apiserver_kib),
    ("  requests", |f| f.start.requests),
    ("  peak requests in flight", |f| f.start_in_flight),
    ("  peak queued requests", |f| f.start_in_queue),
    ("  rejected with 429", |f| f.start.too_many),
    ("per second at rest: requests", |f| f.idle.requests),
    ("  API server writes, KiB", |f| f.idle.apiserver_kib),
    ("  API server CPU time, ms", |f| f.idle.apiserver_cpu),
    ("  etcd CPU time, ms", |f| f.idle.etcd_cpu),
    ("  etcd writes, KiB", |f| f.idle.etcd_kib),
    ("  controller CPU time, ms", |f| f.idle.controller_cpu),
    ("route change: on half of the hosts, ms", |f| f.route.half),
    ("  on all hosts, ms", |f| f.route.all),
    ("  floor: half of the bare watches, ms", |f| f.floor.half),
    ("  floor: all bare watches, ms", |f| f.floor.all),
    ("  reported by all hosts, ms", |f| f.route_reported),
    ("  API server CPU time, ms", |f| f.route_cost.apiserver_cpu),
    ("  floor: API server CPU time, ms", |f| {
        f.floor_cost.apiserver_cpu
    }),
    ("  API server writes, KiB", |f| f.route_cost.apiserver_kib),
    ("  floor: API server writes, KiB", |f| {
        f.floor_cost.apiserver_kib
    }),
    ("  etcd CPU time, ms", |f| f.route_cost.etcd_cpu),
    ("  etcd writes, KiB", |f| f.route_cost.etcd_kib),
    ("  controller CPU time, ms", |f| f.route_cost.controller_cpu),
    ("  requests", |f| f.route_cost.requests),
    ("  rejected with 429", |f| f.route_cost.too_many),
    ("Gateway change: on all hosts, ms", |f| f.gateway_have),
    ("  Programmed counts all hosts, ms", |f| {
        f.gateway_programmed
    }),
    ("  Gateway status writes", |f| f.gateway_writes),
    ("key change: on half of the hosts, ms", |f| f.key.half),
    ("  on all hosts, ms", |f| f.key.all),
    ("  API server CPU time, ms", |f| f.key_cost.apiserver_cpu),
    ("controller memory, MiB", |f| f.controller_mib),
    ("  peak, MiB", |f| f.controller_peak_mib),
    ("controller restart: ready after, ms", |f| {
        f.controller_ready
    }),
    ("  leader after, ms", |f| f.controller_leads),
    ("  controller CPU time until then, ms", |f| {
        f.controller_restart.controller_cpu
    }),
    ("  requests until then", |f| f.controller_restart.requests),
    ("  peak controller memory, MiB", |f| {
        f.controller_restart_peak_mib
    }),
    ("API server restart: followed by all hosts after, ms", |f| {
        f.back
    }),
    ("  route change after the restart: on all hosts, ms", |f| {
        f.back_change
    }),
    ("  requests in the first 30 s", |f| f.back_half_minute),
    ("  API server CPU time, ms", |f| f.back_cost.apiserver_cpu),
    ("  API server writes, KiB", |f| f.back_cost.apiserver_kib),
    ("  peak requests in flight", |f| f.back_in_flight),
    ("  peak queued requests", |f| f.back_in_queue),
    ("  rejected with 429", |f| f.back_cost.too_many),
    ("peak API server memory, MiB", |f| f.apiserver_peak_mib),
    ("peak etcd memory, MiB", |f| f.etcd_peak_mib),
    ("peak memory per light agent, MiB", |f| f.agent_mib),
];

/// Also prints the error of each fitted line at the largest size.
pub(crate) fn print(all: &[Figures]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if let Some(first) = all.first() {
        writeln!(
            out,
            "one Gateway, {} routes, host identity: {}",
            first.routes, first.identity
        )?;
    }
    write!(out, "{:<54}", "hosts")?;
    for figures in all {
        write!(out, "{:>10}", figures.hosts)?;
    }
    write!(out, "{:>16}", "error, predicted")?;
    for hosts in PREDICTED_HOSTS {
        write!(out, "{:>12}", format!("({hosts})"))?;
    }
    writeln!(out)?;
    for (name, cell) in ROWS {
        write!(out, "{name:<54}")?;
        let points = all.iter().map(|it| (f64::from(it.hosts), cell(it)));
        let points: Vec<(f64, f64)> = points.collect();
        for (_, figure) in &points {
            write!(out, "{:>10}", short(*figure))?;
        }
        let model = Model::fit(&points).filter(|_| points.iter().any(|point| point.1 > 0.0));
        match model {
            Some(model) => {
                let errors = [model.error, model.extrapolation_error];
                let [error, predicted] = errors.map(|error| format!("{:.0}%", error * 100.0));
                write!(out, "{:>16}", format!("{error}, {predicted}"))?;
                for hosts in PREDICTED_HOSTS {
                    let predicted = model.line.at(f64::from(hosts)).max(0.0);
                    write!(out, "{:>12}", short(predicted))?;
                }
            }
            None => write!(out, "{:>16}", "–")?,
        }
        writeln!(out)?;
    }
    Ok(())
}

fn short(figure: f64) -> String {
    if figure.abs() < 100.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.0}")
    }
}
