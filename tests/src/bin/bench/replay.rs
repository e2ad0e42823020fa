//! The time and memory of `sesame-agent diff --requests`, which runs alone.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use sesame_kit::processes::memory_mib;

use super::host::agent_program;
use super::manifests::{self, Policies, RouteKind, Shape, WrittenManifests};

/// Every fourth request has a unique path.
const DIFFERENT: u64 = 4;
const OFTEN: Duration = Duration::from_millis(5);

/// Memory in MiB.
#[derive(Debug, Serialize)]
pub(crate) struct ReplayCost {
    lines: u64,
    routes: usize,
    /// Seconds for the whole command, which also resolves the manifests twice.
    seconds: f64,
    /// Seconds without any line.
    seconds_without_lines: f64,
    peak_mib: f64,
    peak_without_lines_mib: f64,
}

pub(crate) fn measure(lines: u64, routes: usize) -> anyhow::Result<ReplayCost> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    for (name, revision) in [("old", "first"), ("new", "second")] {
        std::fs::create_dir(at(name))?;
        let shape = Shape {
            routes,
            gateways: 1,
            endpoints: 1,
            listener_sets: 0,
            kind: RouteKind::HttpRoute,
            policies: Policies::Gateway,
        };
        let written = WrittenManifests::new(&at(name), shape);
        written.write_all(1)?;
        // Every tenth route changes.
        for route in (0..routes).step_by(10) {
            written.write_app(route, 1, revision)?;
        }
    }
    write_log(&at("one.log"), 1, routes)?;
    write_log(&at("all.log"), lines, routes)?;
    let run = |log: &str| run(&at("old"), &at("new"), &at(log));
    let (seconds_without_lines, peak_without_lines_mib, _) = run("one.log")?;
    let (seconds, peak_mib, requests) = run("all.log")?;
    ensure!(requests == lines, "{requests} of {lines} lines were read");
    let cost = ReplayCost {
        lines,
        routes,
        seconds,
        seconds_without_lines,
        peak_mib,
        peak_without_lines_mib,
    };
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{lines} requests, {routes} routes: {seconds:.1} s, {peak_mib:.0} MiB (without requests \
         {seconds_without_lines:.1} s, {peak_without_lines_mib:.0} MiB)"
    )?;
    Ok(cost)
}

fn write_log(path: &Path, lines: u64, routes: usize) -> anyhow::Result<()> {
    let mut log = BufWriter::new(File::create(path)?);
    for line in 0..lines {
        let host = manifests::hostname(usize::try_from(line)? % routes);
        let item = if line % DIFFERENT == 0 { line } else { 0 };
        writeln!(
            log,
            "{host} 192.0.2.{} - - [10/Oct/2026:13:55:36 +0000] \"GET /items/{item}?page=1 HTTP/1.1\" 200 512 \
             \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"",
            line % 250
        )?;
    }
    Ok(log.flush()?)
}

/// Returns the seconds, the peak of the memory, and the number of requests.
fn run(old: &Path, new: &Path, log: &Path) -> anyhow::Result<(f64, f64, u64)> {
    let began = Instant::now();
    let mut child = Command::new(agent_program()?)
        .args(["diff", "--output", "json", "--requests"])
        .arg(log)
        .arg("--manifests")
        .args([old, new])
        .env("SESAME_ALLOW_LOCAL_ENDPOINTS", "true")
        .stdout(Stdio::piped())
        .spawn()?;
    let id = child.id();
    let output = child.stdout.take().context("no output")?;
    let reader = std::thread::spawn(move || std::io::read_to_string(output));
    let mut peak = 0.0_f64;
    while child.try_wait()?.is_none() {
        peak = peak.max(memory_mib(id).1);
        std::thread::sleep(OFTEN);
    }
    let seconds = began.elapsed().as_secs_f64();
    let text = reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let report: Value = serde_json::from_str(&text)?;
    Ok((
        seconds,
        peak,
        report["requests"]
            .as_u64()
            .context("no number of requests")?,
    ))
}
