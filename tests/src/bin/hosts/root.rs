//! The root file system from which all machines start, built once from Debian packages. Uses this
//! machine's APT proxy, and its mirrors for the same Debian release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In addition to the essential packages.
const INCLUDED: &str = "systemd,systemd-sysv,dbus,udev,iproute2,procps,libnss-systemd,openssl";
const SUITE: &str = "bookworm";
const APT_OPTIONS: [&str; 4] = [
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Check-",
    "Acquire::Retries",
];

pub(crate) fn base(directory: &Path) -> PathBuf {
    directory.join(format!("root-{SUITE}"))
}

pub(crate) fn prepare(directory: &Path) {
    let base = base(directory);
    let included = base.with_extension("included");
    if base.exists() && fs::read_to_string(&included).is_ok_and(|text| text == INCLUDED) {
        return;
    }
    let _ = fs::remove_dir_all(&base);
    println!("host: building a root file system (mmdebstrap, two minutes)");
    let new = base.with_extension("new");
    let _ = fs::remove_dir_all(&new);
    let mut command = Command::new("mmdebstrap");
    command
        .args(["--variant=apt", "--format=directory", "--quiet"])
        .arg(format!("--include={INCLUDED}"));
    for option in fetching(&output_of("apt-config", &["dump"])) {
        command.args(["--aptopt", &option]);
    }
    command.arg(SUITE).arg(&new);
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let targets = ["indextargets", "--format", format, "Created-By: Packages"];
    command.args(mirrors(&output_of("apt-get", &targets)));
    let made = command
        .stdout(Stdio::null())
        .status()
        .expect("mmdebstrap (Debian: mmdebstrap)");
    assert!(made.success(), "{command:?}: {made}");
    fs::rename(new, base).expect("move the root file system into place");
    fs::write(included, INCLUDED).expect("a file next to the root");
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Parses the output of `apt-config dump`.
fn fetching(dump: &str) -> Vec<String> {
    dump.lines()
        .filter(|line| APT_OPTIONS.iter().any(|name| line.starts_with(name)))
        .filter(|line| !line.ends_with(" \"\";"))
        .map(str::to_owned)
        .collect()
}

/// Returns an empty list if this machine runs a different release, so that the default mirrors
/// apply.
fn mirrors(targets: &str) -> Vec<String> {
    let is_suite = |release: &str| {
        let rest = release.strip_prefix(SUITE);
        rest.is_some_and(|rest| matches!(rest, "" | "-updates" | "-security"))
    };
    let mut lines: Vec<String> = targets
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [uri, release, "main"] if is_suite(release) => {
                Some(format!("deb {uri} {release} main"))
            }
            _ => None,
        })
        .collect();
    lines.sort();
    lines.dedup();
    let has_all = lines
        .iter()
        .any(|line| line.ends_with(&format!(" {SUITE} main")));
    if has_all { lines } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_uses_package_mirrors_and_proxy_of_machine() {
        let targets = "http://mirror/debian/ bookworm main\nhttp://mirror/debian/ bookworm main\n\
            http://mirror/debian/ bookworm contrib\nhttp://mirror/security/ bookworm-security main\n\
            https://other/ cloud-sdk-bookworm main\n";
        assert_eq!(
            mirrors(targets),
            [
                "deb http://mirror/debian/ bookworm main",
                "deb http://mirror/security/ bookworm-security main"
            ]
        );
        assert!(mirrors("http://mirror/debian/ trixie main\n").is_empty());
        let dump = "Acquire::http::Proxy \"http://proxy:3128\";\nAcquire::http \"\";\n\
            Acquire::Check-Date \"false\";\nDPkg::Post-Invoke:: \"x\";\n";
        assert_eq!(
            fetching(dump),
            [
                "Acquire::http::Proxy \"http://proxy:3128\";",
                "Acquire::Check-Date \"false\";"
            ]
        );
    }
}
