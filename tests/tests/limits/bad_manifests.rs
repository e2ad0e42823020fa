//! A broken manifest among valid ones. The error must contain the file and line.

use std::process::Output;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, rule_to, yaml};

/// `lines` are the line numbers that the error may contain.
struct Broken {
    what: &'static str,
    text: &'static str,
    lines: &'static [u64],
}

const BROKEN: [Broken; 3] = [
    Broken {
        what: "not YAML",
        text: "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: [other\nspec: {}\n",
        lines: &[4, 5],
    },
    Broken {
        what: "a value of another type",
        text: "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: other\n  \
               namespace: default\nspec:\n  rules: seven\n",
        lines: &[7],
    },
    Broken {
        what: "no kind",
        text: "# A comment.\n\nmetadata:\n  name: other\n",
        lines: &[1, 2, 3, 4],
    },
];

fn route(name: &str, service: &str) -> String {
    let host = format!("{name}.test");
    yaml(&[http_route(name, &[&host], &[rule_to(service, &[])])])
}

async fn wait_backend(agent: &AgentUnderTest, host: &str, backend: &str) {
    let request = agent.get(80, host, "/");
    agent.wait_backend(&request, backend).await;
}

/// Accepts separate fields, or `file:line`.
fn names(value: &Value, file: &str, lines: &[u64]) -> bool {
    match value {
        Value::String(text) => lines
            .iter()
            .any(|line| text.contains(&format!("{file}:{line}"))),
        Value::Array(items) => items.iter().any(|item| names(item, file, lines)),
        Value::Object(fields) => {
            let file_named = fields
                .values()
                .any(|field| field.as_str().is_some_and(|text| text.ends_with(file)));
            let line_named = fields
                .values()
                .any(|field| field.as_u64().is_some_and(|number| lines.contains(&number)));
            (file_named && line_named) || fields.values().any(|field| names(field, file, lines))
        }
        _ => false,
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn validate(agent: &AgentUnderTest) -> Output {
    let manifests = agent.manifests();
    agent.command(&[
        "validate",
        "--manifests",
        &manifests.to_string_lossy(),
        "--output",
        "json",
    ])
}

async fn start() -> (AgentUnderTest, Vec<Backend>) {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a", "b"], &mut objects).await;
    let agent = Setup::with_ports(&[80]).start(&[
        ("base.yaml", &yaml(&objects)),
        ("one.yaml", &route("one", "a")),
        ("other.yaml", &route("other", "a")),
    ]);
    wait_backend(&agent, "one.test", "a").await;
    wait_backend(&agent, "other.test", "a").await;
    (agent, backends)
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_manifest_is_named_with_line_and_isolated() {
    let (agent, _backends) = start().await;
    let good = validate(&agent);
    assert!(good.status.success(), "{}", text(&good));
    let load = Load::start(&Plan::new(vec![
        agent.get(80, "one.test", "/"),
        agent.get(80, "other.test", "/"),
    ]));
    for (
        index,
        Broken {
            what,
            text: broken,
            lines,
        },
    ) in BROKEN.into_iter().enumerate()
    {
        agent.write("other.yaml", broken);
        agent
            .wait_status(what, |status| names(status, "other.yaml", lines))
            .await;

        let refused = validate(&agent);
        assert!(!refused.status.success(), "{what}: {}", text(&refused));
        let report: Value = serde_json::from_slice(&refused.stdout)
            .unwrap_or_else(|error| panic!("{what}: {error}: {}", text(&refused)));
        assert!(
            names(&report, "other.yaml", lines),
            "{what}: lines {lines:?}: {report:#}"
        );

        let unwell = agent.status_command();
        assert!(!unwell.status.success(), "{what}: {}", text(&unwell));
        let report: Value = serde_json::from_slice(&unwell.stdout)
            .unwrap_or_else(|error| panic!("{what}: {error}: {}", text(&unwell)));
        assert!(
            names(&report, "other.yaml", lines),
            "{what}: lines {lines:?}: {report:#}"
        );

        // Other files must still be applied.
        let to = if index % 2 == 0 { "b" } else { "a" };
        agent.write("one.yaml", &route("one", to));
        wait_backend(&agent, "one.test", to).await;
        wait_backend(&agent, "other.test", "a").await;
    }
    agent.write("other.yaml", &route("other", "b"));
    wait_backend(&agent, "other.test", "b").await;
    agent
        .wait_status("the manifest is corrected", |status| {
            status["healthy"] == true && !names(status, "other.yaml", &[1, 2, 3, 4, 5, 7])
        })
        .await;
    let well = agent.status_command();
    assert!(well.status.success(), "{}", text(&well));
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn last_good_configuration_survives_agent_and_envoy() {
    let (mut agent, _backends) = start().await;
    let Broken {
        what,
        text: broken,
        lines,
    } = &BROKEN[0];
    agent.write("other.yaml", broken);
    agent
        .wait_status(what, |status| names(status, "other.yaml", lines))
        .await;

    let load = Load::start(&Plan::new(vec![agent.get(80, "other.test", "/")]));
    agent.restart();
    agent
        .wait_status(what, |status| names(status, "other.yaml", lines))
        .await;
    load.pass(50).await;
    load.stop().await.assert_clean();

    agent.kill9();
    agent.kill9_envoy();
    agent.restart();
    wait_backend(&agent, "other.test", "a").await;
    wait_backend(&agent, "one.test", "a").await;
    agent
        .wait_status(what, |status| names(status, "other.yaml", lines))
        .await;

    agent.write("other.yaml", &route("other", "b"));
    wait_backend(&agent, "other.test", "b").await;
}
