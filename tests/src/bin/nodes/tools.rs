//! Paths: of the programs, of what is built, and of what a run leaves behind for whoever looks into a failure.

use std::path::PathBuf;

use sesame_tests::cluster::kube_version;
use sesame_tests::envoy::workspace;

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
    let directory = std::env::var_os("NODES_TOOLS")
        .filter(|value| !value.is_empty())
        .map_or_else(
            || workspace().join(format!(".tools/nodes-{}", kube_version())),
            PathBuf::from,
        );
    let path = directory.join(name);
    assert!(
        path.is_file(),
        "there is no {}: `make test-nodes` builds it",
        path.display()
    );
    path
}
