//! Keeps private keys out of core dumps of this process and Envoy.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Selects which memory a core dump contains. Child processes inherit it across `execve`.
const FILTER: &str = "/proc/self/coredump_filter";

/// Also prevents this user's other processes from tracing this process.
pub fn prevent() {
    let nothing = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // The size limit does not apply to dumps that the kernel pipes to a program such as
    // systemd-coredump.
    let limited = setrlimit(Resource::Core, nothing).map_err(io::Error::from);
    let filtered = fs::write(FILTER, "0");
    // Keep this last, because afterwards only root may change the settings above. Children become
    // dumpable again after `execve`.
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from);
    if let Err(error) = limited.and(filtered).and(undumpable) {
        tracing::warn!(%error, "cannot disable core dumps: a dump of this process or an Envoy may contain private keys");
    }
}
