//! Builds a fleet's two DaemonSets; `controller/deploy/agent/daemonset.yaml` explains the fields.

use serde_json::{Value, json};

use super::pods::{
    HostDirectories, SHARED_MEMORY, ZONE, announce_metrics, chown_container, container,
    optional_args, pod, volumes,
};
use crate::provision::Basis;
use crate::provision::owned::labels;
use sesame_kinds::api::{FleetResources, FleetSettings};
use sesame_published::names::{GATEWAY_LABEL, gateway_id};

/// Default drain time, equal to the agent's.
pub(super) const DRAIN_SECONDS: i32 = 30;
/// Added to the agent's drain time, because the new Envoy exits if the old one is killed during a
/// hot restart.
pub(super) const HANDOVER_SECONDS: i32 = 30;
/// Allowance for the other steps of Pod termination.
pub(super) const GRACE_SECONDS: i32 = 30;

pub(super) fn launcher(basis: &Basis, fleet: &FleetSettings, image: &str) -> Value {
    let HostDirectories { runtime, state: _ } = &HostDirectories::of(basis);
    let own = [("runtime", runtime.as_str())];
    let all = [own[0], ("shm", SHARED_MEMORY)];
    let drain = fleet.drain_seconds.unwrap_or(DRAIN_SECONDS) + HANDOVER_SECONDS;
    let FleetResources { envoy, .. } = &fleet.resources.clone().unwrap_or_default();
    let mut launcher = container("launcher", image, fleet, envoy.as_ref(), &all);
    launcher["args"] = json!([
        "launcher",
        "--take-over",
        format!("--drain-seconds={drain}")
    ]);
    launcher["env"] = json!([{"name": "SESAME_RUNTIME_DIR", "value": runtime}]);
    // A restart would not help, so the probe has practically no failure limit.
    launcher["startupProbe"] = json!({
        "exec": {"command": ["sesame-agent", "launcher", "--check"]},
        "periodSeconds": 2,
        "timeoutSeconds": 10,
        "failureThreshold": 1_000_000_000,
    });
    let mut pod = pod(fleet);
    pod["automountServiceAccountToken"] = json!(false);
    pod["terminationGracePeriodSeconds"] = json!(drain + GRACE_SECONDS);
    pod["initContainers"] = json!([chown_container(image, fleet, &own)]);
    pod["containers"] = json!([launcher]);
    pod["volumes"] = volumes(&all);
    let update = json!({"maxSurge": 1, "maxUnavailable": 0});
    daemonset(basis, "sesame-envoy", &update, &pod)
}

pub(super) fn agent(
    basis: &Basis,
    fleet: &FleetSettings,
    image: &str,
    account: &str,
    namespace: &str,
) -> Value {
    let HostDirectories { runtime, state } = &HostDirectories::of(basis);
    let own = [("runtime", runtime.as_str()), ("state", state.as_str())];
    let all = [own[1], own[0], ("shm", SHARED_MEMORY)];
    let FleetResources { agent, .. } = &fleet.resources.clone().unwrap_or_default();
    let mut agent = container("agent", image, fleet, agent.as_ref(), &all);
    let gateway = format!("--gateway={}", basis.gateway);
    let mut args = vec![
        "run".to_owned(),
        "--kube".to_owned(),
        gateway,
        "--launcher".to_owned(),
    ];
    args.extend(optional_args(fleet));
    agent["args"] = json!(args);
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    agent["env"] = json!([
        {"name": "SESAME_NAMESPACE", "value": namespace},
        {"name": "SESAME_HOST", "valueFrom": field("spec.nodeName")},
        {"name": "SESAME_ZONE", "valueFrom": field(ZONE)},
        {"name": "SESAME_REPORT_ADDRESSES", "valueFrom": field("status.hostIPs")},
        {"name": "SESAME_RUNTIME_DIR", "value": runtime},
        {"name": "SESAME_STATE_DIR", "value": state},
    ]);
    let mut pod = pod(fleet);
    pod["serviceAccountName"] = json!(account);
    pod["automountServiceAccountToken"] = json!(true);
    pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    // Lets the container's group read the ServiceAccount token.
    pod["securityContext"]["fsGroup"] = pod["securityContext"]["runAsGroup"].clone();
    pod["initContainers"] = json!([chown_container(image, fleet, &own)]);
    pod["containers"] = json!([agent]);
    pod["volumes"] = volumes(&all);
    // No surge, because the old and new agents would use the same ports and directories.
    let update = json!({"maxUnavailable": 1, "maxSurge": 0});
    let mut daemonset = daemonset(basis, "sesame-agent", &update, &pod);
    announce_metrics(fleet, &mut daemonset["spec"]["template"]);
    daemonset
}

