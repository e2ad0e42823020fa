//! Checks that each example in the quickstart demo gets the documented response.

use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::demo;

#[tokio::test(flavor = "multi_thread")]
async fn demo_examples_get_documented_answers() {
    let mut agent = Setup::with_ports(&[80, 443]).prepare();
    let read = |name| std::fs::read_to_string(demo::manifests().join(name)).expect("a manifest");
    for name in ["gateway.yaml", "route.yaml"] {
        agent.write(name, &read(name));
    }
    // Another program may use the documented ports.
    let mut endpoints = read("backends.yaml");
    let mut backends = Vec::new();
    for (name, documented) in demo::BACKENDS {
        let backend = Backend::start(name).await;
        let port = format!("port: {documented}");
        assert!(endpoints.contains(&port), "{endpoints}");
        endpoints = endpoints.replace(&port, &format!("port: {}", backend.address().port()));
        backends.push(backend);
    }
    agent.write("backends.yaml", &endpoints);
    let certificate = demo::certificate(&agent.manifests()).expect("a certificate");
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
    assert!(backends.iter().map(Backend::count).sum::<u64>() >= 3);
}
