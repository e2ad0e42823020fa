//! Tests whether the kernel and this process's sandbox permit connection steering.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use super::reuseport::Choice;
use super::steer::{attach, join};

/// Attaches a harmless BPF program to an unused loopback socket.
pub fn can_steer() -> io::Result<()> {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    attach(&join(nowhere, 1)?, Choice::Any)
}
