//! Rollouts of Sesame's own Pods, under load. No request may fail.

use serde_json::json;
use sesame_tests::load::Load;

use crate::kubectl::Kubectl;
use crate::node::Node;
use crate::stage::Stage;

const NAMESPACE: &str = "--namespace=sesame-system";
const AGENT: &str = "daemonset/sesame-agent";
const ENVOY: &str = "daemonset/sesame-envoy";
const CONTROLLER: &str = "deployment/sesame-controller";

/// Envoy must keep running.
pub(crate) async fn agent(stage: &mut Stage) {
    let before = envoys(&stage.nodes);
    let load = begun(stage).await;
    set_image(stage, AGENT);
    stage.kubectl.rolled_out(AGENT);
    stage.change().await;
    assert_eq!(envoys(&stage.nodes), before, "each node keeps its Envoy");
    ended(load, "new image of the agent").await;
}

/// The new Pod takes over from the old Pod.
pub(crate) async fn envoy(stage: &mut Stage) {
    let before = envoys(&stage.nodes);
    let load = begun(stage).await;
    set_image(stage, ENVOY);
    stage.kubectl.rolled_out(ENVOY);
    let nodes = &stage.nodes;
    let replaced = |_: &Kubectl| {
        let now = envoys(nodes);
        let each = now.iter().zip(&before);
        let all = each
            .into_iter()
            .all(|(now, before)| now.len() == 1 && now != before);
        all.then_some(()).ok_or(format!("{before:?}; now {now:?}"))
    };
    stage
        .kubectl
        .until("each node has one new Envoy", replaced)
        .await;
    let pods = |kubectl: &Kubectl| {
        let label = "--selector=app.kubernetes.io/name=sesame-envoy";
        let pods = kubectl.get(&["pods", NAMESPACE, label]);
        let count = pods["items"].as_array().map_or(0, Vec::len);
        (count == nodes.len())
            .then_some(())
            .ok_or(format!("{count} Pods"))
    };
    stage
        .kubectl
        .until("the previous Pods are deleted", pods)
        .await;
    stage.change().await;
    ended(load, "new image of Envoy").await;
}

pub(crate) async fn daemonset(stage: &mut Stage) {
    let before = envoys(&stage.nodes);
    let load = begun(stage).await;
    stage.kubectl.ok(&["delete", AGENT, NAMESPACE]);
    load.pass(200).await;
    stage.install("controller/deploy/agent");
    stage.kubectl.rolled_out(AGENT);
    stage.change().await;
    assert_eq!(envoys(&stage.nodes), before, "each node keeps its Envoy");
    ended(load, "agent DaemonSet deleted and applied again").await;
}

/// Agents must be able to start without a controller.
pub(crate) async fn controller(stage: &mut Stage) {
    let load = begun(stage).await;
    let kubectl = stage.kubectl.clone();
    kubectl.ok(&["rollout", "restart", CONTROLLER, NAMESPACE]);
    kubectl.rolled_out(CONTROLLER);
    stage.change().await;
    kubectl.ok(&["scale", "--replicas=0", CONTROLLER, NAMESPACE]);
    kubectl.ok(&["rollout", "restart", AGENT, NAMESPACE]);
    kubectl.rolled_out(AGENT);
    load.pass(200).await;
    kubectl.ok(&["scale", "--replicas=2", CONTROLLER, NAMESPACE]);
    stage.change().await;
    kubectl.rolled_out(CONTROLLER);
    ended(
        load,
        "controller restarted, then scaled to zero while agents restart",
    )
    .await;
}

pub(crate) async fn begun(stage: &Stage) -> Load {
    let load = stage.load();
    load.pass(100).await;
    load
}

pub(crate) async fn ended(load: Load, scenario: &str) {
    load.pass(100).await;
    load.stop().await.clean(&format!("nodes: {scenario}"));
}

fn set_image(stage: &Stage, what: &str) {
    let spec = &stage.kubectl.get(&[what, NAMESPACE])["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let text = |field: &str| container[field].as_str().expect("a text").to_owned();
    let (name, image) = (text("name"), text("image"));
    let (repository, _) = image.rsplit_once(':').expect("a tag");
    let next = format!("{repository}:next");
    for node in &stage.nodes {
        node.tag(&image, &next);
    }
    let image = format!("{name}={next}");
    stage.kubectl.ok(&["set", "image", what, NAMESPACE, &image]);
}

pub(crate) async fn image_of_fleet(
    stage: &Stage,
    (configuration, configuration_namespace): (&str, &str),
    field: &str,
    (what, namespace): (&str, &str),
    tag: &str,
) {
    let kubectl = &stage.kubectl;
    let image = || {
        let workload = kubectl.get(&[what, namespace]);
        let image = &workload["spec"]["template"]["spec"]["containers"][0]["image"];
        image.as_str().expect("an image").to_owned()
    };
    let before = image();
    let (repository, _) = before.rsplit_once(':').expect("a tag");
    let next = format!("{repository}:{tag}");
    for node in &stage.nodes {
        node.tag(&before, &next);
    }
    let change = json!({"spec": {"fleet": {"images": {field: next}}}});
    let patch = format!("--patch={change}");
    kubectl.ok(&[
        "patch",
        configuration,
        configuration_namespace,
        "--type=merge",
        &patch,
    ]);
    let look = |_: &Kubectl| {
        let now = image();
        (now == next).then_some(()).ok_or(now)
    };
    kubectl.until("the workload has the image", look).await;
}

fn envoys(nodes: &[Node]) -> Vec<Vec<i32>> {
    nodes.iter().map(Node::envoys).collect()
}
