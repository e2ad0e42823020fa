//! `kubectl sesame diff` with `spec.ingress.watch: Report`.

use serde_json::json;
use sesame_tests::agent::words;
use sesame_tests::cluster::{Channel, User};
use sesame_tests::controller::deployed;
use sesame_tests::manifests::{
    edge_with_parameters, ingress, ingress_class, ingress_rule, served, yaml,
};

use super::Plugin;

#[tokio::test(flavor = "multi_thread")]
async fn diff_shows_what_reported_objects_would_change() {
    let cluster = deployed(Channel::Standard).await;
    let mut objects = edge_with_parameters(&json!({"ingress": {"watch": "Report"}}));
    objects.extend(served("cart", &["192.0.2.7:80".parse().unwrap()]));
    let rules = [ingress_rule("shop.test", &[("/cart", "Prefix", "cart")])];
    objects.extend([
        ingress_class(),
        ingress("shop", &json!({}), &json!({ "rules": rules })),
    ]);
    cluster.apply_all(&objects).await;
    let plugin = Plugin::new(&cluster, &User::Admin).await;
    let reported = plugin.run(&["diff"]);
    assert_eq!(reported.status.code(), Some(1), "{}", words(&reported));
    for word in [
        "Ingress/default/shop",
        "/cart",
        "spec.ingress.watch is Report",
    ] {
        assert!(
            words(&reported).contains(word),
            "{word}: {}",
            words(&reported)
        );
    }

    // The controller's own configuration takes precedence.
    let file = plugin.directory.path().join("own.yaml");
    let own = json!({"apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
        "metadata": {"name": "own", "namespace": "default"}, "spec": {"ingress": {"watch": "Off"}}});
    std::fs::write(&file, yaml(&[own])).unwrap();
    let ignored = plugin.run(&["diff", "--config", &file.to_string_lossy()]);
    assert_eq!(ignored.status.code(), Some(3), "{}", words(&ignored));
    assert!(
        words(&ignored).contains("--filename"),
        "{}",
        words(&ignored)
    );
}
