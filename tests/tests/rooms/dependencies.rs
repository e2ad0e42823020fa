//! Pure crates must not depend on crates that open files or sockets, start processes or threads, or
//! read a clock.

use std::process::Command;

use crate::workspace;

const REFUSED: [&str; 11] = [
    "hyper",
    "hyper-util",
    "kube",
    "mio",
    "nix",
    "notify",
    "rustix",
    "socket2",
    "tempfile",
    "tokio",
    "tonic",
];
/// Pure crates, with the I/O crates on which they may depend.
const PURE: [(&str, &[&str]); 3] = [
    ("sesame-proto", &[]),
    ("sesame-gateway-api", &[]),
    // `envoy-types` needs these crates for gRPC stubs, which `clippy.toml` forbids using.
    (
        "sesame-render",
        &["hyper", "hyper-util", "mio", "socket2", "tokio", "tonic"],
    ),
];

#[test]
fn pure_crates_have_no_io_dependencies() {
    for (name, known) in PURE {
        let found = dependencies(name);
        let io: Vec<&str> = REFUSED
            .into_iter()
            .filter(|refused| found.iter().any(|f| f == refused))
            .collect();
        assert_eq!(io, known, "{name} must be pure, but depends on I/O crates");
    }
}

/// Includes indirect dependencies.
fn dependencies(name: &str) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").expect("cargo runs tests");
    let tree = [
        "tree",
        "--offline",
        "--locked",
        "--edges",
        "normal,no-proc-macro",
    ];
    let output = Command::new(cargo)
        .current_dir(workspace())
        .args(tree)
        .args(["--prefix", "none", "--format", "{p}", "--package", name])
        .output()
        .expect("cargo can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}
