//! Explains bind errors that a missing `CAP_NET_BIND_SERVICE` causes.

use std::fs;

use thiserror::Error;

const FIRST_FREE: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// A port that this process may not bind without the capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "ports below {first_free} need CAP_NET_BIND_SERVICE: give it to the agent \
    (AmbientCapabilities= in its unit), map the port to another (--port-map {port}:8080), \
    or lower net.ipv4.ip_unprivileged_port_start"
)]
pub struct PrivilegedPort {
    port: u16,
    first_free: u16,
}

/// Returns `None` unless the missing capability caused the error `message`.
pub fn explain(port: u16, message: &str) -> Option<PrivilegedPort> {
    let first_free = fs::read_to_string(FIRST_FREE).ok()?.trim().parse().ok()?;
    judge(port, message, first_free)
}

fn judge(port: u16, message: &str, first_free: u16) -> Option<PrivilegedPort> {
    let low = port < first_free && message.ends_with("Permission denied");
    low.then_some(PrivilegedPort { port, first_free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_denied_low_port_needs_the_capability() {
        let denied = "cannot bind '127.0.0.1:80': Permission denied";
        assert!(judge(80, denied, 1024).is_some());
        // Port 80 does not require the capability here, so the denial has another cause, such as
        // SELinux.
        assert_eq!(judge(80, denied, 80), None);
        assert_eq!(
            judge(
                80,
                "cannot bind '127.0.0.1:80': Address already in use",
                1024
            ),
            None
        );
    }
}
