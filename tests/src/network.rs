//! A network namespace for a test. The API server rejects loopback endpoints, so backends need a
//! different address.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use crate::itself;

/// Address of the backends on the namespace's loopback device.
pub const BACKENDS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

const USER: [&str; 2] = ["--user", "--map-root-user"];
const INSIDE: &str = "SESAME_TEST_OWN_NETWORK";

/// Returns true inside the namespace. Otherwise, runs the test in a new namespace and returns
/// false. See [`itself::only`] for `test`.
pub fn inside_own(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let status = own(&itself::executable(), &USER)
        .args(itself::only(test))
        .status()
        .expect("install util-linux and iproute2");
    assert!(
        status.success(),
        "{test} in its own network namespace: {status}"
    );
    false
}

/// Like [`inside_own`], but replaces the current program.
pub fn enter_own() -> std::io::Result<()> {
    enter_as(&USER)
}

/// Like [`enter_own`], but root keeps the privileges that user namespaces lack, such as mounting
/// disks.
pub fn enter_own_with_privileges() -> std::io::Result<()> {
    enter_as(if is_privileged() { &[] } else { &USER })
}

fn enter_as(user: &[&str]) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    Err(own(&std::env::current_exe()?, user)
        .args(std::env::args_os().skip(1))
        .exec())
}

/// Returns true for root outside of user namespaces.
pub fn is_privileged() -> bool {
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let are_all = users.split_whitespace().eq(["0", "0", "4294967295"]);
    nix::unistd::geteuid().is_root() && are_all
}

fn own(program: &Path, user: &[&str]) -> Command {
    let script =
        format!(r#"ip link set lo up && ip address add {BACKENDS}/32 dev lo && exec "$0" "$@""#);
    let mut command = Command::new("unshare");
    command
        .args(user)
        .args(["--net", "sh", "-c", &script])
        .arg(program)
        .env(INSIDE, "yes");
    command
}
