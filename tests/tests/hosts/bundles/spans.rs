//! Spans that an agent exports for bundles.

use sesame_tests::backend::Backend;
use sesame_tests::collecting::Collecting;

use super::site::{Workshop, accepted, host, objects, wait};

#[tokio::test(flavor = "multi_thread")]
async fn host_with_bundles_traces_changes() {
    let (a, b) = (Backend::start("a").await, Backend::start("b").await);
    let collecting = Collecting::start().await;
    let workshop = Workshop::new();
    let to = format!("--spans-endpoint=http://{}", collecting.address());
    let mut agent = host(&workshop, &[80], &[&to]);
    agent.restart();
    let up = |status: &serde_json::Value| status["source"]["kind"] == "bundles";
    agent.wait_status("the agent answers", up).await;
    for backend in [&a, &b] {
        let bundle = workshop.create(backend.name(), &objects(backend), &[]);
        accepted(&agent, &bundle).await;
        wait(&agent, backend).await;
        if backend.name() == a.name() {
            // The first bundle starts Envoy instead of changing it.
            continue;
        }
        let status = agent.wait_healthy().await;
        let revision = &status["gateways"][0]["appliedRevision"];
        let revision = revision.as_str().unwrap_or_else(|| panic!("{status:#}"));
        collecting
            .wait_trace(&format!("the steps of {revision}"), |spans| {
                let has_revision = |name: &&str| {
                    spans.iter().any(|span| {
                        let value = span.attribute("sesame.revision").unwrap_or_default();
                        span.name == **name
                            && value.starts_with(revision)
                            && span.service == "sesame-agent"
                    })
                };
                let steps = ["change", "receive", "render", "wait", "apply"];
                steps.iter().all(has_revision)
            })
            .await;
    }
}
