//! Keeps private keys out of core dumps of this process and of the Envoy processes that it starts.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// File that selects which memory mappings a core dump contains. Child processes inherit the
/// selection, even across `execve`.
const FILTER: &str = "/proc/self/coredump_filter";

/// Disables core dumps of this process, and prevents this user's other processes from tracing it.
/// Also excludes all memory from core dumps of child processes, regardless of the system's core
/// pattern.
pub(crate) fn prevent() {
    let nothing = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // The size limit does not apply to core dumps that the kernel pipes to a program such as
    // systemd-coredump. The filter therefore excludes all memory.
    let limited = setrlimit(Resource::Core, nothing).map_err(io::Error::from);
    let filtered = fs::write(FILTER, "0");
    // Keep this last, because afterwards only root may change the settings above. Child processes
    // become dumpable again after `execve`.
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from);
    if let Err(error) = limited.and(filtered).and(undumpable) {
        tracing::warn!(%error, "cannot disable core dumps: a dump of this process or an Envoy may contain private keys");
    }
}
