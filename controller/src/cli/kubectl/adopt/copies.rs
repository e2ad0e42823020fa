//! Copies of another controller's Ingresses and HTTPProxies, one set for each host.
//!
//! A copy has another name and class, so the other controller keeps serving the original, and a
//! host can return to it at any time.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sesame_kinds::api::{CONTOUR_CLASS, DEFAULT_INGRESS_CLASS, INGRESS_CLASS};

use super::annotations;
use super::older::{OlderOriginals, oldest_first};

pub(super) const CLASS_ANNOTATIONS: [&str; 2] = [INGRESS_CLASS, CONTOUR_CLASS];
/// Limit of the Kubernetes API.
const MAX_NAME_BYTES: usize = 253;
/// Maximum number of HTTPProxies that one root includes.
const MAX_INCLUDED: usize = 1000;

/// Objects of a cluster, as JSON.
#[derive(Debug, Default)]
pub(super) struct ForeignObjects {
    pub(super) classes: Vec<Value>,
    pub(super) ingresses: Vec<Value>,
    pub(super) proxies: Vec<Value>,
}

/// The copies that serve one host.
#[derive(Debug, Default)]
pub(super) struct HostCopies {
    pub(super) copies: Vec<Value>,
    /// Originals by the copies' `Kind/namespace/name`.
    pub(super) originals: BTreeMap<String, String>,
    /// Number of paths and routes.
    pub(super) rules: usize,
    /// Differences that the copies do not show: whether they are serious, originals and messages.
    pub(super) faults: BTreeSet<(bool, String, String)>,
    /// Differences from the originals without an effect.
    pub(super) notes: BTreeSet<String>,
}

pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    let items = value.pointer(pointer).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

/// Unlike indexing, does not insert a missing field.
pub(super) fn items_mut<'v>(value: &'v mut Value, pointer: &str) -> Option<&'v mut Vec<Value>> {
    value.pointer_mut(pointer)?.as_array_mut()
}

