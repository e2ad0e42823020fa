//! AccessPolicies: requests must pass the checks of all policies that apply to their rule.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sesame_proto::schema::RequestFilters;

use super::access_reports::{named, reported};
use super::traffic_policies::{SCOPES, first, is_refused, served};
use super::{ConditionState, holds, world};
use crate::Resolution;
use crate::context::Options;
use crate::policies::key_sets::RemoteKeySets;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::Kind;

pub(super) fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "---\nkind: AccessPolicy\nmetadata: {{name: {name}, namespace: web, generation: 4}}\n\
         spec: {{targetRefs: [{{group: gateway.networking.k8s.io, {target}}}]{spec}}}\n"
    )
}

pub(super) fn conditions<'r>(resolution: &'r Resolution, name: &str) -> &'r [Condition] {
    let key = Kind::AccessPolicy.named(NamespacedName::new("web", name));
    let status = resolution.statuses.policies.get(&key).expect("a status");
    &status.ancestors[0].conditions
}

pub(super) fn filters(resolution: &Resolution) -> RequestFilters {
    let snapshot = &resolution.gateways[0].snapshot;
    let host = &snapshot.route_tables[0].virtual_hosts[0];
    let filters = first(resolution).filters.as_deref();
    let filters = filters
        .or(host.filters.as_ref())
        .or(snapshot.filters.as_deref());
    filters.cloned().unwrap_or_default()
}

fn checked(resolution: &Resolution) -> BTreeSet<String> {
    let filters = filters(resolution);
    let origins = filters.csrf.iter().map(|it| it.name.clone());
    let others = named(
        &filters.address_filters,
        &filters.tokens,
        &filters.authorizations,
    );
    others.into_iter().chain(origins).collect()
}

#[test]
fn invalid_policy_refuses_its_targets() {
    for (spec, why) in [
        ("", "spec: expected at least one of ipFilter, basicAuth,"),
        (
            ", ipFilter: {}",
            "spec.ipFilter: expected allow, deny, allowRefs or denyRefs",
        ),
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
            ", ipFilter: {allowRefs: [{name: none}]}",
            "spec.ipFilter.allowRefs[0]: ConfigMap web/none does not exist",
        ),
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
            assert_eq!(accepted, ConditionState::False(Reason::Invalid));
            let message = &conditions[0].message;
            assert!(message.contains(why), "{message}");
        }
    }
}

const KEY: &str = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519",
    "x": "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"}]}"#;

pub(super) fn tokens(more: &str) -> String {
    format!(", jwt: {{providers: [{{name: a, issuer: i, jwks: {{inline: '{KEY}'}}{more}}}]}}")
}

