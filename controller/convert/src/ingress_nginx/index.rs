//! What one Ingress must know about the others.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sesame_kinds::api::Ingress;
use sesame_kinds::decode::from_value;
use sesame_resolver::nginx_annotations::{
    CanaryReading, NginxReading, is_expression, read, read_canary,
};

use super::super::draft::ObjectId;
use super::super::routing;
use super::{CONTROLLER, DEFAULT_CLASS, class_of, is_known};

/// Namespace, class, host, path type and path.
pub(super) type PathKey = [String; 5];

/// Class and host.
type HostKey = (String, String);

#[derive(Debug, Default)]
pub(super) struct IngressIndex {
    /// The oldest Ingress with a certificate for each host. It has the host's listener.
    pub(super) certificates: BTreeMap<String, ObjectId>,
    pub(super) canaries: BTreeMap<ObjectId, CanaryReading>,
    /// The oldest canary for each path, and its backend.
    pub(super) canary_paths: BTreeMap<PathKey, (ObjectId, Value)>,
    /// Ingresses with rules for a host, by class and host.
    pub(super) rule_hosts: BTreeMap<HostKey, BTreeSet<ObjectId>>,
    /// The oldest Ingress with each name that no rule has as its host, such as an alias.
    names: BTreeMap<HostKey, ObjectId>,
    /// Everything that serves a host, in any way.
    servers: BTreeMap<HostKey, BTreeSet<ObjectId>>,
    served: BTreeMap<ObjectId, BTreeSet<HostKey>>,
    /// Ingresses whose hosts have listeners of another Ingress.
    listening: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    /// The Ingress that gets the requests for each path, and true if its type is `Prefix`.
    path_owners: BTreeMap<OwnedPath, (ObjectId, bool)>,
    /// Paths of Ingresses that are not canaries.
    pub(super) main_paths: BTreeSet<PathKey>,
    known_classes: BTreeSet<String>,
    foreign_classes: BTreeSet<String>,
}

/// Class, host, path, and true if the path is exact.
type OwnedPath = (String, String, String, bool);

impl IngressIndex {
    pub(super) fn of(inputs: &[(ObjectId, &Value)]) -> Self {
        let mut index = Self::default();
        for (id, object) in inputs {
            let controller = &object["spec"]["controller"];
            if id.kind == "IngressClass" {
                let classes = if *controller == CONTROLLER {
                    &mut index.known_classes
                } else {
                    &mut index.foreign_classes
                };
                classes.insert(id.name.clone());
            }
        }
        let ingresses = inputs.iter().filter(|(id, object)| {
            id.kind == "Ingress" && is_known(object) && !index.is_foreign(object)
        });
        let mut ingresses: Vec<(&ObjectId, &Value)> =
            ingresses.map(|(id, object)| (id, *object)).collect();
        ingresses.sort_by(by_age);
        for (id, object) in ingresses {
            index.add(id, object);
        }
        for ((_, host), ids) in &index.servers {
            if let Some((_, owner)) = index.listener(host) {
                let listening = index.listening.entry(owner.clone()).or_default();
                listening.extend(ids.iter().cloned());
            }
        }
        index
    }

    fn add(&mut self, id: &ObjectId, object: &Value) {
        let canary = from_value::<Ingress>(object.clone()).ok();
        let canary = canary.and_then(|ingress| read_canary(&ingress));
        let is_canary = canary.is_some();
        if let Some(canary) = canary {
            self.canaries.insert(id.clone(), canary);
        }
        for (host, path) in paths(object) {
            let key = key(id, object, host, path);
            if is_canary {
                let value = || (id.clone(), path["backend"].clone());
                self.canary_paths.entry(key).or_insert_with(value);
            } else {
                self.main_paths.insert(key);
                let place = (class_of(object).to_owned(), host.to_owned());
                self.rule_hosts.entry(place).or_default().insert(id.clone());
            }
        }
        let mut hosts: BTreeSet<String> = rules(object).map(|it| host_of(it).to_owned()).collect();
        if is_canary {
            self.serve(id, object, hosts);
            return;
        }
        for (host, path, path_type) in owned_paths(object) {
            let key = owned_path(class_of(object), host, path, path_type);
            let is_prefix = path_type == "Prefix";
            let owner = self.path_owners.entry(key);
            let owner = owner.or_insert_with(|| (id.clone(), is_prefix));
            // In ingress-nginx, the location of type Prefix is more specific.
            if is_prefix && !owner.1 && !matches!(path, "" | "/") {
                *owner = (id.clone(), true);
            }
        }
        for host in hosts_with_secrets(object) {
            hosts.insert(host.clone());
            self.certificates.entry(host).or_insert_with(|| id.clone());
        }
        for name in other_names(object) {
            let place = (class_of(object).to_owned(), name.clone());
            self.names.entry(place).or_insert_with(|| id.clone());
            hosts.insert(name);
        }
        if !object["spec"]["defaultBackend"].is_null() {
            hosts.insert(String::new());
        }
        self.serve(id, object, hosts);
    }

