//! HTTPProxies: roots, includes, and their routes in the form of checked routes.
//!
//! From here on they share everything with routes of the Gateway API: tables, precedence, limits.
//! They come after all of these and before Ingresses. Of equal matches in one tree, the last one
//! wins, as in Contour. A route that cannot be served keeps its requests and answers with an error.

mod answers;
mod conditions;
mod details;
mod header_policies;
mod roots;
mod rules;
mod services;
mod tls;
mod tree;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use self::details::Details;
use self::roots::Root;
use self::tree::{IncludeTree, Place};
use crate::api::{CONTOUR_GROUP, Metadata, NamespacedName, ParentRef};
use crate::resolve::backends::{PolicedBackend, Traffic};
use crate::resolve::context::grants::Referrer;
use crate::resolve::filters::rewrites::RedirectTo;
use crate::resolve::ingresses::listeners::{
    FoundListeners, LayeredLookup, ListenersOfHost, OwnerName,
};
use crate::resolve::ingresses::{self, IngressClasses, one_label};
use crate::resolve::listeners::implicit::ImplicitListeners;
use crate::resolve::parents::{Parent, RouteParent};
use crate::resolve::routes::CheckedRoute;
use crate::resolve::routes::matches::RouteMatch;
use crate::resolve::routes::rules::{Action, CheckedRule, RuleContext, Rules};
use crate::status::{ProxyDetail, Verdict};
use crate::world::{Kind, ObjectKey, World};

/// Status of requests below an include that leads nowhere.
const BAD_GATEWAY: u32 = 502;

/// An HTTPProxy of a Sesame class, with everything that its status says.
pub(crate) struct CheckedProxy<'w> {
    pub(crate) object: ObjectKey,
    pub(crate) metadata: &'w Metadata,
    /// The Gateway that its class names, if the class names one.
    pub(crate) gateway: Option<NamespacedName>,
    pub(crate) details: Vec<ProxyDetail>,
    /// True if no root includes it.
    pub(crate) orphaned: bool,
    /// Its routes among all routes.
    pub(crate) routes: Vec<usize>,
}

/// Returns the listeners of all HTTPProxies and Ingresses of Sesame classes that have TLS hosts.
pub fn implicit_listeners(world: &World) -> Vec<ImplicitListeners<'_>> {
    let classes = IngressClasses::check(world);
    let mut all = tls::listeners_of_all(world, &classes);
    all.extend(ingresses::listeners_of_all(world, &classes));
    all
}

/// Stands for the parentRef that an HTTPProxy does not have.
static NO_REFERENCE: ParentRef = ParentRef {
    group: None,
    kind: None,
    namespace: None,
    name: String::new(),
    section_name: None,
    port: None,
};

/// Checks all HTTPProxies of Sesame classes, and appends their routes.
pub(crate) fn check_all<'w>(lookup: &mut LayeredLookup<'_, 'w, '_>) -> Vec<CheckedProxy<'w>> {
    let world = lookup.cx.world;
    if world.http_proxies.is_empty() {
        return Vec::new();
    }
    let classes = IngressClasses::check(world);
    let proxies = roots::classed(world, &classes);
    let mut details = Details::default();
    let roots = roots::find(&proxies, &mut details);
    let mut tree = IncludeTree {
        proxies: &proxies,
        regexes: &mut *lookup.regexes,
        details: &mut details,
        placed: BTreeMap::new(),
    };
    let places: Vec<Vec<Place<'w>>> = roots.iter().map(|root| tree.places(root)).collect();
    let reached: BTreeSet<NamespacedName> = tree.placed.into_keys().collect();
    let mut routes_of: BTreeMap<NamespacedName, Vec<usize>> = BTreeMap::new();
    for (root, places) in roots.iter().zip(&places) {
        add(lookup, root, places, &mut details, &mut routes_of);
    }
    let checked = proxies.iter().filter_map(|(name, classed)| {
        let gateway = classed
            .gateway
            .map(|(namespace, name)| NamespacedName::new(namespace, name));
        // The Gateway of another controller.
        let is_known = gateway.as_ref().is_none_or(|gateway| {
            let ours = lookup.gateways.iter().any(|it| it.name() == *gateway);
            ours || world
                .gateways
                .get(&gateway.namespace, &gateway.name)
                .is_none()
        });
        let is_root = classed.proxy.spec.virtualhost.is_some();
        is_known.then(|| CheckedProxy {
            object: Kind::HttpProxy.named(name.clone()),
            metadata: &classed.proxy.metadata,
            gateway,
            details: details.take(name),
            orphaned: !is_root && !reached.contains(name),
            routes: routes_of.remove(name).unwrap_or_default(),
        })
    });
    checked.collect()
}

