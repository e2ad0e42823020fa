//! Random bytes from the kernel, for keys.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills the buffer with random bytes. Blocks until the kernel's generator is initialized.
pub fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
