//! Stops a launcher's Envoy processes when the launcher is stopping.
//!
//! During a replacement, the agent is responsible for both Envoy processes. After a hot restart,
//! the second Envoy keeps querying the first and aborts without a reply, so the first must not be
//! stopped before its drain ends.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::stop;
use crate::admin::Admin;
use crate::process::identity::{Identity, NEXT_PID_FILE, PID_FILE, RunningEnvoy};
use crate::process::{Exit, Process};
use crate::restart::latest_end;
use crate::settings::SupervisorConfig;
use sesame_host::processes;

/// Time limit for a replacement, enough for two attempts, the first with an extended deadline.
const REPLACEMENT: Duration = Duration::from_secs(300);
/// Extra time for the agent to terminate a replaced Envoy before the launcher does.
const LATE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Serves,
    Changes,
    /// This Envoy may drain for the given time.
    Retires(Duration),
}

/// A serving Envoy is drained for at most `grace`.
pub(super) async fn end(
    config: &SupervisorConfig,
    admin: &Admin,
    running: &RunningEnvoy,
    grace: Duration,
) -> Exit {
    let process = &running.process;
    let deadline = Instant::now() + REPLACEMENT;
    loop {
        let read = |name: &str| Identity::read(&config.runtime_dir.join(name)).filter(is_running);
        match part(
            process.pid(),
            read(PID_FILE).as_ref(),
            read(NEXT_PID_FILE).as_ref(),
        ) {
            Part::Retires(drain) => return see_off(process, drain).await,
            Part::Changes if Instant::now() < deadline && process.exit().is_none() => {
                sleep(POLL).await;
            }
            Part::Serves | Part::Changes => {
                let exit = stop::stop(process, admin, grace).await;
                running.forget(&config.runtime_dir);
                return exit;
            }
        }
    }
}

async fn see_off(process: &Process, drain: Duration) -> Exit {
    match timeout(latest_end(drain) + LATE, process.wait()).await {
        Ok(exit) => exit,
        Err(_) => process.end().await,
    }
}

fn part(pid: u32, serving: Option<&Identity>, next: Option<&Identity>) -> Part {
    match (serving, next) {
        (_, Some(next)) if next.pid == pid => Part::Changes,
        (Some(serving), None) if serving.pid != pid => Part::Retires(serving.drain_time()),
        (Some(serving), Some(_)) if serving.pid == pid => Part::Changes,
        // This is the first of three Envoy processes, and the third is taking over from the second.
        (Some(serving), Some(next)) => Part::Retires(serving.drain_time().max(next.drain_time())),
        (None, Some(_)) => Part::Changes,
        (Some(_) | None, None) => Part::Serves,
    }
}

fn is_running(identity: &Identity) -> bool {
    processes::start_time(identity.pid) == Some(identity.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envoy(pid: u32, drain: &str) -> Identity {
        Identity {
            pid,
            start_time: 1,
            executable: None,
            bootstrap_digest: String::new(),
            arguments: vec!["--drain-time-s".to_owned(), drain.to_owned()],
            lineage: None,
            stopping: false,
            id_mark: None,
        }
    }

    #[test]
    fn replaced_envoy_uses_drain_time_of_successor() {
        let (one, two, three) = (envoy(1, "5"), envoy(2, "70"), envoy(3, "90"));
        assert_eq!(part(1, Some(&one), None), Part::Serves);
        assert_eq!(part(1, None, None), Part::Serves);
        assert_eq!(part(1, Some(&one), Some(&two)), Part::Changes);
        assert_eq!(part(2, Some(&one), Some(&two)), Part::Changes);
        let seconds = |seconds| Part::Retires(Duration::from_secs(seconds));
        assert_eq!(part(1, Some(&two), None), seconds(70));
        assert_eq!(part(1, Some(&two), Some(&three)), seconds(90));
    }
}
