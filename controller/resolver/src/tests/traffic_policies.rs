//! TrafficPolicies: all rate limits apply, but only the defaults closest to the rule.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sesame_proto::schema::rate_limit_key::Kind as KeyKind;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{Forward, RateLimit, Route};

use super::http_proxies::{root, with};
use super::{ConditionState, HTTP, gateway, holds, resolve, resolved, route, world};
use crate::{Options, Resolution, ResolvedFor};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::Kind;

/// From the narrowest scope (rule) to the widest (Gateway).
pub(super) const SCOPES: [&str; 4] = [
    "kind: HTTPRoute, name: r, sectionName: first",
    "kind: HTTPRoute, name: r",
    "kind: Gateway, name: gw, sectionName: http",
    "kind: Gateway, name: gw",
];

pub(super) fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "---\nkind: TrafficPolicy\nmetadata: {{name: {name}, namespace: web, generation: 4}}\n\
         spec: {{targetRefs: [{{group: gateway.networking.k8s.io, {target}}}], {spec}}}\n"
    )
}

pub(super) fn served(policies: &str) -> Resolution {
    served_with(policies, &Options::default())
}

pub(super) fn served_with(policies: &str, options: &Options) -> Resolution {
    let route = route(
        "r",
        "rules: [{name: first, backendRefs: [{name: a, port: 80}]}]",
    );
    resolve(&world(&(gateway(HTTP) + &route + policies)), options)
}

pub(super) fn first(resolution: &Resolution) -> &Route {
    &resolution.gateways[0].snapshot.route_tables[0].virtual_hosts[0].routes[0]
}

fn forward(resolution: &Resolution) -> &Forward {
    match &first(resolution).action {
        Some(Action::Forward(forward)) => forward,
        other => panic!("{other:?}"),
    }
}

pub(super) fn is_refused(resolution: &Resolution) -> bool {
    let refused =
        |action: &Action| matches!(action, Action::DirectResponse(it) if it.status == 500);
    first(resolution).action.as_ref().is_some_and(refused)
}

pub(super) fn conditions<'r>(resolution: &'r Resolution, name: &str) -> &'r [Condition] {
    let key = Kind::TrafficPolicy.named(NamespacedName::new("web", name));
    let status = resolution.statuses.policies.get(&key).expect("a status");
    &status.ancestors[0].conditions
}

#[test]
fn invalid_limit_refuses_its_targets() {
    for (limit, why) in [
        ("{name: A, requests: 1, per: Second}", "name \"A\""),
        (
            "{name: a, requests: 0, per: Second}",
            "requests 0: expected at least 1",
        ),
        (
            "{name: a, requests: 1, per: Week}",
            "per \"Week\" is unknown",
        ),
        ("{name: a, requests: 1, per: Second, burst: -1}", "burst -1"),
        (
            "{name: a, requests: 1, per: Second, mode: Shadow}",
            "mode \"Shadow\" is unknown; expected Enforce, Report",
        ),
        (
            "{name: a, requests: 1, per: Second, headers: \"On\"}",
            "headers \"On\" is unknown",
        ),
        (
            "{name: a, requests: 1, per: Second, keys: [{type: Host}]}",
            "keys[0].type \"Host\" is unknown",
        ),
        (
            "{name: a, requests: 1, per: Second, keys: [{type: Header}]}",
            "keys[0].name \"\"",
        ),
        (
            "{name: a, requests: 1, per: Second, keys: [{type: Cookie, name: a%b}]}",
            "keys[0].name \"a%b\"",
        ),
        (
            "{name: a, requests: 1, per: Second, keys: [{type: Path, name: a}]}",
            "keys[0].name must not be set with type Path",
        ),
        (
            "{name: a, requests: 1, per: Second, keys: [{type: Method}, {type: Method}]}",
            "keys[1]: an earlier key",
        ),
    ] {
        for target in SCOPES {
            let resolution = served(&policy("p", target, &format!("rateLimits: [{limit}]")));
            assert!(is_refused(&resolution), "{limit} {target}");
            let conditions = conditions(&resolution, "p");
            let accepted = holds(conditions, ConditionType::Accepted);
            assert_eq!(accepted, ConditionState::False(Reason::Invalid));
            let message = &conditions[0].message;
            assert!(
                message.contains(&format!("spec.rateLimits[0].{why}")),
                "{message}"
            );
        }
    }
    let limit = "{name: a, requests: 1, per: Second}";
    let twice = policy("p", SCOPES[1], &format!("rateLimits: [{limit}, {limit}]"));
    assert!(is_refused(&served(&twice)));
}

