//! Rewrites that apply to only one of a rule's backends.

use std::collections::BTreeMap;

use serde_json::json;
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::manifests::{backend_ref, edge, http_listener, http_route, path, served, yaml};

const REQUESTS: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn each_backend_gets_its_share_with_own_rewrites() {
    let [plain, rewriting] = ["plain", "rewriting"].map(Backend::start);
    let (plain, rewriting) = (plain.await, rewriting.await);
    let header = |name: &str| {
        json!({
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": name, "value": "yes"}]},
        })
    };
    let prefix = |to: &str| json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": to});
    let mut shares = [backend_ref("plain"), backend_ref("rewriting")];
    shares[0]["weight"] = json!(3);
    shares[1]["weight"] = json!(1);
    shares[1]["filters"] = json!([
        {"type": "URLRewrite", "urlRewrite": {"hostname": "own.test", "path": prefix("/own")}},
        header("x-own"),
    ]);
    let rule = json!({
        "matches": [path("PathPrefix", "/shop")],
        "filters": [
            {"type": "URLRewrite", "urlRewrite": {"path": prefix("/rule")}},
            header("x-rule"),
        ],
        "backendRefs": shares,
    });
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("plain", &[plain.address()]));
    objects.extend(served("rewriting", &[rewriting.address()]));
    objects.push(http_route("shop", &["shop.test"], &[rule]));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let request = agent.get(80, "shop.test", "/shop/a?b=c");
    agent.wait_ok(&request).await;

    let mut seen: BTreeMap<(String, String, String, usize, usize), usize> = BTreeMap::new();
    for _ in 0..REQUESTS {
        let reply = request.send().await.expect("an answer");
        let echo = reply.echo();
        let (rule, own) = (echo.values("x-rule").len(), echo.values("x-own").len());
        let what = (
            echo.backend.clone(),
            echo.host.clone(),
            echo.path.clone(),
            rule,
            own,
        );
        *seen.entry(what).or_default() += 1;
    }
    let expect = |backend: &str, host: &str, path: &str, own| {
        (backend.to_owned(), host.to_owned(), path.to_owned(), 1, own)
    };
    let expected = [
        expect("plain", "shop.test", "/rule/a?b=c", 0),
        expect("rewriting", "own.test", "/own/a?b=c", 1),
    ];
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), expected);
    // The bounds are six standard deviations from the mean.
    let rewritten = seen[&expected[1]];
    assert!((48..=152).contains(&rewritten), "{rewritten} of {REQUESTS}");
}