/// Adds the routes of a root and of everything below it.
fn add<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    root: &Root<'w>,
    places: &[Place<'w>],
    details: &mut Details,
    routes_of: &mut BTreeMap<NamespacedName, Vec<usize>>,
) {
    let (namespace, name) = root.gateway;
    let gateway = NamespacedName::new(namespace, name);
    let mut all = lookup.gateways.iter();
    let place = all.position(|it| it.name() == gateway);
    let words = ("ListenerError", "ErrorIdentifyingListener");
    let Some((place, listeners)) = place.and_then(|it| Some((it, lookup.listeners.get(it)?)))
    else {
        details.error(
            &root.name,
            words,
            format!("Gateway {gateway} does not exist"),
        );
        return;
    };
    tls::tell(root, listeners, details);
    let owner = OwnerName::of(Kind::HttpProxy, &root.proxy.metadata);
    let ListenersOfHost { http, mut https } = listeners.find(&root.host, owner, lookup.cx);
    // Nothing that TLS should protect is served by another listener of the host.
    https.retain(|_| !tls::is_faulty(root));
    let has_tls = root.virtualhost.tls.is_some();
    if http.is_empty() && https.is_empty() {
        let why = format!(
            "no listener of Gateway {gateway} with a hostname for {} allows namespace {:?}",
            root.host.domain(),
            root.name.namespace
        );
        details.error(&root.name, words, why);
        return;
    }
    for of in places {
        let (rules, insecure, policed) = rules(lookup, root, of, details);
        let routes = routes_of.entry(of.name.clone()).or_default();
        if has_tls {
            let plain = plain(&rules, &insecure);
            routes.extend(push(
                lookup,
                of,
                plain,
                policed.clone(),
                http.clone(),
                place,
            ));
            routes.extend(push(lookup, of, rules, policed, https.clone(), place));
        } else {
            let mut both = https.clone();
            both.extend(http.iter().cloned());
            both.sort_by_key(|(place, _)| *place);
            routes.extend(push(lookup, of, rules, policed, both, place));
        }
    }
}