    fn serve(&mut self, id: &ObjectId, object: &Value, hosts: BTreeSet<String>) {
        for host in hosts {
            let place = (class_of(object).to_owned(), host);
            let servers = self.servers.entry(place.clone()).or_default();
            servers.insert(id.clone());
            self.served.entry(id.clone()).or_default().insert(place);
        }
    }

    /// Returns true if an Ingress has a name that no rule has as its host.
    pub(super) fn owns_name(&self, id: &ObjectId, class: &str, name: &str) -> bool {
        let place = (class.to_owned(), name.to_owned());
        !self.rule_hosts.contains_key(&place) && self.names.get(&place) == Some(id)
    }

    /// Returns false if another Ingress gets the requests for a path, as in ingress-nginx.
    pub(super) fn owns_path(
        &self,
        id: &ObjectId,
        (class, host): (&str, &str),
        path: &str,
        path_type: &str,
    ) -> bool {
        let owner = self
            .path_owners
            .get(&owned_path(class, host, path, path_type));
        owner.is_none_or(|(owner, _)| owner == id)
    }

    /// Returns an Ingress, and all Ingresses that would get its requests if it were left out. They have
    /// the same hosts or wider ones. They are left out too, so the same applies to them.
    pub(super) fn sharing(&self, id: &ObjectId) -> BTreeSet<ObjectId> {
        let mut found = BTreeSet::from([id.clone()]);
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            let places = self.served.get(id).into_iter().flatten();
            let wider = places.flat_map(|(class, host)| {
                let hosts = routing::covering(host).into_iter();
                hosts.filter_map(|host| self.servers.get(&(class.clone(), host)))
            });
            let listening = self.listening.get(id);
            for other in wider.chain(listening).flatten() {
                if found.insert(other.clone()) {
                    pending.push(other);
                }
            }
        }
        found
    }

    pub(super) fn is_known_class(&self, class: &str) -> bool {
        class == DEFAULT_CLASS || self.known_classes.contains(class)
    }

    pub(super) fn is_foreign(&self, object: &Value) -> bool {
        self.is_foreign_class(class_of(object))
    }

    pub(super) fn is_foreign_class(&self, class: &str) -> bool {
        self.foreign_classes.contains(class)
    }

    /// Returns true if another Ingress gets requests for a text prefix that a prefix of path elements
    /// does not match.
    pub(super) fn has_wider_path(
        &self,
        id: &ObjectId,
        (class, host): (&str, &str),
        prefix: &str,
    ) -> bool {
        let is_wider =
            |path: &str| is_expression(path) || path != prefix && prefix.starts_with(path);
        routing::covering(host).into_iter().any(|host| {
            let first = owned_path(class, &host, "/", "");
            let mut paths = self
                .path_owners
                .range(first..)
                .take_while(|(it, _)| it.0 == class && it.1 == host);
            paths.any(|((_, _, path, is_exact), (owner, _))| {
                owner != id && !is_exact && is_wider(path)
            })
        })
    }

    /// Returns the host of the listener that serves a host over HTTPS, and its owner.
    pub(super) fn listener(&self, host: &str) -> Option<(&str, &ObjectId)> {
        let parent = host
            .split_once('.')
            .map(|(_, parent)| format!("*.{parent}"));
        let candidates = [Some(host.to_owned()), parent, Some(String::new())];
        let mut candidates = candidates.into_iter().flatten();
        candidates.find_map(|host| {
            let (host, owner) = self.certificates.get_key_value(&host)?;
            Some((host.as_str(), owner))
        })
    }
}

