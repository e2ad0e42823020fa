//! Graceful shutdown of an agent under test, with or without its Envoy.

use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{AgentUnderTest, TEST_TIMEOUT, arguments, words};

impl AgentUnderTest {
    /// Sends SIGTERM to the agent, and waits until it exits. Its Envoy keeps serving.
    pub fn stop(&mut self) -> ExitStatus {
        self.begin_to_stop();
        self.wait_ended()
    }

    /// Sends SIGTERM to the agent without waiting. See [`AgentUnderTest::ended`].
    pub fn begin_to_stop(&self) {
        let pid = self.child.as_ref().expect("the agent runs").id();
        let pid = i32::try_from(pid).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the agent is our child");
    }

    /// Stops the agent and its Envoy with `drain --stop`.
    pub fn end(&mut self) -> ExitStatus {
        let output = self.drain_stop();
        assert!(output.status.success(), "{}", words(&output));
        self.wait_ended()
    }

    /// Runs `drain --stop`, whether or not an agent is running.
    pub fn drain_stop(&self) -> Output {
        let drain = "drain --stop --lame-duck=0 --timeout=1 --runtime-dir";
        let line = format!("{drain} {}", self.runtime().display());
        self.command(&arguments(&line))
    }

    fn wait_ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the agent runs");
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("the agent is our child") {
                return status;
            }
            if start.elapsed() > TEST_TIMEOUT {
                self.child = Some(child);
                panic!(
                    "the agent did not stop within {TEST_TIMEOUT:?}\n{}",
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
