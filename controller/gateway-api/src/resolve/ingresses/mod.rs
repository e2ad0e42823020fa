//! Ingresses: the Gateway of each, and its rules in the form of checked routes.
//!
//! From here on they share everything with routes of the Gateway API: tables, precedence, limits.
//! They come after all of these, so that an HTTPRoute gets the requests of an equal match, and the
//! older Ingress precedes the newer one. A rule that cannot be served answers with an error: its
//! requests must never reach a wider rule.

mod annotations;
mod backends;
mod classes;
pub(crate) mod contour;
pub(crate) mod listeners;
mod rules;
mod tls;

use std::ops::Range;

use self::annotations::PlainHttp;
pub use self::classes::INGRESS_CONTROLLER;
pub(crate) use self::classes::IngressClasses;
use self::contour::Forwarding;
use self::listeners::{FoundListeners, LayeredLookup, ListenersOfHost, OwnerName};
pub(crate) use self::rules::one_label;
use self::rules::{IngressFaults, IngressHostRules};
pub(crate) use self::tls::explicit_hosts;
pub(crate) use self::tls::listeners_of_all;
use crate::api::{INGRESS_GROUP, Ingress, Metadata, NamespacedName, ParentRef};
use crate::resolve::backends::{PolicedBackend, Traffic};
use crate::resolve::context::grants::Referrer;
use crate::resolve::parents::{Parent, RouteParent};
use crate::resolve::routes::CheckedRoute;
use crate::resolve::routes::rules::{RuleContext, Rules};
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::names;
use crate::status::{Grounds, Reason, Verdict};
use crate::world::{Kind, ObjectKey};

/// An Ingress of a Sesame class, with the verdicts on it.
pub(crate) struct CheckedIngress<'w> {
    pub(crate) object: ObjectKey,
    pub(crate) metadata: &'w Metadata,
    /// The Gateway that its class names, if the class names one.
    pub(crate) gateway: Option<NamespacedName>,
    /// Verdict on the Ingress as a whole.
    pub(crate) accepted: Verdict,
    /// Verdict on its backends.
    pub(crate) resolved: Verdict,
    /// Faults of rules that are withheld although others are served.
    pub(crate) dropped: Verdict,
    /// Its routes among all routes.
    pub(crate) routes: Range<usize>,
}

/// Stands for the parentRef that an Ingress does not have.
static NO_REFERENCE: ParentRef = ParentRef {
    group: None,
    kind: None,
    namespace: None,
    name: String::new(),
    section_name: None,
    port: None,
};

/// Checks all Ingresses of Sesame classes, oldest first, and appends their routes.
pub(crate) fn check_all<'w>(lookup: &mut LayeredLookup<'_, 'w, '_>) -> Vec<CheckedIngress<'w>> {
    let world = lookup.cx.world;
    let classes = IngressClasses::check(world);
    classes.tell(&mut lookup.cx.problems);
    let mut ingresses: Vec<&'w Ingress> = world.ingresses.iter().map(AsRef::as_ref).collect();
    ingresses.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    let check = |ingress: &'w Ingress| {
        let (class, named) = classes.of(ingress)?;
        lookup.check(ingress, class, named)
    };
    ingresses.into_iter().filter_map(check).collect()
}

