//! Keeps private keys out of core dumps, both of this process and of the Envoys that it starts.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Selects which memory mappings a core dump contains. Children inherit the setting, even across
/// `execve`.
const FILTER: &str = "/proc/self/coredump_filter";

/// Disables core dumps of this process and forbids other processes of its user to trace it. Also
/// keeps memory out of the dumps of child processes, whatever the system's core pattern is.
pub(crate) fn prevent() {
    let nothing = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // The size limit does not apply to dumps piped to a program such as systemd-coredump, so the
    // filter excludes all memory.
    let limited = setrlimit(Resource::Core, nothing).map_err(io::Error::from);
    let filtered = fs::write(FILTER, "0");
    // Keep this last: afterwards, only root may change the settings above. `execve` makes children
    // dumpable again.
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from);
    if let Err(error) = limited.and(filtered).and(undumpable) {
        tracing::warn!(%error, "cannot disable core dumps: a dump of this process or an Envoy may contain private keys");
    }
}
