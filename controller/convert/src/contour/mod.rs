//! Contour's HTTPProxies, TLSCertificateDelegations and ExtensionServices.
//!
//! Each HTTPProxy with routes becomes an HTTPRoute in its own namespace, so its owner keeps it.
//! Conditions, timeouts and retries are read with the parsers that serve HTTPProxies directly.

mod access;
mod actions;
mod balance;
mod host;
mod limits;
mod matches;
mod objects;
mod routes;
mod services;
mod tcp;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sesame_kinds::api::{CONTOUR_CLASS, INGRESS_CLASS, ProxyCondition};
use sesame_kinds::decode::from_value;

use self::host::ProxyHostDraft;
use self::matches::TextPrefix;
use super::draft::{Draft, ObjectId};
use super::fields::RemainingFields;
use super::routing::{self, RuleDraft, ServiceSettings};
use super::values::put;
use super::verdicts::{FieldVerdict, VerdictLog};

const VERSION: &str = "projectcontour.io/v1";
const ALPHA: &str = "projectcontour.io/v1alpha1";
const CLASSES: [&str; 2] = [CONTOUR_CLASS, INGRESS_CLASS];
const DEFAULT_CLASS: &str = "contour";
const DEFAULTS: &str = "the Gateway replaces the class. Contour's configuration does not apply, also \
    not its global authorization and rate limits";
const MAX_DEPTH: usize = 16;
/// Of HTTPProxies that one root includes, counted each time.
const MAX_VISITS: usize = 1000;

/// What all HTTPProxies share.
#[derive(Default)]
struct ProxyTree<'i> {
    proxies: BTreeMap<ObjectId, &'i Value>,
    /// An HTTPProxy that is included several times gets the same verdicts each time.
    logs: BTreeMap<ObjectId, VerdictLog>,
    services: ServiceSettings,
    /// Names of HTTPRoutes.
    names: BTreeSet<(String, String)>,
    /// The root for each host.
    hosts: BTreeMap<String, ObjectId>,
    /// Matches of the present root's routes.
    matches: BTreeSet<String>,
    /// The present root's rules.
    rules: Vec<RuleDraft>,
    texts: Vec<TextPrefix>,
    /// HTTPProxies that the present root includes, counted each time.
    visits: usize,
    /// The roots that lead to an HTTPProxy. If one of its protections is refused, its requests must
    /// not reach other routes of these hosts.
    roots: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
}

impl ProxyTree<'_> {
    /// Returns the roots that would get the requests of other roots if these were left out.
    fn wider(&self, roots: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let hosts = self.hosts.iter().filter(|(_, root)| roots.contains(*root));
        let wider = hosts.flat_map(|(host, _)| routing::covering(host));
        wider
            .filter_map(|host| self.hosts.get(&host).cloned())
            .collect()
    }
}

/// The HTTPProxy that is converted, and the includes that lead to it.
#[derive(Clone)]
struct Visit {
    id: ObjectId,
    metadata: Map<String, Value>,
    /// Conditions of each include.
    includes: Vec<Vec<ProxyCondition>>,
    path: Vec<ObjectId>,
}

impl Visit {
    fn sources(&self) -> BTreeSet<ObjectId> {
        self.path.iter().cloned().collect()
    }
}

pub(super) fn convert(draft: &mut Draft) {
    let inputs = draft.inputs();
    let is_proxy =
        |id: &ObjectId, object: &Value| id.kind == "HTTPProxy" && object["apiVersion"] == VERSION;
    let proxies = inputs.iter().filter(|(id, object)| is_proxy(id, object));
    let mut tree = ProxyTree {
        proxies: proxies.map(|(id, object)| (id.clone(), *object)).collect(),
        ..ProxyTree::default()
    };
    for (id, object) in &inputs {
        objects::convert(draft, &mut tree, id, object);
    }
    let mut roots: Vec<&ObjectId> = tree.proxies.keys().collect();
    roots.retain(|id| !tree.proxies[*id]["spec"]["virtualhost"].is_null());
    roots.sort_by_key(|id| {
        let time = tree.proxies[*id]["metadata"]["creationTimestamp"].as_str();
        (time.unwrap_or("9999").to_owned(), (*id).clone())
    });
    let roots: Vec<ObjectId> = roots.into_iter().cloned().collect();
    for id in roots {
        tree.matches.clear();
        tree.visits = 0;
        let visit = Visit {
            metadata: Map::new(),
            includes: Vec::new(),
            path: vec![id.clone()],
            id,
        };
        proxy(draft, &mut tree, None, visit);
        let rules = std::mem::take(&mut tree.rules);
        for text in std::mem::take(&mut tree.texts) {
            text.close(&rules);
        }
    }
    let ids: Vec<ObjectId> = tree.proxies.keys().cloned().collect();
    for id in ids {
        let log = tree.logs.remove(&id).unwrap_or_else(|| {
            let log = VerdictLog::default();
            let reason = "no HTTPProxy in the input includes it".to_owned();
            log.record("kind", FieldVerdict::NotNeeded { reason });
            log
        });
        log.remove_duplicates();
        let roots = tree.roots.remove(&id).unwrap_or_default();
        let wider = tree.wider(&roots);
        draft.record(
            &id,
            &log,
            wider.into_iter().chain(roots).chain([id.clone()]),
        );
    }
    tree.services.add_to(draft);
}

