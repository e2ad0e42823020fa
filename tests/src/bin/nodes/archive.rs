//! Builds the archive for air-gapped sites, and installs from it like a site's administrator.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sesame_tests::cluster::definitions;
use sesame_tests::envoy::workspace;

use crate::images;
use crate::kubectl::Kubectl;
use crate::node::{Node, ok};
use crate::node_files::CONTAINERD_SOCKET;
use crate::tools;

pub(crate) fn remove() {
    let _ = fs::remove_dir_all(directory());
}

/// Uses placeholders for the Debian packages, which a cluster does not need.
pub(crate) fn build() {
    let all = directory();
    let packages = all.join("packages");
    fs::create_dir_all(&packages).expect("a directory");
    for name in ["none_0_all.deb", "none_0_all.tar.gz"] {
        fs::write(packages.join(name), "no package\n").expect("a file");
    }
    let private = all.join("release.key");
    ok(Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&private));
    ok(Command::new("openssl")
        .args(["pkey", "-pubout", "-in"])
        .arg(&private)
        .arg("-out")
        .arg(key()));
    ok(Command::new(workspace().join("images/airgap/build.sh"))
        .args([&all, &packages, &images::sesame(), &definitions()])
        .env("SIGNING_KEY", &private));
    let entries = fs::read_dir(&all).expect("an archive was built");
    let mut files = entries.flatten().map(|entry| entry.path());
    let archive = files
        .find(|file| file.extension().is_some_and(|end| end == "tar"))
        .expect("an archive");
    fs::create_dir(unpacked()).expect("a directory");
    ok(Command::new("tar")
        .args(["--strip-components=1", "-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(unpacked()));
    fs::remove_file(archive).expect("remove the unpacked archive");
}

pub(crate) fn import_images(node: &Node) {
    let (install, key) = (install(), key());
    let output = node.run(&[
        "env",
        &format!("CONTAINERD_ADDRESS={CONTAINERD_SOCKET}"),
        &install.to_string_lossy(),
        "images",
        "--with",
        "ctr",
        "--key",
        &key.to_string_lossy(),
    ]);
    assert!(output.status.success(), "install.sh images: {output:?}");
}

pub(crate) fn install_cluster(kubectl: &Kubectl) {
    let output = kubectl
        .for_script(&install())
        .args(["cluster", "--key"])
        .arg(key())
        .output();
    let output = output.expect("install.sh runs");
    assert!(output.status.success(), "install.sh cluster: {output:?}");
}

fn directory() -> PathBuf {
    tools::directory().join("archive")
}

fn unpacked() -> PathBuf {
    directory().join("unpacked")
}

fn install() -> PathBuf {
    unpacked().join("install.sh")
}

fn key() -> PathBuf {
    directory().join("release.pub")
}

pub(crate) fn is_wanted(scenarios: &[String]) -> bool {
    scenarios.iter().any(|one| one == NAME)
}

pub(crate) const NAME: &str = "archive";

pub(crate) fn exists() -> bool {
    install().exists()
}
