//! `make demo`: serves the quickstart until Ctrl-C is pressed.
//!
//! With `--check`, sends the example requests instead, and exits with 0 if every response is as
//! documented.
#![allow(clippy::print_stdout, reason = "it talks to a person")]

use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_kit::{demo, envoy, processes};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

const HTTP: u16 = 8080;
const HTTPS: u16 = 8443;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the quickstart with two small backends until Ctrl-C.
#[derive(Parser)]
struct Arguments {
    /// The Gateway API objects to serve.
    #[arg(long, default_value_os_t = demo::manifests())]
    manifests: PathBuf,
    /// The agent binary; by default the one in the same directory as this program.
    #[arg(long)]
    agent: Option<PathBuf>,
    /// Send the example requests, check the responses, and exit.
    #[arg(long)]
    check: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match demonstrate().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demonstrate() -> Result<()> {
    let Arguments {
        manifests,
        agent,
        check,
    } = Arguments::parse();
    let agent = match agent {
        Some(agent) => agent,
        None => std::env::current_exe()?.with_file_name("sesame-agent"),
    };
    let _backends = demo::backends().await?;
    let certificate = demo::certificate(&manifests)?;
    // Unix socket paths are limited to 107 bytes.
    let directory = tempfile::Builder::new()
        .prefix("sesame-demo-")
        .tempdir_in("/tmp")?;
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, &certificate)?;
    let log = directory.path().join("log");

    // Handle signals before the agent starts, because an early Ctrl-C would leave it running.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut child = start(&agent, &manifests, directory.path(), &log)?;
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP));
    let https = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTPS));
    let examples = demo::examples(http, https, &ca, &certificate)?;

    let ask = format!(
        "{} --runtime-dir {}",
        agent.display(),
        directory.path().join("run").display()
    );
    let url = format!("http://{}/api/users", demo::HOST);
    let asking = format!(
        "# Ask the agent\n{ask} status\n{ask} explain {url}\n{ask} top --by route,backend --once\n"
    );

    let outcome = tokio::select! {
        outcome = serve(&mut child, &examples, &manifests, &asking, check) => outcome,
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    };
    let stopped = stop(&mut child, directory.path()).await;
    if let Err(error) = outcome.and(stopped) {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        return Err(error);
    }
    Ok(())
}

fn start(agent: &Path, manifests: &Path, directory: &Path, log: &Path) -> Result<Child> {
    let log = std::fs::File::create(log)?;
    Command::new(agent)
        .arg("run")
        .arg("--manifests")
        .arg(manifests)
        .arg("--runtime-dir")
        .arg(directory.join("run"))
        .arg("--state-dir")
        .arg(directory.join("state"))
        .arg("--envoy")
        .arg(envoy::envoy_binary())
        .args(["--port-map", &format!("80:{HTTP},443:{HTTPS}")])
        .args(["--address", "127.0.0.1"])
        .arg("--allow-local-endpoints")
        // Do not wait for idle connections to close.
        .args(["--on-stop", "drain", "--drain-seconds", "1"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C must not reach the agent, because this program stops it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", agent.display()))
}

/// With `--check`, sends the example requests and returns.
async fn serve(
    child: &mut Child,
    examples: &[demo::Example],
    manifests: &Path,
    asking: &str,
    check: bool,
) -> Result<()> {
    let start = Instant::now();
    for example in examples {
        while let Err(error) = demo::check(example).await {
            if let Some(status) = child.try_wait()? {
                bail!("sesame-agent exited: {status}");
            }
            if start.elapsed() > TIMEOUT {
                let late = error.context(format!("not served within {TIMEOUT:?}"));
                if check {
                    return Err(late);
                }
                // Not fatal, because users may have edited the files.
                println!("# {late:#}\n");
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let bold = |text: &str| {
        if std::io::stdout().is_terminal() {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    println!(
        "{}\n",
        bold(&format!(
            "Serving {} after {} ms.",
            manifests.display(),
            start.elapsed().as_millis()
        ))
    );
    for example in examples {
        println!("# {}\n{}\n", example.title, example.command);
    }
    println!("{asking}");
    if check {
        return Ok(());
    }
    println!("Edit a file there: the change takes effect at once. Ctrl-C ends the demo.");
    let status = child.wait().await?;
    bail!("sesame-agent exited: {status}");
}

async fn stop(child: &mut Child, directory: &Path) -> Result<()> {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else {
        processes::kill_below(directory);
        return Ok(());
    };
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    let ended = tokio::time::timeout(TIMEOUT, child.wait()).await;
    processes::kill_below(directory);
    let status =
        ended.with_context(|| format!("sesame-agent did not stop within {TIMEOUT:?}"))??;
    if !status.success() {
        bail!("sesame-agent exited: {status} after SIGTERM");
    }
    Ok(())
}
