//! ExtensionServices with several Services on a real Envoy: weights, changed endpoints and errors.

use serde_json::{Value, json};
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, served, yaml};
use sesame_tests::wait::{eventually, holds};

const HOSTS: [&str; 2] = ["shop.test", "bad.test"];

fn extension(name: &str, services: &Value) -> Value {
    json!({"apiVersion": "projectcontour.io/v1alpha1", "kind": "ExtensionService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"services": services, "protocol": "h2c"}})
}

fn root(host: &str, extension: &str) -> Value {
    let spec = json!({
        "virtualhost": {"fqdn": host, "tls": {"secretName": "all"},
            "authorization": {"extensionRef": {"name": extension}, "responseTimeout": "5s"}},
        "routes": [{"services": [{"name": "a", "port": 80}]}],
    });
    http_proxy(&host.replace('.', "-"), &spec)
}

/// `weights` belong to the Services `one` and `two`.
fn weighted(weights: [u32; 2]) -> String {
    let [one, two] = weights;
    let services = json!([{"name": "one", "port": 80, "weight": one},
        {"name": "two", "port": 80, "weight": two}]);
    yaml(&[extension("auth", &services)])
}

/// Sends requests, and returns the number of checks that each service receives.
async fn asked(request: &Request, services: [&Authorizing; 2], count: usize) -> [usize; 2] {
    let _ = services.map(Authorizing::take);
    for _ in 0..count {
        let reply = request.clone().send().await.expect("a reply");
        assert_eq!(reply.status, 200);
    }
    services.map(|service| service.take().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_extension_share_checks_by_weight() {
    let authority = Authority::new("test");
    let (one, two) = (
        Authorizing::start("one").await,
        Authorizing::start("two").await,
    );
    let services = [&one, &two];
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.push(authority.issue(&HOSTS).secret("all"));
    let missing = json!([{"name": "one", "port": 80}, {"name": "none", "port": 80}]);
    all.extend([
        ingress_class(),
        root("shop.test", "auth"),
        root("bad.test", "bad"),
        extension("bad", &missing),
    ]);
    let of = |name: &str, service: &Authorizing| yaml(&served(name, &[service.address()]));
    let (first, second) = (of("one", &one), of("two", &two));
    let agent = Setup::with_ports(&[80, 443]).start(&[
        ("all.yaml", &yaml(&all)),
        ("one.yaml", &first),
        ("two.yaml", &second),
        ("auth.yaml", &weighted([3, 1])),
    ]);
    let trust = authority.trust();
    let shop = agent.get(443, "shop.test", "/").tls("shop.test", &trust);
    let request = shop.clone().header("authorization", "everybody");
    agent.wait_ok(&request).await;
    let found = asked(&request, services, 200).await;
    assert_eq!(found.iter().sum::<usize>(), 200);
    assert!((130..=170).contains(&found[0]), "{found:?}");
    let mut checks = Checks::default();
    checks.status(shop, 401).await;
    let bad = agent.get(443, "bad.test", "/").tls("bad.test", &trust);
    checks
        .status(bad.header("authorization", "everybody"), 500)
        .await;
    checks.finish();

    let load = Load::start(&Plan::new(vec![request.clone()]));
    let until = async |what: &str, good: fn([usize; 2]) -> bool| {
        eventually(what, TEST_TIMEOUT, async || {
            let found = asked(&request, services, 40).await;
            holds(good(found), || format!("{found:?}"))
        })
        .await;
    };
    agent.write("auth.yaml", &weighted([0, 1]));
    until("only the second Service is asked", |[one, two]| {
        one == 0 && two > 0
    })
    .await;
    agent.write("auth.yaml", &weighted([1, 1]));
    until("both Services are asked", |[one, two]| one > 0 && two > 0).await;
    // The other Service gets the share of a Service without endpoints.
    agent.write("one.yaml", &yaml(&served("one", &[])));
    until("the first Service has no endpoint", |[one, two]| {
        one == 0 && two > 0
    })
    .await;
    agent.write("one.yaml", &first);
    until("the endpoint is back", |[one, two]| one > 0 && two > 0).await;
    load.stop().await.clean("changed weights and endpoints");
}