/// Returns `Kind/namespace/name`.
pub(super) fn name_of(object: &Value) -> String {
    let kind = text(object, "/kind");
    let (namespace, name) = (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    format!("{kind}/{namespace}/{name}")
}

/// Returns the object's class, or the default class if it has none.
pub(super) fn class_of<'v>(object: &'v Value, default: Option<&'v str>) -> Option<&'v str> {
    let annotations = &object["metadata"]["annotations"];
    let annotated = CLASS_ANNOTATIONS
        .iter()
        .rev()
        .find_map(|name| annotations[*name].as_str());
    let class = annotated.or_else(|| object["spec"]["ingressClassName"].as_str());
    class.filter(|it| !it.is_empty()).or(default)
}

/// Returns the name of the newest default class, like the API server.
pub(super) fn default_class(classes: &[Value]) -> Option<&str> {
    let is_default =
        |class: &&Value| class["metadata"]["annotations"][DEFAULT_INGRESS_CLASS] == "true";
    let created = |class: &&Value| text(class, "/metadata/creationTimestamp").to_owned();
    let newest = classes.iter().filter(is_default).max_by_key(created)?;
    Some(text(newest, "/metadata/name"))
}

impl ForeignObjects {
    /// Keeps the objects whose class is not one of `ours`, nor without a class if one of `ours` is
    /// the default.
    pub(super) fn retain_foreign(&mut self, ours: &BTreeSet<String>) {
        let default = default_class(&self.classes).map(str::to_owned);
        let is_foreign = |object: &Value| {
            let class = class_of(object, default.as_deref());
            !class.is_some_and(|class| ours.contains(class))
        };
        self.ingresses.retain(is_foreign);
        self.proxies.retain(is_foreign);
    }

    /// Returns the copies for each host. The host of rules without a host is empty.
    pub(super) fn by_host(&self, class: &str) -> Result<BTreeMap<String, HostCopies>> {
        let mut hosts: BTreeMap<String, HostCopies> = BTreeMap::new();
        let ingresses = oldest_first(&self.ingresses);
        let mut older = OlderOriginals::new(&ingresses, default_class(&self.classes));
        for ingress in ingresses {
            let rules = items(ingress, "/spec/rules").iter();
            let mut names: BTreeSet<String> = rules
                .map(|rule| text(rule, "/host").to_ascii_lowercase())
                .collect();
            if ingress["spec"]["defaultBackend"].is_object() {
                names.insert(String::new());
            }
            for host in names {
                let copy = copy_of_ingress(ingress, &host, class)?;
                let found = hosts.entry(host.clone()).or_default();
                if let Some(copy) = older.without_owned_paths((ingress, copy), &host, found) {
                    found.add(ingress, copy);
                }
            }
        }
        let proxies = self.proxies.iter().map(|it| (name_of(it), it));
        let proxies: BTreeMap<String, &Value> = proxies.collect();
        for root in oldest_first(&self.proxies) {
            let fqdn = text(root, "/spec/virtualhost/fqdn");
            if fqdn.is_empty() {
                continue;
            }
            let host = fqdn.to_ascii_lowercase();
            let found = hosts.entry(host.clone()).or_default();
            if older.is_oldest_root(root, &host, found) {
                for proxy in with_included(root, &proxies)? {
                    found.add(proxy, copy_of_proxy(proxy, fqdn, class, &proxies)?);
                }
            }
        }
        Ok(hosts)
    }
}

impl HostCopies {
    fn add(&mut self, original: &Value, copy: Value) {
        // Two roots may include the same object.
        let known = self.originals.insert(name_of(&copy), name_of(original));
        if known.is_some() {
            return;
        }
        for name in annotations::unread(original) {
            let message = format!(
                "metadata.annotations {name} is not read; if it protects requests, they would be \
                 served without this protection"
            );
            self.faults.insert((true, name_of(original), message));
        }
        let rules = items(&copy, "/spec/rules").iter();
        let paths: usize = rules
            .map(|rule| items(rule, "/http/paths").len().max(1))
            .sum();
        self.rules += paths + items(&copy, "/spec/routes").len();
        self.copies.push(copy);
    }
}

fn copy_of_ingress(ingress: &Value, host: &str, class: &str) -> Result<Value> {
    let mut copy = renamed(ingress, host, class)?;
    if let Some(rules) = items_mut(&mut copy, "/spec/rules") {
        rules.retain(|rule| text(rule, "/host").eq_ignore_ascii_case(host));
    }
    if let Some(tls) = items_mut(&mut copy, "/spec/tls") {
        for entry in tls.iter_mut() {
            if let Some(hosts) = items_mut(entry, "/hosts") {
                let all = hosts.len();
                hosts.retain(|name| name.as_str().is_some_and(|it| covers(it, host)));
                // Without hosts, an entry would apply to all rules.
                if hosts.is_empty() && all > 0 {
                    *entry = Value::Null;
                }
            }
        }
        tls.retain(|entry| !entry.is_null());
        if tls.is_empty() {
            remove(&mut copy["spec"], "tls");
        }
    }
    if !host.is_empty() {
        remove(&mut copy["spec"], "defaultBackend");
    }
    Ok(copy)
}

fn covers(name: &str, host: &str) -> bool {
    let parent = host.split_once('.').map_or("", |(_, parent)| parent);
    let wildcard = name.strip_prefix("*.");
    name.eq_ignore_ascii_case(host) || wildcard.is_some_and(|it| it.eq_ignore_ascii_case(parent))
}

/// Returns the root and everything that it includes.
fn with_included<'v>(
    root: &'v Value,
    proxies: &BTreeMap<String, &'v Value>,
) -> Result<Vec<&'v Value>> {
    let mut found = vec![root];
    let mut seen = BTreeSet::from([name_of(root)]);
    let mut next = 0;
    while let Some(proxy) = found.get(next).copied() {
        next += 1;
        for include in items(proxy, "/spec/includes") {
            let name = included(proxy, include);
            if let Some(proxy) = proxies.get(&name)
                && seen.insert(name)
            {
                found.push(proxy);
            }
        }
        ensure!(
            found.len() <= MAX_INCLUDED,
            "{} includes more than {MAX_INCLUDED} HTTPProxies",
            name_of(root)
        );
    }
    Ok(found)
}

