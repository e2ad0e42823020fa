//! Gateways that are slow for different reasons, which the commands in `docs/slow.md` must reveal.

use serde_json::Value;
use sesame_tests::agent::{AgentUnderTest, TEST_TIMEOUT, arguments, words};
use sesame_tests::slowness::{Cause, SlowGateway, start};
use sesame_tests::wait::eventually;

async fn run_json(agent: &AgentUnderTest, line: &str) -> Value {
    let runtime = agent.runtime();
    let line = format!("{line} --output json --runtime-dir {}", runtime.display());
    let output = agent.command_beside(&arguments(&line)).await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {}", words(&output)))
}

/// Waits until `stage` is reported as the main cause.
async fn slow_row(gateway: &SlowGateway, grouping: &str, name: &str, stage: &str) -> Value {
    let top = format!("top --once --window 10s --by {grouping}");
    eventually(
        &format!("{name} is slow, mostly {stage}"),
        TEST_TIMEOUT,
        async || {
            let report = run_json(&gateway.agent, &top).await;
            let mut rows = report["rows"][grouping].as_array().into_iter().flatten();
            let row = rows.find(|row| row["name"] == name);
            let row = row.ok_or_else(|| format!("no {name} in {report}"))?;
            let stages = row["stagesMs"].as_object().into_iter().flatten();
            let longest = stages.max_by_key(|(_, time)| time.as_u64());
            let is_slow = row["longestMs"].as_u64() >= Some(200);
            match longest {
                Some((longest, _)) if longest == stage && is_slow => Ok(row.clone()),
                _ => Err(row.to_string()),
            }
        },
    )
    .await
}

fn culprit(gateway: &SlowGateway) -> String {
    gateway.culprit.expect("a slow endpoint").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_endpoint_of_three() {
    let gateway = start(Cause::Endpoint).await;
    slow_row(&gateway, "endpoint", &culprit(&gateway), "backend").await;
    slow_row(&gateway, "route", "HTTPRoute/default/stock", "backend").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend() {
    let gateway = start(Cause::Backend).await;
    slow_row(&gateway, "backend", "Service/default/search/80", "backend").await;
    slow_row(&gateway, "endpoint", &culprit(&gateway), "backend").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_new_version_of_a_canary() {
    let gateway = start(Cause::Canary).await;
    slow_row(&gateway, "backend", "Service/default/stock-2/80", "backend").await;
    slow_row(&gateway, "route", "HTTPRoute/default/stock", "backend").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_backend_that_fails() {
    let gateway = start(Cause::Retries).await;
    let row = slow_row(
        &gateway,
        "backend",
        "Service/default/cart/80",
        "beforeBackend",
    )
    .await;
    assert!(row["retried"].as_u64() > Some(0), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_cannot_be_connected_to() {
    let gateway = start(Cause::Unreachable).await;
    slow_row(&gateway, "route", "HTTPRoute/default/cart", "beforeBackend").await;
    let culprit = culprit(&gateway);
    eventually(
        "connections to the endpoint have failed",
        TEST_TIMEOUT,
        async || {
            let answer = run_json(&gateway.agent, "endpoints default/cart --failing").await;
            let endpoints = answer[0]["endpoints"].as_array().into_iter().flatten();
            let mut failing = endpoints.filter(|it| it["failedConnections"].as_u64() > Some(0));
            match (failing.next(), failing.next()) {
                (Some(one), None) if one["address"] == culprit.as_str() => Ok(()),
                _ => Err(answer.to_string()),
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_that_authorizes() {
    let gateway = start(Cause::Authorization).await;
    slow_row(&gateway, "route", "HTTPRoute/default/cart", "authorization").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_slowly() {
    let gateway = start(Cause::Clients).await;
    slow_row(&gateway, "route", "HTTPRoute/default/search", "download").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_connections() {
    let gateway = start(Cause::Connections).await;
    slow_row(
        &gateway,
        "backend",
        "Service/default/cart/80",
        "beforeBackend",
    )
    .await;
    eventually("requests wait for a connection", TEST_TIMEOUT, async || {
        let answer = run_json(&gateway.agent, "endpoints Service/default/cart").await;
        let backend = &answer[0];
        let is_full = backend["connections"].as_u64() >= backend["maxConnections"].as_u64();
        let waits = backend["waiting"].as_u64() > Some(0);
        (is_full && waits)
            .then_some(())
            .ok_or_else(|| answer.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_of_the_processor() {
    let gateway = start(Cause::Processor).await;
    eventually("Envoy waits for a processor", TEST_TIMEOUT, async || {
        let report = run_json(&gateway.agent, "top --once").await;
        let envoy = &report["envoys"][0];
        let percent = envoy["waitingPercent"].as_u64();
        let seconds = envoy["waiting"].as_f64();
        // The alert has the same thresholds as the command.
        (percent >= Some(50) && seconds > Some(0.2))
            .then_some(())
            .ok_or_else(|| report["envoys"].to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_is_never_reached() {
    let gateway = start(Cause::Shadowed).await;
    slow_row(&gateway, "route", "HTTPRoute/default/inventory", "backend").await;
    let status = run_json(&gateway.agent, "why httproute default/stock").await;
    let text = status.to_string();
    assert!(
        text.contains("is never reached") && text.contains("HTTPRoute/default/inventory"),
        "{text}"
    );
}
