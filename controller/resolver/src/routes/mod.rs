//! Checks routes of all kinds that have a Sesame Gateway, or a ListenerSet attached to one, as a
//! parent.

pub(crate) mod attachments;
mod backend_refs;
mod grpc_rules;
mod http_rules;
mod kinds;
mod l4_rules;
pub(crate) mod matches;
pub(crate) mod precedence;
mod request_rules;
mod rule_list;
pub(crate) mod rules;
pub(crate) mod sessions;

use self::kinds::{Route, RouteLimits, Spec, oldest_first};
use self::rule_list::CheckedRules;
use self::rules::{RouteRule, RuleContext, Rules};
use super::backends::Backends;
use super::backends::PolicedBackend;
use super::context::ResolveContext;
use super::context::grants::Referrer;
use super::gateways::CheckedGateway;
use super::parents::listeners::CommonHostname;
use super::parents::{self, Parent, RouteParent};
use super::policies::traffic::TrafficPolicies;
use super::syntax::hostnames::Hostname;
use super::syntax::names;
use super::syntax::regexes::Regexes;
use crate::policies::traffic::LimitCounts;
use crate::syntax::limits::{MAX_PARENTS, MAX_REFUSED_HOSTNAMES, MAX_ROUTE_MATCHES};
use sesame_kinds::api::{Metadata, ParentRef, RouteSpec};
use sesame_kinds::status::{Grounds, Reason, Verdict};
use sesame_kinds::world::{Kind, ObjectKey};

#[derive(Debug)]
pub(crate) struct CheckedRoute<'w> {
    pub(crate) object: ObjectKey,
    /// `HTTPRoute/namespace/name`.
    pub(crate) provenance: String,
    pub(crate) metadata: &'w Metadata,
    /// Never empty. In the order of the spec.
    pub(crate) parents: Vec<RouteParent<'w>>,
    pub(crate) rules: Rules,
    /// Size in bytes for one virtual host.
    pub(crate) size: u64,
    /// Backends that list the route's Gateways in their own status or in their policies' status.
    pub(crate) policed: Vec<PolicedBackend<'w>>,
    pub(crate) accepted: Verdict,
    /// True if the route is not accepted but must reject requests that might need protection.
    pub(crate) refuses: bool,
    /// Whether all references are valid, which does not depend on the parent.
    pub(crate) resolved: Verdict,
    /// `None` if no rules or all rules are dropped.
    pub(crate) dropped: Option<Grounds>,
}

/// A Gateway's index, and the indices of its listeners with the hostnames that each shares with the
/// route.
pub(crate) type OnGateway<'r> = (usize, &'r [(usize, Vec<CommonHostname>)]);

impl CheckedRoute<'_> {
    /// Returns nothing if the route is not accepted, unless it must reject its requests.
    pub(crate) fn attaches_to(&self) -> impl Iterator<Item = (usize, OnGateway<'_>)> {
        let parents = self.parents.iter().enumerate();
        parents.filter_map(|(place, parent)| {
            let listeners = parent.listeners.as_ref().ok()?;
            let attaches = self.accepted.good() || self.refuses;
            attaches.then_some((place, (parent.parent.gateway, listeners.as_slice())))
        })
    }
}

/// Gateway API routes, oldest first, then HTTPProxies and Ingresses. For equal matches, the first
/// route takes precedence.
pub(crate) type Routes<'w> = [CheckedRoute<'w>];

struct Lookup<'a, 'w, 'o> {
    gateways: &'a [CheckedGateway<'w>],
    policies: &'a TrafficPolicies<'w>,
    cx: &'a mut ResolveContext<'w, 'o>,
    backends: &'a mut Backends<'w>,
    regexes: &'a mut Regexes,
}

pub(crate) fn check_all<'w>(
    gateways: &[CheckedGateway<'w>],
    policies: &TrafficPolicies<'w>,
    cx: &mut ResolveContext<'w, '_>,
    backends: &mut Backends<'w>,
    regexes: &mut Regexes,
) -> Vec<CheckedRoute<'w>> {
    let by_name = parents::by_name(gateways);
    let routes = oldest_first(cx.world);
    let mut lookup = Lookup {
        gateways,
        policies,
        cx,
        backends,
        regexes,
    };
    let mut checked = Vec::with_capacity(routes.len());
    for route in routes {
        let own = route.metadata.namespace.as_str();
        let mut parents: Vec<(&'w ParentRef, Parent)> = Vec::new();
        for reference in route.parent_refs.iter().take(MAX_PARENTS) {
            let parent = parents::referent(reference, own).and_then(|name| by_name.get(&name));
            if let Some(parent) = parent
                && !parents.iter().any(|(known, _)| *known == reference)
            {
                parents.push((reference, *parent));
            }
        }
        if !parents.is_empty() {
            checked.push(match route.spec {
                Spec::Http(spec) => check(spec, &route, parents, &mut lookup),
                Spec::Grpc(spec) => check(spec, &route, parents, &mut lookup),
                Spec::Connections(spec) => check(spec, &route, parents, &mut lookup),
            });
        }
    }
    checked
}

