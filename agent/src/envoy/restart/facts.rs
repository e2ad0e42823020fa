//! Facts for the decision on a restart, gathered from Envoy and the host.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::decide::{Answers, Facts};
use crate::envoy::admin::{Admin, AdminError};
use crate::envoy::process::identity::Running;
use crate::envoy::process::shared_memory;
use crate::host::inotify::{Budget, watched_by};

/// Limit for an answer: a healthy Envoy takes milliseconds, one that loads a large file seconds.
const ANSWER: Duration = Duration::from_secs(5);
const VERSION: Duration = Duration::from_secs(10);

/// Looks at the running Envoy, the binary that is to be started, and the host.
pub(crate) async fn gather(
    parent: &Running,
    admin: &Admin,
    binary: &Path,
    can_launch: bool,
    next_workers: Option<u32>,
) -> Facts {
    let info = admin.with_timeout(ANSWER).server_info().await;
    let (answers, protocol, workers) = match info {
        Ok(info) => (
            Answers::Yes,
            Some(info.hot_restart_version),
            info.command_line_options.concurrency,
        ),
        Err(AdminError::Connect { .. }) => (Answers::NoSocket, None, None),
        Err(_) => (Answers::No, None, None),
    };
    let lineage = parent.identity.lineage;
    let budget = Budget::read(&[]);
    Facts {
        lineage,
        answers,
        protocol: protocol.filter(|version| version != "disabled"),
        next_protocol: protocol_of(binary).await,
        interrupted: match lineage {
            Some(line) => shared_memory::is_initializing(line).map_err(|error| error.to_string()),
            None => Ok(false),
        },
        can_launch,
        has_fewer_workers: next_workers
            .zip(workers)
            .is_some_and(|(next, now)| next < now),
        watches: watched_by(parent.process.pid()),
        free_watches: budget.limit.saturating_sub(budget.others),
    }
}

/// Tells whether the kernel moves connections that wait at a closing socket to another one of the same port.
pub(crate) fn moves_connections() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req")
        .is_ok_and(|text| text.trim() == "1")
}

/// Returns the hot restart protocol of a binary, such as `11.104`.
pub(crate) async fn protocol_of(binary: &Path) -> Result<String, String> {
    let run = Command::new(binary)
        .arg("--hot-restart-version")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let failed = |why: String| format!("{} --hot-restart-version: {why}", binary.display());
    let output = timeout(VERSION, run)
        .await
        .map_err(|_| failed(format!("no answer within {VERSION:?}")))?
        .map_err(|error| failed(error.to_string()))?;
    // Envoy says it on standard error.
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&said).trim().to_owned();
    let is_version = text
        .split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    if is_version {
        Ok(text)
    } else {
        let start: String = text.chars().take(100).collect();
        Err(failed(format!(
            "expected a version such as 11.104, got {start:?}"
        )))
    }
}
