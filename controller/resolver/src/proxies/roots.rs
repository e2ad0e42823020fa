//! Finds the HTTPProxies that use a Sesame class, and the roots among them. A root is an HTTPProxy
//! that defines a virtual host.

use std::collections::{BTreeMap, BTreeSet};

use super::details::{DetailCode, Details};
use crate::ingresses::IngressClasses;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{DuplicateHosts, HttpProxy, IngressSettings, NamespacedName, ProxyHost};
use sesame_kinds::world::World;

pub(super) type Proxies<'w> = BTreeMap<NamespacedName, Classed<'w>>;

#[derive(Clone, Copy)]
pub(super) struct Classed<'w> {
    pub(super) proxy: &'w HttpProxy,
    pub(super) class: &'w str,
    pub(super) gateway: Option<(&'w str, &'w str)>,
}

pub(super) struct Root<'w> {
    pub(super) name: NamespacedName,
    pub(super) proxy: &'w HttpProxy,
    pub(super) virtualhost: &'w ProxyHost,
    pub(super) host: Hostname,
    pub(super) gateway: (&'w str, &'w str),
}

pub(crate) struct FoundProxies<'w> {
    pub(super) proxies: Proxies<'w>,
    /// Oldest first.
    pub(super) roots: Vec<Root<'w>>,
    pub(super) details: Details,
    pub(super) settings: Option<&'w IngressSettings>,
}

impl<'w> FoundProxies<'w> {
    pub(crate) fn find(world: &'w World, classes: &IngressClasses<'w>) -> Self {
        let mut details = Details::default();
        let proxies = classed(world, classes);
        let settings = classes.settings();
        let roots = find(&proxies, settings, &mut details);
        Self {
            proxies,
            roots,
            details,
            settings,
        }
    }
}

/// Oldest first, each with the `fqdn` as written.
type Owners<'a> = Vec<(&'a NamespacedName, &'a str)>;

const MAX_NAMED: usize = 8;

fn classed<'w>(world: &'w World, classes: &IngressClasses<'w>) -> Proxies<'w> {
    let proxies = world.http_proxies.iter().filter_map(|proxy| {
        let (class, gateway) = classes.find_for_proxy(proxy)?;
        let found = Classed {
            proxy,
            class,
            gateway: gateway.as_ref().ok().copied(),
        };
        Some((proxy.metadata.key(), found))
    });
    proxies.collect()
}

/// Of roots with the same hostname, keeps only the oldest. If `duplicates` is `AllInvalid`, drops
/// all of them.
fn find<'w>(
    proxies: &Proxies<'w>,
    settings: Option<&IngressSettings>,
    details: &mut Details,
) -> Vec<Root<'w>> {
    let duplicates = settings.and_then(|it| it.duplicates.as_ref());
    let none_has_it = duplicates == Some(&DuplicateHosts::AllInvalid);
    let mut roots: Vec<Root<'w>> = Vec::new();
    for (name, classed) in proxies {
        match root(name, *classed, settings) {
            Some(Ok(root)) => roots.push(root),
            Some(Err((code, why))) => details.error(name, code, why),
            None => {}
        }
    }
    roots.sort_by(|a, b| a.proxy.metadata.by_age(&b.proxy.metadata));
    let mut owners: BTreeMap<((&str, &str), &Hostname), Owners<'_>> = BTreeMap::new();
    for root in &roots {
        let host_owners = owners.entry((root.gateway, &root.host)).or_default();
        host_owners.push((&root.name, &root.virtualhost.fqdn));
    }
    let mut losers: BTreeSet<NamespacedName> = BTreeSet::new();
    for host_owners in owners.values().filter(|host_owners| host_owners.len() > 1) {
        for (name, fqdn) in host_owners.iter().skip(usize::from(!none_has_it)) {
            let why = taken(name, fqdn, host_owners, none_has_it);
            details.error(name, ("VirtualHostError", "DuplicateVhost"), why);
            losers.insert((*name).clone());
        }
    }
    roots.retain(|root| !losers.contains(&root.name));
    roots
}

fn root<'w>(
    name: &NamespacedName,
    Classed {
        proxy,
        class,
        gateway,
    }: Classed<'w>,
    settings: Option<&IngressSettings>,
) -> Option<Result<Root<'w>, (DetailCode, String)>> {
    let virtualhost = proxy.spec.virtualhost.as_ref()?;
    let namespaces = settings.and_then(|it| it.root_namespaces.as_ref());
    if namespaces.is_some_and(|allowed| !allowed.contains(&name.namespace)) {
        let code = ("RootNamespaceError", "RootProxyNotAllowedInNamespace");
        let why = "root HTTPProxy cannot be defined in this namespace; see rootNamespaces in \
                   spec.ingress of the configuration";
        return Some(Err((code, why.to_owned())));
    }
    let Some(gateway) = gateway else {
        let code = ("ListenerError", "ErrorIdentifyingListener");
        return Some(Err((code, format!("class {class} names no Gateway"))));
    };
    let root = hostname(&virtualhost.fqdn).map(|host| Root {
        name: name.clone(),
        proxy,
        virtualhost,
        host,
        gateway,
    });
    Some(root.map_err(|why| (("VirtualHostError", "FQDNNotSpecified"), why)))
}

/// The message must not reveal roots in other namespaces.
fn taken(name: &NamespacedName, fqdn: &str, owners: &Owners<'_>, none_has_it: bool) -> String {
    let winners = if none_has_it { owners.len() } else { 1 };
    let others = owners.iter().take(winners).map(|(other, _)| *other);
    let others = others.filter(|other| *other != name);
    let seen = others.filter(|other| other.namespace == name.namespace);
    let seen: Vec<String> = seen.map(ToString::to_string).take(MAX_NAMED).collect();
    let users = if seen.is_empty() {
        "an HTTPProxy in another namespace".to_owned()
    } else {
        format!("HTTPProxy {}", seen.join(", "))
    };
    let outcome = if none_has_it {
        "so none of them is served"
    } else {
        "which is older"
    };
    format!("fqdn {fqdn:?} is used by {users}, {outcome}; choose another one")
}

fn hostname(fqdn: &str) -> Result<Hostname, String> {
    if fqdn.is_empty() {
        return Err("Spec.VirtualHost.Fqdn must be specified".to_owned());
    }
    // As in Contour, names that differ only in case are duplicates.
    Hostname::parse(&fqdn.to_ascii_lowercase()).map_err(|why| format!("fqdn {why}"))
}
