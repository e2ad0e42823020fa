//! Tests whether the kernel and this process's sandbox permit steering new connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use super::reuseport::Choice;
use super::steer::{attach, join};

/// Fails if a BPF program cannot be attached to an unused loopback socket. The test program leaves
/// the choice of socket to the kernel.
pub(crate) fn can_steer() -> io::Result<()> {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    attach(&join(nowhere, 1)?, Choice::Any)
}
