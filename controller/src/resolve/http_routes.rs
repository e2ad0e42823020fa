//! All HTTPRoutes: what each may do, to which listeners it attaches, and what its status says.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::attach::{self, Attachment};
use super::backends::Backends;
use super::context::Context;
use super::filters::RuleFault;
use super::gateways::GatewayState;
use super::grants::Referrer;
use super::hostnames::Hostname;
use super::http_rules::{self, CheckedRule, RuleContext};
use super::names;
use super::regexes::Regexes;
use crate::api::{GATEWAY_GROUP, HttpRoute, HttpRule, ParentRef, RouteSpec};
use crate::status::{
    Condition, ConditionStatus, ConditionType, Reason, RouteParentStatus, RouteStatus, Verdict,
};
use crate::world::{Kind, ObjectKey};

/// What the API's schema allows. What is beyond is refused, and not looked at.
const MAX_PARENTS: usize = 32;
const MAX_HOSTNAMES: usize = 16;

/// A route that names a Gateway of ours.
#[derive(Debug)]
pub(super) struct CheckedRoute {
    pub(super) object: ObjectKey,
    /// `HTTPRoute/namespace/name`.
    pub(super) provenance: String,
    pub(super) rules: Vec<CheckedRule>,
    hostnames: Vec<Hostname>,
    /// Why the route as a whole is refused.
    accepted: Verdict,
    resolved: Verdict,
    /// The rules that are not served, in words; empty if all or none are.
    dropped: Option<(Reason, String)>,
}

/// The checked routes, oldest first: the order in which equal matches win.
#[derive(Debug, Default)]
pub(super) struct HttpRoutes(Vec<CheckedRoute>);

impl HttpRoutes {
    pub(super) fn get(&self, index: usize) -> Option<&CheckedRoute> {
        self.0.get(index)
    }
}

/// Checks all routes and attaches them to the listeners of `gateways`.
pub(super) fn attach_all<'w>(
    gateways: &mut [GatewayState<'w>],
    cx: &mut Context<'w, '_>,
    backends: &mut Backends<'w>,
    regexes: &mut Regexes,
) -> (HttpRoutes, BTreeMap<ObjectKey, RouteStatus>) {
    let by_name: HashMap<(&'w str, &'w str), usize> = gateways
        .iter()
        .enumerate()
        .map(|(i, gateway)| ((gateway.owner.namespace, gateway.owner.name), i))
        .collect();
    let mut routes: Vec<&'w HttpRoute> = cx.world.http_routes.values().map(AsRef::as_ref).collect();
    routes.sort_by(|a, b| a.metadata.age().cmp(&b.metadata.age()));

    let mut checked = Vec::new();
    let mut statuses = BTreeMap::new();
    for route in routes {
        let own = route.metadata.namespace.as_str();
        let mut parents: Vec<(&'w ParentRef, usize)> = Vec::new();
        for parent in route.spec.parent_refs.iter().take(MAX_PARENTS) {
            let gateway = attach::gateway_of(parent, own).and_then(|name| by_name.get(&name));
            if let Some(gateway) = gateway
                && !parents.iter().any(|(known, _)| *known == parent)
            {
                parents.push((parent, *gateway));
            }
        }
        if parents.is_empty() {
            continue;
        }
        let object = ObjectKey {
            kind: Kind::HttpRoute,
            name: route.metadata.key(),
        };
        let place = checked.len();
        let state = check(route, &object, cx, backends, regexes);
        let mut status = RouteStatus::default();
        for (parent, gateway) in parents {
            let Some(gateway) = gateways.get_mut(gateway) else {
                continue;
            };
            let accepted = state.attach(place, own, parent, gateway, cx);
            status.parents.push(RouteParentStatus {
                parent_ref: parent.clone(),
                controller_name: cx.options.controller_name.clone(),
                conditions: state.conditions(&accepted, route.metadata.generation),
            });
        }
        statuses.insert(object, status);
        checked.push(state);
    }
    (HttpRoutes(checked), statuses)
}

/// Judges everything of a route that does not depend on a listener.
fn check<'w>(
    route: &'w HttpRoute,
    object: &ObjectKey,
    cx: &mut Context<'w, '_>,
    backends: &mut Backends<'w>,
    regexes: &mut Regexes,
) -> CheckedRoute {
    let RouteSpec {
        parent_refs,
        use_default_gateways,
        hostnames,
        rules,
    } = &route.spec;
    let mut accepted = Verdict::default();
    let mut unsupported = |message: String| accepted.refuse(Reason::UnsupportedValue, message);
    if let Err(why) = names::check_object(&object.name.namespace, &object.name.name) {
        unsupported(format!("metadata: {why}"));
    }
    for (field, count, most) in [
        ("parentRefs", parent_refs.len(), MAX_PARENTS),
        ("hostnames", hostnames.len(), MAX_HOSTNAMES),
        ("rules", rules.len(), 16),
        // A rule without matches has one.
        (
            "matches of all rules",
            rules.iter().map(|rule| rule.matches.len().max(1)).sum(),
            128,
        ),
    ] {
        if count > most {
            unsupported(format!(
                "spec.{field}: {count} entries; at most {most} are allowed"
            ));
        }
    }
    let mut names = Vec::with_capacity(hostnames.len());
    for (i, text) in hostnames.iter().take(MAX_HOSTNAMES).enumerate() {
        match Hostname::parse(text) {
            Ok(hostname) if !text.is_empty() => names.push(hostname),
            Ok(_) => unsupported(format!(
                "spec.hostnames[{i}] is empty; leave the list empty for all hosts"
            )),
            Err(why) => unsupported(format!("spec.hostnames[{i}]: {why}")),
        }
    }
    if use_default_gateways
        .as_deref()
        .is_some_and(|scope| scope != "None")
    {
        cx.problems.add(
            object.clone(),
            "spec.useDefaultGateways is not supported and has no effect; name the Gateway in spec.parentRefs"
                .to_owned(),
        );
    }
    let mut state = CheckedRoute {
        object: object.clone(),
        provenance: object.to_string(),
        rules: Vec::new(),
        hostnames: names,
        accepted,
        resolved: Verdict::default(),
        dropped: None,
    };
    // A route that breaks a limit is not looked into any further: limits bound our own work too.
    if state.accepted.good() {
        state.check_rules(route, object, cx, backends, regexes);
    }
    state
}

