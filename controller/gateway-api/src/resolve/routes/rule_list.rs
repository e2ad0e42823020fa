//! All rules of one route: those that are served, and the reasons why others are not.

use std::collections::{BTreeSet, HashSet};

use sesame_proto::dns_name::is_dns_subdomain;

use super::rules::{RouteRule, RuleContext, RuleOutcome, Rules, Unsupported};
use crate::api::Metadata;
use crate::resolve::backends::tls_policies::ServiceName;
use crate::status::{Grounds, Reason, Verdict, unsupported};

/// The rules of one route, and the verdicts on them.
pub(super) struct CheckedRules<'w> {
    pub(super) rules: Rules,
    /// Refused if no rule is served, or if all together cost too much.
    pub(super) accepted: Verdict,
    /// Verdict on the references, wherever the route attaches.
    pub(super) resolved: Verdict,
    /// Services with policies that the traffic heeds.
    pub(super) policed: BTreeSet<ServiceName<'w>>,
    /// Reason and message about the rules that are not served; none if all or none are served.
    pub(super) dropped: Option<Grounds>,
}

/// Checks all rules of a route, in one loop: the name of each is compared with those before it, and its fate depends on the others.
pub(super) fn check<'w, R: RouteRule>(
    rules: &'w [R],
    metadata: &Metadata,
    cx: &mut RuleContext<'_, 'w, '_>,
) -> CheckedRules<'w> {
    let rules = if rules.is_empty() { R::DEFAULT } else { rules };
    let mut names: HashSet<&str> = HashSet::new();
    let mut checked = Vec::with_capacity(rules.len());
    // Each with the consequence for its requests as long as another rule stands.
    let mut faults: Vec<(Reason, String, String)> = Vec::new();
    let mut standing = 0_usize;
    let mut resolved = Verdict::default();
    let mut policed = BTreeSet::new();
    for (i, rule) in rules.iter().enumerate() {
        let name = rule.name();
        let at = if name.is_empty() {
            format!("rules[{i}]")
        } else {
            format!("rules[{i}] {name:?}")
        };
        // A rule that would match more than it says is dropped; one that would do more with what it matches refuses it.
        let (in_match, elsewhere) = metadata.unknown.refusals_of("rules", i, "matches");
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
                for (reason, message) in references.faults {
                    resolved.refuse(reason, message);
                }
                policed.extend(references.policed);
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
            Err((reason, message)) => {
                faults.push((reason, format!("{at}: {message}"), String::new()));
            }
        }
    }
    let rules = R::all(checked);
    let mut accepted = Verdict::default();
    if let Err(why) = rules.affordable() {
        accepted.refuse(Reason::UnsupportedValue, why);
    }
    let mut dropped = None;
    if standing > 0 {
        if let Some((reason, ..)) = faults.first() {
            let reason = *reason;
            let messages: Vec<String> = faults
                .into_iter()
                .map(|(_, message, follows)| message + &follows)
                .collect();
            dropped = Some((reason, format!("Dropped Rule: {}", messages.join("; "))));
        }
    } else {
        // Not attached at all: its requests are answered as if it were not there.
        for (reason, message, _) in faults {
            accepted.refuse(reason, message);
        }
    }
    CheckedRules {
        rules,
        accepted,
        resolved,
        policed,
        dropped,
    }
}

/// Returns the fault of a rule's name, if it has one; notes the name.
fn name_fault<'r>(name: &'r str, names: &mut HashSet<&'r str>) -> Option<String> {
    if name.is_empty() {
        None
    } else if !is_dns_subdomain(name) {
        Some(format!(
            "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.'"
        ))
    } else if !names.insert(name) {
        Some(format!(
            "name {name:?} is that of an earlier rule; names must be unique"
        ))
    } else {
        None
    }
}
