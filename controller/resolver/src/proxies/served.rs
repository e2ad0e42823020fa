//! Attaches the rules of a root's include tree to listeners, in order of precedence.

use std::collections::{BTreeMap, HashSet};

use sesame_proto::refusal;

use super::details::Details;
use super::tree::Place;
use super::{PlaceRules, RootParts, ServedHost, rules};
use crate::backends::PolicedBackend;
use crate::filters::rewrites::RedirectTo;
use crate::ingresses::IngressPorts;
use crate::ingresses::listeners::ListenersOfHost;
use crate::ingresses::lookup::{LayeredLookup, RuleOwner};
use crate::policies::traffic::filters::FilterSettings;
use crate::routes::matches::RouteMatch;
use crate::routes::rules::{Action, CheckedRule};
use sesame_kinds::api::{
    IngressSettings, InvalidProxies, MissingBackend, NamespacedName, ProxyRoute,
};
use sesame_kinds::world::Kind;

pub(super) fn add<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    host: ServedHost<'_, 'w>,
    parts: &RootParts<'w>,
    on: &(usize, ListenersOfHost),
    details: &mut Details,
    routes_of: &mut BTreeMap<NamespacedName, Vec<usize>>,
) {
    let mut taken: HashSet<RouteMatch> = HashSet::new();
    let mut all_withheld = Vec::new();
    let mut skipped_below = None;
    for place in &parts.places {
        if skipped_below.is_some_and(|depth| place.depth > depth) {
            continue;
        }
        let added = check_place(lookup, host, place, parts.settings, details);
        skipped_below = added.is_none().then_some(place.depth);
        let Some(PlaceRules {
            rules,
            withheld,
            policed,
        }) = added
        else {
            continue;
        };
        taken.extend(rules.iter().flat_map(|rule| rule.matches.iter().cloned()));
        let routes = push(lookup, host, place, (rules, policed), parts.settings, on);
        routes_of
            .entry(place.name.clone())
            .or_default()
            .extend(routes);
        all_withheld.push((place, withheld));
    }
    for (place, mut withheld) in all_withheld {
        withheld.retain(|rule| rule.matches.iter().all(|it| taken.insert(it.clone())));
        let rules = (withheld, Vec::new());
        let routes = push(lookup, host, place, rules, parts.settings, on);
        routes_of
            .entry(place.name.clone())
            .or_default()
            .extend(routes);
    }
}

/// Returns `None` if this HTTPProxy's routes and all routes below it are withdrawn.
fn check_place<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    host: ServedHost<'_, 'w>,
    place: &Place<'w>,
    settings: Option<&IngressSettings>,
    details: &mut Details,
) -> Option<PlaceRules<'w>> {
    let owner = RuleOwner::of(Kind::HttpProxy, &place.proxy.metadata);
    let mut checked = rules(lookup, &owner, host, place, details);
    let invalid = settings.and_then(|it| it.invalid.as_ref());
    let is_invalid = details.take_withdrawal(&place.name);
    if invalid == Some(&InvalidProxies::Withdraw) && is_invalid {
        let why = "where these errors occur, no route of this HTTPProxy or below it is served, \
                   because spec.ingress.invalid of the configuration is Withdraw";
        details.warn(&place.name, ("SpecError", "Withdrawn"), why);
        return None;
    }
    if reweight(&mut checked.rules, settings) {
        let why = "the other Services of a route get the share of one that cannot be used, because \
                   spec.ingress.missingBackend of the configuration is Reweight";
        details.warn(&place.name, ("ServiceError", "Reweighted"), why);
    }
    Some(checked)
}

fn push<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    (root, ..): ServedHost<'_, 'w>,
    place: &Place<'w>,
    (rules, policed): (Vec<CheckedRule>, Vec<PolicedBackend<'w>>),
    settings: Option<&IngressSettings>,
    (position, found): &(usize, ListenersOfHost),
) -> Vec<usize> {
    let owner = RuleOwner::of(Kind::HttpProxy, &place.proxy.metadata);
    let found = found.clone();
    let mut added = Vec::new();
    let listeners = if root.virtualhost.tls.is_some() {
        let permits = settings.and_then(|it| it.disable_permit_insecure) != Some(true);
        let port = IngressPorts::of(settings).of_tls_hosts();
        let plain = plain(&rules, (&place.proxy.spec.routes, permits), port);
        added.extend(lookup.push(&owner, plain, policed.clone(), (*position, found.http)));
        found.https
    } else {
        found.both()
    };
    added.extend(lookup.push(&owner, rules, policed, (*position, listeners)));
    added
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

/// Redirects requests to HTTPS on `port`. If `permits` is true, routes with `permitInsecure` stay
/// unchanged.
fn plain(
    rules: &[CheckedRule],
    (routes, permits): (&[ProxyRoute], bool),
    port: u16,
) -> Vec<CheckedRule> {
    let redirecting = |rule: &CheckedRule| {
        let route = routes.get(rule.index);
        if permits && route.is_some_and(|route| route.permit_insecure) {
            return rule.clone();
        }
        CheckedRule {
            action: Action::Redirect(RedirectTo::https(port)),
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
