//! Finds the servers' binaries and the Gateway API's definitions. Both are pinned by Go modules in this tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::envoy::workspace;
use crate::pinned;

const PINS: &str = include_str!("../../cluster/go.mod");

/// A release channel of the Gateway API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Stable kinds and fields.
    Standard,
    /// Everything, also what may still change.
    Experimental,
}

/// Path of `kube-apiserver` or `etcd`: from `$KUBEBUILDER_ASSETS`, else what `make` built into `.tools`.
pub fn kube_binary(name: &str) -> PathBuf {
    let directory = format!("kube-{}", kube_version());
    let remedy = "let `make kube` build it, or set $KUBEBUILDER_ASSETS to a directory that has it";
    pinned::program("KUBEBUILDER_ASSETS", &directory, name, remedy)
}

/// Directory of the Gateway API's definitions, with one for each channel, in the Go module that `tests/conformance/go.mod`
/// pins.
pub fn definitions() -> PathBuf {
    gateway_api().join("config/crd")
}

/// Files with the definitions of a channel, in the order of their names.
pub fn crd_files(channel: Channel) -> Vec<PathBuf> {
    files_of(&definitions(), channel)
}

/// Every object of a channel of another release, such as `v1.7.0`, which `make unit` has fetched.
pub(super) fn crds_of(release: &str, channel: Channel) -> Vec<Value> {
    let directory = workspace().join(format!(".tools/gateway-api-{release}"));
    assert!(
        directory.is_dir(),
        "{} is missing: `make unit` fetches it",
        directory.display()
    );
    objects_in(&files_of(&directory, channel))
}

fn files_of(definitions: &Path, channel: Channel) -> Vec<PathBuf> {
    let directory = definitions.join(match channel {
        Channel::Standard => "standard",
        Channel::Experimental => "experimental",
    });
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
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

/// Every object of a channel, in the order of the files' names.
pub(super) fn crds(channel: Channel) -> Vec<Value> {
    objects_in(&crd_files(channel))
}

fn objects_in(files: &[PathBuf]) -> Vec<Value> {
    files
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("read a definition");
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            objects
        })
        .collect()
}

/// Returns the directory in which Go keeps the module; it is fetched if it is not there yet.
fn gateway_api() -> PathBuf {
    let output = Command::new("go")
        .args(["mod", "download", "-json", "sigs.k8s.io/gateway-api"])
        .current_dir(workspace().join("tests/conformance"))
        .output()
        .expect("the Gateway API's definitions are in a Go module: install Go");
    // With `-json` it says what is wrong where the module would be.
    let [said, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(
        output.status.success(),
        "go mod download sigs.k8s.io/gateway-api in tests/conformance, which needs a network once: {said}{errors}"
    );
    let module: Value = serde_json::from_slice(&output.stdout).expect("go prints JSON");
    let directory = module["Dir"].as_str();
    directory.expect("a downloaded module's directory").into()
}

/// Returns the version of Kubernetes in `go.mod`.
pub fn kube_version() -> &'static str {
    pinned::version(PINS, "k8s.io/kubernetes")
}
