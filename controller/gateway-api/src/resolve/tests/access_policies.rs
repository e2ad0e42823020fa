//! AccessPolicies: a request passes all above its rule, and a fault refuses.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::traffic_policies::{SCOPES, first, is_refused, served};
use super::{Holds, holds};
use crate::api::NamespacedName;
use crate::resolve::Resolution;
use crate::status::{Condition, ConditionType, Reason};
use crate::world::Kind;

fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "---\nkind: AccessPolicy\nmetadata: {{name: {name}, namespace: web, generation: 4}}\n\
         spec: {{targetRefs: [{{group: gateway.networking.k8s.io, {target}}}]{spec}}}\n"
    )
}

fn conditions<'r>(resolution: &'r Resolution, name: &str) -> &'r [Condition] {
    let key = Kind::AccessPolicy.named(NamespacedName::new("web", name));
    let status = resolution.statuses.policies.get(&key).expect("a status");
    &status.ancestors[0].conditions
}

/// Returns the names of the filters of the first route.
fn checked(resolution: &Resolution) -> BTreeSet<String> {
    let snapshot = &resolution.gateways[0].snapshot;
    let host = &snapshot.route_tables[0].virtual_hosts[0];
    let filters = first(resolution).filters.as_deref();
    let filters = filters
        .or(host.filters.as_ref())
        .or(snapshot.filters.as_deref());
    let names = filters.into_iter().flat_map(|it| &it.address_filters);
    names.map(|it| it.name.clone()).collect()
}

#[test]
fn invalid_policy_refuses_its_targets() {
    for (spec, why) in [
        ("", "spec: expected ipFilter"),
        (", ipFilter: {}", "spec.ipFilter: expected allow or deny"),
        (
            ", ipFilter: {allow: [10.0.0.1]}",
            "spec.ipFilter.allow[0] \"10.0.0.1\"",
        ),
        (
            ", ipFilter: {deny: [a.test/8]}",
            "spec.ipFilter.deny[0] \"a.test/8\"",
        ),
        (", ipFilter: {deny: [10.0.0.0/33]}", "spec.ipFilter.deny[0]"),
        (
            ", ipFilter: {deny: [10.0.0.0/8], source: Header}",
            "spec.ipFilter.source \"Header\" is unknown; expected Client or Peer",
        ),
    ] {
        for target in SCOPES {
            let resolution = served(&policy("p", target, spec));
            assert!(is_refused(&resolution), "{spec} {target}");
            let conditions = conditions(&resolution, "p");
            let accepted = holds(conditions, ConditionType::Accepted);
            assert_eq!(accepted, Holds::False(Reason::Invalid));
            let message = &conditions[0].message;
            assert!(message.contains(why), "{message}");
        }
    }
}

#[test]
fn gateway_policy_exempts_a_route_from_itself_only() {
    let own = policy("own", SCOPES[1], ", ipFilter: {allow: [10.0.0.0/8]}");
    for (exemption, expected) in [
        ("{kind: HTTPRoute, name: r}", &["AccessPolicy/web/own"][..]),
        (
            "{kind: HTTPRoute, namespace: web, name: r}",
            &["AccessPolicy/web/own"],
        ),
        (
            "{kind: HTTPRoute, namespace: other, name: r}",
            &["AccessPolicy/web/all", "AccessPolicy/web/own"],
        ),
        (
            "{kind: GRPCRoute, name: r}",
            &["AccessPolicy/web/all", "AccessPolicy/web/own"],
        ),
    ] {
        let spec = format!(", ipFilter: {{deny: [10.0.0.0/8]}}, exemptions: [{exemption}]");
        let resolution = served(&(policy("all", SCOPES[3], &spec) + &own));
        let checked: Vec<String> = checked(&resolution).into_iter().collect();
        assert_eq!(checked, expected, "{exemption}");
        let conditions = &resolution
            .statuses
            .gateways
            .values()
            .next()
            .unwrap()
            .conditions;
        let told = conditions
            .iter()
            .find(|it| it.type_ == ConditionType::AccessPolicyAffected);
        let message = &told.unwrap().message;
        assert!(
            message.starts_with("AccessPolicies: web/all (exempts "),
            "{message}"
        );
    }
}

#[test]
fn only_policies_of_gateways_may_exempt() {
    let spec = ", ipFilter: {deny: [10.0.0.0/8]}, exemptions: [{kind: HTTPRoute, name: r}]";
    assert!(is_refused(&served(&policy("p", SCOPES[1], spec))));
    let spec = ", ipFilter: {deny: [10.0.0.0/8]}, exemptions: [{kind: Gateway, name: gw}]";
    assert!(is_refused(&served(&policy("p", SCOPES[3], spec))));
}

#[test]
fn targets_are_told_who_restricts_them() {
    let spec = ", ipFilter: {allow: [10.0.0.0/8]}";
    let resolution = served(&policy("p", SCOPES[0], spec));
    let conditions = resolution.route_conditions("r");
    let affected = ConditionType::AccessPolicyAffected;
    assert_eq!(holds(conditions, affected), Holds::True);
    let told = conditions.iter().find(|it| it.type_ == affected);
    assert_eq!(told.unwrap().message, "AccessPolicies: web/p");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn rule_has_the_union_of_checks_above_it(
        policies in prop::collection::vec((0..SCOPES.len(), any::<bool>()), 0..7),
        order in any::<prop::sample::Index>(),
    ) {
        let mut texts: Vec<String> = Vec::new();
        let mut valid = BTreeSet::new();
        let mut refuses = false;
        for (i, (scope, is_valid)) in policies.iter().enumerate() {
            let network = if *is_valid { "10.0.0.0/8" } else { "10.0.0.0" };
            let spec = format!(", ipFilter: {{deny: [{network}]}}");
            texts.push(policy(&format!("p{i}"), SCOPES[*scope], &spec));
            refuses |= !is_valid;
            if *is_valid {
                valid.insert(format!("AccessPolicy/web/p{i}"));
            }
        }
        // The order of arrival does not matter.
        let middle = order.index(texts.len() + 1);
        texts.rotate_left(middle);
        let resolution = served(&texts.concat());
        prop_assert_eq!(is_refused(&resolution), refuses);
        prop_assert_eq!(checked(&resolution), valid);
    }
}
