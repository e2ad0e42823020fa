//! The agent reports every rejected bundle with the reason, and keeps serving the current bundle.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, https_listener};
use sesame_tests::publications::one;

use super::damage::{Case, Material, cases};
use super::site::{
    Workshop, accepted, apply, command, drop_in, host, objects, printed, routed, wait,
};

#[tokio::test(flavor = "multi_thread")]
async fn damaged_forged_replayed_or_foreign_bundle_is_rejected() {
    let [a, b] = ["a", "b"].map(Backend::start);
    let (a, b) = (a.await, b.await);
    let workshop = Workshop::new();
    let mut agent = host(&workshop, &[80], &["--gateway", "default/edge"]);
    let state = agent.state().to_string_lossy().into_owned();
    let identity = command(&["identity", "--state-dir", &state]);
    assert!(identity.status.success(), "{}", printed(&identity));
    agent.restart();
    let up = |status: &Value| status["source"]["kind"] == "bundles";
    agent.wait_status("the agent answers", up).await;
    let older = workshop.create("older", &objects(&b), &["--sequence", "4"]);
    accepted(&agent, &older).await;
    let served = workshop.create("served", &objects(&a), &["--sequence", "5"]);
    accepted(&agent, &served).await;
    wait(&agent, &a).await;

    let leaf = Authority::new("ours").issue(&["bundle.test"]);
    let mut with_keys = edge(&[https_listener("https", 443, "bundle.test", "cert")]);
    with_keys.push(leaf.secret("cert"));
    with_keys.extend(routed(&b));
    let (next, with_keys) = (one(&objects(&b)), one(&with_keys));
    let (served, older_bytes) = (fs::read(served).unwrap(), fs::read(&older).unwrap());
    let all = cases(&Material {
        served: &served,
        older: &older_bytes,
        next: &next.snapshot,
        with_keys: (&with_keys.snapshot, &with_keys.keys),
        ours: &workshop.signing("ours"),
        theirs: &workshop.signing("theirs"),
    });
    assert!(all.len() >= 30, "{} cases", all.len());

    let load = Load::start(&Plan::new(vec![agent.get(80, "bundle.test", "/")]));
    for case in &all {
        drop_in(&agent, &format!("{}.bundle", case.name), &case.bytes);
    }
    let link = agent.manifests().join("link.bundle");
    std::os::unix::fs::symlink(&older, &link).unwrap();
    let settled = |status: &Value| {
        let files = states(status);
        let refused = |name: &str| {
            let (state, _) = files.get(name)?;
            Some(state == "refused" || state == "older")
        };
        all.iter().all(|case| refused(case.name) == Some(true)) && refused("link") == Some(true)
    };
    let status = agent.wait_status("all are refused", settled).await;
    let mut wrong = Vec::new();
    let files = states(&status);
    for Case { name, reason, .. } in &all {
        let (state, found) = &files[*name];
        if !found.contains(reason) {
            wrong.push(format!(
                "{name} is {state}: {found:?} does not contain {reason:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files["link"].1.contains("is a symbolic link"), "{files:#?}");
    wait(&agent, &a).await;
    load.pass(50).await;
    load.stop()
        .await
        .clean("bundles: all malformed ones rejected");

    // After `apply` rejects a bundle, none of its files may remain.
    for case in all
        .iter()
        .filter(|case| ["stranger", "cut-in-shard"].contains(&case.name))
    {
        let file = workshop.at("bad.bundle");
        fs::write(&file, &case.bytes).unwrap();
        let output = apply(&agent, file.as_ref(), &[]).await;
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        assert!(
            printed(&output).contains(case.reason),
            "{}",
            printed(&output)
        );
    }
    for case in &all {
        fs::remove_file(agent.manifests().join(format!("{}.bundle", case.name))).unwrap();
    }
    fs::remove_file(link).unwrap();
    let left = fs::read_dir(agent.manifests()).unwrap().count();
    assert_eq!(left, 1, "only the current bundle is left");
    let last = workshop.create("last", &objects(&b), &["--sequence", "6"]);
    accepted(&agent, &last).await;
    wait(&agent, &b).await;
    let well = |status: &Value| status["source"]["problems"] == serde_json::json!([]);
    agent.wait_status("no problem is reported", well).await;
}

/// Returns the states by file name without the extension.
fn states(status: &Value) -> BTreeMap<String, (String, String)> {
    let files = status["source"]["bundles"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    files
        .map(|file| {
            let name = text(&file["file"]);
            let name = name.trim_end_matches(".bundle").to_owned();
            (name, (text(&file["state"]), text(&file["reason"])))
        })
        .collect()
}