#[test]
fn invalid_tokens_and_rules_refuse_their_targets() {
    let provider = |text: &str| format!(", jwt: {{providers: [{text}]}}");
    let keys = |text: &str| provider(&format!("{{name: a, issuer: i, jwks: {text}}}"));
    let rule = |text: &str| format!(", authorization: {{rules: [{text}]}}");
    for (spec, why) in [
        (provider(""), "spec.jwt.providers has 0 entries; 1 to 4"),
        (
            keys("{}"),
            "jwks: expected one of inline, configMapRef and remote",
        ),
        (
            keys("{inline: '{}'}"),
            "jwks.inline is not a JSON Web Key Set",
        ),
        (
            keys("{inline: '{\"keys\": []}'}"),
            "jwks.inline has no usable key",
        ),
        (
            keys("{inline: '{\"keys\": [{\"kty\": \"oct\", \"k\": \"c2VjcmV0\"}]}'}"),
            "jwks.inline keys[0] is secret",
        ),
        (
            keys("{configMapRef: {name: none}}"),
            "jwks.configMapRef: ConfigMap web/none does not exist",
        ),
        (
            keys("{remote: {uri: 'http://i.test'}}"),
            "jwks.remote.uri \"http://i.test\" is not valid; expected an absolute https URI",
        ),
        (
            keys("{remote: {uri: 'https://i.test', cacheDuration: soon}}"),
            "jwks.remote.cacheDuration: \"soon\" is not a duration",
        ),
        (
            keys("{remote: {uri: 'https://i.test'}}"),
            "jwks.remote: https://i.test has not been fetched yet",
        ),
        (
            tokens(", sources: [{}]"),
            "sources[0]: expected one of header",
        ),
        (
            tokens(", claimHeaders: [{claim: a, header: cookie}]"),
            "expected a name that begins",
        ),
        (
            tokens(", claimHeaders: [{claim: a, header: x-forwarded-for}]"),
            "claimHeaders[0].header",
        ),
        (
            tokens(", claimHeaders: [{claim: 'a:b', header: x-a}]"),
            "claimHeaders[0].claim",
        ),
        (rule(""), "spec.authorization.rules has 0 entries; 1 to 16"),
        (
            rule("{action: Maybe}"),
            "rules[0].action \"Maybe\" is unknown",
        ),
        (
            rule("{action: Allow, claims: [{name: a, values: [b]}]}"),
            "rules[0].claims[0]: allowed only with jwt in the same policy",
        ),
        (
            rule("{action: Allow, paths: [{value: a}]}"),
            "rules[0].paths[0].value \"a\"",
        ),
        (
            rule("{action: Allow, paths: [{type: RegularExpression, value: /a}]}"),
            "rules[0].paths[0].type",
        ),
        (rule("{action: Allow, clients: [a]}"), "rules[0].clients[0]"),
        (
            rule("{action: Allow, headers: [{name: a, values: []}]}"),
            "headers[0].values has 0",
        ),
    ] {
        let resolution = served(&policy("p", SCOPES[1], &spec));
        assert!(is_refused(&resolution), "{spec}");
        let message = &conditions(&resolution, "p")[0].message;
        assert!(message.contains(why), "{message}");
        assert!(!message.contains("c2VjcmV0"), "{message}");
    }
}

#[test]
fn tokens_of_all_policies_are_needed() {
    let all = policy("all", SCOPES[3], &tokens(""));
    let own = policy("own", SCOPES[1], &tokens(""));
    let resolution = served(&(all.clone() + &own));
    let [all_name, own_name] = ["all", "own"].map(|it| format!("AccessPolicy/web/{it}/jwt"));
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.tokens, [all_name.clone(), own_name.clone()]);
    let shared = &resolution.gateways[0].snapshot.shared_filters;
    let names: Vec<&str> = shared.iter().map(|it| it.name.as_str()).collect();
    let both = format!("{all_name},{own_name}");
    assert_eq!(names, [&*all_name, &*both, &*own_name]);
    // An invalid policy on the route does not affect the Gateway's policy.
    let broken = policy("own", SCOPES[1], ", jwt: {providers: []}");
    let resolution = served(&(all + &broken));
    assert!(is_refused(&resolution));
    let filters = resolution.gateways[0].snapshot.filters.as_deref().unwrap();
    assert_eq!(filters.tokens, [all_name]);
}

#[test]
fn exempt_route_keeps_set_of_other_tokens() {
    let exempt = ", exemptions: [{kind: HTTPRoute, name: r, parts: [jwt]}]";
    let all = policy("all", SCOPES[3], &(tokens("") + exempt));
    let others = ["a", "b"].map(|name| policy(name, SCOPES[1], &tokens("")));
    let resolution = served(&(all + &others.concat()));
    let filters = first(&resolution).filters.as_deref().unwrap();
    let set = filters.token_set().unwrap();
    let shared = &resolution.gateways[0].snapshot.shared_filters;
    assert!(shared.iter().any(|it| it.name == set), "{set}");
}

