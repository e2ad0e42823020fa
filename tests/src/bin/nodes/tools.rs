//! Paths of programs and build results, and of files that a run keeps for debugging.

use std::path::PathBuf;

use sesame_tests::cluster::kube_version;
use sesame_tests::envoy::workspace;
use sesame_tests::pinned;

pub(crate) fn directory() -> PathBuf {
    workspace().join("target/nodes")
}

pub(crate) fn logs() -> PathBuf {
    directory().join("log")
}

/// Returns the tool's path, in `$NODES_TOOLS` if set, and otherwise in `.tools`.
pub(crate) fn tool(name: &str) -> PathBuf {
    let directory = format!("nodes-{}", kube_version());
    let remedy = "`make test-nodes` builds it";
    pinned::program("NODES_TOOLS", &directory, name, remedy)
}
