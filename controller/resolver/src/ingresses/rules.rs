//! Converts the rules of an Ingress to checked rules, grouped by host.
//!
//! Unlike in a route, an Ingress's wildcard host covers exactly one label, so the matches also
//! check the host.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::refusal;
use sesame_proto::schema::path_match::Kind;

use super::contour::Forwarding;
use super::nginx::{Canaries, Canary, NginxSettings, Paths, RuleHosts, with_condition};
use super::paths::{OneLabel, ReadPath, one_label, read_path, widened};
use super::{backends, tls};
use crate::backends::{Connection, PolicedBackend};
use crate::filters::rewrites::RedirectTo;
use crate::routes::matches::RouteMatch;
use crate::routes::rules::{Action, CheckedRule, RuleContext, Rules};
use crate::syntax::hostnames::Hostname;
use crate::syntax::limits::{self, MAX_INGRESS_PATHS, MAX_INGRESS_RULES};
use sesame_kinds::api::{Ingress, IngressBackend, IngressPath, IngressRule, IngressSpec};
use sesame_kinds::status::{Reason, Verdict};

/// Index after all path matches and canary matches.
const APP_ROOT: usize = MAX_INGRESS_PATHS * (1 + Canary::MAX_CONDITIONS);

#[derive(Debug, Default)]
pub(super) struct IngressHostRules<'w> {
    pub(super) rules: Vec<CheckedRule>,
    pub(super) policed: BTreeSet<PolicedBackend<'w>>,
    /// Counts rules that are served as configured.
    pub(super) standing: usize,
}

#[derive(Debug, Default)]
pub(super) struct IngressFaults {
    pub(super) rules: Verdict,
    pub(super) references: Verdict,
    /// The first host whose Secret is not used.
    pub(super) overridden: Option<String>,
}

pub(super) fn check_limits(spec: &IngressSpec) -> Result<(), String> {
    limits::entries("spec.rules", spec.rules.len(), 0..=MAX_INGRESS_RULES)?;
    let paths = spec.rules.iter().filter_map(|rule| rule.http.as_ref());
    let paths: usize = paths.map(|http| http.paths.len()).sum();
    limits::entries("paths of all spec.rules", paths, 0..=MAX_INGRESS_PATHS)?;
    tls::check_limits(spec)
}

pub(super) struct RuleSettings<'a, 'w> {
    pub(super) ingress: &'w Ingress,
    pub(super) class: &'w str,
    pub(super) contour: Forwarding,
    pub(super) nginx: Option<&'a NginxSettings>,
    pub(super) canaries: &'a Canaries<'w>,
    pub(super) hosts: &'a RuleHosts<'w>,
    pub(super) connection: Connection,
}

type Found<'f, 'w> = (&'f mut IngressHostRules<'w>, &'f mut IngressFaults);

impl<'w> RuleSettings<'_, 'w> {
    pub(super) fn paths(&self) -> Option<&Paths> {
        self.nginx.map(NginxSettings::paths)
    }

    fn action(
        &self,
        (at, index): (&str, usize),
        backend: &'w IngressBackend,
        cx: &mut RuleContext<'_, 'w, '_>,
        found: Found<'_, 'w>,
    ) -> Action {
        if let Some(redirect) = self.paths().and_then(|it| it.redirect.clone()) {
            return Action::Redirect(redirect);
        }
        backends::action(at, index, (backend, &self.connection), cx, found)
    }

    fn canary(&self, host: &'w str, path: &'w IngressPath) -> Option<&Canary<'w>> {
        self.nginx?;
        self.canaries.find(self.ingress, self.class, (host, path))
    }

    fn add_path(
        &self,
        (index, at): (usize, usize),
        (host, path): (&'w str, &'w IngressPath),
        ((route_match, rewrite), one_label): (ReadPath, &OneLabel),
        cx: &mut RuleContext<'_, 'w, '_>,
        (of_host, faults): Found<'_, 'w>,
    ) {
        let rewritten = |mut action: Action| {
            if let Action::Forward(forward) = &mut action {
                forward.rewrite = rewrite.clone().map(Box::new);
            }
            action
        };
        let backend_at = format!("rules[{index}].http.paths[{at}].backend");
        let backend_at = (backend_at.as_str(), index);
        let action = self.action(backend_at, &path.backend, cx, (of_host, faults));
        let mut action = rewritten(action);
        if let Some(Canary {
            backend, choice, ..
        }) = self.canary(host, path)
        {
            // Errors in the canary's backend are reported on the canary Ingress.
            let found = (&mut *of_host, &mut IngressFaults::default());
            let taken = rewritten(self.action(backend_at, backend, cx, found));
            let first = MAX_INGRESS_PATHS + at * Canary::MAX_CONDITIONS;
            for (i, (condition, cost, is_taken)) in choice.conditions.iter().enumerate() {
                let narrowed = with_condition(&route_match, (condition, *cost));
                let action = if *is_taken { &taken } else { &action };
                let narrowed = one_label.applied_to(narrowed);
                of_host.add(index, first + i, narrowed, action.clone());
            }
            action = choice.weighted(action, &taken);
        }
        of_host.add(index, at, one_label.applied_to(route_match), action);
    }

    fn apply(&self, rule: &mut CheckedRule) {
        if let Action::Forward(forward) = &mut rule.action {
            self.contour.apply(forward);
        }
        if let Some(nginx) = self.nginx {
            nginx.apply(rule);
        }
    }
}