#[test]
fn limit_has_its_mode_headers_and_keys() {
    let limit = "{name: a, requests: 1, per: Second, mode: Report, headers: DraftVersion03, keys: \
                 [{type: Cookie, name: Id}, {type: QueryParameter, name: Q}, {type: Path}, \
                 {type: Method}]}";
    let resolution = served(&policy("p", SCOPES[1], &format!("rateLimits: [{limit}]")));
    let limit = &resolution.gateways[0].snapshot.rate_limits[0];
    assert!(limit.report_only && limit.draft_headers);
    let keys = limit.keys.iter().map(|key| key.kind.clone());
    let expected = [
        KeyKind::Cookie("Id".to_owned()),
        KeyKind::QueryParameter("Q".to_owned()),
        KeyKind::Path(true),
        KeyKind::Method(true),
    ];
    assert_eq!(keys.collect::<Vec<_>>(), expected.map(Some));
}

#[test]
fn invalid_default_leaves_the_default() {
    for spec in [
        "timeouts: {request: soon}",
        "timeouts: {request: 1s, backendRequest: 2s}",
        "timeouts: {streamIdle: soon}",
        "retry: {attempts: 16}",
        "retry: {codes: [200]}",
        "retry: {codes: [503], backoff: soon}",
    ] {
        let resolution = served(&policy("p", SCOPES[3], spec));
        let forward = forward(&resolution);
        assert_eq!(
            (forward.request_timeout_ms, &forward.retry),
            (0, &None),
            "{spec}"
        );
        let accepted = holds(conditions(&resolution, "p"), ConditionType::Accepted);
        assert_eq!(accepted, ConditionState::False(Reason::Invalid), "{spec}");
    }
}

#[test]
fn own_fields_of_a_rule_precede() {
    let rule = "rules: [{timeouts: {request: 1s}, retry: {attempts: 3}, \
                backendRefs: [{name: a, port: 80}]}]";
    let spec = "timeouts: {request: 9s, streamIdle: 8s}, retry: {attempts: 1}";
    let policy = policy("p", SCOPES[3], spec);
    let resolution = resolved(&(gateway(HTTP) + &route("r", rule) + &policy));
    let forward = forward(&resolution);
    let attempts = forward.retry.as_ref().map(|it| it.attempts);
    assert_eq!((forward.request_timeout_ms, attempts), (1_000, Some(3)));
    assert_eq!(forward.stream_idle_timeout_ms, Some(8_000));
}

#[test]
fn limit_of_a_gateway_covers_its_proxies() {
    let own = "routes: [{services: [{name: a, port: 80}], rateLimitPolicy: {local: {requests: 1, \
               unit: second, responseStatusCode: 503}}}]";
    let limit = policy(
        "p",
        "kind: Gateway, name: gw",
        "rateLimits: [{name: all, requests: 9, per: Second}]",
    );
    let resolution = with(&[root("r", own), limit]);
    let snapshot = &resolution.gateways[0].snapshot;
    let names: Vec<&str> = snapshot
        .rate_limits
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    // Envoy supports only one rejection response per route, so the custom response is dropped.
    let plain = "HTTPProxy/web/r/routes/0/rateLimit/plain";
    let gateway_limit = "TrafficPolicy/web/p/all/Gateway/gw";
    assert_eq!(names, [plain, gateway_limit]);
    assert_eq!(first(&resolution).rate_limits, [plain, gateway_limit]);
}