#[expect(
    clippy::too_many_lines,
    reason = "route-wide checks decide how the rules are read"
)]
fn check<'w, R: RouteRule>(
    spec: &'w RouteSpec<R>,
    route: &Route<'w>,
    parents: Vec<(&'w ParentRef, Parent)>,
    lookup: &mut Lookup<'_, 'w, '_>,
) -> CheckedRoute<'w> {
    let metadata = route.metadata;
    let object = route.kind.named(metadata.key());
    let limits = RouteLimits::of(object.kind);
    let mut accepted = check_limits(spec, &object, &limits);
    let protects = spec.rules.iter().any(RouteRule::protects);
    let must_attach_to_reject = must_attach_to_reject(metadata, protects);
    let most = *limits.hostnames.end();
    let mut hostnames = read_hostnames(&spec.hostnames, most, &mut accepted);
    if must_attach_to_reject && !accepted.good() {
        hostnames = meant_hostnames(&spec.hostnames);
    }
    let scope = spec.use_default_gateways.as_deref();
    if scope.is_some_and(|scope| scope != "None") {
        let message = "spec.useDefaultGateways is not supported and has no effect; name the Gateway in spec.parentRefs";
        lookup.cx.problems.add(object.clone(), message.to_owned());
    }
    let (parents, terminates_tls) = find_listeners(parents, &object, &hostnames, lookup);
    let provenance = object.to_string();
    let mut checked = CheckedRoute {
        rules: R::all(Vec::new()),
        policed: Vec::new(),
        resolved: Verdict::default(),
        dropped: None,
        size: 0,
        refuses: false,
        object,
        provenance,
        metadata,
        parents,
        accepted,
    };
    let refused = withheld(metadata, &checked.accepted);
    let unplaced = names::check_object(&metadata.namespace, &metadata.name).is_err()
        || (hostnames.is_empty() && !spec.hostnames.is_empty());
    let matches: usize = spec.rules.iter().map(RouteRule::matches).sum();
    let readable = spec.rules.len() <= *limits.rules.end() && matches <= MAX_ROUTE_MATCHES;
    // Never check the rules of a route over a limit, because limits also bound the cost of checks.
    if let Err(why) = &refused
        && (unplaced || !must_attach_to_reject)
    {
        if checked.accepted.good() {
            let message = why.clone();
            checked.accepted.refuse(Reason::UnsupportedValue, message);
        }
    } else {
        let gateways = checked.parents.iter().map(|it| it.parent.gateway);
        let gateways = gateways.filter_map(|gateway| lookup.gateways.get(gateway));
        let inherited = gateways.map(|gateway| &gateway.most_limits);
        let inherited = inherited.fold(LimitCounts::default(), LimitCounts::larger);
        let inherited_count = inherited.sum();
        let mut cx = RuleContext {
            referrer: Referrer::new(checked.object.kind, &metadata.namespace),
            traffic: limits.traffic,
            terminates_tls,
            object: &checked.object,
            route: &checked.provenance,
            hostnames: hostnames.len(),
            policies: Some(lookup.policies),
            inherited,
            cx: lookup.cx,
            backends: lookup.backends,
            regexes: lookup.regexes,
        };
        let CheckedRules {
            rules,
            accepted,
            refuses,
            resolved,
            policed,
            dropped,
        } = match refused {
            Err(why) => rule_list::refused(&spec.rules, &why, readable, &mut cx),
            Ok(()) => rule_list::check(&spec.rules, metadata, &mut cx),
        };
        checked.refuses = refuses;
        checked.size = rules.size(&checked.provenance, inherited_count);
        checked.rules = rules;
        checked.accepted = accepted;
        checked.resolved = resolved;
        checked.policed = policed.into_iter().collect();
        checked.dropped = dropped;
    }
    checked
}

