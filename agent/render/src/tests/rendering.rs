//! Renders a snapshot that uses every field, and validates the result with Envoy.

use std::collections::BTreeSet;

use super::envoy::{envoy, validate};
use super::everything::everything;
use super::parts::{key_pair, options, pem};
use crate::layout::XdsLayout;
use crate::{MIN_SUBSCRIPTIONS, RenderOptions, bootstrap, dump, render, static_bootstrap};

#[test]
fn everything_is_rendered_without_a_problem() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    assert_eq!(rendered.problems, []);
    assert_eq!(rendered.listeners.len(), 2 * snapshot.ports.len());
    let with_sessions = snapshot
        .backends
        .iter()
        .filter(|b| !b.session_key.is_empty());
    let session_clusters = 2 * with_sessions.count();
    let with_fallback = snapshot.backends.iter().filter(|b| !b.fallback.is_empty());
    let other_clusters = session_clusters + with_fallback.count();
    // One more cluster reaches the agent, which may have to check passwords.
    assert_eq!(
        rendered.clusters.len(),
        snapshot.backends.len() + other_clusters + 1
    );
}

#[test]
fn envoy_accepts_everything() {
    let Some(envoy) = envoy() else {
        return;
    };
    let (snapshot, keys) = everything();
    // Endpoints in files, inline endpoints, some inline tables and keys, and everything inline.
    for budget in [100, MIN_SUBSCRIPTIONS + 2, MIN_SUBSCRIPTIONS, 2] {
        let options = RenderOptions {
            subscription_budget: budget,
            ..options()
        };
        let rendered = render(&snapshot, &keys, &options);
        validate(&envoy, "pb", &static_bootstrap(&rendered).unwrap()).unwrap();
    }
}

#[test]
fn envoy_accepts_printed_bootstrap() {
    let Some(envoy) = envoy() else {
        return;
    };
    let (snapshot, keys) = everything();
    let bytes = static_bootstrap(&render(&snapshot, &keys, &options())).unwrap();
    let printed = dump::bootstrap(&bytes, dump::Redact::Nothing).unwrap();
    validate(&envoy, "yaml", dump::yaml(&printed).unwrap().as_bytes()).unwrap();
}

#[test]
fn envoy_accepts_the_bootstrap() {
    let Some(envoy) = envoy() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let layout = XdsLayout::new(directory.path());
    // Envoy requires the files to exist, but does not read them.
    for file in [layout.lds(), layout.cds(), layout.rtds(), layout.fleet()] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"").unwrap();
    }
    let bootstrap = bootstrap(&RenderOptions {
        layout,
        admin_socket: directory.path().join("admin.sock"),
        ..options()
    });
    validate(&envoy, "pb", &bootstrap).unwrap();
}

#[test]
fn rendering_twice_gives_the_same_bytes() {
    let (snapshot, keys) = everything();
    let first = render(&snapshot, &keys, &options());
    for _ in 0..8 {
        assert!(render(&snapshot, &keys, &options()) == first);
    }
}

#[test]
fn listeners_stay_unchanged_when_routes_or_keys_change() {
    let (mut snapshot, mut keys) = everything();
    let before = render(&snapshot, &keys, &options());
    for table in &mut snapshot.route_tables {
        table.virtual_hosts.truncate(1);
    }
    keys[0] = key_pair("Secret/ns/a", "a.example.com");
    keys[1] = key_pair("Secret/ns/b", "*.example.com");
    snapshot.trust_bundles[0].pem = pem(&keys[1]);
    let after = render(&snapshot, &keys, &options());
    assert!(before.route_tables != after.route_tables && before.secrets != after.secrets);
    assert!(before.listeners == after.listeners && before.clusters == after.clusters);
}

#[test]
fn no_budget_is_exceeded() {
    let (snapshot, keys) = everything();
    for budget in MIN_SUBSCRIPTIONS..25 {
        let options = RenderOptions {
            subscription_budget: budget,
            ..options()
        };
        let rendered = render(&snapshot, &keys, &options);
        let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
        let mut shared = BTreeSet::new();
        paths(&printed["listeners"], &mut |path| {
            shared.insert(path.to_owned());
        });
        let mut endpoints = 0;
        paths(&printed["clusters"], &mut |path| {
            if path.contains("/eds/") {
                endpoints += 1;
            } else {
                shared.insert(path.to_owned());
            }
        });
        assert!(3 + shared.len() + endpoints <= budget, "budget {budget}");
        assert_eq!(rendered.problems, [], "budget {budget}");
        let mut keys = 0;
        private_keys(&printed, &mut |key| {
            assert_eq!(*key, serde_json::json!({"inline_string": "<redacted>"}));
            keys += 1;
        });
        assert!(keys >= 2, "budget {budget}");
    }
}

fn private_keys(value: &serde_json::Value, found: &mut impl FnMut(&serde_json::Value)) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if name == "private_key" {
                    found(value);
                }
                private_keys(value, found);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|v| private_keys(v, found)),
        _ => {}
    }
}

fn paths(value: &serde_json::Value, found: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::Object(map) => {
            if let Some(path) = map
                .get("path_config_source")
                .and_then(|s| s["path"].as_str())
            {
                found(path);
            }
            map.values().for_each(|value| paths(value, found));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| paths(value, found)),
        _ => {}
    }
}

#[test]
fn backend_without_trust_bundle_uses_host_bundle() {
    let mut snapshot = everything().0;
    for tls in snapshot.backends.iter_mut().filter_map(|b| b.tls.as_mut()) {
        tls.trust_bundle.clear();
    }
    let options = RenderOptions {
        system_ca: "/host/ca.pem".into(),
        ..options()
    };
    let rendered = render(&snapshot, &[], &options);
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    assert!(
        printed["clusters"]
            .to_string()
            .contains(r#""trusted_ca":{"filename":"/host/ca.pem"}"#),
        "{printed:#}"
    );
}
