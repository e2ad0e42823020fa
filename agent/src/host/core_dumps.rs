//! Core dumps, of which none may hold a private key: neither one of this process nor one of an Envoy that it starts.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Parts of a process's memory that go into a core dump. Children inherit the setting, over the execution of other programs too.
const FILTER: &str = "/proc/self/coredump_filter";

/// Prevents core dumps of this process, and tracing by other processes of its user. Keeps memory
/// out of the dumps of child processes, whatever the system does with dumps.
pub(crate) fn prevent() {
    let nothing = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A dump that goes to a program, as to systemd-coredump, has no limit of size; so it gets no memory.
    let limited = setrlimit(Resource::Core, nothing).map_err(io::Error::from);
    let filtered = fs::write(FILTER, "0");
    // Last: from here on only root may change the above. Programs that are executed can be dumped again.
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from);
    if let Err(error) = limited.and(filtered).and(undumpable) {
        tracing::warn!(%error, "a core dump of this process, or of an Envoy, may hold private keys: dumps cannot be prevented");
    }
}
