//! Hosts of ingress-nginx's Ingresses and Contour's HTTPProxies move one by one, under load. No
//! request may fail.

use std::fs;
use std::process::Command;

use serde_json::json;
use sesame_tests::agent::{beside_test, words};
use sesame_tests::backend::Backend;
use sesame_tests::envoy::workspace;
use sesame_tests::manifests::served;
use sesame_tests::moving::{
    Clients, HOSTS, OldGateway, access_log, comparison, foreign, our_class, serves,
};

use crate::stage::Stage;
use crate::{control_plane, plugin, tools};

const CONTOUR: &str = "controller/deploy/contour/crds.yaml";

pub(crate) async fn scenario(stage: &mut Stage) {
    let kubectl = stage.kubectl.clone();
    let file = format!("--filename={}", workspace().join(CONTOUR).display());
    kubectl.ok(&["apply", "--server-side", &file]);
    let at = (control_plane::address(), 0).into();
    let backend = Backend::start_at("shop", at).await.expect("an address");
    let mut objects = foreign();
    objects.push(our_class());
    objects.extend(served("shop", &[backend.address()]));
    kubectl.apply(&objects);
    let mut old = OldGateway::start(backend.address()).await;
    let clients = Clients::start(old.address);
    clients.pass(100).await;
    let plugins = plugin::directory();
    let log = tools::directory().join("access.log");
    let new = stage.nodes[0].at(80);
    let mut copies = Vec::new();
    for host in HOSTS {
        let output = kubectl.with_plugins(&plugins, &["sesame", "adopt", host]);
        assert!(output.status.success(), "{}", words(&output));
        let copy = String::from_utf8(output.stdout).expect("text");
        let applied = kubectl.run(&["apply", "--filename", "-"], &copy);
        assert!(applied.status.success(), "{}", words(&applied));
        copies.push(copy);
        serves(new, host).await;
        fs::write(&log, access_log(host)).expect("a log");
        let mut compare = Command::new(beside_test("sesame-agent"));
        compare.args(comparison(&log, old.address, new));
        let compared = compare.output().expect("the agent runs");
        assert_eq!(compared.status.code(), Some(0), "{}", words(&compared));
        clients.shift(host, new);
        clients.pass(100).await;
    }
    old.stop();
    clients.pass(200).await;
    let sent = clients.stop().await;
    println!("nodes: 0 of {sent} requests failed while hosts moved");
    for copy in copies {
        let deleted = kubectl.run(&["delete", "--filename", "-"], &copy);
        assert!(deleted.status.success(), "{}", words(&deleted));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let deleted = kubectl.run(&["delete", "--filename", "-"], &list.to_string());
    assert!(deleted.status.success(), "{}", words(&deleted));
}
