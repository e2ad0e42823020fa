//! Checks all rules of a route: which rules are served, and why others are not.

use std::collections::{BTreeSet, HashSet};

use sesame_proto::dns_name::is_dns_subdomain;
use sesame_proto::refusal;

use super::rules::{RouteRule, RuleContext, RuleOutcome, RuleReferences, Rules, Unsupported};
use crate::api::Metadata;
use crate::resolve::backends::PolicedBackend;
use crate::status::{Grounds, Reason, Verdict, unsupported};

/// The rules of a route after all checks.
pub(super) struct CheckedRules<'w> {
    pub(super) rules: Rules,
    /// Whether the rules permit accepting the route: at least one rule is served as configured, and
    /// the rules do not exceed a cost limit.
    pub(super) accepted: Verdict,
    /// True if the route is not accepted and its rules exist only to reject requests.
    pub(super) refuses: bool,
    /// Whether all references are valid, which does not depend on the parent.
    pub(super) resolved: Verdict,
    /// Backends whose own status, or whose policies' status, must list the route's Gateways.
    pub(super) policed: BTreeSet<PolicedBackend<'w>>,
    /// Reason and message about dropped rules. `None` if no rules are dropped, or if all are.
    pub(super) dropped: Option<Grounds>,
}

/// Why a rule, or a part of it, is not served.
struct RuleFault {
    reason: Reason,
    message: String,
    /// What happens to the affected requests; appended to `message`.
    follows: String,
}

#[derive(Default)]
struct RuleFindings<'w> {
    faults: Vec<RuleFault>,
    /// Number of rules of which at least a part is served as configured.
    standing: usize,
    resolved: Verdict,
    policed: BTreeSet<PolicedBackend<'w>>,
}

impl<'w> RuleFindings<'w> {
    /// Adds the findings about a valid rule. `at` names the rule.
    fn add(&mut self, at: &str, unsupported: Option<Unsupported>, references: RuleReferences<'w>) {
        let RuleReferences { faults, policed } = references;
        for (reason, message) in faults {
            self.resolved.refuse(reason, message);
        }
        self.policed.extend(policed);
        self.standing += usize::from(unsupported.as_ref().is_none_or(|part| part.stands));
        self.faults.extend(unsupported.map(|part| {
            let Unsupported {
                message,
                stands: _,
                follows,
            } = part;
            RuleFault {
                reason: Reason::UnsupportedValue,
                message: format!("{at}: {message}"),
                follows,
            }
        }));
    }

    /// Adds the error in an invalid rule. `refuses` is true if the rule's requests get an error
    /// response, and false if they may reach another route.
    fn add_invalid(&mut self, at: &str, (reason, message): Grounds, refuses: bool) {
        self.faults.push(RuleFault {
            reason,
            message: format!("{at}: {message}"),
            follows: if refuses {
                format!("; its requests get {}", refusal::HTTP)
            } else {
                String::new()
            },
        });
    }
}

