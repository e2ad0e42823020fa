//! Istio's configuration of ingress gateways. Objects for sidecars are left to Istio.
//!
//! The Gateways of one selector share a Gateway, and each becomes a ListenerSet. A VirtualService
//! becomes HTTPRoutes; its order is kept with more specific matches. Policies for the gateway's
//! pods become AccessPolicies of the Gateway.

mod access;
mod actions;
mod backend_tls;
mod backends;
mod balancing;
mod comparisons;
mod conditions;
mod destinations;
mod gateways;
mod hosts;
mod matches;
mod patterns;
mod policies;
mod reach;
mod resilience;
mod routes;
mod server_tls;
mod sources;
mod streams;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use self::gateways::PlacedServer;
use super::draft::{self, Draft, ObjectId};
use super::routing::order::HostUnit;
use super::routing::{self, ServiceSettings};
use super::verdicts::VerdictLog;

const NETWORKING: &str = "networking.istio.io";
/// Annotations with this prefix are settings.
const ANNOTATIONS: &str = "networking.istio.io/";
/// Namespace of policies for all workloads.
const ROOT_NAMESPACE: &str = "istio-system";

const SIDECARS: &str = "it configures sidecars, not the gateway; keep it as it is";

/// What all objects share.
#[derive(Default)]
struct Mesh<'i> {
    inputs: BTreeMap<ObjectId, &'i Value>,
    /// The servers of each Gateway.
    servers: BTreeMap<ObjectId, Vec<PlacedServer>>,
    /// `tls` and `tcp` of VirtualServices that connections of each output Gateway reach.
    streams: BTreeMap<ObjectId, BTreeSet<(ObjectId, &'static str)>>,
    /// Labels that select each Gateway's pods, and the name of the output Gateway.
    selectors: Vec<(Map<String, Value>, String)>,
    logs: BTreeMap<ObjectId, VerdictLog>,
    metadata: BTreeMap<ObjectId, Map<String, Value>>,
    units: Vec<HostUnit>,
    /// Number of rules.
    places: usize,
    /// VirtualServices that serve a host.
    hosts: BTreeMap<String, BTreeSet<ObjectId>>,
    /// VirtualServices whose requests reach a Service, DestinationRule or ServiceEntry.
    users: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    services: ServiceSettings,
}

impl<'i> Mesh<'i> {
    fn log(&mut self, id: &ObjectId) -> VerdictLog {
        self.logs.entry(id.clone()).or_default().clone()
    }

    fn of_kind(&self, kind: &str) -> Vec<(ObjectId, &'i Value)> {
        draft::of_kind(&self.inputs, kind)
    }

    /// Returns VirtualServices, and those that would get their requests if they were left out.
    fn sharing(&self, ids: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let own = self
            .hosts
            .iter()
            .filter(|(_, users)| !users.is_disjoint(ids));
        let hosts = own.flat_map(|(host, _)| routing::covering(host));
        let others = hosts.filter_map(|host| self.hosts.get(&host)).flatten();
        ids.iter().chain(others).cloned().collect()
    }
}

/// Returns the identity of an object in one of Istio's groups.
fn id_in(group: &str, kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(&format!("{kind}.{group}"), namespace, name)
}

pub(super) fn convert(draft: &mut Draft) {
    let inputs = draft.inputs();
    let mut mesh = Mesh {
        inputs: inputs.iter().cloned().collect(),
        ..Mesh::default()
    };
    for (id, object) in mesh.of_kind("Gateway.networking.istio.io") {
        gateways::convert(draft, &mut mesh, &id, object);
    }
    let mut services = mesh.of_kind("VirtualService.networking.istio.io");
    services.sort_by_key(|(id, object)| {
        let time = object["metadata"]["creationTimestamp"].as_str();
        let ObjectId {
            namespace, name, ..
        } = id;
        let time = time.unwrap_or("9999").to_owned();
        (time, name.clone(), namespace.clone())
    });
    for (id, object) in &services {
        routes::convert(draft, &mut mesh, id, object);
    }
    routes::finish(draft, &mut mesh);
    for (id, object) in mesh.of_kind("DestinationRule.networking.istio.io") {
        destinations::convert(draft, &mut mesh, &id, object);
    }
    policies::convert(draft, &mut mesh);
    for (id, _) in &inputs {
        other(draft, &mesh, id);
    }
    let logs = std::mem::take(&mut mesh.logs);
    for (id, log) in logs {
        log.remove_duplicates();
        let users = mesh.users.get(&id).cloned().unwrap_or_default();
        let users = users.into_iter().chain([id.clone()]).collect();
        draft.record(&id, &log, mesh.sharing(&users));
    }
    mesh.services.add_to(draft);
}

/// Records verdicts on objects that become nothing.
fn other(draft: &mut Draft, mesh: &Mesh, id: &ObjectId) {
    let (kind, group) = id.kind.split_once('.').unwrap_or((&id.kind, ""));
    if mesh.logs.contains_key(id) || draft.verdicts.contains_key(id) {
        return;
    }
    let reason = match (kind, group) {
        ("PeerAuthentication", "security.istio.io") => {
            "workloads enforce it; with STRICT, they accept no connections from Sesame, so \
             permit these ports with PERMISSIVE, or put Sesame's pods into the mesh"
        }
        ("VirtualService", NETWORKING) => "no VirtualService of a Gateway in the input uses it",
        ("ServiceEntry", NETWORKING) => "no route of a Gateway uses its hosts",
        ("Sidecar" | "WorkloadEntry" | "WorkloadGroup" | "ProxyConfig", NETWORKING) => SIDECARS,
        ("Telemetry", "telemetry.istio.io") => {
            "logs, traces and metrics of the Gateway are configured in a SesameConfiguration"
        }
        (_, group) if group.ends_with("istio.io") => {
            let reason = "Sesame has no counterpart of this kind, which may protect any route";
            let remedy = "write policies for the Gateway, then accept the loss";
            draft.refuse(id, "kind", reason, remedy);
            let gateways = mesh.selectors.iter();
            let gateways = gateways.map(|(_, class)| ObjectId::new("Gateway", "default", class));
            draft
                .entry(id)
                .protects
                .extend(gateways.chain([id.clone()]));
            return;
        }
        _ => "not an object of Istio; keep it as it is",
    };
    draft.unneeded(id, reason);
}
