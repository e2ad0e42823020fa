//! The commands `top`, `logs` and `events`.

use std::process::Output;

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, arguments, words};
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, yaml};
use sesame_tests::wait::eventually;

fn runtime(agent: &AgentUnderTest) -> String {
    agent.runtime().to_string_lossy().into_owned()
}

/// Runs the command and parses its output: one JSON value, or one per line.
async fn run_json(agent: &AgentUnderTest, line: &str) -> Vec<Value> {
    let line = format!("{line} --output json --runtime-dir {}", runtime(agent));
    let output = agent.command_beside(&arguments(&line)).await;
    assert!(output.status.success(), "{line}: {}", words(&output));
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    values.map(|value| value.expect("JSON")).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

async fn serving(setup: Setup) -> (AgentUnderTest, Vec<sesame_tests::backend::Backend>, String) {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["cart", "stock"], &mut objects).await;
    objects.push(http_route(
        "shop",
        &["shop.test"],
        &[
            rule_to("cart", &[]),
            rule_to("stock", &[path("PathPrefix", "/stock")]),
        ],
    ));
    let manifests = yaml(&objects);
    let agent = setup.start(&[("all.yaml", &manifests)]);
    agent.wait_ok(&agent.get(80, "shop.test", "/ready")).await;
    (agent, backends, manifests)
}

