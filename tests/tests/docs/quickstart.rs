//! Checks that each example in the quickstart demo gets the documented response.

use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::demo;

#[tokio::test(flavor = "multi_thread")]
async fn demo_examples_get_documented_answers() {
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    for name in ["gateway.yaml", "backends.yaml", "route.yaml"] {
        let text = std::fs::read_to_string(demo::manifests().join(name)).expect("a manifest");
        agent.write(name, &text);
    }
    let certificate = demo::certificate(&agent.manifests()).expect("a certificate");
    let backends = demo::backends().await.expect("the backends");
    agent.restart();
    let ca = agent.manifests().join("ca.pem");
    let examples = demo::examples(agent.address(80), agent.address(443), &ca, &certificate)
        .expect("the examples");
    for example in &examples {
        sesame_tests::wait::eventually(example.title, TEST_TIMEOUT, async || {
            demo::check(example)
                .await
                .map_err(|error| format!("{error:#}\n{}", agent.log_tail()))
        })
        .await;
    }
    assert!(
        backends
            .iter()
            .map(sesame_tests::backend::Backend::count)
            .sum::<u64>()
            >= 3
    );
}
