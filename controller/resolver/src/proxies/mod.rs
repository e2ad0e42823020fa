//! Resolves HTTPProxies: finds roots, follows their includes, and converts their routes to checked
//! routes.
//!
//! HTTPProxy routes take precedence over Ingresses, but not over Gateway API routes. Among equal
//! matches in an include tree, the last route wins, as in Contour. A route that cannot be served
//! still matches its requests, and responds with an error.

mod addresses;
mod answers;
mod authorization;
mod conditions;
mod connections;
mod cookies;
mod cors;
mod descriptors;
mod details;
mod extension_services;
mod fallback;
mod forwarding;
mod header_policies;
mod health_checks;
mod load_balancing;
mod rate_limits;
mod roots;
mod rules;
mod served;
mod services;
pub mod shared;
mod tcp;
mod tls;
mod tokens;
mod tree;
mod values;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::schema;

use self::authorization::HostAuthorization;
pub use self::connections::AuthorityRef;
use self::details::Details;
pub(crate) use self::extension_services::{CheckedExtension, CheckedExtensions};
use self::rate_limits::{HostLimits, LimitService};
pub(crate) use self::roots::FoundProxies;
use self::roots::Root;
use self::rules::RouteFault;
use self::tcp::Connections;
use self::tokens::TokenProviders;
pub(crate) use self::tokens::remote_key_sets;
use self::tree::{IncludeTree, Place};
use self::withheld::Withheld;
use crate::backends::PolicedBackend;
use crate::context::Options;
use crate::ingresses::listeners::OwnerName;
use crate::ingresses::lookup::{LayeredLookup, RuleOwner};
use crate::ingresses::{self, IngressClasses, one_label};
use crate::listeners::implicit::{self, ImplicitListeners};
use crate::routes::rules::{CheckedRule, Rules};
use sesame_kinds::api::{IngressSettings, Metadata, NamespacedName};
use sesame_kinds::status::ProxyDetail;
use sesame_kinds::world::{Kind, ObjectKey, World};

pub(crate) struct CheckedProxy<'w> {
    pub(crate) object: ObjectKey,
    pub(crate) metadata: &'w Metadata,
    pub(crate) gateway: Option<NamespacedName>,
    pub(crate) details: Vec<ProxyDetail>,
    pub(crate) orphaned: bool,
    pub(crate) routes: Vec<usize>,
}

/// References in HTTPProxies and Ingresses that use a Sesame class.
#[derive(Debug)]
pub struct LayeredReferences<'w> {
    /// Listeners for hosts with TLS, which reference certificates.
    pub listeners: Vec<ImplicitListeners<'w>>,
    /// References to CA certificates for Services and token issuers, and to key sets.
    pub authorities: Vec<AuthorityRef<'w>>,
    /// Ingresses with annotations that may reference objects, and their Gateways.
    pub annotated: Vec<((&'w str, &'w str), &'w Metadata)>,
}

/// Finds all references in HTTPProxies and Ingresses that use a Sesame class.
pub fn layered_references<'w>(world: &'w World, options: &'w Options) -> LayeredReferences<'w> {
    let classes = IngressClasses::check(world, options);
    let found = FoundProxies::find(world, &classes);
    LayeredReferences {
        listeners: listeners_of_all(world, &classes, &found),
        authorities: connections::authority_refs(&found.proxies)
            .into_iter()
            .chain(tokens::secret_refs(&found.roots))
            .chain(extension_services::secret_refs(
                world,
                &found.roots,
                found.settings,
            ))
            .collect(),
        annotated: ingresses::annotated(world, &classes),
    }
}

pub(crate) fn listeners_of_all<'w>(
    world: &'w World,
    classes: &IngressClasses<'w>,
    proxies: &FoundProxies<'w>,
) -> Vec<ImplicitListeners<'w>> {
    let port = classes.ports().of_tls_hosts();
    let members = fallback::members(world, proxies);
    let mut all = tls::listeners_of_all(&proxies.roots, &members, port);
    all.extend(fallback::listeners_of_all(&proxies.roots, &members, port));
    all.extend(ingresses::listeners_of_all(world, classes));
    if let Some(limits) = proxies.settings.and_then(|it| it.tls.as_ref()) {
        let listeners = all.iter_mut().flat_map(|it| &mut it.listeners);
        listeners.for_each(|listener| implicit::restrict(listener, limits));
    }
    all
}

