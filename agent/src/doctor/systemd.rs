//! Queries systemd. All functions return `None` if systemd is absent or does not respond.

use std::fs;
use std::process::{Command, Stdio};

use super::facts::UnitFacts;

const UNITS: [&str; 3] = [
    "sesame-agent.service",
    "sesame-envoy.service",
    "sesame.target",
];
/// Unit file directories, highest precedence first.
const DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

pub(super) struct ServiceUnit {
    pub(super) user: Option<u32>,
    pub(super) binds_low: bool,
}

/// Returns `None` if the unit is not installed, or if `asked` is false.
pub(super) fn service(asked: bool) -> Option<ServiceUnit> {
    if !asked || !is_in_charge() {
        return None;
    }
    let text = DIRECTORIES
        .iter()
        .find_map(|directory| fs::read_to_string(format!("{directory}/{}", UNITS[0])).ok())?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
    };
    let user = value("User").and_then(|name| nix::unistd::User::from_name(&name).ok().flatten());
    Some(ServiceUnit {
        user: user.map(|user| user.uid.as_raw()),
        binds_low: value("AmbientCapabilities")
            .is_some_and(|value| value.contains("CAP_NET_BIND_SERVICE")),
    })
}

fn is_in_charge() -> bool {
    fs::metadata("/run/systemd/system").is_ok()
}

pub(super) fn units() -> Option<Vec<UnitFacts>> {
    if !is_in_charge() {
        return None;
    }
    let units = UNITS.iter().filter_map(|name| {
        let shown = output(
            "systemctl",
            &["show", "-p", "UnitFileState,ActiveState", name],
        )?;
        let value = |key: &str| {
            let mut lines = shown.lines().filter_map(|line| line.split_once('='));
            lines.find_map(|(name, value)| (name == key).then(|| value.to_owned()))
        };
        Some(UnitFacts {
            name: (*name).to_owned(),
            file_state: value("UnitFileState").unwrap_or_default(),
            active_state: value("ActiveState").unwrap_or_default(),
        })
    });
    Some(units.collect())
}

/// Queries systemd, because calling adjtimex(2) would require unsafe code.
pub(super) fn clock_is_synchronized() -> Option<bool> {
    if fs::metadata("/run/systemd/timesync/synchronized").is_ok() {
        return Some(true);
    }
    if !is_in_charge() {
        return None;
    }
    let answer = output("timedatectl", &["show", "-p", "NTPSynchronized", "--value"])?;
    match answer.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Returns `None` if the program fails or takes more than five seconds.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let answer = Command::new("timeout")
        .args(["5", program])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    (answer.status.success() && !text.is_empty()).then_some(text)
}
