//! The `make` targets that newcomers run first must report missing tools before they build
//! anything.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sesame_tests::envoy::workspace;

fn make(target: &str, tools: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    for tool in tools {
        symlink(found(tool), directory.path().join(tool)).unwrap();
    }
    Command::new(found("make"))
        .arg(target)
        .arg(format!("TOOLS={}", directory.path().join("none").display()))
        .current_dir(workspace())
        .env_clear()
        .env("PATH", directory.path())
        .output()
        .unwrap()
}

fn found(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(tool));
    candidates
        .find(|candidate: &PathBuf| Path::is_file(candidate))
        .unwrap_or_else(|| panic!("no {tool} on the PATH"))
}

#[test]
fn make_names_missing_tools_before_building() {
    let tools = ["sh", "sed", "awk", "dirname", "sort", "head", "cut"];
    for (target, missing) in [
        ("demo", &["cargo: Rust 1.", "cc: ", "python3 "][..]),
        (
            "test",
            &[
                "cargo: Rust 1.",
                "cc: ",
                "python3 ",
                "go: Go 1.",
                "unshare ",
                "ip ",
            ],
        ),
    ] {
        let output = make(target, &tools);
        assert!(!output.status.success(), "{target}: {output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        for tool in missing {
            assert!(
                stderr.contains(&format!("missing: {tool}")),
                "{target}: {stderr}"
            );
        }
        assert!(output.stdout.is_empty(), "{target}: {output:?}");
    }
}

#[test]
fn low_descriptor_limit_prints_remedy() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 256 && exec tests/machine.sh echo ran"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let remedy =
        "missing: 8192 file descriptors per process; the hard limit is 256: ulimit -Hn 8192";
    assert!(stderr.contains(remedy), "{stderr}");
}

/// A dry run of `make` does not check these scripts.
#[test]
fn scripts_are_valid_shell() {
    let found = Command::new("find")
        .args(["images", "systemd", "tests", "-name", "*.sh"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.lines().count() > 30, "{found}");
    for script in found.lines() {
        let checked = Command::new("sh")
            .args(["-n", script])
            .current_dir(workspace())
            .output()
            .unwrap();
        assert!(checked.status.success(), "{script}: {checked:?}");
    }
}

#[test]
fn make_and_sh_read_the_same_pins() {
    let pins = std::fs::read_to_string(workspace().join("tests/tools/pins")).unwrap();
    let is_comment = |line: &&str| line.is_empty() || line.starts_with("# ");
    for line in pins.lines().filter(|line| !is_comment(line)) {
        let (name, value) = line.split_once('=').unwrap();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:+/=_-".contains(c);
        assert!(
            !name.is_empty() && !value.is_empty() && value.chars().all(is_plain),
            "{line}: make and sh may parse different values"
        );
    }
}

/// Some recipes run only in a fresh clone.
#[test]
fn recipes_of_a_fresh_clone_are_valid_shell() {
    let nothing = tempfile::tempdir().unwrap();
    for target in ["demo", "test", "unit", "images", "airgap"] {
        let recipe = Command::new("make")
            // Even in a dry run, `make` runs lines that contain $(MAKE).
            .args(["--dry-run", "MAKE=true", target])
            .arg(format!("TOOLS={}", nothing.path().display()))
            .env_remove("ENVOY")
            .env_remove("OLDER_ENVOY")
            .current_dir(workspace())
            .output()
            .unwrap();
        assert!(recipe.status.success(), "{target}: {recipe:?}");
        let script = nothing.path().join("recipe");
        std::fs::write(&script, &recipe.stdout).unwrap();
        let checked = Command::new("sh").arg("-n").arg(script).output().unwrap();
        assert!(checked.status.success(), "{target}: {checked:?}");
    }
}
