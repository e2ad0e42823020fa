//! `EnvoyProxy` becomes a `SesameConfiguration` with a managed fleet.

use serde_json::{Map, Value, json};

use super::super::draft::{Draft, ObjectId, sesame_object};
use super::super::fields::{RemainingFields, TakenField};
use super::super::values::{milliseconds, put, put_map};
use super::super::verdicts::VerdictLog;
use super::{ANNOTATIONS, passed};

const TUNING: &[&str] = &[
    "concurrency",
    "extraArgs",
    "routingType",
    "endpointRoutingDisabled",
    "ipFamily",
    "preserveRouteOrder",
];

pub(super) fn convert(draft: &mut Draft, id: &ObjectId, object: &Value) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let metadata = root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    let mut fleet = Map::new();
    put(&mut fleet, "management", Some("Managed"));
    put(&mut fleet, "workload", Some("Deployment"));
    let mut publishing = Map::new();
    // Envoy Gateway's default.
    put(&mut publishing, "type", Some("LoadBalancer"));
    provider(spec.section("provider"), &mut fleet, &mut publishing);
    let protected = passed::referrers(draft, id);
    if let Some(field) = spec.take("mergeGateways") {
        let of_gateway = protected.iter().any(|it| it.kind == "Gateway");
        if field.value() == &Value::Bool(false) {
            field.unneeded("Gateways are isolated by default");
        } else if of_gateway {
            let reason = "only the SesameConfiguration of a GatewayClass can merge Gateways";
            field.refuse(reason, "let the GatewayClass refer to the EnvoyProxy");
        } else {
            field.carry("SesameConfiguration fleet.gateways");
            put(&mut fleet, "gateways", Some("Merged"));
        }
    }
    let mut shutdown = spec.tuning_section("shutdown");
    shutdown.skip(
        "minDrainDuration",
        "Sesame drains until connections are closed",
    );
    if let Some(field) = shutdown.take("drainTimeout")
        && let Some(time @ 1000..=3_600_000) = milliseconds(field.as_str())
    {
        field.carry("SesameConfiguration fleet.drainSeconds");
        put(&mut fleet, "drainSeconds", Some(time / 1000));
    }
    drop(shutdown);
    if let Some(field) = spec.take_tuning("logging") {
        field.unneeded("set log levels with the agent's options");
    }
    let mut output = Map::new();
    telemetry(spec.tuning_section("telemetry"), &mut output);
    for name in TUNING {
        drop(spec.take_tuning(name));
    }
    drop(spec);
    drop(root);
    put_map(&mut output, "fleet", fleet);
    put_map(&mut output, "publishing", publishing);
    draft.record(id, &log, protected.into_iter().chain([id.clone()]));
    draft.add(
        id,
        sesame_object("SesameConfiguration", metadata, output.into()),
    );
}

fn provider(
    mut fields: RemainingFields,
    fleet: &mut Map<String, Value>,
    publishing: &mut Map<String, Value>,
) {
    if let Some(field) = fields.take("type")
        && field.as_str() == "Kubernetes"
    {
        field.carry("SesameConfiguration fleet.management");
    }
    let mut kubernetes = fields.section("kubernetes");
    if let Some(field) = kubernetes.take_tuning("envoyDaemonSet") {
        put(fleet, "workload", Some("DaemonSet"));
        workload(field.fields(), fleet);
    }
    if let Some(field) = kubernetes.take_tuning("envoyDeployment") {
        workload(field.fields(), fleet);
    }
    if let Some(field) = kubernetes.take("envoyService") {
        service(field.fields(), publishing);
    }
    for name in ["envoyHpa", "envoyPDB", "envoyServiceAccount"] {
        drop(kubernetes.take_tuning(name));
    }
    drop(kubernetes.take_tuning("useListenerPortAsContainerPort"));
}

fn workload(mut fields: RemainingFields, fleet: &mut Map<String, Value>) {
    let to = |name: &str| format!("SesameConfiguration fleet.{name}");
    fields.copy("replicas", fleet, &to("replicas"));
    let mut pod = fields.section("pod");
    pod.copy("nodeSelector", fleet, &to("nodeSelector"));
    pod.copy("tolerations", fleet, &to("tolerations"));
    drop(pod);
    let mut container = fields.section("container");
    if let Some(field) = container.take("image") {
        field.refuse(
            "Sesame's image also contains its launcher",
            "remove the field, or set spec.fleet.images",
        );
    }
    if let Some(field) = container.take("resources") {
        if is_simple(&field) {
            let resources = field.carry(&to("resources.envoy"));
            fleet.insert("resources".to_owned(), json!({ "envoy": resources }));
        } else {
            field.refuse("Sesame supports limits and requests", "remove other fields");
        }
    }
}

fn is_simple(field: &TakenField) -> bool {
    let fields = field.value().as_object();
    fields.is_some_and(|it| {
        it.keys()
            .all(|name| matches!(name.as_str(), "limits" | "requests"))
    })
}

fn service(mut fields: RemainingFields, publishing: &mut Map<String, Value>) {
    for name in [
        "type",
        "annotations",
        "labels",
        "loadBalancerClass",
        "loadBalancerSourceRanges",
        "allocateLoadBalancerNodePorts",
        "externalTrafficPolicy",
    ] {
        let to = format!("SesameConfiguration publishing.{name}");
        fields.copy(name, publishing, &to);
    }
    // Sesame does not name the Service, or choose its address.
    for name in ["name", "loadBalancerIP", "patch"] {
        drop(fields.take_tuning(name));
    }
}

fn telemetry(mut fields: RemainingFields, output: &mut Map<String, Value>) {
    if let Some(field) = fields.take("metrics") {
        field.unneeded("the agent has its own metrics");
    }
    let mut log = fields.section("accessLog");
    if log.flag("disable", "SesameConfiguration accessLog.enabled") == Some(true) {
        output.insert("accessLog".to_owned(), json!({"enabled": false}));
    }
}