/// Returns the rules of one place, the last route first, and which of them serve plain text.
// Long: each step may refuse the next one.
fn rules<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    root: &Root<'w>,
    place: &Place<'w>,
    details: &mut Details,
) -> (Vec<CheckedRule>, Vec<bool>, Vec<PolicedBackend<'w>>) {
    let object = Kind::HttpProxy.named(place.name.clone());
    let provenance = object.to_string();
    let one_label = one_label(&root.host);
    let spec = &place.proxy.spec;
    let (mut rules, mut insecure, mut policed) = (Vec::new(), Vec::new(), BTreeSet::new());
    let nothing = spec.routes.is_empty() && spec.includes.is_empty() && spec.tcpproxy.is_none();
    if nothing {
        let why = "HTTPProxy.Spec must have at least one Route, Include or TCPProxy";
        details.error(&place.name, ("SpecError", "NothingDefined"), why);
    }
    if spec.tcpproxy.is_some() {
        let why = "tcpproxy is not supported and has no effect; use a TLSRoute";
        details.error(&place.name, ("TCPProxyError", "NotSupported"), why);
    }
    let of_place = || place.proxy.metadata.unknown.refusal("routes");
    let unknown = root
        .proxy
        .metadata
        .unknown
        .refusal("routes")
        .or_else(of_place);
    let refuse = |index, route_match: RouteMatch, status| CheckedRule {
        first: place.number,
        action: Action::Respond(status),
        ..CheckedRule::refusing(index, vec![one_label.applied_to(route_match)])
    };
    for (index, route) in spec.routes.iter().enumerate().rev() {
        let route_match = match place.inherited.route(&route.conditions, lookup.regexes) {
            Ok(route_match) => route_match,
            Err((reason, why)) => {
                let why = format!("routes[{index}]: {why}; its requests are answered with 500");
                details.error(&place.name, ("RouteError", reason), why);
                let wide = place.inherited.widened(&route.conditions);
                rules.push(refuse(index, wide, sesame_proto::refusal::HTTP));
                insecure.push(route.permit_insecure);
                continue;
            }
        };
        let mut cx = RuleContext {
            referrer: Referrer {
                group: CONTOUR_GROUP,
                kind: Kind::HttpProxy.as_str(),
                namespace: &place.proxy.metadata.namespace,
            },
            traffic: Traffic::Http,
            terminates_tls: false,
            object: &object,
            route: &provenance,
            hostnames: 1,
            cx: lookup.cx,
            backends: lookup.backends,
            regexes: lookup.regexes,
        };
        let route_match = one_label.applied_to(route_match);
        let of_route = || place.proxy.metadata.unknown.refusal_of("routes", index);
        let unknown = unknown.clone().or_else(of_route);
        let host = root.virtualhost;
        let mut read = self::rules::read(index, route, route_match, host, unknown, &mut cx);
        read.rule.first = place.number;
        for ((type_, reason), why) in read.errors {
            let why = format!("routes[{index}]: {why}");
            details.error(&place.name, (type_, reason), why);
        }
        for (words, why) in read.warnings {
            details.warn(&place.name, words, format!("routes[{index}]: {why}"));
        }
        policed.extend(read.policed);
        rules.push(read.rule);
        insecure.push(read.insecure);
    }
    // They come after the routes, whose equal matches win.
    for dead_end in &place.dead_ends {
        rules.push(refuse(spec.routes.len(), dead_end.clone(), BAD_GATEWAY));
        insecure.push(false);
    }
    let checked = Rules::Requests(rules);
    let affordable = checked.affordable(&provenance, 1);
    let Rules::Requests(mut rules) = checked else {
        return (Vec::new(), insecure, Vec::new());
    };
    if let Err(why) = affordable {
        details.error(&place.name, ("SpecError", "TooLarge"), why);
        rules = vec![refuse(
            0,
            place.inherited.whole(),
            sesame_proto::refusal::HTTP,
        )];
        insecure = vec![false];
    }
    (rules, insecure, policed.into_iter().collect())
}

fn push<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    place: &Place<'w>,
    rules: Vec<CheckedRule>,
    policed: Vec<PolicedBackend<'w>>,
    listeners: FoundListeners,
    gateway: usize,
) -> Option<usize> {
    if rules.is_empty() || listeners.is_empty() {
        return None;
    }
    let at = lookup.routes.len();
    let object = Kind::HttpProxy.named(place.name.clone());
    let provenance = object.to_string();
    let rules = Rules::Requests(rules);
    lookup.routes.push(CheckedRoute {
        object,
        size: rules.size(&provenance),
        provenance,
        metadata: &place.proxy.metadata,
        parents: vec![RouteParent {
            reference: &NO_REFERENCE,
            parent: Parent { gateway, set: None },
            listeners: Ok(listeners),
        }],
        rules,
        policed,
        accepted: Verdict::default(),
        refuses: false,
        resolved: Verdict::default(),
        dropped: None,
    });
    Some(at)
}

/// Returns the rules for plain text: redirects to HTTPS, except those that are served in plain text.
fn plain(rules: &[CheckedRule], insecure: &[bool]) -> Vec<CheckedRule> {
    let each = rules.iter().zip(insecure);
    each.map(|(rule, insecure)| {
        let mut rule = rule.clone();
        if !insecure {
            rule.action = Action::Redirect(RedirectTo {
                scheme: "https",
                host: String::new(),
                port: None,
                path: None,
                status: 301,
            });
            rule.request_headers = None;
            rule.response_headers = None;
        }
        rule
    })
    .collect()
}
