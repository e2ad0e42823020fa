//! Gathers facts for restart decisions.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use super::Request;
use super::decide::{Responsiveness, RestartFacts};
use crate::admin::{Admin, AdminError};
use crate::locate;
use crate::process::identity::RunningEnvoy;
use crate::process::launch::Launcher;
use crate::process::launcher;
use crate::process::shared_memory;
use crate::settings::SupervisorConfig;
use sesame_host::inotify::watched_by;
use sesame_host::reserve::SPARE;

/// Timeout for a response. Envoy may take seconds to respond while it loads a large file.
const ANSWER: Duration = Duration::from_secs(5);

/// Gathers facts about the running Envoy and its possible successor.
/// Failed queries become facts, not errors. The request says whether it serves HTTP/3, because the
/// bootstrap omits these statistics.
pub async fn gather(
    parent: &RunningEnvoy,
    admin: &Admin,
    config: &SupervisorConfig,
    request: &Request,
) -> RestartFacts {
    let info = admin.with_timeout(ANSWER).server_info().await;
    let (answers, protocol, workers) = match info {
        Ok(info) => (
            Responsiveness::Yes,
            Some(info.hot_restart_version),
            info.command_line_options.concurrency,
        ),
        Err(AdminError::Connect { .. }) => (Responsiveness::NoSocket, None, None),
        Err(_) => (Responsiveness::No, None, None),
    };
    let lineage = parent.identity.lineage;
    let watches = watched_by(parent.process.pid());
    RestartFacts {
        lineage,
        answers,
        protocol: protocol.filter(|version| version != "disabled"),
        next_protocol: next_protocol(config).await,
        interrupted: match lineage {
            Some(line) => shared_memory::is_initializing(line).map_err(|error| error.to_string()),
            None => Ok(false),
        },
        can_launch: config.launcher.is_some(),
        has_fewer_workers: config
            .concurrency
            .zip(workers)
            .is_some_and(|(next, now)| next < now),
        // Only a failed hot restart removes the socket, and only another one helps then.
        serves_http3: request.serves_http3 && answers != Responsiveness::NoSocket,
        watches,
        free_watches: config.instances.free(watches + SPARE),
    }
}

/// Returns true if the kernel moves waiting connections when a socket closes
/// (`net.ipv4.tcp_migrate_req` = 1).
pub fn moves_connections() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req")
        .is_ok_and(|text| text.trim() == "1")
}

/// Queries the launcher first, because its Envoy version may differ from the agent's.
async fn next_protocol(config: &SupervisorConfig) -> Result<String, String> {
    let reported = match &config.launcher {
        Some(Launcher::Socket(socket)) => launcher::hot_restart_version(socket),
        Some(Launcher::Program(_)) | None => None,
    };
    match reported {
        Some(reported) => protocol_in(&reported).ok_or_else(|| {
            format!("the launcher's Envoy did not report its hot restart protocol: {reported}")
        }),
        None => protocol_of(&config.binary).await,
    }
}

/// Returns the binary's hot restart version, such as `11.104`.
/// Fails if the binary cannot be run, does not exit in time, or prints anything else.
pub async fn protocol_of(binary: &Path) -> Result<String, String> {
    let read = |output: &Output| {
        // Envoy prints the protocol version to standard error.
        let printed = [output.stdout.as_slice(), &output.stderr].concat();
        protocol_in(&String::from_utf8_lossy(&printed))
    };
    let asked = locate::ask(
        binary,
        "--hot-restart-version",
        "a version such as 11.104",
        read,
    );
    asked.await.map_err(|error| error.to_string())
}

fn protocol_in(text: &str) -> Option<String> {
    let text = text.trim();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split('.').all(is_number).then(|| text.to_owned())
}