pub(crate) fn check_all<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    found: FoundProxies<'w>,
) -> Vec<CheckedProxy<'w>> {
    let world = lookup.cx.world;
    let FoundProxies {
        proxies,
        roots,
        mut details,
        settings,
    } = found;
    let mut tree = IncludeTree {
        world,
        proxies: &proxies,
        regexes: &mut *lookup.regexes,
        details: &mut details,
        placed: BTreeMap::new(),
        sizes: BTreeMap::new(),
    };
    tree.details.end_root();
    let places = roots.iter().map(|root| {
        let places = tree.places(root);
        (places, tree.details.end_root())
    });
    let places: Vec<(Vec<Place<'w>>, BTreeSet<NamespacedName>)> = places.collect();
    let mut reached: BTreeSet<NamespacedName> = tree.placed.into_keys().collect();
    let mut routes_of: BTreeMap<NamespacedName, Vec<usize>> = BTreeMap::new();
    for (root, (places, withdrawing)) in roots.iter().zip(places) {
        details.start_root(withdrawing);
        let parts = RootParts {
            connections: tcp::find(root, &proxies, &mut reached, &mut details),
            places,
            settings,
        };
        add(lookup, root, &parts, &mut details, &mut routes_of);
    }
    let checked = proxies.iter().filter_map(|(name, classed)| {
        let is_foreign = classed.gateway.is_some_and(|(namespace, name)| {
            let exists = world.gateways.get(namespace, name).is_some();
            exists && lookup.gateway(namespace, name).is_none()
        });
        let is_root = classed.proxy.spec.virtualhost.is_some();
        (!is_foreign).then(|| CheckedProxy {
            object: Kind::HttpProxy.named(name.clone()),
            metadata: &classed.proxy.metadata,
            gateway: classed
                .gateway
                .map(|(namespace, name)| NamespacedName::new(namespace, name)),
            details: details.remove(name),
            orphaned: !is_root && !reached.contains(name),
            routes: routes_of.remove(name).unwrap_or_default(),
        })
    });
    let checked: Vec<CheckedProxy<'w>> = checked.collect();
    // `Valid` stays True, so commands on a host would not show warnings otherwise.
    for proxy in &checked {
        for detail in proxy.details.iter().filter(|detail| detail.warning) {
            let problems = &mut lookup.cx.problems;
            problems.add(proxy.object.clone(), detail.message.clone());
        }
    }
    checked
}

struct RootParts<'w> {
    /// In order of precedence.
    places: Vec<Place<'w>>,
    connections: Option<Connections<'w>>,
    settings: Option<&'w IngressSettings>,
}

fn add<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    root: &Root<'w>,
    parts: &RootParts<'w>,
    details: &mut Details,
    routes_of: &mut BTreeMap<NamespacedName, Vec<usize>>,
) {
    let (namespace, name) = root.gateway;
    let gateway = NamespacedName::new(namespace, name);
    let code = ("ListenerError", "ErrorIdentifyingListener");
    let Some((position, listeners)) = lookup.gateway(namespace, name) else {
        details.error(
            &root.name,
            code,
            format!("Gateway {gateway} does not exist"),
        );
        return;
    };
    let grants = &lookup.cx.grants;
    fallback::report(root, listeners, parts.settings, grants, details);
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    let mut found = listeners.find(&root.host, owner, lookup.cx);
    tls::report(root, (listeners, &found.https), details);
    let takes_connections = root.proxy.spec.tcpproxy.is_some();
    if takes_connections || tls::is_faulty(root) {
        // Do not fall back to other listeners, because they lack the host's TLS settings.
        found.https.clear();
    } else if tls::validates_clients(root) {
        // Other listeners do not validate clients as this root requires.
        found
            .https
            .retain(|(place, _)| listeners.is_added(*place, owner));
    }
    let connections = parts.connections.as_ref();
    let connections = connections.filter(|_| !tls::is_faulty(root));
    let tcp_route = connections.and_then(|connections| {
        tcp::add(root, connections, (position, listeners), lookup, details)
    });
    match tcp_route {
        Some((name, added)) => routes_of.entry(name).or_default().push(added),
        // As in Contour, an error in an included `tcpproxy` withdraws the whole root.
        None if takes_connections => details.withdraw(&root.name),
        None => {}
    }
    if found.is_empty() && !takes_connections {
        let why = format!(
            "no listener of Gateway {gateway}{} with a hostname for {} allows namespace {:?}",
            listeners.ports.described(),
            root.host.domain(),
            root.name.namespace
        );
        details.error(&root.name, code, why);
        return;
    }
    let policy = cors::of_root(root, lookup.regexes, details);
    // Look up token providers' Secrets in the root's namespace, even for included routes.
    let owner = RuleOwner::of(Kind::HttpProxy, &root.proxy.metadata);
    let providers = TokenProviders::read(root, &mut lookup.rule_context(&owner));
    providers.report(&root.name, details);
    let authorization = HostAuthorization::read(root, &parts.places, lookup, details);
    let limit_service = LimitService::find(parts.settings, root.gateway, lookup);
    let checks = HostChecks {
        providers: &providers,
        authorization: authorization.as_ref(),
        limit_service: &limit_service,
    };
    let host = (root, policy.as_ref(), checks);
    served::add(lookup, host, parts, &(position, found), details, routes_of);
}

