//! Converts Ingresses to checked routes, and finds the Gateway of each Ingress.
//!
//! Gateway API routes come before Ingresses, so an HTTPRoute wins over an Ingress with an equal
//! match. Older Ingresses come before newer ones. A rule that cannot be served responds with an
//! error, because its requests must never reach a wider rule.

mod annotations;
mod backends;
mod classes;
pub(crate) mod contour;
pub(crate) mod implied;
pub(crate) mod listeners;
pub(crate) mod lookup;
pub(crate) mod nginx;
mod paths;
mod ports;
mod rules;
mod tls;
pub(crate) mod unknown;
mod yielding;

use std::ops::Range;

use self::annotations::PlainHttp;
pub use self::classes::INGRESS_CONTROLLER;
pub(crate) use self::classes::{IngressClasses, class_name};
use self::contour::Forwarding;
pub use self::implied::{ImpliedGateway, with_implied_gateway};
use self::listeners::{ListenersOfGateway, OwnerName};
use self::lookup::{LayeredLookup, RuleOwner};
pub(crate) use self::nginx::has_more_names;
use self::nginx::{
    Canaries, CanaryChoice, NginxSettings, RuleHosts, ignored_annotations, is_canary,
};
pub(crate) use self::paths::{OneLabel, one_label};
pub(crate) use self::ports::IngressPorts;
use self::rules::{IngressFaults, IngressHostRules, RuleSettings};
pub(crate) use self::tls::explicit_hosts;
pub(crate) use self::tls::listeners_of_all;
pub(crate) use self::yielding::give_way;
use crate::listeners::implicit::HostClients;
use crate::syntax::hostnames::Hostname;
use crate::syntax::names;
use sesame_kinds::api::{Ingress, Metadata, NamespacedName};
use sesame_kinds::status::{Grounds, Reason, Verdict};
use sesame_kinds::world::{Kind, ObjectKey, World};
use sesame_proto::refusal;

pub(crate) struct CheckedIngress<'w> {
    pub(crate) object: ObjectKey,
    pub(crate) metadata: &'w Metadata,
    pub(crate) gateway: Option<NamespacedName>,
    pub(crate) accepted: Verdict,
    pub(crate) resolved: Verdict,
    /// Errors in some rules, if other rules are served.
    pub(crate) dropped: Verdict,
    /// Why a Secret is not used, although its host is served over HTTPS.
    pub(crate) overridden: Option<String>,
    /// Range in the list of all routes.
    pub(crate) routes: Range<usize>,
}

struct IngressClassOf<'a, 'w> {
    name: &'w str,
    reads_nginx: bool,
    canaries: &'a Canaries<'w>,
    hosts: &'a RuleHosts<'w>,
}

/// Returns Ingresses whose class reads annotations of ingress-nginx, and their Gateways.
pub(crate) fn annotated<'w>(
    world: &'w World,
    classes: &IngressClasses<'w>,
) -> Vec<((&'w str, &'w str), &'w Metadata)> {
    let ingresses = world.ingresses.iter().map(AsRef::as_ref);
    let annotated = ingresses.filter_map(|ingress: &Ingress| {
        let (class, gateway) = classes.find(ingress)?;
        let gateway = gateway.as_ref().ok()?;
        let reads_nginx = classes.reads_nginx(class);
        reads_nginx.then_some((*gateway, &ingress.metadata))
    });
    annotated.collect()
}

pub(crate) fn check_all<'w>(
    lookup: &mut LayeredLookup<'_, 'w, '_>,
    classes: &IngressClasses<'w>,
) -> Vec<CheckedIngress<'w>> {
    let world = lookup.cx.world;
    classes.report(&mut lookup.cx.problems);
    let mut ingresses: Vec<&'w Ingress> = world.ingresses.iter().map(AsRef::as_ref).collect();
    ingresses.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    let canaries = Canaries::of(&ingresses, classes);
    let with_class = ingresses.iter();
    let with_class = with_class.filter_map(|it| Some((classes.find(it)?.0, *it)));
    let hosts = RuleHosts::of(with_class);
    let check = |ingress: &'w Ingress| {
        let (class, named) = classes.find(ingress)?;
        let class = IngressClassOf {
            name: class,
            reads_nginx: classes.reads_nginx(class),
            canaries: &canaries,
            hosts: &hosts,
        };
        lookup.check(ingress, &class, named)
    };
    ingresses.into_iter().filter_map(check).collect()
}