/// If `withheld` is set, every rule responds with an error.
pub(super) fn check<'w>(
    settings: &RuleSettings<'_, 'w>,
    withheld: Option<String>,
    cx: &mut RuleContext<'_, 'w, '_>,
    faults: &mut IngressFaults,
) -> BTreeMap<Hostname, IngressHostRules<'w>> {
    let IngressSpec {
        ingress_class_name: _,
        default_backend,
        // Hosts in `tls` become listeners instead of rules.
        tls: _,
        rules,
    } = &settings.ingress.spec;
    let mut hosts: BTreeMap<Hostname, IngressHostRules<'w>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        check_rule((index, rule), None, settings, cx, (&mut hosts, faults));
    }
    add_names(rules, settings, cx, (&mut hosts, faults));
    if let Some(backend) = default_backend {
        // The default backend is an additional last rule.
        let index = rules.len();
        let host_rules = hosts.entry(Hostname::any()).or_default();
        let at = ("defaultBackend", index);
        let action = settings.action(at, backend, cx, (host_rules, faults));
        host_rules.add(index, 0, RouteMatch::all(), action);
    }
    for rules in hosts.values_mut() {
        for rule in &mut rules.rules {
            settings.apply(rule);
        }
        let checked = Rules::Requests(std::mem::take(&mut rules.rules));
        let affordable = checked.affordable(cx.route, 1);
        if let Rules::Requests(checked) = checked {
            rules.rules = checked;
        }
        if let Err(why) = affordable {
            rules.refuse_all();
            faults
                .rules
                .refuse(Reason::UnsupportedValue, why + &answered());
        } else if withheld.is_some() {
            rules.refuse_each();
        }
    }
    if let Some(why) = withheld {
        faults
            .rules
            .refuse(Reason::UnsupportedValue, why + &answered());
    }
    hosts
}

pub(super) fn check_backends<'w>(
    spec: &'w IngressSpec,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> Verdict {
    let mut faults = IngressFaults::default();
    let (connection, mut rules) = (Connection::default(), IngressHostRules::default());
    for (index, rule) in spec.rules.iter().enumerate() {
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        for (at, path) in paths.enumerate() {
            let at = format!("rules[{index}].http.paths[{at}].backend");
            let backend = (&path.backend, &connection);
            backends::action(&at, index, backend, cx, (&mut rules, &mut faults));
        }
    }
    faults.references
}

fn answered() -> String {
    format!("; its requests get {}", refusal::HTTP)
}

fn add_names<'w>(
    rules: &'w [IngressRule],
    settings: &RuleSettings<'_, 'w>,
    cx: &mut RuleContext<'_, 'w, '_>,
    (hosts, faults): FoundHosts<'_, 'w>,
) {
    let Some(names) = settings.nginx.map(NginxSettings::names) else {
        return;
    };
    let is_free = |name: &Hostname, cx: &mut RuleContext<'_, 'w, '_>| {
        let is_taken = settings.hosts.has(settings.class, name);
        if is_taken {
            let name = name.domain();
            let why = format!("the name {name} has no effect: an Ingress has a rule for it");
            cx.cx.problems.add(cx.object.clone(), why);
        }
        !is_taken
    };
    let mut with_host = rules.iter().enumerate();
    let first = with_host.find(|(_, rule)| !rule.host.is_empty());
    for alias in &names.aliases {
        if let Some(first) = first.filter(|_| is_free(alias, cx)) {
            let found = (&mut *hosts, &mut *faults);
            check_rule(first, Some(alias), settings, cx, found);
        }
    }
    for (index, rule) in rules.iter().enumerate() {
        let host = Hostname::parse(&rule.host).ok();
        let other = host.and_then(|host| names.redirect(&host));
        if let Some((other, redirect)) = other.filter(|(other, _)| is_free(other, cx)) {
            let other_rules = hosts.entry(other).or_default();
            other_rules.add(index, 0, RouteMatch::all(), Action::Redirect(redirect));
        }
    }
}

