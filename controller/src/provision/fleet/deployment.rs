//! Builds a fleet on the Pod network: a Deployment and its PodDisruptionBudget. Pods meet the
//! `restricted` Pod Security level and keep keys in memory only. The launcher has its own
//! container, so Envoy outlives a failing agent.

use serde_json::{Value, json};

use super::daemonsets::{DRAIN_SECONDS, GRACE_SECONDS, HANDOVER_SECONDS};
use super::pods::{USER, ZONE, announce_metrics, container, optional_args};
use super::{Images, POD_LABEL_VALUE};
use crate::provision::Basis;
use crate::provision::kinds::OwnedKind;
use crate::provision::owned::{OwnedObject, labels, local_object};
use sesame_kinds::api::{FleetResources, FleetSettings};
use sesame_published::names::{GATEWAY_LABEL, POD_HOST_END, gateway_id};

const FIRST_REPLICAS: i32 = 2;
/// Time in seconds for which a terminating Pod still accepts connections, until all nodes stop
/// routing to it.
const LAME_DUCK_SECONDS: i32 = 10;
/// Programs use subdirectories of the volumes, because the volumes are world-writable.
const RUNTIME: (&str, &str) = ("runtime", "/run/sesame");
const RUNTIME_DIR: &str = "/run/sesame/pod";
const STATE: (&str, &str) = ("state", "/var/lib/sesame");
const STATE_DIR: &str = "/var/lib/sesame/pod";
const TOKEN: (&str, &str) = ("token", "/var/run/secrets/kubernetes.io/serviceaccount");

pub(super) fn objects(
    basis: &Basis,
    fleet: &FleetSettings,
    images: Images<'_>,
    name: &str,
    (account, namespace): (&str, &str),
) -> [OwnedObject; 2] {
    let mut pod = pod(fleet);
    pod["serviceAccountName"] = json!(account);
    pod["containers"] = json!([
        launcher(fleet, images.envoy),
        agent(basis, fleet, images.agent, namespace)
    ]);
    pod["volumes"] = volumes();
    let spread = |over: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": over,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(basis)},
            "matchLabelKeys": ["pod-template-hash"],
        })
    };
    pod["topologySpreadConstraints"] = json!([
        spread("kubernetes.io/hostname"),
        spread("topology.kubernetes.io/zone")
    ]);
    let own = [
        ("app.kubernetes.io/name", POD_LABEL_VALUE),
        ("app.kubernetes.io/part-of", "sesame"),
    ];
    let mut deployment = json!({"spec": {
        "selector": {"matchLabels": selector(basis)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": labels(basis, &own)}, "spec": pod},
    }});
    announce_metrics(fleet, &mut deployment["spec"]["template"]);
    if let Some(replicas) = fleet.replicas {
        deployment["spec"]["replicas"] = json!(replicas);
    }
    let budget = json!({"spec": {
        "selector": {"matchLabels": selector(basis)},
        "maxUnavailable": 1,
        // Unready Pods must not block a node drain.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }});
    let object = |kind, value| local_object(basis, kind, name, &[], value);
    [
        object(OwnedKind::PodDisruptionBudget, budget),
        object(OwnedKind::Deployment, deployment),
    ]
}

/// Selectors are immutable, so they never depend on the Gateway's configuration.
pub(crate) fn selector(basis: &Basis) -> Value {
    json!({"app.kubernetes.io/name": POD_LABEL_VALUE, GATEWAY_LABEL: gateway_id(&basis.gateway)})
}

/// Sets the initial number of Pods if `replicas` is not configured.
pub(crate) fn with_initial_replicas(mut object: OwnedObject) -> OwnedObject {
    if object.key.0 == OwnedKind::Deployment && object.value["spec"]["replicas"].is_null() {
        object.value["spec"]["replicas"] = json!(FIRST_REPLICAS);
    }
    object
}

fn pod(fleet: &FleetSettings) -> Value {
    let mut pod = json!({
        // Only the agent's container mounts the ServiceAccount token.
        "automountServiceAccountToken": false,
        "shareProcessNamespace": true,
        "terminationGracePeriodSeconds": LAME_DUCK_SECONDS + launcher_drain(fleet) + GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            // Lets the container's group read the ServiceAccount token.
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
            // Lets Envoy bind ports below 1024 even if a registry has stripped the file capability
            // from the image.
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        },
    });
    let selector = fleet.node_selector.as_ref();
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        pod["nodeSelector"] = json!(selector);
    }
    if let Some(tolerations) = fleet.tolerations.as_ref().filter(|all| !all.is_empty()) {
        pod["tolerations"] = json!(tolerations);
    }
    pod
}

/// Returns the launcher's drain time. It exceeds the agent's, because the agent decides when Envoy
/// exits.
fn launcher_drain(fleet: &FleetSettings) -> i32 {
    fleet.drain_seconds.unwrap_or(DRAIN_SECONDS) + HANDOVER_SECONDS
}

fn launcher(fleet: &FleetSettings, image: &str) -> Value {
    let FleetResources { envoy, .. } = &fleet.resources.clone().unwrap_or_default();
    let mut launcher = container("launcher", image, fleet, envoy.as_ref(), &[RUNTIME]);
    let drain = launcher_drain(fleet);
    launcher["args"] = json!([
        "launcher",
        format!("--drain-seconds={drain}"),
        format!("--lame-duck-seconds={LAME_DUCK_SECONDS}"),
    ]);
    launcher["env"] = json!([{"name": "SESAME_RUNTIME_DIR", "value": RUNTIME_DIR}]);
    launcher
}

fn agent(basis: &Basis, fleet: &FleetSettings, image: &str, namespace: &str) -> Value {
    let FleetResources { agent, .. } = &fleet.resources.clone().unwrap_or_default();
    let mounted = [STATE, RUNTIME, TOKEN];
    let mut agent = container("agent", image, fleet, agent.as_ref(), &mounted);
    agent["volumeMounts"][2]["readOnly"] = json!(true);
    let mut args = vec![
        "run".to_owned(),
        "--kube".to_owned(),
        format!("--gateway={}", basis.gateway),
        "--launcher".to_owned(),
        format!("--lame-duck-seconds={LAME_DUCK_SECONDS}"),
    ];
    args.extend(optional_args(fleet));
    agent["args"] = json!(args);
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let host = format!("$(SESAME_POD).{}{POD_HOST_END}", basis.gateway.namespace);
    agent["env"] = json!([
        {"name": "SESAME_NAMESPACE", "value": namespace},
        {"name": "SESAME_POD", "valueFrom": field("metadata.name")},
        {"name": "SESAME_HOST", "value": host},
        {"name": "SESAME_ZONE", "valueFrom": field(ZONE)},
        {"name": "SESAME_REPORT_ADDRESSES", "valueFrom": field("status.podIPs")},
        {"name": "SESAME_RUNTIME_DIR", "value": RUNTIME_DIR},
        {"name": "SESAME_STATE_DIR", "value": STATE_DIR},
    ]);
    agent["readinessProbe"] = json!({
        "exec": {"command": ["sesame-agent", "status", "--ready"]},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    });
    agent
}

/// The token volume matches the volume that Kubernetes would mount.
fn volumes() -> Value {
    let in_memory = |name: &str| json!({"name": name, "emptyDir": {"medium": "Memory"}});
    json!([
        in_memory(STATE.0),
        in_memory(RUNTIME.0),
        {"name": TOKEN.0, "projected": {"defaultMode": 0o440, "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}},
    ])
}
