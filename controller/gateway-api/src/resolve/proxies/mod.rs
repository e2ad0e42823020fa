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
mod cors;
mod details;
mod extension_services;
mod forwarding;
mod header_policies;
mod health_checks;
mod load_balancing;
mod rate_limits;
mod roots;
mod rules;
mod services;
mod tcp;
mod tls;
mod tokens;
mod tree;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::{refusal, schema};

use self::authorization::HostAuthorization;
pub use self::connections::AuthorityRef;
use self::details::Details;
use self::rate_limits::HostLimits;
pub(crate) use self::roots::FoundProxies;
use self::roots::Root;
use self::tcp::Connections;
use self::tokens::TokenProviders;
pub(crate) use self::tokens::remote_key_sets;
use self::tree::{IncludeTree, Place};
use crate::api::{
    IngressSettings, InvalidProxies, Metadata, MissingBackend, NamespacedName, ProxyRoute,
};
use crate::resolve::backends::PolicedBackend;
use crate::resolve::context::Options;
use crate::resolve::filters::rewrites::RedirectTo;
use crate::resolve::ingresses::listeners::{ListenersOfHost, OwnerName};
use crate::resolve::ingresses::lookup::{LayeredLookup, RuleOwner};
use crate::resolve::ingresses::{self, IngressClasses, one_label};
use crate::resolve::listeners::implicit::ImplicitListeners;
use crate::resolve::policies::traffic::filters::FilterSettings;
use crate::resolve::routes::matches::RouteMatch;
use crate::resolve::routes::rules::{Action, CheckedRule, Rules};
use crate::status::ProxyDetail;
use crate::world::{Kind, ObjectKey, World};

/// Status for requests that match an invalid include's conditions.
const BAD_GATEWAY: u32 = 502;

pub(crate) struct CheckedProxy<'w> {
    pub(crate) object: ObjectKey,
    pub(crate) metadata: &'w Metadata,
    pub(crate) gateway: Option<NamespacedName>,
    pub(crate) details: Vec<ProxyDetail>,
    pub(crate) orphaned: bool,
    pub(crate) routes: Vec<usize>,
}

/// References to Secrets in HTTPProxies and Ingresses that use a Sesame class.
#[derive(Debug)]
pub struct LayeredReferences<'w> {
    /// Listeners for hosts with TLS, which reference certificates.
    pub listeners: Vec<ImplicitListeners<'w>>,
    /// References to CA certificates for Services and token issuers, and to key sets.
    pub authorities: Vec<AuthorityRef<'w>>,
}

/// Finds all references to Secrets in HTTPProxies and Ingresses that use a Sesame class.
pub fn layered_references<'w>(world: &'w World, options: &'w Options) -> LayeredReferences<'w> {
    let classes = IngressClasses::check(world, options);
    let found = FoundProxies::find(world, &classes);
    LayeredReferences {
        listeners: listeners_of_all(world, &classes, &found),
        authorities: connections::authority_refs(&found.proxies)
            .into_iter()
            .chain(tokens::secret_refs(&found.roots))
            .chain(extension_services::secret_refs(world, &found.roots))
            .collect(),
    }
}