fn daemonset(basis: &Basis, program: &str, update: &Value, pod: &Value) -> Value {
    let (name, id) = ("app.kubernetes.io/name", gateway_id(&basis.gateway));
    // The selector is immutable. Pods do not get the Gateway's annotations, because those could
    // weaken isolation.
    let own = [(name, program), ("app.kubernetes.io/part-of", "sesame")];
    json!({"spec": {
        "selector": {"matchLabels": {name: program, GATEWAY_LABEL: id}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": update},
        "template": {"metadata": {"labels": labels(basis, &own)}, "spec": pod},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Received;

    const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/agent/daemonset.yaml");

    fn basis() -> Basis {
        let gateway = json!({
            "metadata": {"name": "edge", "namespace": "web", "uid": "u"},
            "spec": {"gatewayClassName": "sesame", "listeners": []},
        });
        let received: Received = serde_json::from_value(gateway).unwrap();
        Basis::of(&received).unwrap()
    }

    #[test]
    fn pods_match_manifests_except_gateway_and_directories() {
        let text = std::fs::read_to_string(MANIFESTS).unwrap();
        let documents = text.split("\n---\n");
        let mut manifests = documents.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let (envoy_manifest, agent_manifest) =
            (manifests.next().unwrap(), manifests.next().unwrap());
        let image = |manifest: &Value| {
            let image = &manifest["spec"]["template"]["spec"]["containers"][0]["image"];
            image.as_str().unwrap().to_owned()
        };
        let fleet = FleetSettings::default();
        let basis = basis();
        let made = [
            launcher(&basis, &fleet, &image(&envoy_manifest)),
            agent(
                &basis,
                &fleet,
                &image(&agent_manifest),
                "sesame-agent",
                "there",
            ),
        ];
        let HostDirectories { runtime, state } = HostDirectories::of(&basis);
        for (made, mut manifest) in made.into_iter().zip([envoy_manifest, agent_manifest]) {
            let made = made.to_string();
            let made = made
                .replace(&runtime, "/run/sesame")
                .replace(&state, "/var/lib/sesame")
                .replace("--gateway=web/edge", "--fleet=default");
            let mut made: Value = serde_json::from_str(&made).unwrap();
            assert_eq!(
                made["spec"]["updateStrategy"],
                manifest["spec"]["updateStrategy"]
            );
            let pod = |of: &mut Value| of["spec"]["template"]["spec"].take();
            let (mut made, mut manifest) = (pod(&mut made), pod(&mut manifest));
            // Ignore this field, because only the manifests mount the token into all Pods.
            made.as_object_mut()
                .unwrap()
                .remove("automountServiceAccountToken");
            manifest
                .as_object_mut()
                .unwrap()
                .remove("automountServiceAccountToken");
            for of in [&mut made, &mut manifest] {
                let env = of.pointer_mut("/containers/0/env");
                let Some(env) = env.and_then(Value::as_array_mut) else {
                    continue;
                };
                env.retain(|variable| {
                    let name = variable["name"].as_str().unwrap();
                    !name.ends_with("_DIR") && name != "SESAME_NAMESPACE"
                });
                if env.is_empty() {
                    of["containers"][0].as_object_mut().unwrap().remove("env");
                }
            }
            assert_eq!(made, manifest);
        }
    }

    #[test]
    fn pods_carry_settings_and_only_labels_of_gateway() {
        let fleet: FleetSettings = serde_json::from_value(json!({
            "imagePullPolicy": "Always",
            "nodeSelector": {"edge": "yes"},
            "tolerations": [{"key": "edge", "operator": "Exists"}],
            "resources": {"envoy": {"limits": {"cpu": 2, "memory": "1Gi"}}},
            "drainSeconds": 5,
            "trustedHops": 1,
            "metricsPort": 9464,
        }))
        .unwrap();
        let mut basis = basis();
        basis.labels.insert("team".to_owned(), "a".to_owned());
        basis
            .labels
            .insert("app.kubernetes.io/name".to_owned(), "other".to_owned());
        basis.annotations.insert("note".to_owned(), "b".to_owned());
        let made = launcher(&basis, &fleet, "envoy:1");
        let template = &made["spec"]["template"];
        let (labels, pod) = (&template["metadata"]["labels"], &template["spec"]);
        assert_eq!(labels["team"], "a");
        assert_eq!(template["metadata"]["annotations"], Value::Null);
        for (name, value) in made["spec"]["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(labels[name], *value);
        }
        assert_eq!(pod["nodeSelector"], json!({"edge": "yes"}));
        assert_eq!(
            pod["tolerations"],
            json!([{"key": "edge", "operator": "Exists"}])
        );
        assert_eq!(pod["terminationGracePeriodSeconds"], 65);
        let container = &pod["containers"][0];
        assert_eq!(container["image"], "envoy:1");
        assert_eq!(container["args"][2], "--drain-seconds=35");
        assert_eq!(container["imagePullPolicy"], "Always");
        let limits = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
        assert_eq!(container["resources"], limits);
        let agent = agent(&basis, &fleet, "agent:1", "account", "there");
        let template = &agent["spec"]["template"];
        let annotations = &template["metadata"]["annotations"];
        assert_eq!(annotations["prometheus.io/port"], "9464");
        assert_eq!(annotations["note"], Value::Null);
        let pod = &template["spec"];
        assert_eq!(pod["containers"][0]["resources"], Value::Null);
        let args = &pod["containers"][0]["args"];
        assert_eq!(args[4], "--drain-seconds=5");
        assert_eq!(args[5], "--trusted-hops=1");
        assert_eq!(args[6], "--metrics-address=[::]:9464");
        assert_eq!(pod["serviceAccountName"], "account");
    }
}