#[test]
fn missing_section_and_tie_are_reported() {
    let timeouts = |seconds: u64| format!("timeouts: {{request: {seconds}s}}");
    let none = policy(
        "p",
        "kind: HTTPRoute, name: r, sectionName: none",
        &timeouts(1),
    );
    let resolution = served(&none);
    let accepted = holds(conditions(&resolution, "p"), ConditionType::Accepted);
    assert_eq!(accepted, ConditionState::False(Reason::TargetNotFound));
    let both = policy("a", SCOPES[1], &timeouts(1)) + &policy("b", SCOPES[1], &timeouts(2));
    let resolution = served(&both);
    assert_eq!(forward(&resolution).request_timeout_ms, 1_000);
    let loser = holds(conditions(&resolution, "b"), ConditionType::Accepted);
    assert_eq!(loser, ConditionState::False(Reason::Conflicted));
    let winner = conditions(&resolution, "a");
    assert_eq!(holds(winner, ConditionType::Accepted), ConditionState::True);
    assert_eq!(
        holds(winner, ConditionType::Programmed),
        ConditionState::Unknown
    );
}

#[test]
fn too_many_limits_refuse_rule_and_are_reported() {
    let limits: Vec<String> = (0..8)
        .map(|i| format!("{{name: l{i}, requests: 1, per: Hour}}"))
        .collect();
    let spec = format!("rateLimits: [{}]", limits.join(", "));
    let of = |scopes: &[usize]| {
        let policies = scopes.iter().enumerate();
        let policies = policies.map(|(i, scope)| policy(&format!("p{i}"), SCOPES[*scope], &spec));
        served(&policies.collect::<String>())
    };
    assert_eq!(first(&of(&[1, 3])).rate_limits.len(), 16);
    let resolution = of(&[0, 1, 3]);
    assert!(is_refused(&resolution));
    let conditions = resolution.route_conditions("r");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(Reason::UnsupportedValue)
    );
    assert!(
        conditions[0].message.contains("24 rate limits apply"),
        "{}",
        conditions[0].message
    );
}

#[test]
fn namespace_over_share_loses_only_own_limits() {
    let limits: Vec<String> = (0..8)
        .map(|i| format!("{{name: l{i}, requests: 1, per: Hour}}"))
        .collect();
    let spec = format!("rateLimits: [{}]", limits.join(", "));
    let small = policy("small", SCOPES[1], &spec);
    let target = |i| format!("{{group: gateway.networking.k8s.io, kind: HTTPRoute, name: t{i}}}");
    let mut many =
        "---\nkind: Service\nmetadata: {name: a, namespace: aaa}\nspec: {ports: [{port: 80}]}\n"
            .to_owned();
    for i in 0..80 {
        let parent = "parentRefs: [{name: gw, namespace: web}]";
        let text = route(
            &format!("t{i}"),
            &format!(
                "{parent}\nhostnames: [t{i}.test]\nrules: [{{backendRefs: [{{name: a, port: 80}}]}}]"
            ),
        );
        many += &text.replace("namespace: web, generation", "namespace: aaa, generation");
    }
    many.extend((0..10).map(|i| {
        let of = i / 2 * 16;
        let targets: Vec<String> = (of..of + 16).map(target).collect();
        format!(
            "---\nkind: TrafficPolicy\nmetadata: {{name: p{i}, namespace: aaa}}\nspec: \
             {{targetRefs: [{}], {spec}}}\n",
            targets.join(", ")
        )
    }));
    let listener =
        "- {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}";
    let own = route(
        "r",
        "rules: [{name: first, backendRefs: [{name: a, port: 80}]}]",
    );
    let resolution = resolved(&(gateway(listener) + &own + &small + &many));
    let known = &resolution.gateways[0].snapshot.rate_limits;
    let of = |namespace: &str| {
        let start = format!("TrafficPolicy/{namespace}/");
        known
            .iter()
            .filter(|it| it.name.starts_with(&start))
            .count()
    };
    assert_eq!((of("web"), of("aaa")), (8, RateLimit::MAX - 8));
    let dropped = resolution
        .problems
        .iter()
        .filter(|it| it.message.contains("are dropped"));
    assert!(
        dropped.clone().count() > 0 && dropped.clone().all(|it| it.object.name.namespace == "aaa")
    );
}

