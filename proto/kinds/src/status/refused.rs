//! Adds the rules and backends that Envoy rejects to a route's status.

use std::collections::BTreeMap;

use super::{
    Condition, ConditionStatus, ConditionType, ProxyDetail, Reason, RouteParentStatus, RouteStatus,
};
use crate::api::NamespacedName;

/// The parts of one route that Envoy rejects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedRules {
    /// Envoy's reasons for rejecting a rule, by rule index.
    pub rules: BTreeMap<usize, String>,
    /// Envoy's reasons for rejecting a backend, by rule index.
    pub backends: BTreeMap<usize, String>,
    /// True if Envoy accepts any part of the route.
    pub works: bool,
}

/// Reports a route's rejected parts in the status of each parent that belongs to `gateway`.
///
/// If a part of the route works, sets `PartiallyInvalid`; otherwise the route is not accepted. A
/// rejected backend is reported like an unresolved reference. An HTTPProxy lists all of this as an
/// error.
pub fn refuse_rules(
    status: &mut RouteStatus,
    namespace: &str,
    gateway: &NamespacedName,
    refused: &RefusedRules,
) {
    let RefusedRules {
        rules,
        backends,
        works,
    } = refused;
    for parent in &mut status.parents {
        if !is(parent, namespace, gateway) {
            continue;
        }
        let conditions = &mut parent.conditions;
        let mut all = conditions.iter_mut();
        if let Some(valid) = all.find(|condition| condition.type_ == ConditionType::Valid) {
            invalidate(valid, &mut status.details, refused);
            continue;
        }
        let accepted = conditions
            .iter()
            .find(|condition| condition.type_ == ConditionType::Accepted)
            .filter(|condition| condition.status == ConditionStatus::True);
        let Some(generation) = accepted.map(|condition| condition.observed_generation) else {
            continue;
        };
        if !backends.is_empty() {
            let message = listed("backend of rule", backends);
            add(
                conditions,
                ConditionType::ResolvedRefs,
                &message,
                generation,
            );
        }
        if rules.is_empty() {
            continue;
        }
        if *works {
            let message = listed("Dropped Rule", rules);
            let type_ = ConditionType::PartiallyInvalid;
            add(conditions, type_, &message, generation);
        } else {
            let message = listed("rule", rules);
            conditions.retain(|condition| condition.type_ != ConditionType::PartiallyInvalid);
            add(conditions, ConditionType::Accepted, &message, generation);
        }
    }
}

/// The routes of an HTTPProxy with other errors are served, too, so its status does not matter.
fn invalidate(valid: &mut Condition, details: &mut Vec<ProxyDetail>, refused: &RefusedRules) {
    let RefusedRules {
        rules,
        backends,
        works: _,
    } = refused;
    let parts = [("rule", rules), ("backend of rule", backends)];
    let parts = parts.into_iter().filter(|(_, all)| !all.is_empty());
    let parts: Vec<String> = parts.map(|(what, all)| listed(what, all)).collect();
    let message = parts.join("; ");
    let all = if valid.is_fault() {
        format!("{}; {message}", valid.message)
    } else {
        message.clone()
    };
    let generation = valid.observed_generation;
    *valid = Condition::new(
        ConditionType::Valid,
        ConditionStatus::False,
        Reason::ErrorPresent,
        &all,
        generation,
    );
    details.push(ProxyDetail {
        warning: false,
        type_: "RouteError",
        reason: "RefusedByEnvoy",
        message,
    });
}

fn is(parent: &RouteParentStatus, namespace: &str, gateway: &NamespacedName) -> bool {
    if let Some(through) = &parent.through {
        return through == gateway;
    }
    let reference = &parent.parent_ref;
    reference.kind.as_deref().unwrap_or("Gateway") == "Gateway"
        && reference.name == gateway.name
        && reference.namespace.as_deref().unwrap_or(namespace) == gateway.namespace
}

/// The Gateway API requires the format `Dropped Rule 0: why; Dropped Rule 2: why`.
fn listed(what: &str, rules: &BTreeMap<usize, String>) -> String {
    let items: Vec<String> = rules
        .iter()
        .map(|(rule, why)| format!("{what} {rule}: {why}"))
        .collect();
    items.join("; ")
}

