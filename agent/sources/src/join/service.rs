//! Controls the agent's systemd service.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail};

use super::settings_file;

const TARGET: &str = "sesame.target";
const AGENT: &str = "sesame-agent.service";
/// Drop-in that unsets environment variables for other sources, because they would override the
/// settings file.
const PART: &str = "/etc/systemd/system/sesame-agent.service.d/50-joined.conf";
const PART_TEXT: &str = "\
# From `sesame-agent join`; `sesame-agent leave` removes it. The settings are in the agent's settings file.
[Service]
UnsetEnvironment=SESAME_MANIFESTS SESAME_SNAPSHOT_DIR SESAME_BUNDLE_DIR SESAME_KUBE SESAME_KUBECONFIG SESAME_NAMESPACE
UnsetEnvironment=SESAME_GATEWAYS SESAME_FLEET SESAME_HOST SESAME_ZONE
";

/// Returns true if systemd is running and knows the agent's target.
pub fn is_there() -> bool {
    let runs = Path::new("/run/systemd/system").is_dir();
    runs && systemctl(&["cat", TARGET]).is_ok_and(|output| output.status.success())
}

/// Restarts a running agent with its new settings. Envoy keeps serving.
pub fn start() -> anyhow::Result<()> {
    settings_file::write(Path::new(PART), PART_TEXT)?;
    done(&["daemon-reload"])?;
    done(&["enable", "--now", TARGET])?;
    done(&["restart", AGENT])
}

/// Also disables the service at boot.
pub fn stop() -> anyhow::Result<()> {
    done(&["disable", "--now", TARGET])?;
    match std::fs::remove_file(PART) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot remove {PART}")),
        Ok(()) => done(&["daemon-reload"]),
    }
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