impl<'w> LayeredLookup<'_, 'w, '_> {
    /// Returns `None` if another controller owns the Gateway and may serve the Ingress.
    fn check(
        &mut self,
        ingress: &'w Ingress,
        class: &IngressClassOf<'_, 'w>,
        named: &Result<(&str, &str), String>,
    ) -> Option<CheckedIngress<'w>> {
        let class_name = class.name;
        let metadata = &ingress.metadata;
        let start = self.routes.len();
        let mut checked = CheckedIngress {
            object: Kind::Ingress.named(metadata.key()),
            metadata,
            gateway: None,
            accepted: Verdict::default(),
            resolved: Verdict::default(),
            dropped: Verdict::default(),
            overridden: None,
            routes: start..start,
        };
        let (namespace, name) = match named {
            Ok(named) => *named,
            Err(why) => {
                let message = format!("IngressClass {class_name} names no Gateway: {why}");
                checked.accepted.refuse(Reason::InvalidParameters, message);
                return Some(checked);
            }
        };
        let gateway = NamespacedName::new(namespace, name);
        let Some(found) = self.gateway(namespace, name) else {
            let exists = self.cx.world.gateways.get(namespace, name).is_some();
            let message = format!(
                "Gateway {gateway} does not exist; create it, or name another one in \
                 spec.parameters of IngressClass {class_name}"
            );
            checked.gateway = Some(gateway);
            checked.accepted.refuse(Reason::NoMatchingParent, message);
            return (!exists).then_some(checked);
        };
        checked.gateway = Some(gateway);
        let too_many = rules::check_limits(&ingress.spec);
        let named = names::check_object(&metadata.namespace, &metadata.name);
        let named = named.map_err(|why| format!("metadata: {why}"));
        if let Err(why) = named.and(too_many) {
            checked.accepted.refuse(Reason::UnsupportedValue, why);
        } else if class.reads_nginx && is_canary(ingress) {
            self.canary(ingress, class, &mut checked);
        } else {
            self.rules(ingress, class, found, &mut checked);
        }
        checked.routes.end = self.routes.len();
        Some(checked)
    }

    fn rules(
        &mut self,
        ingress: &'w Ingress,
        class: &IngressClassOf<'_, 'w>,
        gateway: (usize, &ListenersOfGateway<'_, '_>),
        checked: &mut CheckedIngress<'w>,
    ) {
        let owner = RuleOwner::of(Kind::Ingress, &ingress.metadata);
        let nginx = class.reads_nginx.then(|| {
            let cx = &mut self.rule_context(&owner);
            NginxSettings::read(&ingress.metadata, &checked.object.to_string(), cx)
        });
        let nginx = nginx.as_ref();
        let withheld = annotations::withheld(&ingress.metadata, nginx);
        let problems = &mut self.cx.problems;
        annotations::report(&checked.object, &ingress.metadata, nginx, problems);
        let settings = RuleSettings {
            ingress,
            class: class.name,
            contour: Forwarding::read(&ingress.metadata),
            nginx,
            canaries: class.canaries,
            hosts: class.hosts,
            connection: nginx.map(NginxSettings::connection).unwrap_or_default(),
        };
        for fault in &settings.contour.faults {
            problems.add(checked.object.clone(), fault.clone());
        }
        let mut faults = IngressFaults::default();
        let cx = &mut self.rule_context(&owner);
        let hosts = rules::check(&settings, withheld, cx, &mut faults);
        tls::report(ingress, &checked.object, gateway.1, self.cx, &mut faults);
        let mut served = 0_usize;
        for (host, rules) in hosts {
            let standing = rules.standing;
            let plain = PlainHttp::of(&ingress.metadata, nginx, (&ingress.spec, &host));
            let clients = nginx.and_then(NginxSettings::clients);
            match self.attach((&host, clients), rules, plain, gateway, &owner) {
                Ok(()) => served = served.saturating_add(standing),
                Err((reason, why)) => faults.rules.refuse(reason, why),
            }
        }
        checked.resolved = faults.references;
        checked.overridden = faults.overridden;
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

    fn canary(
        &mut self,
        ingress: &'w Ingress,
        class: &IngressClassOf<'_, 'w>,
        checked: &mut CheckedIngress<'w>,
    ) {
        let (_, notes) = CanaryChoice::read(ingress);
        let ignored = ignored_annotations(&ingress.metadata);
        let default = ingress.spec.default_backend.is_some();
        let default = default.then(|| "spec.defaultBackend of a canary has no effect".to_owned());
        for note in notes.into_iter().chain(ignored).chain(default) {
            self.cx.problems.add(checked.object.clone(), note);
        }
        if let Some(why) = class.canaries.without_effect(ingress, class.name) {
            checked.accepted.refuse(Reason::NoMatchingParent, why);
        }
        let owner = RuleOwner::of(Kind::Ingress, &ingress.metadata);
        let cx = &mut self.rule_context(&owner);
        checked.resolved = rules::check_backends(&ingress.spec, cx);
    }

    fn attach(
        &mut self,
        (host, clients): (&Hostname, Option<&HostClients>),
        rules: IngressHostRules<'w>,
        plain: PlainHttp,
        (place, listeners): (usize, &ListenersOfGateway<'_, '_>),
        owner: &RuleOwner<'w>,
    ) -> Result<(), Grounds> {
        let owner_name = OwnerName::of(Kind::Ingress, owner.metadata);
        let mut found = listeners.find(host, owner_name, self.cx);
        let unvalidated = listeners.remove_unvalidated(&mut found.https, clients);
        let is_unvalidated = !unvalidated.is_empty();
        if is_unvalidated {
            // Requests must not fall through to another rule.
            self.push(owner, rules.refused(), Vec::new(), (place, unvalidated));
        }
        let reach = |what: &str| {
            format!(
                "no {what} listener of {}{} with a hostname that matches {} allows namespace {:?}",
                listeners.gateway().owner.display(),
                listeners.ports.described(),
                host.domain(),
                owner.metadata.namespace
            )
        };
        let serving = match plain {
            PlainHttp::Served if found.is_empty() => {
                return Err((Reason::NotAllowedByListeners, reach("HTTP or HTTPS")));
            }
            PlainHttp::Served => found.both(),
            PlainHttp::Redirected(status) => {
                let redirects = rules.redirects(status, listeners.ports.of_tls_hosts());
                self.push(owner, redirects, Vec::new(), (place, found.http));
                found.https
            }
            PlainHttp::Refused => found.https,
        };
        if serving.is_empty() && is_unvalidated {
            let message = format!(
                "auth-tls-secret: the HTTPS listener for {} does not validate clients like this \
                 Ingress; use the same annotations in all Ingresses for the host, with a Secret in \
                 spec.tls; requests get {}",
                host.domain(),
                refusal::HTTP
            );
            return Err((Reason::UnsupportedValue, message));
        }
        if serving.is_empty() {
            let message = format!(
                "{}, and an annotation prevents serving the Ingress over plain HTTP",
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
        self.push(owner, rules, policed, (place, serving));
        Ok(())
    }
}