/// Appends to the message if the condition already reports a problem.
fn add(conditions: &mut Vec<Condition>, type_: ConditionType, message: &str, generation: i64) {
    let status = match type_ {
        ConditionType::PartiallyInvalid => ConditionStatus::True,
        _ => ConditionStatus::False,
    };
    let new = |message: &str, reason| Condition::new(type_, status, reason, message, generation);
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        Some(before) if before.is_fault() => {
            *before = new(&format!("{}; {message}", before.message), before.reason);
        }
        Some(before) => *before = new(message, Reason::UnsupportedValue),
        None => conditions.push(new(message, Reason::UnsupportedValue)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ParentRef;

    fn status(gateways: &[&str]) -> RouteStatus {
        let good = |type_, reason| Condition::new(type_, ConditionStatus::True, reason, "good", 3);
        RouteStatus {
            details: Vec::new(),
            parents: gateways
                .iter()
                .map(|name| RouteParentStatus {
                    parent_ref: ParentRef {
                        name: (*name).to_owned(),
                        ..ParentRef::default()
                    },
                    through: None,
                    controller_name: "ours".to_owned(),
                    ports: Vec::new(),
                    conditions: vec![
                        good(ConditionType::Accepted, Reason::Accepted),
                        good(ConditionType::ResolvedRefs, Reason::ResolvedRefs),
                    ],
                })
                .collect(),
        }
    }

    fn conditions_of(
        status: &RouteStatus,
        parent: usize,
    ) -> Vec<(ConditionType, ConditionStatus, &str)> {
        status.parents[parent]
            .conditions
            .iter()
            .map(|c| (c.type_, c.status, c.message.as_str()))
            .collect()
    }

    #[test]
    fn refused_rule_is_reported_only_to_refusing_gateway() {
        let mut status = status(&["one", "two"]);
        let refused = RefusedRules {
            rules: [(1, "bad regex".to_owned())].into(),
            works: true,
            ..RefusedRules::default()
        };
        refuse_rules(
            &mut status,
            "ns",
            &NamespacedName::new("ns", "two"),
            &refused,
        );
        assert_eq!(conditions_of(&status, 0).len(), 2);
        assert_eq!(
            conditions_of(&status, 1)[2],
            (
                ConditionType::PartiallyInvalid,
                ConditionStatus::True,
                "Dropped Rule 1: bad regex"
            )
        );
        let other = NamespacedName::new("other", "one");
        refuse_rules(&mut status, "ns", &other, &refused);
        assert_eq!(conditions_of(&status, 0).len(), 2);
    }

    #[test]
    fn listener_set_parent_reports_refusals_of_its_gateway() {
        let mut status = status(&["set"]);
        status.parents[0].parent_ref.kind = Some("ListenerSet".into());
        status.parents[0].through = Some(NamespacedName::new("other", "gateway"));
        let refused = RefusedRules {
            rules: [(0, "bad regex".to_owned())].into(),
            works: true,
            ..RefusedRules::default()
        };
        for (gateway, conditions) in [("set", 2), ("gateway", 3)] {
            let gateway = NamespacedName::new("other", gateway);
            refuse_rules(&mut status, "ns", &gateway, &refused);
            assert_eq!(conditions_of(&status, 0).len(), conditions, "{gateway}");
        }
    }

    #[test]
    fn route_without_working_rules_is_not_accepted() {
        let mut status = status(&["one"]);
        let refused = RefusedRules {
            rules: [(0, "bad".to_owned())].into(),
            backends: [(0, "bad SNI".to_owned())].into(),
            works: false,
        };
        refuse_rules(
            &mut status,
            "ns",
            &NamespacedName::new("ns", "one"),
            &refused,
        );
        let conditions = conditions_of(&status, 0);
        assert_eq!(
            conditions,
            [
                (
                    ConditionType::Accepted,
                    ConditionStatus::False,
                    "rule 0: bad"
                ),
                (
                    ConditionType::ResolvedRefs,
                    ConditionStatus::False,
                    "backend of rule 0: bad SNI"
                ),
            ]
        );
    }

    #[test]
    fn http_proxy_lists_refused_parts_as_error() {
        let valid = |status, reason, message| {
            Condition::new(ConditionType::Valid, status, reason, message, 3)
        };
        let good = valid(ConditionStatus::True, Reason::Valid, "Valid HTTPProxy");
        let bad = valid(ConditionStatus::False, Reason::ErrorPresent, "a fault");
        let expected = "rule 1: bad regex; backend of rule 2: bad SNI";
        for (before, message) in [(good, expected), (bad, &*format!("a fault; {expected}"))] {
            let mut status = status(&["one"]);
            status.parents[0].conditions = vec![before];
            let refused = RefusedRules {
                rules: [(1, "bad regex".to_owned())].into(),
                backends: [(2, "bad SNI".to_owned())].into(),
                works: true,
            };
            for gateway in ["two", "one"] {
                let gateway = NamespacedName::new("ns", gateway);
                refuse_rules(&mut status, "ns", &gateway, &refused);
            }
            let condition = (ConditionType::Valid, ConditionStatus::False, message);
            assert_eq!(conditions_of(&status, 0), [condition]);
            let detail = ProxyDetail {
                warning: false,
                type_: "RouteError",
                reason: "RefusedByEnvoy",
                message: expected.to_owned(),
            };
            assert_eq!(status.details, [detail]);
        }
    }
}
