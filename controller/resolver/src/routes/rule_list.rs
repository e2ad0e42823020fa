//! Checks all rules of a route together, because names must be unique and costs add up.

use std::collections::{BTreeSet, HashSet};

use sesame_proto::dns_name::is_dns_subdomain;
use sesame_proto::refusal;

use super::rules::{RouteRule, RuleContext, RuleOutcome, RuleReferences, Rules, Unsupported};
use crate::backends::PolicedBackend;
use sesame_kinds::api::Metadata;
use sesame_kinds::status::{Grounds, Reason, Verdict, unsupported};

pub(super) struct CheckedRules<'w> {
    pub(super) rules: Rules,
    pub(super) accepted: Verdict,
    /// True if the rules exist only to reject requests.
    pub(super) refuses: bool,
    pub(super) resolved: Verdict,
    pub(super) policed: BTreeSet<PolicedBackend<'w>>,
    /// `None` if no rules or all rules are dropped.
    pub(super) dropped: Option<Grounds>,
}

struct RuleFault {
    reason: Reason,
    message: String,
    /// What happens to the affected requests; appended to `message`.
    follows: String,
}

#[derive(Default)]
struct RuleFindings<'w> {
    faults: Vec<RuleFault>,
    /// Number of rules that are served at least in part.
    standing: usize,
    resolved: Verdict,
    policed: BTreeSet<PolicedBackend<'w>>,
}

impl<'w> RuleFindings<'w> {
    fn add(&mut self, at: &str, unsupported: Option<Unsupported>, references: RuleReferences<'w>) {
        let RuleReferences { faults, policed } = references;
        for (reason, message) in faults {
            self.resolved.refuse(reason, message);
        }
        self.policed.extend(policed);
        self.standing += usize::from(unsupported.as_ref().is_none_or(|part| part.rest_is_served));
        self.faults.extend(unsupported.map(|part| {
            let Unsupported {
                message,
                rest_is_served: _,
                follows,
            } = part;
            RuleFault {
                reason: Reason::UnsupportedValue,
                message: format!("{at}: {message}"),
                follows,
            }
        }));
    }

    /// `refuses` is true if requests get an error response, and false if they may reach another
    /// route.
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
        // Drop a rule with an unknown field in a match, because ignoring the field would widen the
        // match.
        let (in_match, elsewhere) = metadata.unknown.refusals_within("rules", i, "matches");
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
        // The rules are too expensive even to reject requests. If they might be security-relevant,
        // a single rule rejects all requests instead.
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

fn all_refused() -> String {
    format!("; all requests get {}", refusal::HTTP)
}

/// If `readable` is false, a single rule rejects every request.
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

fn place(index: usize, name: &str) -> String {
    if name.is_empty() {
        format!("rules[{index}]")
    } else {
        format!("rules[{index}] {name:?}")
    }
}

fn dropped(faults: Vec<RuleFault>) -> Option<Grounds> {
    let reason = faults.first()?.reason;
    let messages: Vec<String> = faults
        .into_iter()
        .map(|fault| fault.message + &fault.follows)
        .collect();
    Some((reason, format!("Dropped Rule: {}", messages.join("; "))))
}

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