fn included(proxy: &Value, include: &Value) -> String {
    let namespace = match text(include, "/namespace") {
        "" => text(proxy, "/metadata/namespace"),
        namespace => namespace,
    };
    format!("HTTPProxy/{namespace}/{}", text(include, "/name"))
}

fn copy_of_proxy(
    proxy: &Value,
    host: &str,
    class: &str,
    proxies: &BTreeMap<String, &Value>,
) -> Result<Value> {
    let mut copy = renamed(proxy, host, class)?;
    if let Some(includes) = items_mut(&mut copy, "/spec/includes") {
        for include in includes {
            // A missing object stays missing.
            if proxies.contains_key(&included(proxy, include)) {
                include["name"] = json!(copied_name(text(include, "/name"), host)?);
            }
        }
    }
    Ok(copy)
}

/// Returns a copy with another name and class, without status and metadata that other programs
/// maintain.
fn renamed(object: &Value, host: &str, class: &str) -> Result<Value> {
    let annotations = annotations::copied(object, host);
    let mut metadata = json!({
        "name": copied_name(text(object, "/metadata/name"), host)?,
        "namespace": object["metadata"]["namespace"],
    });
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    let mut spec = object["spec"].clone();
    spec["ingressClassName"] = json!(class);
    Ok(json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": metadata,
        "spec": spec,
    }))
}

/// An Ingress with several hosts has one copy for each host, so that hosts move independently.
fn copied_name(name: &str, host: &str) -> Result<String> {
    let host = match host.to_ascii_lowercase() {
        host if host.is_empty() => "all-hosts".to_owned(),
        host => host.replace('*', "any"),
    };
    let copied = format!("{name}-{host}");
    ensure!(
        copied.len() <= MAX_NAME_BYTES,
        "the copy of {name} for {host} would have a name of more than {MAX_NAME_BYTES} bytes"
    );
    Ok(copied)
}