impl<'w> LayeredLookup<'_, 'w, '_> {
    /// Checks an Ingress whose class names this Gateway. Returns `None` if the Gateway belongs to
    /// another controller, which may serve the Ingress.
    fn check(
        &mut self,
        ingress: &'w Ingress,
        class: &str,
        named: &Result<(&str, &str), String>,
    ) -> Option<CheckedIngress<'w>> {
        let metadata = &ingress.metadata;
        let start = self.routes.len();
        let mut checked = CheckedIngress {
            object: Kind::Ingress.named(metadata.key()),
            metadata,
            gateway: None,
            accepted: Verdict::default(),
            resolved: Verdict::default(),
            dropped: Verdict::default(),
            routes: start..start,
        };
        let (namespace, name) = match named {
            Ok(named) => *named,
            Err(why) => {
                let message = format!("IngressClass {class} names no Gateway: {why}");
                checked.accepted.refuse(Reason::InvalidParameters, message);
                return Some(checked);
            }
        };
        let gateway = NamespacedName::new(namespace, name);
        let mut all = self.gateways.iter();
        let Some(place) = all.position(|it| it.name() == gateway) else {
            let exists = self.cx.world.gateways.get(namespace, name).is_some();
            let message = format!(
                "Gateway {gateway} does not exist; create it, or name another one in \
                 spec.parameters of IngressClass {class}"
            );
            checked.gateway = Some(gateway);
            checked.accepted.refuse(Reason::NoMatchingParent, message);
            return (!exists).then_some(checked);
        };
        checked.gateway = Some(gateway);
        self.rules(ingress, place, &mut checked);
        checked.routes.end = self.routes.len();
        Some(checked)
    }

    /// Adds the routes of the rules to the listeners of the Gateway at this position.
    fn rules(&mut self, ingress: &'w Ingress, place: usize, checked: &mut CheckedIngress<'w>) {
        let Metadata {
            namespace, name, ..
        } = &ingress.metadata;
        let too_many = rules::check_limits(&ingress.spec);
        let named = names::check_object(namespace, name).map_err(|why| format!("metadata: {why}"));
        if let Err(why) = named.and(too_many) {
            checked.accepted.refuse(Reason::UnsupportedValue, why);
            return;
        }
        let withheld = annotations::withheld(&ingress.metadata);
        let plain = PlainHttp::of(&ingress.metadata);
        annotations::tell(&checked.object, &ingress.metadata, &mut self.cx.problems);
        let provenance = checked.object.to_string();
        let mut rule_context = RuleContext {
            referrer: Referrer {
                group: INGRESS_GROUP,
                kind: Kind::Ingress.as_str(),
                namespace,
            },
            traffic: Traffic::Http,
            terminates_tls: false,
            object: &checked.object,
            route: &provenance,
            hostnames: 1,
            cx: self.cx,
            backends: self.backends,
            regexes: self.regexes,
        };
        let mut faults = IngressFaults::default();
        let forwarding = Forwarding::read(&ingress.metadata);
        for fault in &forwarding.faults {
            rule_context
                .cx
                .problems
                .add(checked.object.clone(), fault.clone());
        }
        let hosts = rules::check(
            &ingress.spec,
            withheld,
            &forwarding,
            &mut rule_context,
            &mut faults,
        );
        if let Some(listeners) = self.listeners.get(place) {
            tls::tell(ingress, &checked.object, listeners, self.cx, &mut faults);
        }
        let mut served = 0_usize;
        for (host, rules) in hosts {
            let standing = rules.standing;
            match self.attach(&host, rules, plain, (place, &*checked)) {
                Ok(()) => served = served.saturating_add(standing),
                Err((reason, why)) => faults.rules.refuse(reason, why),
            }
        }
        checked.resolved = faults.references;
        if served > 0 {
            checked.dropped = faults.rules;
        } else {
            checked.accepted = faults.rules;
            if checked.accepted.good() {
                let message = "spec has neither rules with paths nor a default backend";
                checked.accepted.refuse(Reason::UnsupportedValue, message);
            }
        }
    }

    /// Adds the routes for one host.
    fn attach(
        &mut self,
        host: &Hostname,
        rules: IngressHostRules<'w>,
        plain: PlainHttp,
        (place, ingress): (usize, &CheckedIngress<'w>),
    ) -> Result<(), Grounds> {
        let Some(listeners) = self.listeners.get(place) else {
            return Ok(());
        };
        let owner = OwnerName::of(Kind::Ingress, ingress.metadata);
        let found = listeners.find(host, owner, self.cx);
        let reach = |what: &str| {
            format!(
                "no {what} listener of {} with a hostname for {} allows namespace {:?}",
                listeners.gateway().owner.display(),
                host.domain(),
                ingress.metadata.namespace
            )
        };
        let ListenersOfHost {
            mut http,
            mut https,
        } = found;
        match plain {
            PlainHttp::Served => {
                if http.is_empty() && https.is_empty() {
                    return Err((Reason::NotAllowedByListeners, reach("HTTP or HTTPS")));
                }
                https.append(&mut http);
                https.sort_by_key(|(place, _)| *place);
            }
            PlainHttp::Redirected => {
                let redirects = rules.redirects();
                self.push(redirects, Vec::new(), http, (place, ingress));
            }
            PlainHttp::Refused => {}
        }
        if https.is_empty() {
            let message = format!(
                "{}, and an annotation keeps the Ingress from being served in plain text",
                reach("HTTPS")
            );
            return Err((Reason::NotAllowedByListeners, message));
        }
        let IngressHostRules {
            rules,
            policed,
            standing: _,
        } = rules;
        let policed = policed.into_iter().collect();
        self.push(Rules::Requests(rules), policed, https, (place, ingress));
        Ok(())
    }

    fn push(
        &mut self,
        rules: Rules,
        policed: Vec<PolicedBackend<'w>>,
        listeners: FoundListeners,
        (place, ingress): (usize, &CheckedIngress<'w>),
    ) {
        let provenance = ingress.object.to_string();
        self.routes.push(CheckedRoute {
            object: ingress.object.clone(),
            size: rules.size(&provenance),
            provenance,
            metadata: ingress.metadata,
            parents: vec![RouteParent {
                reference: &NO_REFERENCE,
                parent: Parent {
                    gateway: place,
                    set: None,
                },
                listeners: Ok(listeners),
            }],
            rules,
            policed,
            accepted: Verdict::default(),
            refuses: false,
            resolved: Verdict::default(),
            dropped: None,
        });
    }
}