/// Checks the rules of a route together, because their names must be unique and their costs add up.
pub(super) fn check<'w, R: RouteRule>(
    rules: &'w [R],
    metadata: &Metadata,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> CheckedRules<'w> {
    let rules = if rules.is_empty() { R::DEFAULT } else { rules };
    let mut names: HashSet<&str> = HashSet::new();
    let mut checked = Vec::with_capacity(rules.len());
    let mut findings = RuleFindings::default();
    for (i, rule) in rules.iter().enumerate() {
        let name = rule.name();
        let at = place(i, name);
        // Drop a rule with an unknown field in a match, because the match would be wider without
        // it. With an unknown field elsewhere, keep the rule and reject its requests.
        let (in_match, elsewhere) = metadata.unknown.refusals_of("rules", i, "matches");
        let is_withheld = elsewhere.is_some();
        let fault = in_match.or_else(|| name_fault(name, &mut names));
        let outcome = match fault {
            Some(why) => Err(unsupported(why)),
            None => rule.check(i, elsewhere, cx),
        };
        match outcome {
            Ok(RuleOutcome {
                checked: rule,
                unsupported,
                references,
            }) => {
                findings.add(&at, unsupported, references);
                checked.push(rule);
            }
            Err(grounds) => {
                // If the rule were dropped, its requests could reach other rules, which may lack
                // authorization.
                let refusing = rule.refusing(i, is_withheld, cx);
                findings.add_invalid(&at, grounds, refusing.is_some());
                checked.extend(refusing);
            }
        }
    }
    let RuleFindings {
        faults,
        standing,
        resolved,
        policed,
    } = findings;
    let refuses = standing == 0 && !checked.is_empty();
    let (mut refuses, mut checked) = (refuses, R::all(checked));
    let mut accepted = Verdict::default();
    if let Err(why) = checked.affordable(cx.route, cx.hostnames) {
        // The rules would be too expensive even if they only rejected requests. If they might be
        // security-relevant, a single rule rejects all requests instead.
        refuses = rules.iter().any(RouteRule::protects)
            || metadata.unknown.iter().any(|field| field.protects);
        checked = R::all(Vec::from_iter(refuses.then(|| R::refusing_all(cx))));
        let why = if refuses { why + &all_refused() } else { why };
        accepted.refuse(Reason::UnsupportedValue, why);
    }
    let dropped = if standing > 0 {
        dropped(faults)
    } else {
        for fault in faults {
            accepted.refuse(fault.reason, fault.message + &fault.follows);
        }
        None
    };
    CheckedRules {
        rules: checked,
        accepted,
        refuses,
        resolved,
        policed,
        dropped,
    }
}

/// Appended to messages: what happens to requests if no rule of the route is served.
fn all_refused() -> String {
    format!("; all requests get {}", refusal::HTTP)
}

/// Returns the rules of a route that cannot be served, all of which reject requests. `why` is the
/// error. If there are too many rules to read (`readable` is false), a single rule rejects every
/// request.
pub(super) fn refused<'w, R: RouteRule>(
    rules: &'w [R],
    why: &str,
    readable: bool,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> CheckedRules<'w> {
    let rules = if rules.is_empty() { R::DEFAULT } else { rules };
    let looked_at = rules.iter().enumerate().filter(|_| readable);
    let refusing = looked_at.filter_map(|(i, rule)| rule.refusing(i, true, cx));
    let mut refusing = R::all(refusing.collect());
    if !readable || refusing.affordable(cx.route, cx.hostnames).is_err() {
        refusing = R::all(vec![R::refusing_all(cx)]);
    }
    let mut accepted = Verdict::default();
    let message = why.to_owned() + &all_refused();
    accepted.refuse(Reason::UnsupportedValue, message);
    CheckedRules {
        refuses: true,
        rules: refusing,
        accepted,
        resolved: Verdict::default(),
        policed: BTreeSet::new(),
        dropped: None,
    }
}

/// Returns the location of a rule for messages, with the rule's name if there is one.
fn place(index: usize, name: &str) -> String {
    if name.is_empty() {
        format!("rules[{index}]")
    } else {
        format!("rules[{index}] {name:?}")
    }
}

/// Combines the errors in rules that are dropped while other rules are served.
fn dropped(faults: Vec<RuleFault>) -> Option<Grounds> {
    let reason = faults.first()?.reason;
    let messages: Vec<String> = faults
        .into_iter()
        .map(|fault| fault.message + &fault.follows)
        .collect();
    Some((reason, format!("Dropped Rule: {}", messages.join("; "))))
}

/// Returns an error if a rule's name is invalid or in `names`. Otherwise adds the name to `names`.
fn name_fault<'r>(name: &'r str, names: &mut HashSet<&'r str>) -> Option<String> {
    if name.is_empty() {
        None
    } else if !is_dns_subdomain(name) {
        Some(format!(
            "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.'"
        ))
    } else if !names.insert(name) {
        Some(format!(
            "name {name:?} is already used by an earlier rule; names must be unique"
        ))
    } else {
        None
    }
}