fn remove(value: &mut Value, name: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingress() -> Value {
        let rule = |host: &str| json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix"}]}});
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "a", "uid": "1", "labels": {"x": "y"}, "annotations": {
                "kubernetes.io/ingress.class": "nginx", "cert-manager.io/issuer": "x",
                "nginx.ingress.kubernetes.io/rewrite-target": "/"}},
            "spec": {
                "ingressClassName": "nginx", "defaultBackend": {"service": {"name": "x"}},
                "rules": [rule("A.test"), rule("*.b.test"), {"host": "a.test"}],
                "tls": [{"hosts": ["a.test", "c.b.test"], "secretName": "one"}, {"hosts": ["c.test"]}, {"secretName": "all"}],
            },
            "status": {"loadBalancer": {}},
        })
    }

    #[test]
    fn ingress_has_one_copy_per_host() {
        let foreign = ForeignObjects {
            ingresses: vec![ingress()],
            ..ForeignObjects::default()
        };
        let hosts = foreign.by_host("edge").expect("copies");
        let names: Vec<&str> = hosts.keys().map(String::as_str).collect();
        assert_eq!(names, ["", "*.b.test", "a.test"]);
        let copy = &hosts["a.test"].copies[0];
        let metadata = json!({"name": "shop-a.test", "namespace": "a",
            "annotations": {"nginx.ingress.kubernetes.io/rewrite-target": "/"}});
        assert_eq!(copy["metadata"], metadata);
        assert_eq!(copy["spec"]["ingressClassName"], "edge");
        assert_eq!(items(copy, "/spec/rules").len(), 2);
        assert_eq!(
            copy["spec"]["tls"],
            json!([{"hosts": ["a.test"], "secretName": "one"}, {"secretName": "all"}])
        );
        assert!(copy["spec"]["defaultBackend"].is_null() && copy["status"].is_null());
        assert_eq!(hosts["a.test"].rules, 2);
        let all = &hosts[""].copies[0];
        assert_eq!(name_of(all), "Ingress/a/shop-all-hosts");
        assert!(all["spec"]["defaultBackend"].is_object() && items(all, "/spec/rules").is_empty());
        assert_eq!(
            name_of(&hosts["*.b.test"].copies[0]),
            "Ingress/a/shop-any.b.test"
        );
    }

    #[test]
    fn included_proxies_are_copied_with_their_root() {
        let proxy = |namespace: &str, name: &str, spec: Value| {
            json!({"apiVersion": "projectcontour.io/v1", "kind": "HTTPProxy",
                   "metadata": {"name": name, "namespace": namespace}, "spec": spec})
        };
        let root = json!({"virtualhost": {"fqdn": "a.test"}, "routes": [{}],
            "includes": [{"name": "cart", "namespace": "b"}, {"name": "gone"}]});
        let foreign = ForeignObjects {
            proxies: vec![
                proxy("a", "root", root),
                proxy(
                    "b",
                    "cart",
                    json!({"routes": [{}, {}], "includes": [{"name": "cart"}]}),
                ),
                proxy("b", "other", json!({"routes": [{}]})),
            ],
            ..ForeignObjects::default()
        };
        let hosts = foreign.by_host("edge").expect("copies");
        let HostCopies {
            copies,
            originals,
            rules,
            ..
        } = &hosts["a.test"];
        assert_eq!((copies.len(), *rules), (2, 3));
        let includes = json!([{"name": "cart-a.test", "namespace": "b"}, {"name": "gone"}]);
        assert_eq!(copies[0]["spec"]["includes"], includes);
        assert_eq!(
            copies[1]["spec"]["includes"],
            json!([{"name": "cart-a.test"}])
        );
        assert_eq!(originals["HTTPProxy/b/cart-a.test"], "HTTPProxy/b/cart");
        let other = copy_of_proxy(&foreign.proxies[2], "b.test", "edge", &BTreeMap::new());
        let spec = json!({"routes": [{}], "ingressClassName": "edge"});
        assert_eq!(other.expect("a copy")["spec"], spec);
        let long = "x".repeat(250);
        assert!(copied_name(&long, "a.test").is_err());
    }

    #[test]
    fn paths_belong_to_their_oldest_original() {
        let with = |name: &str, created: &str, paths: &[&str]| {
            let paths: Vec<Value> = paths
                .iter()
                .map(|path| json!({"path": path, "pathType": "Prefix"}))
                .collect();
            json!({"kind": "Ingress", "metadata": {"name": name, "namespace": "a", "creationTimestamp": created},
                "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.test", "http": {"paths": paths}}]}})
        };
        let mut canary = with("canary", "2026-01-04T00:00:00Z", &["/x"]);
        canary["metadata"]["annotations"]["nginx.ingress.kubernetes.io/canary"] = json!("true");
        let mut other = with("other", "2026-01-05T00:00:00Z", &["/x", "/z"]);
        other["spec"]["ingressClassName"] = json!("kong");
        let foreign = ForeignObjects {
            ingresses: vec![
                with("a-newer", "2026-01-02T00:00:00Z", &["/x", "/y"]),
                with("b-older", "2026-01-01T00:00:00Z", &["/x"]),
                with("c-newest", "2026-01-03T00:00:00Z", &["/x", "/y"]),
                canary,
                other,
            ],
            ..ForeignObjects::default()
        };
        let hosts = foreign.by_host("edge").expect("copies");
        let HostCopies {
            copies,
            notes,
            faults,
            ..
        } = &hosts["a.test"];
        let paths = copies.iter().map(|it| {
            let paths = items(it, "/spec/rules/0/http/paths").iter();
            let paths: Vec<&str> = paths.map(|it| text(it, "/path")).collect();
            (text(it, "/metadata/name"), paths)
        });
        let paths: Vec<(&str, Vec<&str>)> = paths.collect();
        assert_eq!(
            paths,
            [
                ("b-older-a.test", vec!["/x"]),
                ("a-newer-a.test", vec!["/y"]),
                ("canary-a.test", vec!["/x"]),
                ("other-a.test", vec!["/z"]),
            ]
        );
        assert_eq!((notes.len(), faults.len()), (3, 1), "{notes:?} {faults:?}");
        let note = notes.first().expect("a note");
        assert!(note.contains("Ingress/a/b-older is older"), "{note}");
    }

    #[test]
    fn unread_annotations_are_serious_faults() {
        let mut object = ingress();
        object["metadata"]["annotations"]["konghq.com/plugins"] = json!("key-auth");
        let foreign = ForeignObjects {
            ingresses: vec![object],
            ..ForeignObjects::default()
        };
        for (host, found) in foreign.by_host("edge").expect("copies") {
            let faults: Vec<_> = found.faults.iter().collect();
            let [(true, original, message)] = faults.as_slice() else {
                panic!("{host}: {faults:?}");
            };
            assert_eq!(original, "Ingress/a/shop");
            assert!(message.contains("konghq.com/plugins"), "{message}");
        }
    }

    #[test]
    fn only_oldest_root_of_host_is_copied() {
        let root = |name: &str, created: &str| {
            json!({"kind": "HTTPProxy",
            "metadata": {"name": name, "namespace": "a", "creationTimestamp": created},
            "spec": {"virtualhost": {"fqdn": "a.test"}}})
        };
        let foreign = ForeignObjects {
            proxies: vec![
                root("a", "2026-01-02T00:00:00Z"),
                root("b", "2026-01-01T00:00:00Z"),
            ],
            ..ForeignObjects::default()
        };
        let hosts = foreign.by_host("edge").expect("copies");
        let found = &hosts["a.test"];
        assert_eq!((found.copies.len(), found.notes.len()), (1, 1));
        assert_eq!(found.originals["HTTPProxy/a/b-a.test"], "HTTPProxy/a/b");
    }

    #[test]
    fn default_backend_serves_other_paths_of_hosts() {
        let mut object = ingress();
        object["spec"]["rules"] = json!([{"host": "A.test", "http": {"paths": [{"path": "/x", "pathType": "Prefix"}]}},
            {"host": "b.test"}, {"host": "c.test", "http": {"paths": [{"path": "/", "pathType": "Prefix"}]}}]);
        let foreign = ForeignObjects {
            ingresses: vec![object],
            ..ForeignObjects::default()
        };
        let hosts = foreign.by_host("edge").expect("copies");
        for (host, expected) in [
            ("a.test", &["/x", "/"][..]),
            ("b.test", &["/"]),
            ("c.test", &["/"]),
        ] {
            let rules = items(&hosts[host].copies[0], "/spec/rules").iter();
            let paths: Vec<&str> = rules.map(|it| text(it, "/http/paths/0/path")).collect();
            assert_eq!(paths, expected, "{host}");
        }
        let last = &hosts["a.test"].copies[0]["spec"]["rules"][1]["http"]["paths"][0];
        assert_eq!(last["backend"], json!({"service": {"name": "x"}}));
        assert_eq!(hosts[""].copies.len(), 1);
    }

    #[test]
    fn only_objects_of_other_classes_are_foreign() {
        let class = |name: &str, default: &str, created: &str| json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": {DEFAULT_INGRESS_CLASS: default}}});
        let with =
            |class: Option<&str>| json!({"kind": "Ingress", "spec": {"ingressClassName": class}});
        let mut annotated = with(Some("ours"));
        annotated["metadata"]["annotations"]["kubernetes.io/ingress.class"] = json!("nginx");
        for (newest, expected) in [("nginx", 3), ("ours", 2)] {
            let older = if newest == "nginx" { "ours" } else { "nginx" };
            let mut foreign = ForeignObjects {
                classes: vec![
                    class(newest, "true", "2026-01-02T00:00:00Z"),
                    class(older, "true", "2026-01-01T00:00:00Z"),
                ],
                ingresses: vec![
                    with(None),
                    with(Some("ours")),
                    with(Some("nginx")),
                    annotated.clone(),
                ],
                ..ForeignObjects::default()
            };
            foreign.retain_foreign(&BTreeSet::from(["ours".to_owned()]));
            assert_eq!(foreign.ingresses.len(), expected, "{newest}");
        }
    }
}
