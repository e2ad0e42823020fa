//! Tests fleets on the Pod network, and migration between workloads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Basis;
use super::kinds::{OwnedKey, OwnedKind};
use super::owned::ExistingObject;
use super::plan::{Inventory, OwnedPlan, OwnedWrite, plan};
use crate::statuses::HostEndpoint;
use crate::watch::Received;
use sesame_kinds::api::{FleetImages, FleetManagement, FleetSettings, FleetWorkload};
use sesame_proto::schema::Transport;
use sesame_published::names::PUBLISHER;
use sesame_resolver::settings::GatewaySettings;

fn basis() -> Basis {
    let gateway = json!({
        "metadata": {"name": "edge", "namespace": "web", "uid": "u"},
        "spec": {"gatewayClassName": "sesame", "listeners": []},
    });
    let received: Received = serde_json::from_value(gateway).unwrap();
    let mut basis = Basis::of(&received).unwrap();
    basis.request.ports.insert((Transport::Tcp, 80));
    basis
}

fn settings(workload: FleetWorkload) -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    settings.fleet = FleetSettings {
        management: Some(FleetManagement::Managed),
        workload: Some(workload),
        images: Some(FleetImages {
            agent: Some("agent:1".to_owned()),
            envoy: Some("envoy:1".to_owned()),
        }),
        ..FleetSettings::default()
    };
    settings
}

struct Room(Inventory);

impl Room {
    fn new() -> Self {
        let basis = basis();
        Self(Inventory {
            namespace: "sesame-system".to_owned(),
            gateways: [(basis.gateway.clone(), basis)].into(),
            ..Inventory::default()
        })
    }

    fn basis(&mut self) -> &mut Basis {
        self.0.gateways.values_mut().next().unwrap()
    }

    fn plan(&self, settings: &GatewaySettings) -> OwnedPlan {
        let settings = BTreeMap::from([(basis().gateway, settings.clone())]);
        plan(&self.0, settings.keys(), &settings)
    }

    fn step(&mut self, settings: &GatewaySettings) -> BTreeSet<&'static str> {
        let OwnedPlan { writes, report } = self.plan(settings);
        assert!(report.without_fleet.is_empty(), "{report:?}");
        let mut deleted = BTreeSet::new();
        for write in writes {
            let key = write.key().clone();
            match write {
                OwnedWrite::Create(object) | OwnedWrite::Replace { object, .. } => {
                    let managed = json!([{"manager": PUBLISHER}]);
                    let existing = ExistingObject::new(key.0, "7", object.value, Some(&managed));
                    self.0.objects.insert(key, existing);
                }
                OwnedWrite::Delete { .. } => {
                    deleted.insert(key.0.as_str());
                    self.0.objects.remove(&key);
                }
            }
        }
        deleted
    }

    fn objects(&mut self, kind: OwnedKind) -> Vec<&mut Value> {
        let all = self.0.objects.iter_mut();
        let matching = all.filter(|((of, _), _)| *of == kind);
        matching.map(|(_, found)| &mut found.value).collect()
    }

    fn one(&mut self, kind: OwnedKind) -> &mut Value {
        let mut all = self.objects(kind);
        assert_eq!(all.len(), 1, "{kind}: {all:?}");
        all.remove(0)
    }

    fn kinds(&self) -> Vec<OwnedKind> {
        let kinds = self.0.objects.keys().map(|(kind, _): &OwnedKey| *kind);
        kinds.collect()
    }
}

#[test]
fn deployment_has_service_pods_and_disruption_budget() {
    let mut room = Room::new();
    let on_pods = settings(FleetWorkload::Deployment);
    room.step(&on_pods);
    assert_eq!(room.plan(&on_pods), OwnedPlan::default());
    let expected = [
        OwnedKind::Service,
        OwnedKind::Deployment,
        OwnedKind::PodDisruptionBudget,
        OwnedKind::ServiceAccount,
        OwnedKind::RoleBinding,
        OwnedKind::RoleBinding,
        OwnedKind::Role,
    ];
    assert_eq!(room.kinds(), expected);
    let service = room.one(OwnedKind::Service).clone();
    assert_eq!(service["spec"]["type"], "ClusterIP", "{service}");
    let selector = &service["spec"]["selector"];
    let budget = room.one(OwnedKind::PodDisruptionBudget).clone();
    assert_eq!(budget["spec"]["selector"]["matchLabels"], *selector);
    let deployment = room.one(OwnedKind::Deployment).clone();
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], *selector);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (name, value) in selector.as_object().unwrap() {
        assert_eq!(labels[name], *value);
    }
}

#[test]
fn pods_are_isolated_and_only_agent_has_token() {
    let mut room = Room::new();
    room.step(&settings(FleetWorkload::Deployment));
    let deployment = room.one(OwnedKind::Deployment).clone();
    let pod = &deployment["spec"]["template"]["spec"];
    for of_node in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
        assert!(pod[of_node].is_null(), "{of_node}");
    }
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["hostPath"].is_null()));
    let [launcher, agent] = &pod["containers"].as_array().unwrap()[..] else {
        panic!("{pod}");
    };
    let has_token = |container: &Value| container["volumeMounts"].to_string().contains("token");
    assert!(has_token(agent) && !has_token(launcher));
    assert_eq!(pod["automountServiceAccountToken"], false);
    let environment = agent["env"].as_array().unwrap();
    let host = environment.iter().find(|it| it["name"] == "SESAME_HOST");
    assert_eq!(host.unwrap()["value"], "$(SESAME_POD).web.pod");
}

