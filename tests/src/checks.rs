//! Runs many checks against one running agent, and reports all failures at the end.

use crate::client::{Reply, Request};

/// Collects failed checks.
#[derive(Debug, Default)]
pub struct Checks {
    made: usize,
    failed: Vec<String>,
}

impl Checks {
    /// Checks that `backend` responds with status 200.
    pub async fn backend(&mut self, request: Request, expected: &str) {
        let reply = self.reply(&request).await;
        let got = reply.map(|reply| match reply.backend() {
            Some(backend) if reply.status == 200 => backend,
            _ => format!("status {}", reply.status),
        });
        self.same(&request, got.as_deref(), Some(expected));
    }

    /// Checks only the response's status.
    pub async fn status(&mut self, request: Request, expected: u16) {
        let reply = self.reply(&request).await;
        self.same(&request, reply.map(|reply| reply.status), Some(expected));
    }

    /// Returns the response, or records a failure.
    pub async fn reply(&mut self, request: &Request) -> Option<Reply> {
        match request.send().await {
            Ok(reply) => Some(reply),
            Err(error) => {
                self.failed.push(format!("{request}: {error:#}"));
                None
            }
        }
    }

    /// Checks that two values are equal; `what` describes them in the failure.
    #[expect(clippy::needless_pass_by_value, reason = "expectations are literals")]
    pub fn same<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: impl std::fmt::Display,
        got: T,
        expected: T,
    ) {
        self.that(
            got == expected,
            format_args!("{what}: got {got:?}, expected {expected:?}"),
        );
    }

    /// Checks that a condition holds.
    pub fn that(&mut self, holds: bool, what: impl std::fmt::Display) {
        self.made += 1;
        if !holds {
            self.failed.push(what.to_string());
        }
    }

    /// Panics with a list of all failures, if any.
    pub fn finish(self) {
        assert!(self.made > 0, "nothing was checked");
        assert!(
            self.failed.is_empty(),
            "{} of {} checks failed:\n{}",
            self.failed.len(),
            self.made,
            self.failed.join("\n")
        );
    }
}