#[tokio::test(flavor = "multi_thread")]
async fn top_and_logs_find_failing_and_slow_backends() {
    let setup = Setup::with_ports(&[80]).flag("--access-log-free-mib=0");
    let (agent, backends, _) = serving(setup).await;
    let mut checks = Checks::default();
    for _ in 0..3 {
        let failing = agent.get(80, "shop.test", "/stock/status/503");
        checks.status(failing, 503).await;
    }
    let slow = agent.get(80, "shop.test", "/stock/delay/300ms");
    checks.status(slow, 200).await;
    checks.status(agent.get(80, "lost.test", "/"), 404).await;
    checks.finish();

    let top = "top --once --window 1h --by route,backend,endpoint";
    let report = eventually("`top` shows all requests", TEST_TIMEOUT, async || {
        let report = run_json(&agent, top).await.remove(0);
        let rows = report["rows"]["route"].as_array().into_iter().flatten();
        let all: u64 = rows.filter_map(|row| row["requests"].as_u64()).sum();
        // The first request may have been sent more than once.
        (all >= 6)
            .then_some(report.clone())
            .ok_or(report.to_string())
    })
    .await;
    assert_eq!(report["source"], "accessLog");
    let row = |by: &str, name: &str| -> Value {
        let mut rows = report["rows"][by].as_array().into_iter().flatten();
        let found = rows.find(|row| row["name"] == name);
        found
            .unwrap_or_else(|| panic!("no {name} in {report}"))
            .clone()
    };
    let stock = row("backend", "Service/default/stock/80");
    assert_eq!(stock["classes"]["5xx"], 3, "{stock}");
    assert_eq!(stock["classes"]["2xx"], 1, "{stock}");
    let endpoint = row("endpoint", &backends[1].address().to_string());
    assert!(endpoint["longestMs"].as_u64() >= Some(300), "{endpoint}");
    assert_eq!(row("route", "HTTPRoute/default/shop")["classes"]["5xx"], 3);
    assert_eq!(row("route", "none")["classes"]["4xx"], 1);

    let table = format!("top --once --window 1h --runtime-dir {}", runtime(&agent));
    let table = text(&agent.command(&arguments(&table)));
    assert!(
        table.contains("ROUTE") && table.contains("Service/default/stock/80"),
        "{table}"
    );

    let failed = run_json(&agent, "logs --status 5xx --route default/shop").await;
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(
        failed.iter().all(|line| line["status"] == 503),
        "{failed:?}"
    );
    let slow = run_json(
        &agent,
        "logs --slow 300ms --backend default/stock --since 1h",
    )
    .await;
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert_eq!(slow[0]["path"], "/stock/delay/300ms");
    assert!(run_json(&agent, "logs --host other.test").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn top_uses_metrics_without_log_files() {
    let setup = Setup::with_ports(&[80]).flag("--access-log=off");
    let (agent, _backends, _) = serving(setup).await;
    let asking = async {
        loop {
            let failing = agent.get(80, "shop.test", "/stock/status/503");
            let mut checks = Checks::default();
            checks.status(failing, 503).await;
            checks.finish();
        }
    };
    let mut asking = std::pin::pin!(asking);
    eventually("`top` shows backend failures", TEST_TIMEOUT, async || {
        let report = tokio::select! {
            report = run_json(&agent, "top --once --window 1s") => report,
            () = &mut asking => Vec::new(),
        };
        let report = &report[0];
        let mut rows = report["rows"]["backend"].as_array().into_iter().flatten();
        let fails = rows.any(|row| {
            row["name"] == "Service/default/stock/80" && row["classes"]["5xx"].as_u64() > Some(0)
        });
        (fails && report["source"] == "metrics")
            .then_some(())
            .ok_or_else(|| report.to_string())
    })
    .await;
}

/// Waits for the events in this order. Other events may occur in between.
async fn wait_events(agent: &AgentUnderTest, wanted: &[&str]) -> Vec<Value> {
    let what = format!("events {wanted:?}");
    eventually(&what, TEST_TIMEOUT, async || {
        let events = run_json(agent, "events").await;
        let mut wanted = wanted.iter().peekable();
        for event in &events {
            let over = event["ended"] == true;
            let name = event["event"].as_str().unwrap_or_default();
            let name = if over {
                format!("{name} over")
            } else {
                name.to_owned()
            };
            wanted.next_if(|next| **next == name);
        }
        match wanted.peek() {
            None => Ok(events),
            Some(missing) => Err(format!("no {missing} in {events:?}")),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_reported_and_survive_agent_restart() {
    let (mut agent, _backends, manifests) = serving(Setup::with_ports(&[80])).await;
    let mut wanted = vec![
        "AgentStarted",
        "GatewayServed",
        "EnvoyStarted",
        "RevisionApplied",
    ];
    wait_events(&agent, &wanted).await;

    agent.write("broken.yaml", "kind: [");
    wanted.push("SourceProblem");
    wait_events(&agent, &wanted).await;
    agent.remove("broken.yaml");
    wanted.push("SourceProblem over");
    wait_events(&agent, &wanted).await;

    agent.wait_stored().await;
    agent.kill9();
    // The restarted agent must detect changes that were made while it was down.
    let other = manifests.replace("shop.test", "other.test");
    agent.write("all.yaml", &other);
    agent.kill9_envoy();
    agent.restart();
    agent.wait_ok(&agent.get(80, "other.test", "/")).await;
    wanted.extend(["AgentStarted", "EnvoyStarted", "RevisionApplied"]);
    let events = wait_events(&agent, &wanted).await;
    let numbers: Vec<u64> = events
        .iter()
        .filter_map(|event| event["number"].as_u64())
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let applied: Vec<&Value> = events
        .iter()
        .filter(|event| event["event"] == "RevisionApplied")
        .collect();
    assert!(
        applied
            .iter()
            .all(|event| event["gateway"] == "default/edge")
    );

    agent.wait_stored().await;
    agent.kill9();
    let state = agent.state().to_string_lossy().into_owned();
    let offline = agent.command(&["events", "--state-dir", &state]);
    let table = text(&offline);
    assert!(
        table.contains("RevisionApplied") && table.contains("default/edge"),
        "{table}"
    );
    let later = agent.command(&[
        "events",
        "--state-dir",
        &state,
        "--since",
        "0s",
        "-o",
        "json",
    ]);
    assert_eq!(text(&later), "");
}
