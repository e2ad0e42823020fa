//! Ports that no other test uses. They are below the kernel's range for outgoing connections. An
//! abstract Unix socket reserves each port until this process exits.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// The kernel's range for outgoing connections starts at 32768.
const FIRST: u16 = 12_000;
const LAST: u16 = 32_000;

static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Returns an unused TCP port, reserved until this process exits.
pub fn free_port() -> u16 {
    let mut taken = TAKEN.lock().expect("the lock is not poisoned");
    // Processes start their search at different ports to avoid collisions.
    let span = u32::from(LAST - FIRST);
    let start = std::process::id().wrapping_mul(97) % span;
    for step in 0..span {
        let offset = u16::try_from((start + step) % span).expect("the span is below 65536");
        let port = FIRST + offset;
        let name = format!("sesame-test-port-{port}");
        let address = SocketAddr::from_abstract_name(name).expect("the name is short");
        let Ok(lock) = UnixListener::bind_addr(&address) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            taken.push(lock);
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}

/// Returns several ports, each chosen by [`free_port`].
pub fn free_ports<const N: usize>() -> [u16; N] {
    std::array::from_fn(|_| free_port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_is_handed_out_once() {
        let mut ports = free_ports::<50>().to_vec();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }
}
