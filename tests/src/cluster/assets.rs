//! Finds server binaries and CRDs in the versions that `go.mod` files pin.

use std::path::PathBuf;

use serde_json::Value;

use crate::envoy::workspace;
use crate::pinned;

const PINS: &str = include_str!("../../cluster/go.mod");
const SUITE_PINS: &str = include_str!("../../conformance/go.mod");

/// A release channel of the Gateway API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Stable kinds and fields.
    Standard,
    /// All kinds and fields, including experimental ones.
    Experimental,
}

/// Returns the path of `kube-apiserver` or `etcd` in `$KUBEBUILDER_ASSETS` or `.tools`.
pub fn kube_binary(name: &str) -> PathBuf {
    let directory = format!("kube-{}", kube_version());
    let remedy = "run `make kube`, or set $KUBEBUILDER_ASSETS to a directory that contains it";
    pinned::program("KUBEBUILDER_ASSETS", &directory, name, remedy)
}

/// Returns the Gateway API release that `tests/conformance/go.mod` pins.
pub fn gateway_api_version() -> &'static str {
    pinned::version(SUITE_PINS, "sigs.k8s.io/gateway-api")
}

/// Returns the directory with the pinned release's CRDs.
pub fn definitions() -> PathBuf {
    definitions_of(gateway_api_version())
}

fn definitions_of(release: &str) -> PathBuf {
    workspace().join(format!(".tools/gateway-api-{release}"))
}

/// Returns the CRD files of a channel, sorted by name.
pub fn crd_files(channel: Channel) -> Vec<PathBuf> {
    files_of(gateway_api_version(), channel)
}

fn files_of(release: &str, channel: Channel) -> Vec<PathBuf> {
    let directory = definitions_of(release).join(match channel {
        Channel::Standard => "standard",
        Channel::Experimental => "experimental",
    });
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make kube`", directory.display()));
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .filter(|path| !path.ends_with("kustomization.yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files
}

/// Returns the CRDs in the order of their file names.
pub(super) fn crds(release: &str, channel: Channel) -> Vec<Value> {
    files_of(release, channel)
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("read a definition");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            objects
        })
        .collect()
}

/// Returns the version of Kubernetes that `tests/cluster/go.mod` pins.
pub fn kube_version() -> &'static str {
    pinned::version(PINS, "k8s.io/kubernetes")
}
