//! The service of the agent, where systemd runs the host.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail};

/// The unit that starts and ends the agent and its Envoys together.
const TARGET: &str = "sesame.target";
const AGENT: &str = "sesame-agent.service";

/// Returns true if systemd runs this host and knows the agent's units.
pub(crate) fn is_there() -> bool {
    let runs = Path::new("/run/systemd/system").is_dir();
    runs && systemctl(&["cat", TARGET]).is_ok_and(|output| output.status.success())
}

/// Enables and starts the service; an agent that runs already starts anew with its new settings, while Envoy goes on.
pub(crate) fn start() -> anyhow::Result<()> {
    done(&["enable", "--now", TARGET])?;
    done(&["restart", AGENT])
}

/// Drains and ends the service, also for the next boot.
pub(crate) fn stop() -> anyhow::Result<()> {
    done(&["disable", "--now", TARGET])
}

fn done(arguments: &[&str]) -> anyhow::Result<()> {
    let output = systemctl(arguments)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("systemctl {}: {}", arguments.join(" "), words.trim());
    }
    Ok(())
}

fn systemctl(arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new("systemctl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run systemctl")
}
