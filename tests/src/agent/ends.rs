//! Orderly ends of an agent under test: by itself, or with its Envoy.

use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{AgentUnderTest, SOON, arguments, words};

impl AgentUnderTest {
    /// SIGTERM to the agent, which leaves its Envoy serving; gives back how it ended.
    pub fn stop(&mut self) -> ExitStatus {
        let pid = self.child.as_ref().expect("the agent runs").id();
        let pid = i32::try_from(pid).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the agent is our child");
        self.wait_ended()
    }

    /// `drain --stop`, which ends the agent and its Envoy; gives back how the agent ended.
    pub fn end(&mut self) -> ExitStatus {
        let output = self.drain_stop();
        assert!(output.status.success(), "{}", words(&output));
        self.wait_ended()
    }

    /// `drain --stop`, with an agent or without.
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
            if start.elapsed() > SOON {
                self.child = Some(child);
                panic!(
                    "the agent does not stop within {SOON:?}\n{}",
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
