//! A real API server must accept every object in the documentation, without unknown fields.

use std::collections::BTreeSet;

use clap::Command;
use serde_json::{Value, json};
use sesame_tests::cluster::Channel;
use sesame_tests::controller::deployed;

use crate::pages::{Block, Page, all};

/// Pages with YAML for other programs, and the first key of that YAML.
const FOREIGN: &[(&str, &str)] = &[
    ("docs/metrics.md", "scrape_configs"),
    // Chart values, with which tests/tests/clusters/chart.rs renders the chart.
    ("docs/metrics.md", "controller"),
    // Chart values, which tests/tests/clusters/chart_in_a_cluster.rs also sets.
    ("docs/in-a-cluster.md", "images"),
    ("docs/without-a-controller.md", "volumes"),
];

/// Includes here-documents in shell blocks.
fn yaml(block: &Block) -> Vec<String> {
    match block.language.as_str() {
        "yaml" => vec![block.text.clone()],
        "sh" | "console" => {
            let mut found = Vec::new();
            let mut rest = block.text.as_str();
            while let Some((_, after)) = rest.split_once("<<'YAML'\n") {
                let (text, tail) = after
                    .split_once("\nYAML\n")
                    .expect("the document is terminated");
                found.push(text.to_owned());
                rest = tail;
            }
            found
        }
        _ => Vec::new(),
    }
}

pub(crate) fn documented_objects(page: &Page) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for block in page.blocks() {
        for text in yaml(&block) {
            let place = format!("{}:{}", page.path.display(), block.line);
            let values: Vec<Value> = serde_saphyr::from_multiple(&text)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            for value in values {
                found.extend(object(&place, page, value).map(|object| (place.clone(), object)));
            }
        }
    }
    found
}

/// Returns `None` if the YAML is for another program. Panics if no kind could contain the fragment.
fn object(place: &str, page: &Page, value: Value) -> Option<Value> {
    if value.get("apiVersion").is_some() {
        return Some(value);
    }
    let fields = value.as_object().expect("a mapping");
    let keys: Vec<&str> = fields.keys().map(String::as_str).collect();
    match keys.as_slice() {
        ["listeners"] => Some(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "part"},
            "spec": {"gatewayClassName": "sesame", "listeners": value["listeners"]},
        })),
        // The fragment shows labels and annotations of a Gateway.
        ["metadata"] => {
            let mut object = value;
            object["metadata"]["name"] = json!("part");
            object["apiVersion"] = json!("gateway.networking.k8s.io/v1");
            object["kind"] = json!("Gateway");
            object["spec"] = json!({"gatewayClassName": "sesame",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]});
            Some(object)
        }
        ["spec"] if value["spec"].get("validation").is_some() => Some(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": {"name": "part"}, "spec": value["spec"],
        })),
        ["spec"] => Some(json!({
            "apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
            "metadata": {"name": "part", "namespace": "sesame-system"}, "spec": value["spec"],
        })),
        [key]
            if FOREIGN
                .iter()
                .any(|(at, known)| page.path.ends_with(at) && known == key) =>
        {
            None
        }
        keys => {
            let settings = settings();
            for key in keys {
                let known = settings.contains(*key);
                assert!(
                    known,
                    "{place}: {key:?} is neither an agent setting nor listed in FOREIGN"
                );
            }
            None
        }
    }
}

fn settings() -> BTreeSet<String> {
    let program = sesame_agent::cli::command();
    let run = program.find_subcommand("run").expect("a command");
    let longs = |command: &Command| -> Vec<String> {
        let options = command.get_arguments().filter_map(|one| one.get_long());
        options.map(str::to_owned).collect()
    };
    longs(&program).into_iter().chain(longs(run)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_accepts_every_documented_object() {
    let cluster = deployed(Channel::Experimental).await;
    let mut found = Vec::new();
    for page in all() {
        found.extend(documented_objects(&page));
    }
    assert!(found.len() > 40, "{} objects were found", found.len());
    let namespaces: BTreeSet<&str> = found
        .iter()
        .filter_map(|(_, object)| object["metadata"]["namespace"].as_str())
        .collect();
    for name in namespaces {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.apply_all(&[namespace]).await;
    }
    let mut wrong = Vec::new();
    for (place, object) in &found {
        let tried = cluster.admin().try_value(object).await;
        wrong.extend(tried.err().map(|error| format!("{place}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let (_, good) = found
        .iter()
        .find(|(_, object)| object["kind"] == "HTTPRoute")
        .expect("a route");
    let mut bad = good.clone();
    bad["spec"]["hostname"] = json!("shop.example.com");
    let error = cluster
        .admin()
        .try_value(&bad)
        .await
        .expect_err("the unknown field was accepted");
    assert!(error.to_string().contains("hostname"), "{error}");
}
