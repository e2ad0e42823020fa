//! Runs the measurement for one fleet size, step by step.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::Args;
use super::crowd::Crowd;
use super::figures::{Arrival, Figures};
use super::light::LightHost;
use super::stage::Stage;
use super::told::now_ms;
use super::usage::{Page, Usage};

/// Interval between samples, less than a second because the API server's gauges report the maximum
/// of the previous second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time between changes, long enough that one does not affect the next.
const PAUSE: Duration = Duration::from_secs(2);
const OUTAGE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(hosts: u32, args: &Args) -> anyhow::Result<Figures> {
    eprintln!("  starting a cluster, a controller and {hosts} host identities");
    let mut stage = Stage::start(hosts, args.routes, args.identity).await?;
    let mut figures = Figures {
        hosts,
        routes: args.routes,
        identity: format!("{:?}", args.identity).to_lowercase(),
        ..Figures::default()
    };
    eprintln!("  simultaneous start of all agents");
    let (mut crowd, mut revision) = start(&stage, args, &mut figures).await?;
    eprintln!("  at rest");
    let idle = at_rest(&stage, &crowd, args.rest_seconds).await?;
    figures.idle = idle.into();
    figures.controller_mib = stage.controller_mib().0;
    eprintln!("  route changes");
    let mut arrivals = Vec::new();
    let mut reported = Vec::new();
    let mut spent = Usage::default();
    for change in 0..args.changes {
        let before = stage.usage(&crowd).await?;
        let start = now_ms();
        stage
            .change_route(change % args.routes, &format!("r{change}"))
            .await?;
        let (now, times) = crowd.until_other(&revision).await?;
        revision = now;
        arrivals.push(arrival(&times, start));
        stage.until_reported(before.reports).await?;
        reported.push(now_ms() - start);
        let used = stage.usage(&crowd).await?.since(before);
        spent = spent.since(used.since(idle.times(used.seconds)).times(-1.0));
        tokio::time::sleep(PAUSE).await;
    }
    figures.route = median_arrival(&arrivals);
    figures.route_reported = median(reported);
    figures.route_cost = spent.times(1.0 / count(args.changes)).into();
    eprintln!("  Gateway changes");
    let (mut have, mut programmed, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    for change in 0..args.changes {
        let before = stage.gateway_writes().await;
        let start = now_ms();
        let generation = stage.change_gateway(&format!("g{change}")).await?;
        let (now, times) = crowd.until_other(&revision).await?;
        revision = now;
        have.push(arrival(&times, start).all);
        stage.until_programmed(generation).await?;
        programmed.push(now_ms() - start);
        writes.push(stage.gateway_writes().await - before);
        tokio::time::sleep(PAUSE).await;
    }
    figures.gateway_have = median(have);
    figures.gateway_programmed = median(programmed);
    figures.gateway_writes = median(writes);
    eprintln!("  key change");
    let before = stage.usage(&crowd).await?;
    let start = now_ms();
    stage.change_key().await?;
    let (now, times) = crowd.until_other(&revision).await?;
    revision = now;
    figures.key = arrival(&times, start);
    stage.until_reported(before.reports).await?;
    let used = stage.usage(&crowd).await?.since(before);
    figures.key_cost = used.since(idle.times(used.seconds)).into();
    figures.controller_peak_mib = stage.controller_mib().1;
    eprintln!("  controller restart");
    restart_controller(&mut stage, &crowd, idle, &mut figures).await?;
    eprintln!("  API server restart");
    (figures.apiserver_peak_mib, figures.etcd_peak_mib) = stage.peaks_mib();
    restart_api_server(&mut stage, &mut crowd, &revision, &mut figures).await?;
    figures.agent_mib = crowd.peak_mib() / f64::from(hosts);
    crowd.end().await?;
    eprintln!("  floor: bare watches");
    floor(&stage, args, &mut figures).await?;
    Ok(figures)
}

async fn start(
    stage: &Stage,
    args: &Args,
    figures: &mut Figures,
) -> anyhow::Result<(Crowd, String)> {
    let start = now_ms();
    let mut crowd = crowd(stage, "agents", args)?;
    let before = stage.usage(&crowd).await?;
    let mut peaks = Peaks::default();
    let started = async {
        let (revision, times) = crowd.until_other("").await?;
        figures.start_all_have = arrival(&times, start).all;
        stage.until_programmed(1).await?;
        figures.start_programmed = now_ms() - start;
        anyhow::Ok(revision)
    };
    let revision = tokio::select! {
        revision = started => revision?,
        error = peaks.watch(stage) => return Err(error),
    };
    crowd.until_following().await?;
    figures.start = stage.usage(&crowd).await?.since(before).into();
    (figures.start_in_flight, figures.start_in_queue) = (peaks.in_flight, peaks.in_queue);
    Ok((crowd, revision))
}

fn crowd(stage: &Stage, sort: &str, args: &Args) -> anyhow::Result<Crowd> {
    Crowd::start(sort, &stage.hosts, args.each, stage.directory.path())
}

async fn at_rest(stage: &Stage, crowd: &Crowd, seconds: u64) -> anyhow::Result<Usage> {
    // Let the startup work finish, so that it is not measured.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = stage.usage(crowd).await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = stage.usage(crowd).await?.since(before);
    Ok(used.times(1.0 / used.seconds))
}

async fn restart_controller(
    stage: &mut Stage,
    crowd: &Crowd,
    idle: Usage,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    stage.controller.kill9();
    let before = Usage {
        controller_cpu: 0.0,
        ..Usage::now(&stage.cluster, 0, crowd.cpu(), Instant::now()).await?
    };
    let start = Instant::now();
    stage.controller.restart();
    stage.controller.wait_ready().await;
    figures.controller_ready = start.elapsed().as_secs_f64() * 1000.0;
    stage.controller.wait_leads().await;
    figures.controller_leads = start.elapsed().as_secs_f64() * 1000.0;
    let pid = stage.controller.pid();
    let used = Usage::now(&stage.cluster, pid, crowd.cpu(), start).await?;
    let used = used.since(Usage {
        seconds: 0.0,
        ..before
    });
    figures.controller_restart = used
        .since(Usage {
            controller_cpu: 0.0,
            ..idle.times(used.seconds)
        })
        .into();
    figures.controller_restart_peak_mib = stage.controller_mib().1;
    Ok(())
}

async fn restart_api_server(
    stage: &mut Stage,
    crowd: &mut Crowd,
    revision: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    stage.cluster.stop_apiserver();
    crowd.until_lost().await?;
    tokio::time::sleep(OUTAGE).await;
    stage.cluster.start_apiserver().await;
    Page::forget();
    let start = now_ms();
    let stage = &*stage;
    let mut peaks = Peaks::default();
    let back = async {
        // The only replica may have to acquire its Lease again.
        stage.controller.wait_leads().await;
        stage.change_route(0, "back").await?;
        let changed = now_ms();
        let (_, times) = crowd.until_other(revision).await?;
        figures.back_change = arrival(&times, changed).all;
        figures.back = (crowd.until_following().await? - start).max(0.0);
        let rest = 30_000.0 - (now_ms() - start);
        tokio::time::sleep(Duration::from_secs_f64(rest.max(0.0) / 1000.0)).await;
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = back => outcome?,
        error = peaks.watch(stage) => return Err(error),
    }
    // The new API server's counters started at zero.
    let used = stage.usage(crowd).await?;
    figures.back_half_minute = used.requests;
    figures.back_cost = used.into();
    (figures.back_in_flight, figures.back_in_queue) = (peaks.in_flight, peaks.in_queue);
    Ok(())
}

/// The watched ConfigMap is as large as the data that a route change sends to each agent.
async fn floor(stage: &Stage, args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let to_each = figures.route_cost.apiserver_kib / f64::from(figures.hosts);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few KiB"
    )]
    let bytes = (to_each.clamp(1.0, 500.0) * 1024.0) as usize;
    stage.change_watched("w", bytes).await?;
    let mut crowd = crowd(stage, "watches", args)?;
    let (mut revision, _) = crowd.until_other("").await?;
    let mut arrivals = Vec::new();
    let before = stage.usage(&crowd).await?;
    for change in 0..args.changes {
        let start = now_ms();
        stage.change_watched(&format!("w{change}"), bytes).await?;
        let (now, times) = crowd.until_other(&revision).await?;
        revision = now;
        arrivals.push(arrival(&times, start));
    }
    let used = stage.usage(&crowd).await?.since(before);
    figures.floor = median_arrival(&arrivals);
    figures.floor_cost = used.times(1.0 / count(args.changes)).into();
    crowd.end().await
}