fn withheld(metadata: &Metadata, accepted: &Verdict) -> Result<(), String> {
    let unknown = metadata.unknown.refusal("rules");
    let fault = accepted.fault().map(|(_, why)| why.to_owned());
    let faults: Vec<String> = fault.into_iter().chain(unknown).collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("; "))
    }
}

/// Returns true if an invalid route must reject its requests. Ignores unknown fields if one might
/// narrow the parents or hostnames, because the route could then reject unrelated requests.
fn must_attach_to_reject(metadata: &Metadata, protects: bool) -> bool {
    let unknown = || metadata.unknown.iter().filter(|field| field.protects);
    let narrows = unknown().any(|field| {
        let in_spec = field.path.fields().nth(1);
        matches!(in_spec, Some("parentRefs" | "hostnames"))
    });
    protects || (!narrows && unknown().count() > 0)
}

/// The flag is true if the route is a TLSRoute and one of its listeners terminates TLS.
fn find_listeners<'w>(
    parents: Vec<(&'w ParentRef, Parent)>,
    object: &ObjectKey,
    hostnames: &[Hostname],
    lookup: &Lookup<'_, 'w, '_>,
) -> (Vec<RouteParent<'w>>, bool) {
    let mut terminates_tls = false;
    let mut found = Vec::with_capacity(parents.len());
    found.extend(parents.into_iter().filter_map(|(reference, parent)| {
        let gateway = lookup.gateways.get(parent.gateway)?;
        let (set, cx) = (parent.set, &*lookup.cx);
        let listeners =
            parents::listeners::matching(gateway, set, reference, object, hostnames, cx);
        let mut places = listeners.iter().flatten();
        terminates_tls |= object.kind == Kind::TlsRoute
            && places.any(|(place, _)| gateway.terminates_tls(*place));
        Some(RouteParent {
            reference,
            parent,
            listeners,
        })
    }));
    (found, terminates_tls)
}

fn check_limits<R: RouteRule>(
    spec: &RouteSpec<R>,
    object: &ObjectKey,
    limits: &RouteLimits,
) -> Verdict {
    let RouteSpec {
        parent_refs,
        // The caller reports this unsupported field.
        use_default_gateways: _,
        hostnames,
        rules,
    } = spec;
    let mut accepted = Verdict::default();
    let mut unsupported = |message: String| accepted.refuse(Reason::UnsupportedValue, message);
    if let Err(why) = names::check_object(&object.name.namespace, &object.name.name) {
        unsupported(format!("metadata: {why}"));
    }
    let matches = rules.iter().map(RouteRule::matches).sum();
    for (field, count, allowed) in [
        ("parentRefs", parent_refs.len(), &(0..=MAX_PARENTS)),
        ("hostnames", hostnames.len(), &limits.hostnames),
        ("rules", rules.len(), &limits.rules),
        ("rules[*].matches", matches, &(0..=MAX_ROUTE_MATCHES)),
    ] {
        let (least, most) = (allowed.start(), allowed.end());
        if count > 0 && *most == 0 {
            unsupported(format!("spec.{field} must not be set in a {}", object.kind));
        } else if count > *most {
            unsupported(format!(
                "spec.{field}: {count} entries; at most {most} are allowed"
            ));
        } else if count < *least {
            unsupported(format!(
                "spec.{field} is empty; a {} needs at least {least}",
                object.kind
            ));
        }
    }
    accepted
}

fn read_hostnames(hostnames: &[String], most: usize, accepted: &mut Verdict) -> Vec<Hostname> {
    let mut unsupported = |message: String| accepted.refuse(Reason::UnsupportedValue, message);
    let mut found = Vec::with_capacity(hostnames.len().min(most));
    for (i, text) in hostnames.iter().take(most).enumerate() {
        match Hostname::parse(text) {
            Ok(hostname) if !text.is_empty() => found.push(hostname),
            Ok(_) => unsupported(format!(
                "spec.hostnames[{i}] is empty; leave the list empty for all hosts"
            )),
            Err(why) => unsupported(format!("spec.hostnames[{i}]: {why}")),
        }
    }
    found
}

/// Returns all hostnames that the author of an invalid route may have meant.
fn meant_hostnames(hostnames: &[String]) -> Vec<Hostname> {
    if hostnames.len() > MAX_REFUSED_HOSTNAMES {
        return vec![Hostname::any()];
    }
    let mut found: Vec<Hostname> = hostnames
        .iter()
        .filter_map(|it| Hostname::meant(it))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
