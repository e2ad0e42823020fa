//! All routes of all kinds: what each may do, to which listeners it attaches, and what its status says.
//!
//! One path for every kind; kinds differ in their rules (`http_rules`, `grpc_rules`, `l4_rules`) and in what
//! their schema allows (`route_kinds`).

pub(crate) mod grpc_rules;
pub(crate) mod http_rules;
pub(crate) mod kinds;
pub(crate) mod l4_rules;
pub(crate) mod matches;
pub(crate) mod precedence;
pub(crate) mod rules;

use std::collections::{BTreeMap, HashSet};

use self::kinds::{Limits, Spec, oldest_first};
use self::rules::{Rule, RuleContext, Rules, Unsupported};
use crate::api::{GATEWAY_GROUP, Metadata, NamespacedName, ParentRef, RouteSpec};
use crate::resolve::backends::{Backends, Traffic};
use crate::resolve::context::Context;
use crate::resolve::filters::RuleFault;
use crate::resolve::gateways::GatewayState;
use crate::resolve::grants::Referrer;
use crate::resolve::parents::attach::{self, Attachment};
use crate::resolve::parents::{self, Parent};
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::names;
use crate::resolve::syntax::regexes::Regexes;
use crate::status::{Reason, RouteParentStatus, RouteStatus, Verdict};
use crate::world::{Kind, ObjectKey};

/// What the API's schema allows. What is beyond is refused, and not looked at.
const MAX_PARENTS: usize = 32;

/// A route that names a Gateway of ours.
#[derive(Debug)]
pub(crate) struct CheckedRoute {
    pub(crate) object: ObjectKey,
    /// `HTTPRoute/namespace/name`.
    pub(crate) provenance: String,
    pub(crate) rules: Rules,
    /// The Services it sends to that have policies, which it heeds.
    pub(crate) policed: Vec<NamespacedName>,
    hostnames: Vec<Hostname>,
    /// Why the route as a whole is refused.
    accepted: Verdict,
    /// What is wrong with its references, wherever it attaches.
    resolved: Verdict,
    /// The rules that are not served, in words; empty if all or none are.
    pub(crate) dropped: Option<(Reason, String)>,
}

/// Where references and expressions are looked up.
struct Lookup<'a, 'w, 'o> {
    cx: &'a mut Context<'w, 'o>,
    backends: &'a mut Backends<'w>,
    regexes: &'a mut Regexes,
}

/// The checked routes of all kinds, oldest first: the order in which equal matches win.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<CheckedRoute>);

impl Routes {
    pub(crate) fn get(&self, index: usize) -> Option<&CheckedRoute> {
        self.0.get(index)
    }
}

