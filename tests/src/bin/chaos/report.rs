//! Prints violations, one per line, and the progress.

use std::fmt;
use std::time::Duration;

use super::history::History;
use super::load::Failure;
use super::probe::Loss;

/// Maximum length of a cause on a violation's line.
const LONGEST_CAUSE: usize = 160;

/// Failures of a host with less time between them share a violation.
const SAME_OUTAGE: Duration = Duration::from_secs(2);

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) at: Duration,
    pub(crate) invariant: &'static str,
    /// Host or program.
    pub(crate) place: String,
    pub(crate) what: String,
    /// Faults that were active, or ended shortly before.
    pub(crate) faults: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            invariant,
            place,
            what,
            faults,
        } = self;
        let what = what.replace('\n', " ");
        let at = at.as_secs_f64();
        write!(
            f,
            "VIOLATION {at:.1} s | {invariant} | {place} | {what} | faults: {faults}"
        )
    }
}

/// Compares failed requests with the faults.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Number of failures that a fault explains.
    pub(crate) explained: usize,
    /// The others. Failures of the same outage share a violation.
    pub(crate) violations: Vec<Violation>,
}

/// A failed request, with times since the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    pub(crate) failure: Failure,
}

/// Call it when all faults have ended, because later faults may delay a recovery.
pub(crate) fn judge(mut failures: Vec<Timed>, history: &History) -> Judged {
    let count = failures.len();
    failures.retain(|timed| {
        let Failure { host, loss, .. } = timed.failure;
        !history.explains(loss, host, timed.from, timed.until)
    });
    let explained = count - failures.len();
    failures.sort_by_key(|timed| (timed.failure.host, timed.failure.loss, timed.from));
    let groups = failures.chunk_by(|one, next| {
        let same_place = one.failure.host == next.failure.host;
        let same_kind = one.failure.loss == next.failure.loss;
        same_place && same_kind && next.from <= one.until + SAME_OUTAGE
    });
    let mut violations: Vec<Violation> = groups.map(|group| violation(group, history)).collect();
    violations.sort_by_key(|violation| violation.at);
    Judged {
        explained,
        violations,
    }
}

fn violation(group: &[Timed], history: &History) -> Violation {
    let first = &group[0];
    let until = group.iter().map(|timed| timed.until).max();
    let until = until.unwrap_or(first.until);
    let Failure {
        host,
        from: _,
        until: _,
        what,
        cause,
        loss,
    } = &first.failure;
    let cause: String = cause.chars().take(LONGEST_CAUSE).collect();
    Violation {
        at: first.from,
        invariant: match loss {
            Loss::Request => "requests",
            Loss::Http3Connection => "HTTP/3 connections",
            Loss::TcpConnection => "TCP connections",
            Loss::Leak => "denied requests",
        },
        place: format!("host-{host}"),
        what: format!(
            "{} failed from {:.3} s to {:.3} s, first {what}: {cause}",
            group.len(),
            first.from.as_secs_f64(),
            until.as_secs_f64()
        ),
        faults: history.active(first.from, until),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::schedule::Fault;

    fn failed(host: usize, from: u64, loss: Loss) -> Timed {
        let failure = Failure {
            host,
            from: Instant::now(),
            until: Instant::now(),
            what: "GET /".to_owned(),
            cause: "refused\nagain".to_owned(),
            loss,
        };
        Timed {
            from: Duration::from_secs(from),
            until: Duration::from_secs(from),
            failure,
        }
    }

    #[test]
    fn unexplained_failures_share_a_line() {
        let mut history = History::new(Duration::from_secs(5));
        let number = history.begin(Fault::KillEnvoy(1), Duration::from_secs(10));
        history.end(number, Duration::from_secs(10));
        let failures = [
            failed(1, 11, Loss::Request),
            failed(2, 11, Loss::Request),
            failed(2, 12, Loss::Request),
            failed(1, 13, Loss::Leak),
            failed(2, 30, Loss::Request),
        ];
        let judged = judge(failures.to_vec(), &history);
        assert_eq!(judged.explained, 1);
        let lines: Vec<String> = judged.violations.iter().map(ToString::to_string).collect();
        let [requests, denied, later] = &lines[..] else {
            panic!("{lines:#?}");
        };
        let start = "VIOLATION 11.0 s | requests | host-2 | 2 failed from 11.000 s to 12.000 s, first GET /: refused again";
        assert!(requests.starts_with(start), "{requests}");
        assert!(
            requests.ends_with("faults: KillEnvoy(1) 10.0-10.0 s"),
            "{requests}"
        );
        assert!(denied.contains("denied requests | host-1"), "{denied}");
        assert!(later.ends_with("faults: none"), "{later}");
    }
}