type ServedHost<'a, 'w> = (&'a Root<'w>, Option<&'a schema::Cors>, HostChecks<'a, 'w>);

#[derive(Clone, Copy)]
struct HostChecks<'a, 'w> {
    providers: &'a TokenProviders<'w>,
    authorization: Option<&'a HostAuthorization<'w>>,
    limit_service: &'a Result<LimitService<'w>, RouteFault>,
}

struct PlaceRules<'w> {
    rules: Vec<CheckedRule>,
    /// Served only if no valid route in the include tree has an equal match.
    withheld: Vec<CheckedRule>,
    policed: Vec<PolicedBackend<'w>>,
}

fn rules<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    owner: &RuleOwner<'w>,
    (root, policy, checks): ServedHost<'_, 'w>,
    place: &Place<'w>,
    details: &mut Details,
) -> PlaceRules<'w> {
    let one_label = one_label(&root.host);
    let spec = &place.proxy.spec;
    let (mut served, mut policed) = (Vec::new(), BTreeSet::new());
    let mut withheld = Withheld::new(place, &one_label);
    if spec.routes.is_empty() && spec.includes.is_empty() && spec.tcpproxy.is_none() {
        let why = "HTTPProxy.Spec must have at least one Route, Include or TCPProxy";
        details.error(&place.name, ("SpecError", "NothingDefined"), why);
    }
    let root_unknown = &root.proxy.metadata.unknown;
    let place_unknown = &place.proxy.metadata.unknown;
    let unknown = root_unknown
        .refusal("routes")
        .or_else(|| place_unknown.refusal("routes"));
    let addresses = addresses::of_host(root);
    let (namespace, name) = root.gateway;
    let gateway = lookup.gateway(namespace, name);
    let inherited = gateway.map(|(_, it)| it.gateway().most_limits.clone());
    let mut cx = lookup.rule_context(owner);
    let inherited = inherited.unwrap_or_default();
    let limits = HostLimits::read(root, checks.limit_service, inherited, cx.regexes);
    for (index, route) in place.routes.iter().enumerate().rev() {
        let unknown = unknown.clone();
        let unknown = unknown.or_else(|| place_unknown.refusal_of("routes", index));
        let conditions = &route.conditions;
        let route_match = match place.inherited.route(conditions, cx.regexes) {
            Ok(route_match) => one_label.applied_to(route_match),
            Err((reason, why)) => {
                let protects =
                    unknown.is_some() || self::rules::may_protect(route, root.virtualhost);
                let unless = if protects { "" } else { withheld::UNLESS_TAKEN };
                let why = format!("routes[{index}]: {why}; its requests get 500{unless}");
                details.error(&place.name, ("RouteError", reason), why);
                let widened = place.inherited.widened(conditions, cx.regexes);
                withheld.add_route(index, widened, protects);
                continue;
            }
        };
        let mut read = self::rules::read(index, route, route_match, unknown, &mut cx);
        read.limit(&limits, place, (index, route), cx.regexes);
        read.admit(&addresses, place, (index, route));
        read.verify(checks.providers, (index, route));
        read.authorize(checks.authorization, (index, route));
        read.rule.first = place.number;
        details.of_route(&place.name, index, (read.errors, read.warnings));
        policed.extend(read.policed);
        served.push(read.rule);
    }
    let whole = withheld.whole();
    let (mut rules, mut last) = withheld.finish();
    rules.append(&mut served);
    let valid = rules.len();
    rules.append(&mut last);
    for rule in &mut rules {
        rule.cors = policy.cloned().map(Box::new);
    }
    let mut rules = affordable(rules, cx.route).unwrap_or_else(|why| {
        details.error(&place.name, ("SpecError", "TooLarge"), why);
        vec![whole]
    });
    PlaceRules {
        withheld: rules.split_off(valid.min(rules.len())),
        rules,
        policed: policed.into_iter().collect(),
    }
}

fn affordable(rules: Vec<CheckedRule>, route: &str) -> Result<Vec<CheckedRule>, String> {
    let rules = Rules::Requests(rules);
    rules.affordable(route, 1)?;
    match rules {
        Rules::Requests(rules) => Ok(rules),
        Rules::Connections(_) => Ok(Vec::new()),
    }
}
