//! A gRPC-Web client that a package from npm generates, with a real agent and a real Envoy.

use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::backend::Backend;
use sesame_tests::envoy::workspace;
use sesame_tests::grpc;
use sesame_tests::manifests::{
    edge, endpoint_slices, http_listener, route, rule_to, service, traffic_policy, yaml,
};
use sesame_tests::node;

const TRANSCODING: &str = include_str!("../../golden/route-filter-transcoding/input.yaml");

/// Returns a set that defines the service `books.v1.Books`.
fn descriptor_set() -> Vec<u8> {
    let mut lines = TRANSCODING.lines().map(str::trim);
    let encoded = lines.find_map(|line| line.strip_prefix("books.pb: "));
    let encoded = encoded.expect("a descriptor set");
    BASE64_STANDARD.decode(encoded).expect("base64")
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_grpc_web_client_calls_backend() {
    let backend = Backend::start("books").await;
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.push(service("books", "kubernetes.io/h2c"));
    objects.extend(endpoint_slices("books", &[backend.address()]));
    objects.push(route("GRPCRoute", "books", &[], &[rule_to("books", &[])]));
    let target = json!({"kind": "GRPCRoute", "name": "books"});
    objects.push(traffic_policy("books", target, &json!({"grpcWeb": true})));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    let ready = grpc::call(agent.address(80), "a.test", "books.v1.Books/Plain");
    let is_served = |reply: &_| grpc::status(reply) == Some(grpc::code::OK);
    agent.wait_served(&ready, is_served).await;

    let directory = tempfile::tempdir().expect("a directory");
    let own = |name: &str| directory.path().join(name);
    let modules = node::modules("grpc-web-client", "@connectrpc/connect-web");
    std::os::unix::fs::symlink(modules, own("node_modules")).expect("a link");
    let client = workspace().join("tests/grpc-web-client/client.mjs");
    std::fs::copy(client, own("client.mjs")).expect("a copy");
    std::fs::write(own("books.pb"), descriptor_set()).expect("a file");
    let output = Command::new("node")
        .args(["client.mjs", "books.pb"])
        .arg(format!("http://{}", agent.address(80)))
        .current_dir(directory.path())
        .output()
        .expect("node is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let book = json!({"name": "iliad", "pageCount": 700});
    let expected = json!({"unary": book, "watched": [book, book, book], "failure": "NotFound"});
    assert_eq!(results, expected);
}
