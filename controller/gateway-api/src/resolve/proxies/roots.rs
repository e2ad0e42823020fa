//! The HTTPProxies of Sesame classes, and the roots among them: each serves one host.

use std::collections::BTreeMap;

use super::details::Details;
use crate::api::{HttpProxy, NamespacedName, ProxyHost};
use crate::resolve::ingresses::IngressClasses;
use crate::resolve::syntax::hostnames::Hostname;
use crate::world::World;

/// HTTPProxies by name, each with the Gateway of its class.
pub(super) type Proxies<'w> = BTreeMap<NamespacedName, Classed<'w>>;

/// An HTTPProxy and the Gateway of its class.
#[derive(Clone, Copy)]
pub(super) struct Classed<'w> {
    pub(super) proxy: &'w HttpProxy,
    pub(super) class: &'w str,
    /// Namespace and name, or `None` if the class names none.
    pub(super) gateway: Option<(&'w str, &'w str)>,
}

/// An HTTPProxy with a host that it has alone.
pub(super) struct Root<'w> {
    pub(super) name: NamespacedName,
    pub(super) proxy: &'w HttpProxy,
    pub(super) virtualhost: &'w ProxyHost,
    pub(super) host: Hostname,
    pub(super) gateway: (&'w str, &'w str),
}

/// The HTTPProxies of Sesame classes and the roots among them.
pub(crate) struct FoundProxies<'w> {
    pub(super) proxies: Proxies<'w>,
    /// Oldest first.
    pub(super) roots: Vec<Root<'w>>,
    /// Errors of HTTPProxies whose host is invalid or taken.
    pub(super) details: Details,
}

impl<'w> FoundProxies<'w> {
    pub(crate) fn find(world: &'w World, classes: &IngressClasses<'w>) -> Self {
        let mut details = Details::default();
        let proxies = classed(world, classes);
        let roots = find(&proxies, &mut details);
        Self {
            proxies,
            roots,
            details,
        }
    }
}

fn classed<'w>(world: &'w World, classes: &IngressClasses<'w>) -> Proxies<'w> {
    let proxies = world.http_proxies.iter().filter_map(|proxy| {
        let (class, gateway) = classes.of_proxy(proxy)?;
        let found = Classed {
            proxy,
            class,
            gateway: gateway.as_ref().ok().copied(),
        };
        Some((proxy.metadata.key(), found))
    });
    proxies.collect()
}

/// Returns the roots, oldest first. Of several with one host, the oldest has it.
fn find<'w>(proxies: &Proxies<'w>, details: &mut Details) -> Vec<Root<'w>> {
    let mut all: Vec<(&NamespacedName, &Classed<'w>)> = proxies.iter().collect();
    all.sort_by(|(_, a), (_, b)| a.proxy.metadata.by_age(&b.proxy.metadata));
    let mut owners: BTreeMap<((&str, &str), Hostname), &NamespacedName> = BTreeMap::new();
    let mut roots = Vec::new();
    for (
        name,
        Classed {
            proxy,
            class,
            gateway,
        },
    ) in all
    {
        let Some(virtualhost) = &proxy.spec.virtualhost else {
            continue;
        };
        let Some(gateway) = *gateway else {
            let words = ("ListenerError", "ErrorIdentifyingListener");
            details.error(
                name,
                words,
                format!("IngressClass {class} names no Gateway"),
            );
            continue;
        };
        let host = match hostname(&virtualhost.fqdn) {
            Ok(host) => host,
            Err(why) => {
                details.error(name, ("VirtualHostError", "FQDNNotSpecified"), why);
                continue;
            }
        };
        let owner = *owners.entry((gateway, host.clone())).or_insert(name);
        if owner != name {
            let by = if owner.namespace == name.namespace {
                format!("HTTPProxy {owner}")
            } else {
                "an HTTPProxy of another namespace".to_owned()
            };
            let fqdn = &virtualhost.fqdn;
            let why = format!("fqdn {fqdn:?} is used by {by}, which is older; choose another one");
            details.error(name, ("VirtualHostError", "DuplicateVhost"), why);
            continue;
        }
        roots.push(Root {
            name: name.clone(),
            proxy,
            virtualhost,
            host,
            gateway,
        });
    }
    roots
}

fn hostname(fqdn: &str) -> Result<Hostname, String> {
    if fqdn.is_empty() {
        return Err("Spec.VirtualHost.Fqdn must be specified".to_owned());
    }
    Hostname::parse(fqdn).map_err(|why| format!("fqdn {why}"))
}
