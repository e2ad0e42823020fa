//! `kubectl sesame` with a real kubectl.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sesame_tests::agent::{beside_test, words};

use crate::stage::Stage;
use crate::tools;

/// Returns a directory with the plugin.
pub(crate) fn directory() -> PathBuf {
    let directory = tools::directory().join("plugins");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    for name in ["kubectl-sesame", "kubectl_complete-sesame"] {
        let program = beside_test("sesame-controller");
        symlink(program, directory.join(name)).expect("a link");
    }
    directory
}

pub(crate) async fn shows(stage: &Stage) {
    let directory = directory();
    let nodes = stage.nodes.len();
    let all_serve = format!("kubectl sesame status shows {nodes} serving hosts");
    stage
        .kubectl
        .until(&all_serve, |_| {
            let rows = rows(stage, &directory, "status")?;
            let hosts = json!({"serving": nodes, "all": nodes});
            let is_well = rows[0]["name"] == "edge" && rows[0]["hosts"] == hosts;
            is_well.then_some(()).ok_or_else(|| rows.to_string())
        })
        .await;
    let hosts = rows(stage, &directory, "hosts").expect("the hosts");
    assert_eq!(hosts.as_array().map(Vec::len), Some(nodes), "{hosts}");
    // Names in the output must be valid arguments for kubectl.
    let ask = |arguments: &[&str]| stage.kubectl.with_plugins(&directory, arguments);
    let names = words(&ask(&["sesame", "status", "-A", "-o", "name"]));
    let found = ask(&["get", names.trim(), "--namespace=default", "-o", "name"]);
    assert_eq!(words(&found), names);
    // kubectl runs `kubectl_complete-sesame` for completion.
    let completed = words(&ask(&["__complete", "sesame", "ex"]));
    assert!(completed.starts_with("explain\n:4"), "{completed}");
    let plugins = words(&ask(&["plugin", "list"]));
    assert!(plugins.contains("kubectl-sesame"), "{plugins}");
}

fn rows(stage: &Stage, directory: &Path, command: &str) -> Result<Value, String> {
    let arguments = ["sesame", command, "--all-namespaces", "--output=json"];
    let output = stage.kubectl.with_plugins(directory, &arguments);
    serde_json::from_slice(&output.stdout).map_err(|_| words(&output))
}
