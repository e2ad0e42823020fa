//! A network of a test's own: an API server takes no endpoint on the loopback range, so that backends need another
//! address, which must be nobody else's.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use crate::itself;

/// The address of backends, on the loopback device of the test's own network.
pub const BACKENDS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

const INSIDE: &str = "SESAME_TEST_OWN_NETWORK";

/// Returns whether the test of this name ([`itself::only`]) runs in a network of its own already. If not it is run again
/// in one, in a process of its own, and has passed when this returns.
pub fn inside_own(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let status = own(&itself::executable())
        .args(itself::only(test))
        .status()
        .expect("unshare of util-linux and ip of iproute2");
    assert!(status.success(), "{test} in its own network: {status}");
    false
}

/// As [`inside_own`], for a program: it is replaced by itself in a network of its own.
pub fn enter_own() -> std::io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    Err(own(&std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .exec())
}

/// A command in a network of its own.
fn own(program: &Path) -> Command {
    let script =
        format!(r#"ip link set lo up && ip address add {BACKENDS}/32 dev lo && exec "$0" "$@""#);
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--net", "sh", "-c", &script])
        .arg(program)
        .env(INSIDE, "yes");
    command
}