/// Older objects come first.
fn by_age(a: &(&ObjectId, &Value), b: &(&ObjectId, &Value)) -> Ordering {
    let age = |object: &Value| {
        let time = object["metadata"]["creationTimestamp"].as_str();
        time.unwrap_or("9999").to_owned()
    };
    age(a.1).cmp(&age(b.1)).then_with(|| a.0.cmp(b.0))
}

pub(super) fn key(id: &ObjectId, object: &Value, host: &str, path: &Value) -> PathKey {
    key_in(id, class_of(object), host, path)
}

pub(super) fn key_in(id: &ObjectId, class: &str, host: &str, path: &Value) -> PathKey {
    let text = |name: &str| path[name].as_str().unwrap_or_default().to_owned();
    let (path_type, path) = (text("pathType"), text("path"));
    [
        id.namespace.clone(),
        class.to_owned(),
        host.to_owned(),
        path_type,
        path,
    ]
}

fn owned_path(class: &str, host: &str, path: &str, path_type: &str) -> OwnedPath {
    let path = if path.is_empty() { "/" } else { path };
    let is_exact = path_type == "Exact";
    (class.to_owned(), host.to_owned(), path.to_owned(), is_exact)
}

/// Returns host, path and type of all paths, including the default backend's.
fn owned_paths(object: &Value) -> Vec<(&str, &str, &str)> {
    let own = paths(object).map(|(host, path)| {
        let path_type = path["pathType"].as_str().unwrap_or_default();
        (host, path["path"].as_str().unwrap_or_default(), path_type)
    });
    let mut own: Vec<_> = own.collect();
    if !object["spec"]["defaultBackend"].is_null() {
        let rules = rules(object).filter(|rule| rule["http"].is_null());
        own.extend(rules.map(|rule| (host_of(rule), "/", "Prefix")));
        own.push(("", "/", "Prefix"));
    }
    own
}

/// Returns the names of `server-alias` and `from-to-www-redirect`.
fn other_names(object: &Value) -> Vec<String> {
    let metadata = from_value(object["metadata"].clone());
    let Ok(NginxReading {
        aliases,
        redirects_www,
        ..
    }) = metadata.map(|metadata| read(&metadata))
    else {
        return Vec::new();
    };
    let hosts = rules(object).map(host_of).filter(|_| redirects_www);
    let hosts = hosts.filter(|it| !it.is_empty() && !it.starts_with('*'));
    aliases.into_iter().chain(hosts.map(www)).collect()
}

/// Returns a name with `www.` if it has none, and without it otherwise.
pub(super) fn www(name: &str) -> String {
    match name.strip_prefix("www.") {
        Some(bare) => bare.to_owned(),
        None => format!("www.{name}"),
    }
}

fn rules(object: &Value) -> impl Iterator<Item = &Value> {
    object["spec"]["rules"].as_array().into_iter().flatten()
}

fn host_of(rule: &Value) -> &str {
    rule["host"].as_str().unwrap_or_default()
}

fn paths(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    rules(object).flat_map(|rule| {
        let paths = rule["http"]["paths"].as_array().into_iter().flatten();
        paths.map(move |path| (host_of(rule), path))
    })
}

fn hosts_with_secrets(object: &Value) -> Vec<String> {
    let entries = object["spec"]["tls"].as_array().into_iter().flatten();
    let entries = entries.filter(|it| it["secretName"].as_str().is_some_and(|it| !it.is_empty()));
    let hosts = entries.flat_map(|entry| tls_hosts(object, entry));
    hosts.collect()
}

/// An entry without hosts covers the hosts of all rules.
pub(super) fn tls_hosts(object: &Value, entry: &Value) -> Vec<String> {
    let hosts = entry["hosts"].as_array().into_iter().flatten();
    let hosts: Vec<String> = hosts.filter_map(Value::as_str).map(str::to_owned).collect();
    if hosts.is_empty() {
        let hosts: BTreeSet<&str> = rules(object).map(host_of).collect();
        return if hosts.is_empty() {
            vec![String::new()]
        } else {
            hosts.into_iter().map(str::to_owned).collect()
        };
    }
    hosts
}
