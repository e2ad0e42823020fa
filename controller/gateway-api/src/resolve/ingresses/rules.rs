//! Converts the rules of an Ingress to checked rules, grouped by host.
//!
//! Each path becomes a match. Unlike in a route, a wildcard host covers exactly one label, so its
//! matches also check the host of each request.

use std::collections::{BTreeMap, BTreeSet};

use sesame_proto::expressions::fixed_path;
use sesame_proto::schema::{StringMatch, string_match};
use sesame_proto::{expressions, refusal};

use super::contour::Forwarding;
use super::{backends, tls};
use crate::api::{
    HttpMatch, IngressBackend, IngressPath, IngressRule, IngressSpec, PathMatch, PathMatchType,
};
use crate::resolve::backends::PolicedBackend;
use crate::resolve::filters::rewrites::RedirectTo;
use crate::resolve::routes::matches::{self, RouteMatch};
use crate::resolve::routes::rules::{Action, CheckedRule, RuleContext, Rules};
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::limits::{self, MAX_INGRESS_PATHS, MAX_INGRESS_RULES};
use crate::resolve::syntax::regexes::Regexes;
use crate::status::{Reason, Verdict};

/// Characters that other controllers interpret as a regular expression in a path of type
/// `ImplementationSpecific`.
const OF_EXPRESSIONS: &str = "^*+[](){}|?$\\";

/// The rules of an Ingress for a host.
#[derive(Debug, Default)]
pub(super) struct IngressHostRules<'w> {
    pub(super) rules: Vec<CheckedRule>,
    /// The backends whose policies' status lists the Gateways of the Ingress.
    pub(super) policed: BTreeSet<PolicedBackend<'w>>,
    /// Number of rules that are served as configured.
    pub(super) standing: usize,
}

/// Errors in an Ingress.
#[derive(Debug, Default)]
pub(super) struct IngressFaults {
    /// Errors because of which rules are not served.
    pub(super) rules: Verdict,
    /// Errors in backends.
    pub(super) references: Verdict,
}

/// Fails if a list has too many entries.
pub(super) fn check_limits(spec: &IngressSpec) -> Result<(), String> {
    limits::entries("spec.rules", spec.rules.len(), 0..=MAX_INGRESS_RULES)?;
    let paths = spec.rules.iter().filter_map(|rule| rule.http.as_ref());
    let paths: usize = paths.map(|http| http.paths.len()).sum();
    limits::entries("paths of all spec.rules", paths, 0..=MAX_INGRESS_PATHS)?;
    tls::check_limits(spec)
}

