//! A network namespace for a test. The API server rejects loopback endpoints, so backends need a
//! different address that nothing else uses.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use crate::itself;

/// Address of the backends. It is assigned to the loopback device of the test's network namespace.
pub const BACKENDS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

const INSIDE: &str = "SESAME_TEST_OWN_NETWORK";

/// Returns true if the test (see [`itself::only`]) is already in its own network namespace.
/// Otherwise, runs the test in a new process with such a namespace, asserts that it passed, and
/// returns false.
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

/// Like [`inside_own`], but for a program. If needed, replaces the process with the same program in
/// a new network namespace.
pub fn enter_own() -> std::io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    Err(own(&std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .exec())
}

/// Returns a command that runs `program` in a new network namespace.
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