#[test]
fn replicas_are_kept_unless_configuration_sets_them() {
    let mut room = Room::new();
    let on_pods = settings(FleetWorkload::Deployment);
    room.step(&on_pods);
    assert_eq!(room.one(OwnedKind::Deployment)["spec"]["replicas"], 2);
    room.one(OwnedKind::Deployment)["spec"]["replicas"] = json!(5);
    assert_eq!(room.plan(&on_pods), OwnedPlan::default());
    let mut other = on_pods.clone();
    other.fleet.drain_seconds = Some(5);
    room.step(&other);
    assert_eq!(room.one(OwnedKind::Deployment)["spec"]["replicas"], 5);
    other.fleet.replicas = Some(3);
    room.step(&other);
    assert_eq!(room.one(OwnedKind::Deployment)["spec"]["replicas"], 3);
    assert_eq!(room.plan(&other), OwnedPlan::default());
}

#[test]
fn old_workload_stays_until_new_one_serves() {
    let mut room = Room::new();
    let (on_nodes, on_pods) = (
        settings(FleetWorkload::DaemonSet),
        settings(FleetWorkload::Deployment),
    );
    let node = HostEndpoint {
        node: Some("a".to_owned()),
        draining: false,
    };
    let host = ("192.0.2.1".parse().unwrap(), node);
    room.basis().hosts = [host.clone()].into();
    room.step(&on_nodes);
    assert_eq!(room.plan(&on_nodes), OwnedPlan::default());

    // A headless Service cannot be given a cluster IP.
    assert_eq!(room.step(&on_pods), ["Service"].into());
    assert_eq!(room.step(&on_pods), [""; 0].into());
    assert_eq!(room.objects(OwnedKind::DaemonSet).len(), 2);
    let status = json!({"availableReplicas": 1, "updatedReplicas": 2});
    room.one(OwnedKind::Deployment)["status"] = status;
    assert_eq!(room.step(&on_pods), [""; 0].into());
    room.one(OwnedKind::Deployment)["status"]["availableReplicas"] = json!(2);
    assert_eq!(room.step(&on_pods), ["EndpointSlice"].into());
    assert_eq!(room.step(&on_pods), ["DaemonSet"].into());
    assert_eq!(room.plan(&on_pods), OwnedPlan::default());

    room.basis().hosts.clear();
    let mut on_nodes = on_nodes;
    on_nodes.publishing.type_ = Some("ClusterIP".into());
    assert_eq!(room.step(&on_nodes), [""; 0].into());
    let selector = &room.one(OwnedKind::Service)["spec"]["selector"];
    assert!(selector.is_object(), "{selector}");
    let status = json!({"desiredNumberScheduled": 1, "numberAvailable": 1});
    for daemonset in room.objects(OwnedKind::DaemonSet) {
        daemonset["status"] = status.clone();
    }
    assert_eq!(room.step(&on_nodes), [""; 0].into());
    room.basis().hosts = [host].into();
    let gone = ["Deployment", "PodDisruptionBudget"].into();
    assert_eq!(room.step(&on_nodes), gone);
    assert_eq!(room.plan(&on_nodes), OwnedPlan::default());
    assert_eq!(room.objects(OwnedKind::EndpointSlice).len(), 1);
}

#[test]
fn unwatched_kinds_are_reported_only_when_needed() {
    let mut room = Room::new();
    room.0.unwatched = [OwnedKind::Deployment, OwnedKind::PodDisruptionBudget].into();
    let OwnedPlan { report, .. } = room.plan(&settings(FleetWorkload::DaemonSet));
    assert!(report.without_fleet.is_empty(), "{report:?}");
    let OwnedPlan { report, .. } = room.plan(&settings(FleetWorkload::Deployment));
    let why = &report.without_fleet[&basis().gateway];
    assert!(why.contains("kind Deployment"), "{why}");
    assert!(why.contains("controller/deploy/fleets.yaml"), "{why}");
}

#[test]
fn only_agents_get_spans_endpoint() {
    for workload in [FleetWorkload::DaemonSet, FleetWorkload::Deployment] {
        let mut room = Room::new();
        room.0.fleet_spans = Some("http://collector.example.com:4318".to_owned());
        let of = format!("{workload:?}");
        room.step(&settings(workload));
        let containers = room.0.objects.values().flat_map(|object| {
            let containers = &object.value["spec"]["template"]["spec"]["containers"];
            let containers = containers.as_array().into_iter().flatten();
            containers.filter(|it| it.to_string().contains("http://collector.example.com:4318"))
        });
        let names: Vec<&Value> = containers.map(|container| &container["name"]).collect();
        assert_eq!(names, ["agent"], "{of}");
    }
}