#[derive(Default)]
struct Peaks {
    in_flight: f64,
    in_queue: f64,
}

impl Peaks {
    /// Returns only if a poll fails.
    async fn watch(&mut self, stage: &Stage) -> anyhow::Error {
        loop {
            match Page::read(&stage.cluster)
                .await
                .context("the API server's metrics")
            {
                Ok(page) => {
                    let (in_flight, in_queue) = page.in_flight();
                    self.in_flight = self.in_flight.max(in_flight);
                    self.in_queue = self.in_queue.max(in_queue);
                }
                Err(error) => return error,
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn arrival(times: &[f64], start: f64) -> Arrival {
    let half = times.get(times.len() / 2).copied().unwrap_or(start);
    let all = times.last().copied().unwrap_or(start);
    Arrival {
        half: half - start,
        all: all - start,
    }
}

fn median_arrival(all: &[Arrival]) -> Arrival {
    Arrival {
        half: median(all.iter().map(|one| one.half).collect()),
        all: median(all.iter().map(|one| one.all).collect()),
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number.max(1)).unwrap_or(u32::MAX))
}

pub(crate) fn hosts_of(list: &std::path::Path) -> anyhow::Result<Vec<LightHost>> {
    let text = std::fs::read(list).with_context(|| list.display().to_string())?;
    serde_json::from_slice(&text).context("a list of hosts")
}
