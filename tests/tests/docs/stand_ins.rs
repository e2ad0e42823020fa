//! Echo backends for the Services that a page refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::datagrams::DatagramBackend;

/// By the Service's namespace and name.
#[derive(Default)]
pub(crate) struct StandIns {
    backends: BTreeMap<(String, String), StandIn>,
}

enum StandIn {
    Requests(Backend),
    Datagrams(DatagramBackend),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    namespace: String,
    name: String,
    port: u64,
    datagrams: bool,
    passes_tls: bool,
}

impl StandIns {
    /// TLS backends get a certificate from `authority` for their routes' hostnames.
    pub(crate) async fn start_missing(
        &mut self,
        objects: &[Value],
        authority: &Authority,
    ) -> Vec<Value> {
        let mut made = Vec::new();
        for reference in references(objects) {
            let Reference {
                namespace, name, ..
            } = &reference;
            let exists = objects.iter().any(|object| {
                object["kind"] == "Service" && object["metadata"]["name"] == name.as_str()
            });
            if exists {
                continue;
            }
            let key = (namespace.clone(), name.clone());
            if !self.backends.contains_key(&key) {
                let backend = start(&reference, objects, authority).await;
                self.backends.insert(key.clone(), backend);
            }
            let address = match &self.backends[&key] {
                StandIn::Requests(backend) => backend.address(),
                StandIn::Datagrams(backend) => backend.address(),
            };
            made.extend(service(&reference, address));
        }
        made
    }
}

async fn start(reference: &Reference, objects: &[Value], authority: &Authority) -> StandIn {
    if reference.datagrams {
        StandIn::Datagrams(DatagramBackend::start(&reference.name).await)
    } else if reference.passes_tls {
        let names: BTreeSet<&str> = filter_kind(objects, "TLSRoute")
            .flat_map(|route| route["spec"]["hostnames"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        let leaf: Leaf = authority.issue(&names);
        StandIn::Requests(Backend::start_tls(&reference.name, &leaf).await)
    } else {
        StandIn::Requests(Backend::start(&reference.name).await)
    }
}

fn filter_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn references(objects: &[Value]) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind == "Ingress" {
            found.extend(ingress_references(object));
        }
        if !kind.ends_with("Route") {
            continue;
        }
        let own = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or("default");
        let rules = object["spec"]["rules"].as_array().into_iter().flatten();
        for rule in rules {
            let refs = rule["backendRefs"].as_array().into_iter().flatten();
            let filters = rule["filters"].as_array().into_iter().flatten();
            let mirrors = filters.map(|filter| &filter["requestMirror"]["backendRef"]);
            for reference in refs.chain(mirrors).filter(|one| !one.is_null()) {
                let text = |field: &str| reference[field].as_str().map(str::to_owned);
                found.insert(Reference {
                    namespace: text("namespace").unwrap_or_else(|| own.to_owned()),
                    name: text("name").expect("a name"),
                    port: reference["port"].as_u64().expect("a port"),
                    datagrams: kind == "UDPRoute",
                    passes_tls: kind == "TLSRoute",
                });
            }
        }
    }
    found
}

fn ingress_references(ingress: &Value) -> impl Iterator<Item = Reference> {
    let rules = ingress["spec"]["rules"].as_array().into_iter().flatten();
    let paths = rules.flat_map(|rule| rule["http"]["paths"].as_array().into_iter().flatten());
    let services = paths.map(|path| &path["backend"]["service"]);
    let namespace = ingress["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    services.map(|service| Reference {
        namespace: namespace.to_owned(),
        name: service["name"].as_str().expect("a name").to_owned(),
        port: service["port"]["number"].as_u64().expect("a port"),
        datagrams: false,
        passes_tls: false,
    })
}

fn service(reference: &Reference, address: SocketAddr) -> [Value; 2] {
    let Reference {
        namespace,
        name,
        port,
        datagrams,
        ..
    } = reference;
    let protocol = if *datagrams { "UDP" } else { "TCP" };
    let named = |port: Value| json!([{"name": "main", "port": port, "protocol": protocol}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": named(json!(port))},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{name}-1"), "namespace": namespace,
            "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": named(json!(address.port())),
    });
    [service, slice]
}
