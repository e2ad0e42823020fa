//! Bundles with several signers, and the replacement of signers.

use serde_json::Value;
use sesame_tests::backend::Backend;

use super::site::{Workshop, accepted, apply, command, host, objects, printed, trust, wait};

#[tokio::test(flavor = "multi_thread")]
async fn bundle_needs_required_signers_and_signers_rotate() {
    let [a, b, c] = ["a", "b", "c"].map(Backend::start);
    let (a, b, c) = (a.await, b.await, c.await);
    let workshop = Workshop::new();
    let mut agent = host(&workshop, &[80], &["--require-signers", "2"]);
    let listed = trust(&agent, &["add", &workshop.at("theirs.pub")]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert_eq!(trust(&agent, &["list"]).lines().count(), 2);
    agent.restart();
    let up = |status: &Value| status["source"]["kind"] == "bundles";
    agent.wait_status("the agent answers", up).await;

    let first = workshop.create("first", &objects(&a), &["--sequence", "1"]);
    let output = apply(&agent, &first, &[]).await;
    let text = printed(&output);
    assert!(text.contains("has too few trusted signatures: 1"), "{text}");
    assert!(text.contains("2 are required"), "{text}");
    let path = first.to_string_lossy().into_owned();
    let sign = |path: &str, key: &str| {
        let output = command(&["bundle", "sign", path, "--signing-key", &workshop.at(key)]);
        assert!(output.status.success(), "{}", printed(&output));
    };
    // Two signatures by the same signer count as one.
    sign(&path, "ours");
    sign(&path, "third");
    let output = apply(&agent, &first, &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    sign(&path, "theirs");
    let state = agent.state().to_string_lossy().into_owned();
    let judged = [
        "bundle",
        "verify",
        &path,
        "--state-dir",
        &state,
        "--require-signers",
        "2",
    ];
    let output = command(&judged);
    assert!(output.status.success(), "{}", printed(&output));
    accepted(&agent, &first).await;
    wait(&agent, &a).await;

    trust(&agent, &["add", &workshop.at("third.pub")]);
    let second = workshop.create("second", &objects(&b), &["--sequence", "2"]);
    let path = second.to_string_lossy().into_owned();
    sign(&path, "third");
    accepted(&agent, &second).await;
    wait(&agent, &b).await;
    let theirs = listed.trim();
    trust(&agent, &["remove", theirs]);
    let third = workshop.create("third-one", &objects(&c), &["--sequence", "3"]);
    let path = third.to_string_lossy().into_owned();
    sign(&path, "theirs");
    let output = apply(&agent, &third, &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    wait(&agent, &b).await;
    sign(&path, "third");
    accepted(&agent, &third).await;
    wait(&agent, &c).await;

    // Without trusted keys, the agent accepts no bundle.
    for id in trust(&agent, &["list"]).lines() {
        trust(&agent, &["remove", id]);
    }
    let nobody = |status: &Value| {
        let problems = status["source"]["problems"].to_string();
        problems.contains("no key is trusted here")
    };
    agent.wait_status("no key is trusted", nobody).await;
    wait(&agent, &c).await;
    let missing = command(&["trust", "remove", "../identity", "--state-dir", &state]);
    assert_eq!(missing.status.code(), Some(1), "{}", printed(&missing));
}
