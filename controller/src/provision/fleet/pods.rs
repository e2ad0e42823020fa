//! Builds the parts of Pods that all workloads share. DaemonSet Pods use the node's network and
//! process namespaces, because the agent and the launcher supervise each other.

use serde_json::{Value, json};

use crate::provision::Basis;
use sesame_kinds::api::{ContainerResources, FleetSettings, ImagePullPolicy};
use sesame_published::names::gateway_id;

/// Path of the node's zone, which Kubernetes 1.35 and later copies to its Pods. The value is empty
/// if the label is missing.
pub(super) const ZONE: &str = "metadata.labels['topology.kubernetes.io/zone']";

/// User ID, as in the images.
pub(super) const USER: u32 = 65532;

/// Paths are the same on the node and in containers.
#[derive(Clone, Debug)]
pub(super) struct HostDirectories {
    /// Contains keys, so it must be on a tmpfs.
    pub(super) runtime: String,
    /// Last accepted configuration with its keys, used after node restarts.
    pub(super) state: String,
}

impl HostDirectories {
    pub(super) fn of(basis: &Basis) -> Self {
        let id = gateway_id(&basis.gateway);
        Self {
            runtime: format!("/run/sesame-fleets/{id}"),
            state: format!("/var/lib/sesame-fleets/{id}"),
        }
    }
}

pub(super) fn pod(fleet: &FleetSettings) -> Value {
    let every = || json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    let tolerations = fleet.tolerations.as_ref();
    let mut pod = json!({
        "hostNetwork": true,
        "hostPID": true,
        "securityContext": {"runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER},
        "tolerations": tolerations.map_or_else(every, |all| json!(all)),
    });
    let selector = fleet.node_selector.as_ref();
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        pod["nodeSelector"] = json!(selector);
    }
    pod
}

/// The init container changes the directories' owner from root to the other containers' user.
pub(super) fn chown_container(
    image: &str,
    fleet: &FleetSettings,
    directories: &[(&str, &str)],
) -> Value {
    let user = format!("--user={USER}:{USER}");
    let paths = directories.iter().map(|(_, path)| *path);
    let args: Vec<&str> = ["own", &user].into_iter().chain(paths).collect();
    let container = json!({
        "name": "directories",
        "image": image,
        "args": args,
        "securityContext": {
            "runAsNonRoot": false,
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "seccompProfile": {"type": "RuntimeDefault"},
            // The executable has the file capability `NET_BIND_SERVICE`, so it cannot start in a
            // container without it.
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "NET_BIND_SERVICE"]},
        },
        "volumeMounts": mounts(directories),
    });
    with_policy(container, fleet.image_pull_policy.as_ref())
}

pub(super) fn optional_args(fleet: &FleetSettings) -> impl Iterator<Item = String> {
    let drain = fleet.drain_seconds;
    let drain = drain.map(|seconds| format!("--drain-seconds={seconds}"));
    let hops = fleet.trusted_hops.filter(|hops| *hops > 0);
    let hops = hops.map(|hops| format!("--trusted-hops={hops}"));
    let metrics = fleet.metrics_port;
    let metrics = metrics.map(|port| format!("--metrics-address=[::]:{port}"));
    drain.into_iter().chain(hops).chain(metrics)
}

/// Adds annotations that common Prometheus configurations use for discovery.
pub(super) fn announce_metrics(fleet: &FleetSettings, template: &mut Value) {
    if let Some(port) = fleet.metrics_port {
        template["metadata"]["annotations"] = json!({
            "prometheus.io/scrape": "true",
            "prometheus.io/path": "/metrics",
            "prometheus.io/port": port.to_string(),
        });
    }
}

/// The caller must set the command.
pub(super) fn container(
    name: &str,
    image: &str,
    fleet: &FleetSettings,
    resources: Option<&ContainerResources>,
    directories: &[(&str, &str)],
) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "seccompProfile": {"type": "RuntimeDefault"},
            // Lets Envoy bind ports below 1024.
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        },
        "volumeMounts": mounts(directories),
    });
    let wanted = resources.map_or(Value::Null, |resources| json!(resources));
    if wanted.as_object().is_some_and(|all| !all.is_empty()) {
        container["resources"] = wanted;
    }
    with_policy(container, fleet.image_pull_policy.as_ref())
}

fn with_policy(mut container: Value, policy: Option<&ImagePullPolicy>) -> Value {
    if let Some(policy) = policy {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}

fn mounts(directories: &[(&str, &str)]) -> Value {
    let mounts = directories.iter();
    mounts
        .map(|(name, path)| json!({"name": name, "mountPath": path}))
        .collect()
}

/// Kubernetes creates missing directories, except for shared memory.
pub(super) fn volumes(directories: &[(&str, &str)]) -> Value {
    let volume = |(name, path): &(&str, &str)| {
        let type_ = match *path {
            SHARED_MEMORY => "Directory",
            _ => "DirectoryOrCreate",
        };
        json!({"name": name, "hostPath": {"path": path, "type": type_}})
    };
    directories.iter().map(volume).collect()
}

/// Envoy needs shared memory for hot restarts.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