/// Scope index, whether there is a rate limit, timeout in seconds, and retry attempts.
type AnyPolicy = (usize, bool, Option<u64>, Option<u32>);

fn any_policy() -> impl Strategy<Value = AnyPolicy> {
    let timeout = prop::option::of(1_u64..100);
    (
        0..SCOPES.len(),
        any::<bool>(),
        timeout,
        prop::option::of(1_u32..10),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn limits_add_up_and_nearest_default_applies(policies in prop::collection::vec(any_policy(), 0..7)) {
        let mut text = String::new();
        let mut limits = BTreeSet::new();
        let (mut timeouts, mut retries) = (BTreeMap::new(), BTreeMap::new());
        for (age, (scope, is_limited, timeout, attempts)) in policies.iter().enumerate() {
            let name = format!("p{age}");
            let mut spec = vec!["rateLimits: []".to_owned()];
            if *is_limited {
                spec[0] = "rateLimits: [{name: all, requests: 1, per: Hour}]".to_owned();
                limits.insert(format!("TrafficPolicy/web/{name}/all"));
            }
            if let Some(seconds) = timeout {
                // Alternate the fields, to show that a section always comes from a single policy.
                let field = if seconds % 2 == 0 { "request" } else { "streamIdle" };
                spec.push(format!("timeouts: {{{field}: {seconds}s}}"));
                timeouts.entry((*scope, age)).or_insert((field, seconds * 1_000));
            }
            if let Some(attempts) = attempts {
                spec.push(format!("retry: {{attempts: {attempts}}}"));
                retries.entry((*scope, age)).or_insert(*attempts);
            }
            text += &policy(&name, SCOPES[*scope], &spec.join(", "));
        }
        let resolution = served(&text);
        let route = first(&resolution);
        let counted: BTreeSet<String> = route.rate_limits.iter().map(|name| {
            name.split('/').take(4).collect::<Vec<_>>().join("/")
        }).collect();
        prop_assert_eq!(counted, limits);
        let nearest = timeouts.values().next().copied();
        let of = |name| nearest.filter(|(field, _)| *field == name).map(|(_, time)| time);
        let forward = forward(&resolution);
        prop_assert_eq!(forward.request_timeout_ms, of("request").unwrap_or_default());
        prop_assert_eq!(forward.stream_idle_timeout_ms, of("streamIdle"));
        let attempts = forward.retry.as_ref().map(|it| it.attempts);
        prop_assert_eq!(attempts, retries.values().next().copied());
        let known = &resolution.gateways[0].snapshot.rate_limits;
        for name in &route.rate_limits {
            prop_assert!(known.iter().any(|it| it.name == *name));
        }
    }
}

#[test]
fn condition_tells_if_number_of_hosts_is_unknown() {
    let limit = "rateLimits: [{name: all, requests: 1, per: Second, scope: Fleet}]";
    let objects = gateway(HTTP) + &policy("all", SCOPES[3], limit);
    let message = |resolved_for, hosts: Option<u32>| {
        let mut world = world(&objects);
        let name = NamespacedName::new("web", "gw");
        world.live_hosts = hosts.map(|hosts| (name, hosts)).into_iter().collect();
        let options = Options {
            resolved_for,
            ..Options::default()
        };
        let resolution = resolve(&world, &options);
        conditions(&resolution, "all")[0].message.clone()
    };
    for unknown in [None, Some(0)] {
        let found = message(ResolvedFor::Cluster, unknown);
        assert!(
            found.contains("no host of the Gateway has reported"),
            "{found}"
        );
    }
    for (resolved_for, hosts) in [(ResolvedFor::Cluster, Some(1)), (ResolvedFor::Host, None)] {
        assert_eq!(message(resolved_for, hosts), "the policy applies");
    }
}
