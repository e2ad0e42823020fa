//! Where the pinned binaries and the Gateway API's definitions are. `tests/cluster/go.mod` is the only pin.

use std::path::PathBuf;

use serde_json::Value;

use crate::envoy::workspace;

const PINS: &str = include_str!("../../cluster/go.mod");

/// A release channel of the Gateway API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// What is stable.
    Standard,
    /// Everything, also what may still change.
    Experimental,
}

/// `kube-apiserver` or `etcd`: from `$KUBEBUILDER_ASSETS`, else what `make` built into `.tools`.
pub(super) fn binary(name: &str) -> PathBuf {
    let directory = std::env::var_os("KUBEBUILDER_ASSETS")
        .filter(|value| !value.is_empty())
        .map_or_else(
            || tools().join(format!("kube-{}", pin("k8s.io/kubernetes"))),
            PathBuf::from,
        );
    let path = directory.join(name);
    assert!(
        path.is_file(),
        "there is no {}: let `make cluster-tools` build it, or set $KUBEBUILDER_ASSETS to a directory that has it",
        path.display()
    );
    path
}

/// Every object of a channel, in the order of the files' names.
pub(super) fn crds(channel: Channel) -> Vec<Value> {
    let directory = tools()
        .join(format!("gateway-api-{}", pin("sigs.k8s.io/gateway-api")))
        .join(match channel {
            Channel::Standard => "standard",
            Channel::Experimental => "experimental",
        });
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; let `make cluster-tools` fetch it",
            directory.display()
        )
    });
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .filter(|path| !path.ends_with("kustomization.yaml"))
        .collect();
    files.sort();
    let objects: Vec<Value> = files
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("read a definition");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            objects
        })
        .collect();
    assert!(!objects.is_empty(), "{} is empty", directory.display());
    objects
}

fn tools() -> PathBuf {
    workspace().join(".tools")
}

/// The version of a module in `go.mod`.
fn pin(module: &str) -> &'static str {
    PINS.lines()
        .filter(|line| !line.contains("=>"))
        .find_map(|line| {
            let line = line.trim().trim_start_matches("require ");
            line.strip_prefix(module)?.strip_prefix(' ')
        })
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_else(|| panic!("tests/cluster/go.mod does not require {module}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_from_single_lines_and_from_blocks() {
        for module in ["k8s.io/kubernetes", "sigs.k8s.io/gateway-api"] {
            assert!(pin(module).starts_with("v1."), "{module} {}", pin(module));
        }
    }
}
