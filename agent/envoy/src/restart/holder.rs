//! A process that only holds sockets, for tests.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use crate::process::Process;

pub(super) struct Holder {
    child: Child,
    pub(super) process: Process,
}

impl Holder {
    /// At most three sockets.
    pub(super) fn start(sockets: Vec<OwnedFd>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null());
        for (number, socket) in sockets.into_iter().enumerate() {
            match number {
                0 => command.stdin(socket),
                1 => command.stdout(socket),
                _ => command.stderr(socket),
            };
        }
        let child = command.spawn().unwrap();
        let process = Process::hold(child.id()).unwrap();
        Self { child, process }
    }

    pub(super) fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The process may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
