//! Which of several originals has a path or a host: the oldest. Copies are all new, so only the
//! oldest is copied.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::annotations::{is_canary, unread};
use super::copies::{HostCopies, class_of, items, items_mut, name_of, text};

/// Sorts by creation, then by namespace and name.
pub(super) fn oldest_first(objects: &[Value]) -> Vec<&Value> {
    let mut sorted: Vec<&Value> = objects.iter().collect();
    sorted.sort_by_key(|it| {
        ["creationTimestamp", "namespace", "name"].map(|field| it["metadata"][field].as_str())
    });
    sorted
}

/// Paths and hosts of the originals that were visited.
#[derive(Debug)]
pub(super) struct OlderOriginals<'v> {
    default_class: Option<&'v str>,
    /// Hosts with a path for all requests.
    caught: BTreeSet<String>,
    paths: BTreeMap<(String, String, String), &'v Value>,
    roots: BTreeMap<String, &'v Value>,
}

impl<'v> OlderOriginals<'v> {
    pub(super) fn new(ingresses: &[&Value], default_class: Option<&'v str>) -> Self {
        let ingresses = ingresses.iter().filter(|it| !is_canary(it));
        let rules = ingresses.flat_map(|it| items(it, "/spec/rules"));
        let caught = rules.filter(|rule| {
            let mut paths = items(rule, "/http/paths").iter();
            paths.any(|it| text(it, "/pathType") != "Exact" && path_of(it) == "/")
        });
        Self {
            default_class,
            caught: caught
                .map(|it| text(it, "/host").to_ascii_lowercase())
                .collect(),
            paths: BTreeMap::new(),
            roots: BTreeMap::new(),
        }
    }

    /// Removes the paths of `copy` that an older original has. Returns `None` if nothing remains.
    pub(super) fn without_owned_paths(
        &mut self,
        (ingress, mut copy): (&'v Value, Value),
        host: &str,
        found: &mut HostCopies,
    ) -> Option<Value> {
        // A canary has the paths of another Ingress.
        if is_canary(ingress) {
            return Some(copy);
        }
        let rules = items_mut(&mut copy, "/spec/rules");
        for rule in rules.into_iter().flatten() {
            let Some(paths) = items_mut(rule, "/http/paths") else {
                continue;
            };
            paths.retain(|path| {
                let (kind, path) = (kind_of(path), path_of(path));
                let key = (host.to_owned(), kind.to_owned(), path.to_owned());
                let owner = *self.paths.entry(key).or_insert(ingress);
                if !std::ptr::eq(owner, ingress) {
                    self.note(&format!("{kind} path {path:?}"), (ingress, owner), found);
                }
                std::ptr::eq(owner, ingress)
            });
            if paths.is_empty() {
                *rule = Value::Null;
            }
        }
        if let Some(rules) = items_mut(&mut copy, "/spec/rules") {
            rules.retain(|rule| !rule.is_null());
        }
        self.add_default(ingress, &mut copy, host);
        let spec = &copy["spec"];
        // Certificates and annotations may apply to the whole host.
        let remains = spec["defaultBackend"].is_object()
            || spec["tls"].is_array()
            || copy["metadata"]["annotations"].is_object()
            || unread(ingress).next().is_some();
        if items(&copy, "/spec/rules").is_empty() {
            if !remains {
                return None;
            }
            // Without paths, the copy is refused, so its host has a loss.
            if !spec["defaultBackend"].is_object() {
                copy["spec"]["rules"] = json!([{ "host": host }]);
            }
        }
        Some(copy)
    }

    /// Requests for other paths of the host get the default backend.
    fn add_default(&mut self, ingress: &Value, copy: &mut Value, host: &str) {
        let backend = &ingress["spec"]["defaultBackend"];
        if host.is_empty() || !backend.is_object() || !self.caught.insert(host.to_owned()) {
            return;
        }
        if let Some(rules) = items_mut(copy, "/spec/rules") {
            rules.retain(|rule| rule["http"].is_object());
            let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
            rules.push(json!({"host": host, "http": {"paths": [path]}}));
        }
    }

    /// Returns false if an older root has the host.
    pub(super) fn is_oldest_root(
        &mut self,
        root: &'v Value,
        host: &str,
        found: &mut HostCopies,
    ) -> bool {
        let owner = *self.roots.entry(host.to_owned()).or_insert(root);
        if !std::ptr::eq(owner, root) {
            self.note("spec.virtualhost.fqdn", (root, owner), found);
        }
        std::ptr::eq(owner, root)
    }

    fn note(&self, what: &str, (newer, older): (&Value, &Value), found: &mut HostCopies) {
        let (name, owner) = (name_of(newer), name_of(older));
        let [new_class, old_class] = [newer, older].map(|it| class_of(it, self.default_class));
        if new_class == old_class {
            let note = format!("{name}: {what} is left out, because {owner} is older and has it");
            found.notes.insert(note);
        } else {
            let message =
                format!("{what} is left out, because {owner} of another class is older and has it");
            found.faults.insert((false, name, message));
        }
    }
}

fn kind_of(path: &Value) -> &str {
    match text(path, "/pathType") {
        "" => "ImplementationSpecific",
        kind => kind,
    }
}

fn path_of(path: &Value) -> &str {
    match text(path, "/path") {
        "" => "/",
        path => path,
    }
}
