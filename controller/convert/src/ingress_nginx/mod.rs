//! Ingresses with the annotations of ingress-nginx.
//!
//! Annotations are read with the parsers that serve Ingresses directly. An Ingress becomes an
//! HTTPRoute for each group of hosts with the same rules, and a ListenerSet with its certificates.

mod annotations;
mod canaries;
mod index;
mod policies;
mod references;
mod routes;
mod rules;
mod tls;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sesame_kinds::api::{INGRESS_CLASS, NGINX_PREFIX};
use sesame_kinds::decode::from_value;
use sesame_resolver::nginx_annotations::{NginxReading, read, short_name};

use self::index::IngressIndex;
use self::rules::HostRules;
use super::draft::{Draft, ObjectId};
use super::fields::{RemainingFields, TakenField};
use super::routing::{self, ServiceSettings};
use super::values::put;
use super::verdicts::VerdictLog;

pub(super) const VERSION: &str = "networking.k8s.io/v1";
const CONTROLLER: &str = "k8s.io/ingress-nginx";
const DEFAULT_CLASS: &str = "nginx";
const DEFAULTS: &str = "the Gateway replaces the class. ingress-nginx's ConfigMap and defaults, such \
    as 1 MiB for bodies, do not apply";

/// One Ingress, while it is converted.
struct IngressInput<'i> {
    id: ObjectId,
    class: String,
    metadata: Map<String, Value>,
    log: VerdictLog,
    index: &'i IngressIndex,
    reading: NginxReading,
    annotations: BTreeMap<String, TakenField>,
    has_auth_url: bool,
    has_newer_list: bool,
    /// Types of paths that become prefixes of path elements, with their hosts and paths.
    text_prefixes: Vec<(String, String, TakenField)>,
    /// All objects that the routes are made from.
    sources: BTreeSet<ObjectId>,
}

pub(super) fn convert(draft: &mut Draft) {
    let inputs = draft.inputs();
    let index = IngressIndex::of(&inputs);
    let mut services = ServiceSettings::default();
    for (id, object) in &inputs {
        match (id.kind.as_str(), is_known(object)) {
            ("Ingress", true) if index.is_foreign(object) => {
                draft.unneeded(id, "another controller's Ingress; keep it as it is");
            }
            ("Ingress", true) => ingress(draft, &index, &mut services, (id, object)),
            ("IngressClass", true) if !index.is_foreign_class(&id.name) => {
                draft.unneeded(id, "a Gateway with the name of the class replaces it");
            }
            ("Ingress" | "Ingress.extensions", _) => {
                let reason = format!("expected apiVersion {VERSION}");
                draft.refuse(id, "apiVersion", &reason, "export the object again");
            }
            _ => draft.unneeded(id, "not an Ingress; keep it as it is"),
        }
    }
    services.add_to(draft);
}

fn is_known(object: &Value) -> bool {
    object["apiVersion"] == VERSION
}

fn class_of(object: &Value) -> &str {
    let annotation = object["metadata"]["annotations"][INGRESS_CLASS].as_str();
    let class = annotation.or_else(|| object["spec"]["ingressClassName"].as_str());
    class
        .filter(|class| !class.is_empty())
        .unwrap_or(DEFAULT_CLASS)
}

fn ingress(
    draft: &mut Draft,
    index: &IngressIndex,
    services: &mut ServiceSettings,
    (id, object): (&ObjectId, &Value),
) {
    let log = VerdictLog::default();
    let mut root = RemainingFields::of_object(object, &log);
    let annotations =
        root.take_annotations(|key| key == INGRESS_CLASS || short_name(key).is_some());
    annotations::close_foreign(root.take_annotations(|key| !annotations::is_harmless(key)));
    let mut metadata = root.take_head("kubernetes.io/ingress.");
    put(&mut metadata, "namespace", Some(id.namespace.as_str()));
    let reading = match from_value(object["metadata"].clone()) {
        Ok(metadata) => read(&metadata),
        Err(why) => {
            draft.refuse(id, "metadata", &why, "quote the values of annotations");
            draft.entry(id).protects.extend(index.sharing(id));
            return;
        }
    };
    let mut input = IngressInput {
        id: id.clone(),
        class: class_of(object).to_owned(),
        metadata,
        log: log.clone(),
        index,
        reading,
        has_auth_url: false,
        has_newer_list: annotations.contains_key(&format!("{NGINX_PREFIX}allowlist-source-range")),
        annotations,
        text_prefixes: Vec::new(),
        sources: BTreeSet::from([id.clone()]),
    };
    let spec = root.section("spec");
    if index.canaries.contains_key(id) {
        canaries::record(draft, &mut input, spec);
    } else {
        main(draft, services, &mut input, spec);
    }
    drop(input);
    drop(root);
    draft.record(id, &log, index.sharing(id));
}

/// Converts an Ingress that is not a canary.
fn main(
    draft: &mut Draft,
    services: &mut ServiceSettings,
    input: &mut IngressInput,
    mut spec: RemainingFields,
) {
    routing::add_gateway(draft, &input.class);
    let to = "HTTPRoute parentRefs";
    let class = &input.class;
    let is_known = input.index.is_known_class(class);
    let close = |field: TakenField| {
        if is_known {
            field.differ(to, DEFAULTS);
        } else {
            let reason = format!("class {class:?} is not known to be ingress-nginx");
            field.refuse(&reason, "add its IngressClass to the input");
        }
    };
    match spec.take("ingressClassName") {
        Some(field) => close(field),
        None => match input.annotations.remove(INGRESS_CLASS) {
            Some(field) => close(field),
            None => spec.note_difference("ingressClassName", to, DEFAULTS),
        },
    }
    if let Some(field) = input.annotations.remove(INGRESS_CLASS) {
        field.unneeded("it takes precedence over the class of spec");
    }
    tls::convert(draft, input, &mut spec);
    let mut hosts = rules::read(draft, input, &mut spec);
    let policies = policies::of(draft, input, services, &hosts);
    rules::close_prefixes(input, policies.protect());
    annotations::close(input);
    drop(spec);
    for HostRules { rules, .. } in &mut hosts {
        for rule in rules.iter_mut() {
            policies.apply(rule);
        }
    }
    let routes = routes::of_hosts(input, hosts);
    routing::add_routes(draft, &input.sources, &input.metadata, routes);
}