/// Reads the rules, grouped by host. If they are `withheld`, all of them respond with an error.
pub(super) fn check<'w>(
    spec: &'w IngressSpec,
    withheld: Option<String>,
    forwarding: &Forwarding,
    cx: &mut RuleContext<'_, 'w, '_>,
    faults: &mut IngressFaults,
) -> BTreeMap<Hostname, IngressHostRules<'w>> {
    let IngressSpec {
        ingress_class_name: _,
        default_backend,
        // The hosts in `tls` become listeners.
        tls: _,
        rules,
    } = spec;
    let mut hosts: BTreeMap<Hostname, IngressHostRules<'w>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        check_rule(
            index,
            rule,
            default_backend.as_ref(),
            cx,
            (&mut hosts, faults),
        );
    }
    if let Some(backend) = default_backend {
        // The default backend counts as the last rule.
        let index = rules.len();
        let of_host = hosts.entry(Hostname::any()).or_default();
        let action = backends::action("defaultBackend", index, backend, cx, (of_host, faults));
        of_host.add(index, 0, RouteMatch::all(), action);
    }
    for rules in hosts.values_mut() {
        for rule in &mut rules.rules {
            if let Action::Forward(forward) = &mut rule.action {
                forwarding.apply(forward);
            }
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

fn answered() -> String {
    format!("; its requests are answered with {}", refusal::HTTP)
}

/// Reads one rule.
fn check_rule<'w>(
    index: usize,
    rule: &'w IngressRule,
    default_backend: Option<&'w IngressBackend>,
    cx: &mut RuleContext<'_, 'w, '_>,
    (hosts, faults): (
        &mut BTreeMap<Hostname, IngressHostRules<'w>>,
        &mut IngressFaults,
    ),
) {
    let IngressRule { host, http } = rule;
    let hostname = match Hostname::parse(host) {
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
    let of_host = hosts.entry(hostname).or_default();
    let Some(http) = http else {
        if let Some(backend) = default_backend {
            let action = backends::action("defaultBackend", index, backend, cx, (of_host, faults));
            of_host.add(index, 0, one_label.applied_to(RouteMatch::all()), action);
        }
        return;
    };
    for (at, path) in http.paths.iter().enumerate() {
        let place = format!("rules[{index}].http.paths[{at}]");
        match read_path(path, cx.regexes) {
            Ok(route_match) => {
                let at_backend = format!("{place}.backend");
                let backend = &path.backend;
                let action = backends::action(&at_backend, index, backend, cx, (of_host, faults));
                of_host.add(index, at, one_label.applied_to(route_match), action);
            }
            Err(why) => {
                let message = format!("{place}.{why}{}", answered());
                faults.rules.refuse(Reason::UnsupportedValue, message);
                let route_match = one_label.applied_to(widened(path, cx.regexes));
                let mut refusing = CheckedRule::refusing(index, vec![route_match]);
                refusing.first = at;
                of_host.rules.push(refusing);
            }
        }
    }
}

impl IngressHostRules<'_> {
    /// Returns rules with the same matches, redirecting to HTTPS.
    pub(super) fn redirects(&self) -> Vec<CheckedRule> {
        let redirects = self.rules.iter().map(|rule| CheckedRule {
            first: rule.first,
            action: Action::Redirect(RedirectTo::https()),
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

    /// Responds to all matching requests with an error.
    fn refuse_each(&mut self) {
        self.standing = 0;
        for rule in &mut self.rules {
            rule.action = Action::respond(refusal::HTTP);
        }
    }

    /// Responds to all requests for the host with an error.
    fn refuse_all(&mut self) {
        let index = self.rules.first().map_or(0, |rule| rule.index);
        self.standing = 0;
        self.rules = vec![CheckedRule::refusing(index, vec![RouteMatch::all()])];
    }
}

/// Reads a path. Errors contain the field path relative to the Ingress path.
fn read_path(path: &IngressPath, regexes: &mut Regexes) -> Result<RouteMatch, String> {
    let IngressPath {
        path: value,
        path_type,
        backend: _,
    } = path;
    let type_ = match path_type.as_str() {
        "Exact" => PathMatchType::Exact,
        "ImplementationSpecific" if value.is_empty() => return Ok(RouteMatch::all()),
        "ImplementationSpecific" if value.contains(|c: char| OF_EXPRESSIONS.contains(c)) => {
            return Err(format!(
                "path {value:?} looks like a regular expression, which is not supported; use \
                 pathType Prefix or Exact"
            ));
        }
        "Prefix" | "ImplementationSpecific" => PathMatchType::PathPrefix,
        other => {
            return Err(format!(
                "pathType {other:?} is unknown; expected Exact, Prefix or ImplementationSpecific"
            ));
        }
    };
    let spec = of_path(type_, value);
    matches::read(&spec, regexes).map_err(|why| why.replacen("path.value", "path", 1))
}

fn of_path(type_: PathMatchType, value: &str) -> HttpMatch {
    HttpMatch {
        path: Some(PathMatch {
            type_: Some(type_),
            value: Some(value.into()),
        }),
        ..HttpMatch::default()
    }
}

/// Returns a match that accepts at least the requests of an invalid path.
fn widened(path: &IngressPath, regexes: &mut Regexes) -> RouteMatch {
    let fixed = if path.path_type == "ImplementationSpecific" {
        fixed_path(&path.path)
    } else {
        &path.path
    };
    let fixed = if fixed.is_empty() { "/" } else { fixed };
    matches::widened(&of_path(PathMatchType::PathPrefix, fixed), regexes)
}

/// The condition for a wildcard host: the number of labels. The virtual host checks the rest.
pub(crate) struct OneLabel(Option<(StringMatch, u64)>);

pub(crate) fn one_label(host: &Hostname) -> OneLabel {
    let wildcard = host.as_str().strip_prefix("*.");
    OneLabel(wildcard.map(|name| {
        // The first label, then a dot and a label for each label of the name. A port has no dots.
        let labels = name.split('.').count();
        let pattern = format!(r"[^.]+(\.[^.]+){{{labels}}}");
        let cost = expressions::instructions(&pattern).unwrap_or(u64::MAX);
        let matches = StringMatch {
            name: "host".to_owned(),
            kind: Some(string_match::Kind::Regex(pattern)),
        };
        (matches, cost)
    }))
}

impl OneLabel {
    pub(crate) fn applied_to(&self, mut route_match: RouteMatch) -> RouteMatch {
        if let Some((of_host, cost)) = &self.0 {
            route_match.headers.push(of_host.clone());
            route_match.instructions = route_match.instructions.saturating_add(*cost);
            route_match.one_label = true;
        }
        route_match
    }
}
