//! Tries whether the kernel, and the sandbox around this process, let new connections be steered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use super::reuseport::Choice;
use super::steer::{attach, join};

/// Opens an unused socket on the loopback, and attaches a program that chooses nothing.
pub(crate) fn can_steer() -> io::Result<()> {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    attach(&join(nowhere, 1)?, Choice::Any)
}