impl CheckedRoute {
    fn check_rules<'w>(
        &mut self,
        route: &'w HttpRoute,
        object: &ObjectKey,
        cx: &mut Context<'w, '_>,
        backends: &mut Backends<'w>,
        regexes: &mut Regexes,
    ) {
        let rules: &'w [HttpRule] = match route.spec.rules.as_slice() {
            [] => &DEFAULT_RULES,
            rules => rules,
        };
        let mut names: HashSet<&str> = HashSet::new();
        let mut checked = Vec::with_capacity(rules.len());
        // With what follows from each as long as another rule stands.
        let mut faults: Vec<(Reason, String, &str)> = Vec::new();
        let mut rule_context = RuleContext {
            referrer: Referrer {
                group: GATEWAY_GROUP,
                kind: Kind::HttpRoute.as_str(),
                namespace: &route.metadata.namespace,
            },
            object,
            route: &self.provenance,
            cx,
            backends,
            regexes,
            resolved: &mut self.resolved,
        };
        for (i, rule) in rules.iter().enumerate() {
            let name = rule.name.as_deref().unwrap_or_default();
            let at = if name.is_empty() {
                format!("rules[{i}]")
            } else {
                format!("rules[{i}] {name:?}")
            };
            let outcome = if name.is_empty() {
                rule_context.check(i, rule)
            } else if let Err(why) = http_rules::check_name(name) {
                Err(RuleFault::unsupported(why))
            } else if !names.insert(name) {
                Err(RuleFault::unsupported(format!(
                    "name {name:?} is that of an earlier rule; names must be unique"
                )))
            } else {
                rule_context.check(i, rule)
            };
            match outcome {
                Ok(rule) => {
                    if let Some(why) = &rule.unsupported {
                        let follows = if rule.stands() {
                            "; that share of its requests is answered with 500"
                        } else {
                            "; its requests are answered with 500"
                        };
                        faults.push((Reason::UnsupportedValue, format!("{at}: {why}"), follows));
                    }
                    checked.push(rule);
                }
                Err(RuleFault { reason, message }) => {
                    faults.push((reason, format!("{at}: {message}"), ""));
                }
            }
        }
        let Some((first, ..)) = faults.first() else {
            self.rules = checked;
            return;
        };
        let reason = *first;
        if checked.iter().any(CheckedRule::stands) {
            let messages: Vec<String> = faults
                .into_iter()
                .map(|(_, message, follows)| message + follows)
                .collect();
            self.dropped = Some((reason, format!("Dropped Rule: {}", messages.join("; "))));
            self.rules = checked;
        } else {
            // Not attached at all: its requests are answered as if it were not there.
            for (reason, message, _) in faults {
                self.accepted.refuse(reason, message);
            }
        }
    }

    /// Attaches the route through one parent reference; says what was wrong with that.
    fn attach<'w>(
        &self,
        place: usize,
        namespace: &str,
        parent: &ParentRef,
        gateway: &mut GatewayState<'w>,
        cx: &Context<'w, '_>,
    ) -> Verdict {
        let found = attach::listeners(
            gateway,
            parent,
            Kind::HttpRoute,
            namespace,
            &self.hostnames,
            cx,
        );
        let listeners = match found {
            Ok(listeners) if self.accepted.good() => listeners,
            Ok(_) => return self.accepted.clone(),
            Err((reason, message)) => {
                let mut verdict = Verdict::default();
                verdict.refuse(reason, message);
                return verdict;
            }
        };
        for (i, hosts) in listeners {
            let Some(listener) = gateway.listeners.get_mut(i) else {
                continue;
            };
            match listener.attachments.last_mut() {
                // Through another reference to the same listener.
                Some(last) if last.route == place => {}
                _ => {
                    listener.attached = listener.attached.saturating_add(1);
                    listener.attachments.push(Attachment {
                        route: place,
                        hosts,
                    });
                }
            }
        }
        Verdict::default()
    }

    fn conditions(&self, accepted: &Verdict, generation: i64) -> Vec<Condition> {
        let mut conditions = vec![
            accepted.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                "the route is attached",
                generation,
            ),
            self.resolved.condition(
                ConditionType::ResolvedRefs,
                Reason::ResolvedRefs,
                "all references are resolved",
                generation,
            ),
        ];
        if let (true, Some((reason, message))) = (accepted.good(), &self.dropped) {
            conditions.push(Condition::new(
                ConditionType::PartiallyInvalid,
                ConditionStatus::True,
                *reason,
                message,
                generation,
            ));
        }
        conditions
    }
}

/// What the API's schema puts where `rules` is absent: every path, and no backend.
static DEFAULT_RULES: [HttpRule; 1] = [HttpRule {
    name: None,
    matches: Vec::new(),
    filters: Vec::new(),
    backend_refs: Vec::new(),
    timeouts: None,
    retry: None,
    session_persistence: None,
}];