#[test]
fn claim_headers_are_reserved_in_their_namespace() {
    let headers = ", claimHeaders: [{claim: sub, header: X-User}]";
    let elsewhere = policy("p", "kind: HTTPRoute, name: other", &tokens(headers));
    let resolution = served(&elsewhere);
    let filters = first(&resolution).filters.as_deref().unwrap();
    assert_eq!(filters.reserved_headers, ["x-user"]);
    assert!(filters.tokens.is_empty() && filters.claim_headers.is_empty());
    let other_namespace = elsewhere.replace("namespace: web", "namespace: other");
    assert_eq!(first(&served(&other_namespace)).filters, None);
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
        let condition = conditions
            .iter()
            .find(|it| it.type_ == ConditionType::AccessPolicyAffected);
        let message = &condition.unwrap().message;
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
fn targets_report_restricting_policies() {
    let spec = ", ipFilter: {allow: [10.0.0.0/8]}";
    let resolution = served(&policy("p", SCOPES[0], spec));
    let conditions = resolution.route_conditions("r");
    let affected = ConditionType::AccessPolicyAffected;
    assert_eq!(holds(conditions, affected), ConditionState::True);
    let condition = conditions.iter().find(|it| it.type_ == affected);
    assert_eq!(condition.unwrap().message, "AccessPolicies: web/p");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Thus removing or breaking one policy never removes the check of another.
    #[test]
    fn rule_has_the_union_of_checks_above_it(
        policies in prop::collection::vec((0..SCOPES.len(), 0..4_usize, any::<bool>(), any::<bool>()), 0..7),
        order in any::<prop::sample::Index>(),
    ) {
        let (mut texts, mut enforced, mut only_reported) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut refuses = false;
        for (i, (scope, part, is_valid, reports)) in policies.iter().enumerate() {
            let [valid, invalid] = match part {
                0 => [", ipFilter: {deny: [10.0.0.0/8]}", ", ipFilter: {deny: [10.0.0.0]}"].map(str::to_owned),
                1 => [", csrf: {}", ", csrf: {additionalOrigins: ['*']}"].map(str::to_owned),
                2 => ["", ", sources: [{}]"].map(tokens),
                _ => ["Allow", "Log"].map(|action| format!(", authorization: {{rules: [{{action: {action}}}]}}")),
            };
            let spec = if *is_valid { valid } else { invalid };
            let mode = if *reports { ", mode: Report" } else { "" };
            texts.push(policy(&format!("p{i}"), SCOPES[*scope], &format!("{spec}{mode}")));
            refuses |= !is_valid && !reports;
            let is_observable = *part != 1;
            if *is_valid && (!reports || is_observable) {
                let checks = if *reports { &mut only_reported } else { &mut enforced };
                checks.insert(format!("AccessPolicy/web/p{i}"));
            }
        }
        let middle = order.index(texts.len() + 1);
        texts.rotate_left(middle);
        let resolution = served(&texts.concat());
        prop_assert_eq!(is_refused(&resolution), refuses);
        prop_assert_eq!(checked(&resolution), enforced);
        prop_assert_eq!(reported(&resolution), only_reported);
    }
}

#[test]
fn namespaces_share_key_sets_equally() {
    let policy = |namespace: &str, name: &str| {
        let provider = |n: usize| {
            let uri = format!("https://{namespace}.test/{name}/{n}");
            format!("{{name: p{n}, issuer: i, jwks: {{remote: {{uri: '{uri}'}}}}}}")
        };
        let providers: Vec<String> = (0..4).map(provider).collect();
        format!(
            "---\nkind: AccessPolicy\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{targetRefs: [], jwt: {{providers: [{}]}}}}\n",
            providers.join(", ")
        )
    };
    let namespaces: Vec<String> = (0..40).map(|n| format!("n{n:02}")).collect();
    let many = namespaces
        .iter()
        .flat_map(|namespace| ["a", "b", "c"].map(|name| policy(namespace, name)));
    let world = world(&(many.collect::<String>() + &policy("z", "a")));
    let options = Options::default();
    let requests = RemoteKeySets::of(&world, &options).requests();
    let count = |namespace: &str| {
        let start = format!("https://{namespace}.test/");
        requests
            .values()
            .filter(|it| it.uri.starts_with(&start))
            .count()
    };
    assert_eq!(requests.len(), 256);
    assert_eq!(count("z"), 4, "the last namespace wants only four");
    for namespace in &namespaces {
        assert!((6..=7).contains(&count(namespace)), "{namespace}");
    }
}