/// Checks all routes and attaches them to the listeners of `gateways`.
pub(crate) fn attach_all<'w>(
    gateways: &mut [GatewayState<'w>],
    cx: &mut Context<'w, '_>,
    backends: &mut Backends<'w>,
    regexes: &mut Regexes,
) -> (Routes, BTreeMap<ObjectKey, RouteStatus>) {
    let by_name = parents::by_name(gateways);
    let mut lookup = Lookup {
        cx,
        backends,
        regexes,
    };
    let routes = oldest_first(lookup.cx.world);
    let mut checked = Vec::with_capacity(routes.len());
    let mut statuses = BTreeMap::new();
    for route in routes {
        let own = route.metadata.namespace.as_str();
        let mut parents: Vec<(&'w ParentRef, Parent)> = Vec::new();
        for reference in route.parent_refs.iter().take(MAX_PARENTS) {
            let parent = parents::meant(reference, own).and_then(|name| by_name.get(&name));
            if let Some(parent) = parent
                && !parents.iter().any(|(known, _)| *known == reference)
            {
                parents.push((reference, *parent));
            }
        }
        if parents.is_empty() {
            continue;
        }
        let object = ObjectKey {
            kind: route.kind,
            name: route.metadata.key(),
        };
        let place = checked.len();
        let ends_tls = |hostnames: &[Hostname], cx: &Context<'w, '_>| {
            parents.iter().any(|(reference, parent)| {
                gateways.get(parent.gateway).is_some_and(|gateway| {
                    attach::ends_tls(gateway, parent.set, reference, &object, hostnames, cx)
                })
            })
        };
        let state = match route.spec {
            Spec::Http(spec) => check(spec, &object, route.metadata, &mut lookup, ends_tls),
            Spec::Grpc(spec) => check(spec, &object, route.metadata, &mut lookup, ends_tls),
            Spec::Connections(spec) => check(spec, &object, route.metadata, &mut lookup, ends_tls),
        };
        let mut status = RouteStatus::default();
        for (reference, parent) in parents {
            let Some(gateway) = gateways.get_mut(parent.gateway) else {
                continue;
            };
            let (accepted, resolved) = state.attach(
                (place, status.parents.len()),
                reference,
                parent.set,
                gateway,
                lookup.cx,
            );
            let through = NamespacedName::new(gateway.owner.namespace, gateway.owner.name);
            status.parents.push(RouteParentStatus {
                parent_ref: reference.clone(),
                through: parent.set.map(|_| through),
                controller_name: lookup.cx.options.controller_name.clone(),
                conditions: state.conditions(&accepted, resolved, route.metadata),
            });
        }
        statuses.insert(object, status);
        checked.push(state);
    }
    (Routes(checked), statuses)
}

/// Judges everything of a route that does not depend on a listener, but whether one `ends_tls`.
fn check<'w, 'o, R: Rule>(
    spec: &'w RouteSpec<R>,
    object: &ObjectKey,
    metadata: &'w Metadata,
    lookup: &mut Lookup<'_, 'w, 'o>,
    ends_tls: impl Fn(&[Hostname], &Context<'w, 'o>) -> bool,
) -> CheckedRoute {
    let RouteSpec {
        parent_refs,
        use_default_gateways,
        hostnames,
        rules,
    } = spec;
    let limits = Limits::of(object.kind);
    let mut accepted = Verdict::default();
    let mut unsupported = |message: String| accepted.refuse(Reason::UnsupportedValue, message);
    if let Some(why) = metadata.unknown.refusal("rules") {
        unsupported(why);
    }
    if let Err(why) = names::check_object(&object.name.namespace, &object.name.name) {
        unsupported(format!("metadata: {why}"));
    }
    for (field, count, allowed) in [
        ("parentRefs", parent_refs.len(), 0..=MAX_PARENTS),
        ("hostnames", hostnames.len(), limits.hostnames.clone()),
        ("rules", rules.len(), limits.rules),
        (
            "matches of all rules",
            rules.iter().map(Rule::matches).sum(),
            0..=128,
        ),
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
    let mut names = Vec::with_capacity(hostnames.len());
    for (i, text) in hostnames.iter().take(*limits.hostnames.end()).enumerate() {
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
        lookup.cx.problems.add(
            object.clone(),
            "spec.useDefaultGateways is not supported and has no effect; name the Gateway in spec.parentRefs"
                .to_owned(),
        );
    }
    let mut state = CheckedRoute {
        object: object.clone(),
        provenance: object.to_string(),
        rules: R::all(Vec::new()),
        policed: Vec::new(),
        hostnames: names,
        accepted,
        resolved: Verdict::default(),
        dropped: None,
    };
    // A route that breaks a limit is not looked into any further: limits bound our own work too.
    if state.accepted.good() {
        let ends_tls = object.kind == Kind::TlsRoute && ends_tls(&state.hostnames, lookup.cx);
        state.check_rules(rules, (limits.traffic, ends_tls), object, metadata, lookup);
        let policed = lookup.backends.take_policed();
        state.policed = policed
            .into_iter()
            .map(|(namespace, name)| NamespacedName::new(namespace, name))
            .collect();
    }
    state
}

impl CheckedRoute {
    fn check_rules<'w, R: Rule>(
        &mut self,
        rules: &'w [R],
        (traffic, ends_tls): (Traffic, bool),
        object: &ObjectKey,
        metadata: &'w Metadata,
        lookup: &mut Lookup<'_, 'w, '_>,
    ) {
        let rules = if rules.is_empty() { R::DEFAULT } else { rules };
        let mut names: HashSet<&str> = HashSet::new();
        let mut checked = Vec::with_capacity(rules.len());
        // With what follows from each as long as another rule stands.
        let mut faults: Vec<(Reason, String, String)> = Vec::new();
        let mut standing = 0_usize;
        let mut rule_context = RuleContext {
            referrer: Referrer {
                group: GATEWAY_GROUP,
                kind: object.kind.as_str(),
                namespace: &metadata.namespace,
            },
            traffic,
            ends_tls,
            object,
            route: &self.provenance,
            unknown: None,
            cx: lookup.cx,
            backends: lookup.backends,
            regexes: lookup.regexes,
            resolved: &mut self.resolved,
        };
        for (i, rule) in rules.iter().enumerate() {
            let name = rule.name();
            let at = if name.is_empty() {
                format!("rules[{i}]")
            } else {
                format!("rules[{i}] {name:?}")
            };
            // A rule that would match more than it says is dropped; one that would do more with what it matches refuses it.
            let (in_match, elsewhere) = metadata.unknown.refusals_of("rules", i, "matches");
            rule_context.unknown = elsewhere;
            let outcome = if let Some(why) = in_match {
                Err(RuleFault::unsupported(why))
            } else if name.is_empty() {
                rule.check(i, &mut rule_context)
            } else if !names::is_dns_subdomain(name) {
                Err(RuleFault::unsupported(format!(
                    "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.'"
                )))
            } else if !names.insert(name) {
                Err(RuleFault::unsupported(format!(
                    "name {name:?} is that of an earlier rule; names must be unique"
                )))
            } else {
                rule.check(i, &mut rule_context)
            };
            match outcome {
                Ok((rule, unsupported)) => {
                    standing += usize::from(unsupported.as_ref().is_none_or(|part| part.stands));
                    if let Some(Unsupported {
                        message,
                        stands: _,
                        follows,
                    }) = unsupported
                    {
                        let message = format!("{at}: {message}");
                        faults.push((Reason::UnsupportedValue, message, follows));
                    }
                    checked.push(rule);
                }
                Err(RuleFault { reason, message }) => {
                    faults.push((reason, format!("{at}: {message}"), String::new()));
                }
            }
        }
        let all = R::all(checked);
        if let Err(why) = all.affordable() {
            self.accepted.refuse(Reason::UnsupportedValue, why);
        }
        let Some((first, ..)) = faults.first() else {
            self.rules = all;
            return;
        };
        let reason = *first;
        if standing > 0 {
            let messages: Vec<String> = faults
                .into_iter()
                .map(|(_, message, follows)| message + &follows)
                .collect();
            self.dropped = Some((reason, format!("Dropped Rule: {}", messages.join("; "))));
            self.rules = all;
        } else {
            // Not attached at all: its requests are answered as if it were not there.
            for (reason, message, _) in faults {
                self.accepted.refuse(reason, message);
            }
        }
    }

    /// Attaches the route, the one at its place among all, through the parent reference that is at its place; says what was wrong with that, and with what the route
    /// refers to as the listeners there have it.
    fn attach<'w>(
        &self,
        (route, place): (usize, usize),
        parent: &ParentRef,
        set: Option<usize>,
        gateway: &mut GatewayState<'w>,
        cx: &Context<'w, '_>,
    ) -> (Verdict, &Verdict) {
        let found = attach::listeners(
            gateway,
            set,
            parent,
            self.object.kind,
            &self.object.name.namespace,
            &self.hostnames,
            cx,
        );
        let listeners = match found {
            Ok(listeners) if self.accepted.good() => listeners,
            Ok(_) => return (self.accepted.clone(), &self.resolved),
            Err((reason, message)) => {
                let mut verdict = Verdict::default();
                verdict.refuse(reason, message);
                return (verdict, &self.resolved);
            }
        };
        let mut resolved = &self.resolved;
        for (i, hosts) in listeners {
            let Some(listener) = gateway.listeners.get_mut(i) else {
                continue;
            };
            if listener.tls.is_some() {
                resolved = self.rules.resolved_where_tls_ends().unwrap_or(resolved);
            }
            match listener.attachments.last_mut() {
                // Through another reference to the same listener.
                Some(last) if last.route == route => {}
                _ => {
                    listener.attached = listener.attached.saturating_add(1);
                    listener.attachments.push(Attachment {
                        route,
                        parent: place,
                        hosts,
                    });
                }
            }
        }
        (Verdict::default(), resolved)
    }
}