/// Converts an HTTPProxy and everything that it includes.
fn proxy(draft: &mut Draft, tree: &mut ProxyTree, host: Option<&ProxyHostDraft>, mut visit: Visit) {
    let Some(object) = tree.proxies.get(&visit.id).copied() else {
        return;
    };
    let log = tree.logs.entry(visit.id.clone()).or_default().clone();
    tree.roots
        .entry(visit.id.clone())
        .or_default()
        .extend(visit.path.first().cloned());
    let mut root = RemainingFields::of_object(object, &log);
    let classes = root.take_annotations(|key| CLASSES.contains(&key));
    visit.metadata = root.take_head("projectcontour.io/");
    put(
        &mut visit.metadata,
        "namespace",
        Some(visit.id.namespace.as_str()),
    );
    let mut spec = root.section("spec");
    let own = spec.take("ingressClassName");
    let class = classes.values().chain(&own).next();
    let class = class
        .map_or(DEFAULT_CLASS, |field| field.as_str())
        .to_owned();
    let mut is_told = false;
    for field in classes.into_values().chain(own) {
        field.differ("HTTPRoute parentRefs", DEFAULTS);
        is_told = true;
    }
    if !is_told {
        spec.note_difference("ingressClassName", "HTTPRoute parentRefs", DEFAULTS);
    }
    let made;
    let host = match (host, spec.take("virtualhost")) {
        (Some(_), Some(field)) => {
            field.refuse(
                "an included HTTPProxy has no virtualhost",
                "remove the include",
            );
            return;
        }
        (Some(host), None) => host,
        (None, Some(field)) => {
            routing::add_gateway(draft, &class);
            let tcp = !object["spec"]["tcpproxy"].is_null();
            made = host::convert(draft, tree, &visit, &class, (field, tcp));
            let Some(host) = &made else { return };
            host
        }
        (None, None) => return,
    };
    tcp::convert(draft, tree, host, &visit, &mut spec);
    routes::convert(draft, tree, host, &visit, spec.list("routes"));
    // As in Contour, the last of several equal routes wins, and includes come before routes.
    for field in spec.list("includes").into_iter().rev() {
        include(draft, tree, host, &visit, field.fields());
    }
}

fn include(
    draft: &mut Draft,
    tree: &mut ProxyTree,
    host: &ProxyHostDraft,
    visit: &Visit,
    mut fields: RemainingFields,
) {
    let to = "HTTPRoute rules.matches";
    let name = fields.text("name", "HTTPRoute").unwrap_or_default();
    let namespace = fields.text("namespace", "HTTPRoute");
    let namespace = namespace.filter(|it| !it.is_empty());
    let namespace = namespace.unwrap_or_else(|| visit.id.namespace.clone());
    let id = ObjectId::new("HTTPProxy", &namespace, &name);
    let mut below = visit.clone();
    if let Some(field) = fields.take("conditions") {
        let Ok(conditions) = from_value::<Vec<ProxyCondition>>(field.value().clone()) else {
            field.refuse("malformed conditions", "correct them");
            return;
        };
        field.carry(to);
        below.includes.push(conditions);
    }
    let remedy = "add it to the input, or remove the include";
    if !tree.proxies.contains_key(&id) {
        // Contour responds with 502. Without a route, requests might reach a wider one.
        fields.refuse("name", "the HTTPProxy is not in the input", remedy);
    } else if visit.path.contains(&id) || visit.path.len() > MAX_DEPTH {
        fields.refuse(
            "name",
            "the HTTPProxies include each other",
            "remove the include",
        );
    } else if tree.visits >= MAX_VISITS {
        let reason =
            format!("a root includes more than {MAX_VISITS} HTTPProxies, counted each time");
        fields.refuse("name", &reason, "include each HTTPProxy fewer times");
    } else {
        tree.visits += 1;
        below.path.push(id.clone());
        below.id = id;
        proxy(draft, tree, Some(host), below);
    }
}
