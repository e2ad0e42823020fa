//! Checks packages and systemd units. Sends no traffic.

use std::fs;
use std::path::Path;
use std::process::Command;

use sesame_tests::envoy::workspace;

use crate::machine::Machine;
use crate::packages::{Packages, build, debs};

const UNITS: &[&str] = &[
    "sesame-agent.service",
    "sesame-envoy.service",
    "sesame-drain.service",
];
/// Maximum exposure reported by `systemd-analyze security`, in tenths.
const MAX_EXPOSED: &str = "20";

pub(crate) fn packages(packages: &Packages) {
    let again = workspace().join("target/hosts/packages/again");
    build(&again, "1");
    let (first, second) = (packages.first(), debs(&again, ""));
    for (one, other) in first.iter().zip(&second) {
        assert!(
            bytes(one) == bytes(other),
            "{} differs from {}",
            one.display(),
            other.display()
        );
    }
    let judged = Command::new("lintian")
        .args(["--fail-on", "error,warning", "--allow-root"])
        .args(&first)
        .output()
        .expect("lintian (Debian: lintian)");
    let stdout = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(judged.status.success(), "lintian: {stdout}");
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).expect("a package")
}

pub(crate) fn units(packages: &Packages) {
    let machine = Machine::with_packages("units", packages);
    let inside = machine.inside();
    for unit in UNITS.iter().chain(&["sesame.target"]) {
        inside.ok(&["systemd-analyze", "verify", "--man=no", unit]);
    }
    for unit in UNITS {
        let threshold = format!("--threshold={MAX_EXPOSED}");
        let output = inside.ok(&[
            "systemd-analyze",
            "security",
            "--no-pager",
            &threshold,
            unit,
        ]);
        println!("host: {}", output.lines().last().unwrap_or_default());
    }
}
