//! The end of a launcher, as far as it concerns one of its Envoys.
//!
//! A launcher decides only about an Envoy that serves. One that is replaced, or is about to be, is the agent's: after a hot restart
//! the second Envoy asks the first one until it has it end, and aborts if nobody answers. So its time is what the agent gave the
//! second one on its command line, whatever the launcher's own is.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::stop;
use crate::envoy::admin::Admin;
use crate::envoy::process::identity::{Identity, NEXT_PID_FILE, PID_FILE, RunningEnvoy};
use crate::envoy::process::{Exit, Process};
use crate::envoy::restart::latest_end;
use crate::envoy::settings::SupervisorConfig;
use crate::host::processes;

/// Time that a replacement may take, with an attempt that was extended and another one after it.
const REPLACEMENT: Duration = Duration::from_secs(300);
/// Time beyond the one at which the agent itself would end an Envoy that has a successor.
const LATE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Part that an Envoy has, as the pid files of its directory tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It serves, and nothing else is planned.
    Serves,
    /// It takes over, or another one takes over from it.
    Changes,
    /// Another one serves, which gives it this time to drain.
    Retires(Duration),
}

/// Ends an Envoy of a launcher that ends. One that serves is drained for at most `grace`.
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

/// Waits for an Envoy that somebody else ends, and ends it if nobody does.
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
        // A third one takes over from its successor.
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
        }
    }

    #[test]
    fn the_time_of_an_envoy_that_is_replaced_is_its_successors() {
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
