//! Paths: of the programs, of what is built, and of what a run leaves behind for whoever looks into a failure.

use std::path::PathBuf;

use sesame_tests::cluster::kube_version;
use sesame_tests::envoy::workspace;
use sesame_tests::pinned;

/// Directory of everything that belongs to a run.
pub(crate) fn directory() -> PathBuf {
    workspace().join("target/nodes")
}

/// Directory of the logs of the last run.
pub(crate) fn logs() -> PathBuf {
    directory().join("log")
}

/// A program of Kubernetes, or one for test images: from `$NODES_TOOLS`, else what `make` built into `.tools`.
pub(crate) fn tool(name: &str) -> PathBuf {
    let directory = format!("nodes-{}", kube_version());
    let remedy = "`make test-nodes` builds it";
    pinned::program("NODES_TOOLS", &directory, name, remedy)
}