type FoundHosts<'f, 'w> = (
    &'f mut BTreeMap<Hostname, IngressHostRules<'w>>,
    &'f mut IngressFaults,
);

fn check_rule<'w>(
    (index, rule): (usize, &'w IngressRule),
    alias: Option<&Hostname>,
    settings: &RuleSettings<'_, 'w>,
    cx: &mut RuleContext<'_, 'w, '_>,
    (hosts, faults): FoundHosts<'_, 'w>,
) {
    let IngressRule { host, http } = rule;
    let hostname = alias.cloned().map_or_else(|| Hostname::parse(host), Ok);
    let hostname = match hostname {
        Ok(hostname) => hostname,
        Err(why) => {
            let message = format!("rules[{index}].host: {why}{}", answered());
            faults.rules.refuse(Reason::UnsupportedValue, message);
            if let Some(meant) = Hostname::meant(host) {
                let rules = hosts.entry(meant).or_default();
                rules
                    .rules
                    .push(CheckedRule::refusing(index, vec![RouteMatch::all()]));
            }
            return;
        }
    };
    let one_label = one_label(&hostname);
    let host_rules = hosts.entry(hostname).or_default();
    let Some(http) = http else {
        if let Some(backend) = &settings.ingress.spec.default_backend {
            let at = ("defaultBackend", index);
            let action = settings.action(at, backend, cx, (host_rules, faults));
            host_rules.add(index, 0, one_label.applied_to(RouteMatch::all()), action);
        }
        return;
    };
    if let Some(redirect) = settings.paths().and_then(|it| it.app_root.clone()) {
        let root = one_label.applied_to(RouteMatch {
            path: Kind::Exact("/".to_owned()),
            ..RouteMatch::all()
        });
        host_rules.add(index, APP_ROOT, root, Action::Redirect(redirect));
    }
    for (at, path) in http.paths.iter().enumerate() {
        let place = (index, at);
        match read_path(path, settings, cx.regexes) {
            Ok(read) => {
                let matching = (read, &one_label);
                settings.add_path(place, (host, path), matching, cx, (host_rules, faults));
            }
            Err(why) => {
                let message = format!("rules[{index}].http.paths[{at}].{why}{}", answered());
                faults.rules.refuse(Reason::UnsupportedValue, message);
                let route_match = one_label.applied_to(widened(path, settings, cx.regexes));
                let mut refusing = CheckedRule::refusing(index, vec![route_match]);
                refusing.first = at;
                host_rules.rules.push(refusing);
            }
        }
    }
}

impl IngressHostRules<'_> {
    /// Redirects to HTTPS on this port.
    pub(super) fn redirects(&self, status: u32, port: u16) -> Vec<CheckedRule> {
        let to = RedirectTo {
            status,
            ..RedirectTo::https(port)
        };
        let redirects = self.rules.iter().map(|rule| CheckedRule {
            first: rule.first,
            action: Action::Redirect(to.clone()),
            ..CheckedRule::refusing(rule.index, rule.matches.clone())
        });
        redirects.collect()
    }

    fn add(&mut self, index: usize, first: usize, route_match: RouteMatch, action: Action) {
        self.standing = self.standing.saturating_add(1);
        self.rules.push(CheckedRule {
            first,
            action,
            ..CheckedRule::refusing(index, vec![route_match])
        });
    }

    /// Returns the rules with errors instead of actions.
    pub(super) fn refused(&self) -> Vec<CheckedRule> {
        let mut refused = Self {
            rules: self.rules.clone(),
            ..Self::default()
        };
        refused.refuse_each();
        refused.rules
    }

    fn refuse_each(&mut self) {
        self.standing = 0;
        for rule in &mut self.rules {
            rule.action = Action::respond(refusal::HTTP);
            rule.external_auth = None;
        }
    }

    fn refuse_all(&mut self) {
        let index = self.rules.first().map_or(0, |rule| rule.index);
        self.standing = 0;
        self.rules = vec![CheckedRule::refusing(index, vec![RouteMatch::all()])];
    }
}
