//! Checks the default columns of `kubectl get`.

use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::plugin;
use crate::stage::Stage;

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = &stage.kubectl;
    kubectl.apply(&[
        configuration("good", &json!({"publishing": {"type": "NodePort"}})),
        // The controller rejects this value, although the CRD allows it.
        configuration("bad", &json!({"edge": {"udpSessionTimeout": "0s"}})),
    ]);
    let edge = shown(kubectl, "gatewayclasses", "edge", &[("ACCEPTED", "True")]).await;
    assert_eq!(edge["CONTROLLER"], "projectsesame.io/gateway-controller");
    let edge = shown(kubectl, "gateways", "edge", &[("PROGRAMMED", "True")]).await;
    assert_eq!(edge["CLASS"], "edge", "{edge}");
    let first = stage.nodes[0].at(80).ip().to_string();
    assert_eq!(edge["ADDRESS"], first, "{edge}");

    for node in &stage.nodes {
        let wanted = [("STATE", "Serving"), ("HOST", node.name())];
        let row = shown(kubectl, "gatewayagents", node.name(), &wanted).await;
        assert_eq!(row["GATEWAY"], "default/edge", "{row}");
        assert_eq!(row["WANTED"], row["APPLIED"], "{row}");
        assert!(
            row["ENVOY"].as_str().is_some_and(|it| it.starts_with("1.")),
            "{row}"
        );
        assert_eq!(row["PORTS"], "[\"TCP/80\"]", "{row}");
        let own = format!("[\"{}\"]", node.at(80).ip());
        assert_eq!(row["ADDRESSES"], own, "{row}");
    }
    let good = shown(
        kubectl,
        "sesameconfigurations",
        "good",
        &[("ACCEPTED", "True")],
    )
    .await;
    assert_eq!(good["PUBLISHING"], "NodePort", "{good}");
    let wanted = [("ACCEPTED", "False"), ("REASON", "Invalid")];
    let bad = shown(kubectl, "sesameconfigurations", "bad", &wanted).await;
    let why = bad["MESSAGE"].as_str().unwrap_or_default();
    assert!(why.contains("spec.edge.udpSessionTimeout"), "{bad}");
    let both = ["delete", "sesameconfigurations", "good", "bad"];
    kubectl.ok(&[&both[..], &["--namespace=default"]].concat());
    plugin::shows(stage).await;
}

async fn shown(kubectl: &Kubectl, kind: &str, word: &str, wanted: &[(&str, &str)]) -> Value {
    let what = format!("kubectl get {kind} shows {word} with {wanted:?}");
    kubectl
        .until(&what, |kubectl| {
            let text = kubectl.ok(&["get", kind, "--all-namespaces", "--output=wide"]);
            let rows = rows(&text);
            let is_wanted = |row: &&Value| {
                row.as_object()
                    .is_some_and(|row| row.values().any(|it| it == word))
                    && wanted.iter().all(|(column, entry)| row[column] == *entry)
            };
            rows.iter().find(is_wanted).cloned().ok_or(text)
        })
        .await
}

/// Each column starts at the position of its header.
fn rows(text: &str) -> Vec<Value> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let mut begins: Vec<usize> = Vec::new();
    let mut gap = 2;
    for (at, letter) in header.char_indices() {
        if letter == ' ' {
            gap += 1;
        } else {
            if gap >= 2 {
                begins.push(at);
            }
            gap = 0;
        }
    }
    let entry = |line: &str, index: usize| {
        let end = begins.get(index + 1).copied().unwrap_or(line.len());
        let entry = line.get(begins[index]..end.min(line.len()));
        entry.unwrap_or_default().trim().to_owned()
    };
    lines
        .map(|line| {
            let entries = (0..begins.len()).map(|i| (entry(header, i), json!(entry(line, i))));
            Value::Object(entries.collect())
        })
        .collect()
}

fn configuration(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    })
}