pub(crate) fn listeners_of_all<'w>(
    world: &'w World,
    classes: &IngressClasses<'w>,
    proxies: &FoundProxies<'w>,
) -> Vec<ImplicitListeners<'w>> {
    let mut all = tls::listeners_of_all(&proxies.roots);
    all.extend(ingresses::listeners_of_all(world, classes));
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
        proxies: &proxies,
        regexes: &mut *lookup.regexes,
        details: &mut details,
        placed: BTreeMap::new(),
        sizes: BTreeMap::new(),
    };
    let places: Vec<Vec<Place<'w>>> = roots.iter().map(|root| tree.places(root)).collect();
    let mut reached: BTreeSet<NamespacedName> = tree.placed.into_keys().collect();
    let mut routes_of: BTreeMap<NamespacedName, Vec<usize>> = BTreeMap::new();
    for (root, places) in roots.iter().zip(places) {
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
    checked.collect()
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
    tls::report(root, listeners, details);
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    let mut found = listeners.find(&root.host, owner, lookup.cx);
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
    if let Some((name, added)) = tcp_route {
        routes_of.entry(name).or_default().push(added);
    }
    if found.is_empty() && !takes_connections {
        let why = format!(
            "no listener of Gateway {gateway} with a hostname for {} allows namespace {:?}",
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
    let root = (root, policy.as_ref(), (&providers, authorization.as_ref()));
    let mut skipped_below = None;
    for place in &parts.places {
        if skipped_below.is_some_and(|depth| place.depth > depth) {
            continue;
        }
        let found = (position, found.clone());
        let added = add_place(lookup, root, place, parts.settings, found, details);
        skipped_below = added.is_none().then_some(place.depth);
        let routes = routes_of.entry(place.name.clone()).or_default();
        routes.extend(added.into_iter().flatten());
    }
}

type ServedHost<'a, 'w> = (&'a Root<'w>, Option<&'a schema::Cors>, HostChecks<'a, 'w>);

type HostChecks<'a, 'w> = (&'a TokenProviders<'w>, Option<&'a HostAuthorization<'w>>);

/// Returns `None` if this HTTPProxy's routes and all routes below it are withdrawn.
fn add_place<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    host: ServedHost<'_, 'w>,
    place: &Place<'w>,
    settings: Option<&IngressSettings>,
    (position, found): (usize, ListenersOfHost),
    details: &mut Details,
) -> Option<Vec<usize>> {
    let owner = RuleOwner::of(Kind::HttpProxy, &place.proxy.metadata);
    let (root, ..) = host;
    let (mut rules, policed) = rules(lookup, &owner, host, place, details);
    let invalid = settings.and_then(|it| it.invalid.as_ref());
    if invalid == Some(&InvalidProxies::Withdraw) && details.withdraws(&place.name) {
        let why = "no route of this HTTPProxy or below it is served, because it has errors and \
                   spec.ingress.invalid of the configuration is Withdraw";
        details.warn(&place.name, ("SpecError", "Withdrawn"), why);
        return None;
    }
    if reweight(&mut rules, settings) {
        let why = "the other Services of a route get the share of one that cannot be used, because \
                   spec.ingress.missingBackend of the configuration is Reweight";
        details.warn(&place.name, ("ServiceError", "Reweighted"), why);
    }
    let mut added = Vec::new();
    let listeners = if root.virtualhost.tls.is_some() {
        let permits = settings.and_then(|it| it.disable_permit_insecure) != Some(true);
        let plain = plain(&rules, &place.proxy.spec.routes, permits);
        added.extend(lookup.push(&owner, plain, policed.clone(), (position, found.http)));
        found.https
    } else {
        found.both()
    };
    added.extend(lookup.push(&owner, rules, policed, (position, listeners)));
    Some(added)
}

fn rules<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    owner: &RuleOwner<'w>,
    (root, policy, (providers, authorization)): ServedHost<'_, 'w>,
    place: &Place<'w>,
    details: &mut Details,
) -> (Vec<CheckedRule>, Vec<PolicedBackend<'w>>) {
    let one_label = one_label(&root.host);
    let spec = &place.proxy.spec;
    let (mut rules, mut policed) = (Vec::new(), BTreeSet::new());
    if spec.routes.is_empty() && spec.includes.is_empty() && spec.tcpproxy.is_none() {
        let why = "HTTPProxy.Spec must have at least one Route, Include or TCPProxy";
        details.error(&place.name, ("SpecError", "NothingDefined"), why);
    }
    let root_unknown = &root.proxy.metadata.unknown;
    let place_unknown = &place.proxy.metadata.unknown;
    let unknown = root_unknown
        .refusal("routes")
        .or_else(|| place_unknown.refusal("routes"));
    let refuse = |index, route_match: RouteMatch, status| CheckedRule {
        first: place.number,
        action: Action::respond(status),
        ..CheckedRule::refusing(index, vec![one_label.applied_to(route_match)])
    };
    let limits = HostLimits::read(root);
    let addresses = addresses::of_host(root);
    let mut cx = lookup.rule_context(owner);
    for (index, route) in place.routes.iter().enumerate().rev() {
        let route_match = match place.inherited.route(&route.conditions, cx.regexes) {
            Ok(route_match) => one_label.applied_to(route_match),
            Err((reason, why)) => {
                let why = format!("routes[{index}]: {why}; its requests get 500");
                details.error(&place.name, ("RouteError", reason), why);
                let wide = place.inherited.widened(&route.conditions);
                rules.push(refuse(index, wide, refusal::HTTP));
                continue;
            }
        };
        let route_refusal = || place_unknown.refusal_of("routes", index);
        let unknown = unknown.clone().or_else(route_refusal);
        let mut read = self::rules::read(index, route, route_match, unknown, &mut cx);
        read.limit(&limits, place, (index, route));
        read.admit(&addresses, place, (index, route));
        read.verify(providers, (index, route));
        read.authorize(authorization, (index, route));
        read.rule.first = place.number;
        details.of_route(&place.name, index, (read.errors, read.warnings));
        policed.extend(read.policed);
        rules.push(read.rule);
    }
    // Rules for invalid includes come last, so a route with an equal match wins.
    let last = spec.routes.len();
    let dead_ends = place.dead_ends.iter().cloned();
    rules.extend(dead_ends.map(|dead_end| refuse(last, dead_end, BAD_GATEWAY)));
    for rule in &mut rules {
        rule.cors = policy.cloned().map(Box::new);
    }
    let rules = affordable(rules, cx.route).unwrap_or_else(|why| {
        details.error(&place.name, ("SpecError", "TooLarge"), why);
        vec![refuse(last, place.inherited.whole(), refusal::HTTP)]
    });
    (rules, policed.into_iter().collect())
}

/// Gives unusable Services' shares to the other Services if `missingBackend` is `Reweight`. Returns
/// true if any Service was removed.
fn reweight(rules: &mut [CheckedRule], settings: Option<&IngressSettings>) -> bool {
    let missing = settings.and_then(|it| it.missing_backend.as_ref());
    if missing != Some(&MissingBackend::Reweight) {
        return false;
    }
    let mut any = false;
    for rule in rules {
        if let Action::Forward(forward) = &mut rule.action {
            let before = forward.backends.len();
            forward.backends.retain(|share| !share.backend.is_empty());
            if forward.backends.iter().all(|share| share.weight == 0) {
                rule.action = Action::respond(refusal::UNAVAILABLE);
            } else {
                any |= forward.backends.len() < before;
            }
        }
    }
    any
}

fn affordable(rules: Vec<CheckedRule>, route: &str) -> Result<Vec<CheckedRule>, String> {
    let rules = Rules::Requests(rules);
    rules.affordable(route, 1)?;
    match rules {
        Rules::Requests(rules) => Ok(rules),
        Rules::Connections(_) => Ok(Vec::new()),
    }
}

/// Redirects requests to HTTPS. If `permits` is true, routes with `permitInsecure` stay unchanged.
fn plain(rules: &[CheckedRule], routes: &[ProxyRoute], permits: bool) -> Vec<CheckedRule> {
    let redirecting = |rule: &CheckedRule| {
        let route = routes.get(rule.index);
        if permits && route.is_some_and(|route| route.permit_insecure) {
            return rule.clone();
        }
        CheckedRule {
            action: Action::Redirect(RedirectTo::https()),
            request_headers: None,
            response_headers: None,
            // Do not require tokens or authorization for the redirect: it reveals nothing, and
            // clients must not send credentials without TLS.
            external_auth: None,
            filters: rule.filters.as_ref().map(FilterSettings::without_tokens),
            ..rule.clone()
        }
    };
    rules.iter().map(redirecting).collect()
}
