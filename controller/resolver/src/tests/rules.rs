//! Rules: backends, filters, and the effects of invalid rules.

use sesame_proto::expressions;
use sesame_proto::schema::route::Action;
use sesame_proto::schema::{AppProtocol, Forward};

use super::router::{GET, Request, answer, find};
use super::{ConditionState, HTTP, gateway, holds, resolved, route};
use crate::Resolution;
use sesame_kinds::status::{ConditionType, Reason};

fn with_rules(rules: &str) -> Resolution {
    resolved(&(gateway(HTTP) + &route("r", &format!("rules:\n{rules}"))))
}

fn answer_to(resolution: &Resolution, path: &str) -> String {
    answer(&resolution.gateways[0].snapshot, &Request { path, ..GET })
}

fn forward(resolution: &Resolution) -> Forward {
    match find(&resolution.gateways[0].snapshot, &GET).and_then(|route| route.action.clone()) {
        Some(Action::Forward(forward)) => forward,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_backend_keeps_its_weight_as_500() {
    for (bad, reason) in [
        ("{name: none, port: 80, weight: 3}", Reason::BackendNotFound),
        ("{name: a, port: 81, weight: 3}", Reason::BackendNotFound),
        ("{name: a, weight: 3}", Reason::UnsupportedValue),
        (
            "{name: a, port: 80, kind: Pod, weight: 3}",
            Reason::InvalidKind,
        ),
        (
            "{name: a, port: 80, group: example.com, weight: 3}",
            Reason::InvalidKind,
        ),
        (
            "{name: x, port: 80, namespace: other, weight: 3}",
            Reason::RefNotPermitted,
        ),
        (
            "{name: a, port: 80, weight: 3, filters: [{type: ExtensionRef, extensionRef: {group: x, kind: K, name: z}}]}",
            Reason::InvalidKind,
        ),
    ] {
        let resolution = with_rules(&format!("- backendRefs: [{{name: b, port: 80}}, {bad}]"));
        assert_eq!(answer_to(&resolution, "/"), "1xweb/b/80 3x500", "{bad}");
        let conditions = resolution.route_conditions("r");
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            ConditionState::True,
            "{bad}"
        );
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            ConditionState::False(reason),
            "{bad}"
        );
        assert_eq!(
            holds(conditions, ConditionType::PartiallyInvalid),
            ConditionState::Absent,
            "{bad}"
        );
        assert!(
            conditions[1].message.contains("rules[0].backendRefs[1]"),
            "{}",
            conditions[1].message
        );
    }
}

#[test]
fn unsupported_backend_filter_answers_500_for_its_weight() {
    let filter = "filters: [{type: RequestRedirect, requestRedirect: {hostname: x.com}}]";
    let bad = format!("{{name: a, port: 80, weight: 3, {filter}}}");
    let resolution = with_rules(&format!("- backendRefs: [{{name: b, port: 80}}, {bad}]"));
    assert_eq!(answer_to(&resolution, "/"), "1xweb/b/80 3x500");
    let conditions = resolution.route_conditions("r");
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::True
    );
    let partial = conditions
        .iter()
        .find(|condition| condition.type_ == ConditionType::PartiallyInvalid)
        .expect("a condition");
    assert_eq!(partial.reason, Reason::UnsupportedValue);
    assert!(
        partial
            .message
            .contains("rules[0]: backendRefs[1].filters[0]")
            && partial.message.contains("that share"),
        "{}",
        partial.message
    );
    // If the invalid rule is the only one, the route is not accepted.
    let resolution = with_rules(&format!("- backendRefs: [{bad}]"));
    let conditions = resolution.route_conditions("r");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(Reason::UnsupportedValue)
    );
    assert!(conditions[0].message.contains("get 500"));
}

#[test]
fn rules_without_valid_backend_answer_500_alone() {
    let resolution = with_rules(
        "- {matches: [{path: {value: /bad}}], backendRefs: [{name: none, port: 80}]}\n\
         - {matches: [{path: {value: /zero}}], backendRefs: [{name: a, port: 80, weight: 0}]}\n\
         - {matches: [{path: {value: /good}}], backendRefs: [{name: a, port: 80}]}",
    );
    assert_eq!(answer_to(&resolution, "/bad"), "500");
    assert_eq!(answer_to(&resolution, "/zero"), "500");
    assert_eq!(answer_to(&resolution, "/good"), "web/a/80");
}

#[test]
fn a_grant_opens_another_namespace() {
    let yaml = gateway(HTTP)
        + &route(
            "r",
            "rules: [{backendRefs: [{name: x, namespace: shop, port: 80}]}]",
        )
        + "---\nkind: Service\nmetadata: {name: x, namespace: shop}\nspec: {ports: [{port: 80}]}\n";
    let grant = "---\nkind: ReferenceGrant\nmetadata: {name: g, namespace: shop}\nspec:\n  from: [{group: \
                 gateway.networking.k8s.io, kind: HTTPRoute, namespace: web}]\n  to: [{group: '', kind: Service}]\n";
    let refused = resolved(&yaml);
    assert_eq!(answer_to(&refused, "/"), "500");
    let reason = holds(refused.route_conditions("r"), ConditionType::ResolvedRefs);
    assert_eq!(reason, ConditionState::False(Reason::RefNotPermitted));
    let granted = resolved(&format!("{yaml}{grant}"));
    assert_eq!(answer_to(&granted, "/"), "shop/x/80");
    assert_eq!(
        holds(granted.route_conditions("r"), ConditionType::ResolvedRefs),
        ConditionState::True
    );
}

#[test]
fn bad_rules_are_dropped_and_harm_no_sibling() {
    let redirect =
        |spec: &str| format!("filters: [{{type: RequestRedirect, requestRedirect: {spec}}}]");
    let modify = |spec: &str| {
        format!("filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {spec}}}]")
    };
    for bad in [
        "matches: [{path: {value: nope}}]".to_owned(),
        "matches: [{path: {value: /a//b}}]".to_owned(),
        "matches: [{path: {value: /a/../b}}]".to_owned(),
        "matches: [{path: {value: /a%2fb}}]".to_owned(),
        "matches: [{path: {value: /a/%2e%2E/b}}]".to_owned(),
        "matches: [{path: {value: /a/.%2e}}]".to_owned(),
        "matches: [{path: {value: /a%5Cb}}]".to_owned(),
        "matches: [{path: {value: /a%00}}]".to_owned(),
        "matches: [{path: {type: RegularExpression, value: '/%7Ea/.*'}}]".to_owned(),
        "matches: [{path: {type: Exact, value: /a/.}}]".to_owned(),
        "matches: [{path: {type: Glob, value: /a}}]".to_owned(),
        "matches: [{path: {type: RegularExpression, value: '('}}]".to_owned(),
        "matches: [{method: get}]".to_owned(),
        "matches: [{headers: [{name: ':path', value: x}]}]".to_owned(),
        "matches: [{headers: [{name: a, value: x, type: Prefix}]}]".to_owned(),
        "timeouts: {request: 1s, backendRequest: 2s}".to_owned(),
        "timeouts: {request: 1.5s}".to_owned(),
        "retry: {codes: [200]}".to_owned(),
        "sessionPersistence: {type: Magic}".to_owned(),
        "backendRefs: [{name: a, port: 80, weight: -1}]".to_owned(),
        "name: Not_A_Name".to_owned(),
        "filters: [{type: RequestMirror}]".to_owned(),
        "filters: [{type: URLRewrite, urlRewrite: {}, cors: {}}]".to_owned(),
        "filters: [{type: URLRewrite, urlRewrite: {}}, {type: RequestRedirect, requestRedirect: {}}]".to_owned(),
        "filters: [{type: URLRewrite, urlRewrite: {}}, {type: URLRewrite, urlRewrite: {}}]".to_owned(),
        "filters: [{type: CORS, cors: {allowOrigins: ['*', 'https://a.com']}}]".to_owned(),
        "filters: [{type: CORS, cors: {maxAge: 0}}]".to_owned(),
        "filters: [{type: RequestMirror, requestMirror: {percent: 101, backendRef: {name: a, port: 80}}}]".to_owned(),
        "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}}]\n  \
         matches: [{path: {type: Exact, value: /a}}]"
            .to_owned(),
        redirect("{statusCode: 200}"),
        redirect("{scheme: ftp}"),
        redirect("{port: 0}"),
        redirect("{hostname: '*.a.com'}"),
        redirect("{}") + "\n  backendRefs: [{name: a, port: 80}]",
        modify("{set: [{name: 'a b', value: x}]}"),
        modify("{set: [{name: Host, value: x}]}"),
        modify("{set: [{name: A, value: x}], remove: [a]}"),
    ] {
        let good = "- {matches: [{path: {value: /good}}], backendRefs: [{name: b, port: 80}]}";
        let resolution = with_rules(&format!("{good}\n- {bad}"));
        assert_eq!(answer_to(&resolution, "/good"), "web/b/80", "{bad}");
        assert_eq!(answer_to(&resolution, "/a"), "404", "{bad}");
        let conditions = resolution.route_conditions("r");
        assert_eq!(holds(conditions, ConditionType::Accepted), ConditionState::True, "{bad}");
        let partial = &conditions[2];
        assert_eq!(partial.type_, ConditionType::PartiallyInvalid, "{bad}");
        assert!(partial.message.starts_with("Dropped Rule: rules[1]"), "{}", partial.message);
        assert_eq!(partial.observed_generation, 3);

        let alone = with_rules(&format!("- {bad}"));
        let ConditionState::False(reason) = holds(alone.route_conditions("r"), ConditionType::Accepted) else {
            panic!("{bad} is accepted");
        };
        assert!(matches!(reason, Reason::UnsupportedValue | Reason::IncompatibleFilters), "{bad}");
        assert_eq!(alone.attached("http"), 0, "{bad}");
        assert_eq!(holds(alone.route_conditions("r"), ConditionType::PartiallyInvalid), ConditionState::Absent);
    }
}

#[test]
fn unsupported_filter_is_never_skipped() {
    let extension =
        "filters: [{type: ExtensionRef, extensionRef: {group: x.com, kind: Auth, name: f}}]";
    let backend = "backendRefs: [{name: a, port: 80}]";
    let resolution = with_rules(&format!("- {{{extension}, {backend}}}"));
    assert_eq!(answer_to(&resolution, "/"), "500");
    let conditions = resolution.route_conditions("r");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::False(Reason::InvalidKind)
    );

    let good = "- {matches: [{path: {value: /good}}], backendRefs: [{name: b, port: 80}]}";
    for filter in [
        "{type: Sanitize}",
        "{type: ExternalAuth, externalAuth: {protocol: LDAP, backendRef: {name: a, port: 80}}}",
    ] {
        let rule = format!("- {{filters: [{filter}], {backend}}}");
        let resolution = with_rules(&format!("{good}\n{rule}"));
        assert_eq!(answer_to(&resolution, "/"), "500", "{filter}");
        assert_eq!(answer_to(&resolution, "/good"), "web/b/80", "{filter}");
        assert_eq!(
            holds(
                resolution.route_conditions("r"),
                ConditionType::PartiallyInvalid
            ),
            ConditionState::True
        );
        let alone = with_rules(&rule);
        let accepted = holds(alone.route_conditions("r"), ConditionType::Accepted);
        assert_eq!(
            accepted,
            ConditionState::False(Reason::UnsupportedValue),
            "{filter}"
        );
        // These requests must not reach a less specific route, which may lack authorization.
        assert_eq!(answer_to(&alone, "/"), "500", "{filter}");
        assert_eq!(alone.attached("http"), 0, "{filter}");
    }
}

#[test]
fn mirrors_have_shares_and_bad_ones_are_dropped() {
    let mirror = |spec: &str| format!("{{type: RequestMirror, requestMirror: {spec}}}");
    let filters = [
        mirror("{backendRef: {name: b, port: 80}}"),
        mirror("{backendRef: {name: b, port: 80}, percent: 25}"),
        mirror("{backendRef: {name: c, port: 80}, fraction: {numerator: 1, denominator: 3}}"),
        mirror("{backendRef: {name: c, port: 80}, percent: 0}"),
        mirror("{backendRef: {name: none, port: 80}}"),
    ];
    let resolution = with_rules(&format!(
        "- filters: [{}]\n  backendRefs: [{{name: a, port: 80}}]",
        filters.join(", ")
    ));
    let mirrors: Vec<(String, u32, u32)> = forward(&resolution)
        .mirrors
        .into_iter()
        .map(|mirror| (mirror.backend, mirror.numerator, mirror.denominator))
        .collect();
    let b = "Service/web/b/80".to_owned();
    assert_eq!(
        mirrors,
        [
            (b.clone(), 100, 100),
            (b, 25, 100),
            ("Service/web/c/80".to_owned(), 1, 3)
        ]
    );
    let resolved_refs = holds(
        resolution.route_conditions("r"),
        ConditionType::ResolvedRefs,
    );
    assert_eq!(
        resolved_refs,
        ConditionState::False(Reason::BackendNotFound)
    );
    assert_eq!(resolution.gateways[0].snapshot.backends.len(), 3);
}

#[test]
fn application_protocols() {
    for (protocol, expected) in [
        ("http", Some(AppProtocol::Http1)),
        ("kubernetes.io/h2c", Some(AppProtocol::Http2)),
        ("h2c", Some(AppProtocol::Http2)),
        ("kubernetes.io/ws", Some(AppProtocol::Websocket)),
        ("kubernetes.io/wss", None),
        ("https", None),
        ("mongo", None),
    ] {
        let yaml = gateway(HTTP)
            + &route("r", "rules: [{backendRefs: [{name: p, port: 80}]}]")
            + &format!(
                "---\nkind: Service\nmetadata: {{name: p, namespace: web}}\nspec: {{ports: [{{port: 80, appProtocol: \
                 {protocol}}}]}}\n"
            );
        let resolution = resolved(&yaml);
        let backends = &resolution.gateways[0].snapshot.backends;
        assert_eq!(
            backends
                .first()
                .map(sesame_proto::schema::Backend::protocol),
            expected
        );
        let resolved_refs = holds(
            resolution.route_conditions("r"),
            ConditionType::ResolvedRefs,
        );
        let unsupported = ConditionState::False(Reason::UnsupportedProtocol);
        assert_eq!(
            resolved_refs,
            if expected.is_some() {
                ConditionState::True
            } else {
                unsupported
            }
        );
    }
}

#[test]
fn service_with_tls_policy_never_gets_plaintext() {
    let policy = "---\nkind: BackendTLSPolicy\nmetadata: {name: p, namespace: web}\nspec: {targetRefs: [{group: '', \
                  kind: Service, name: a}], validation: {hostname: a.com}}\n";
    let yaml =
        gateway(HTTP) + &route("r", "rules: [{backendRefs: [{name: a, port: 80}]}]") + policy;
    assert_eq!(answer_to(&resolved(&yaml), "/"), "500");
}

#[test]
fn timeouts_retries_and_sessions_are_carried() {
    let resolution = with_rules(
        "- backendRefs: [{name: a, port: 80}]\n  timeouts: {request: 10s, backendRequest: 0s}\n  retry: {codes: [503, \
         500], attempts: 2, backoff: 50ms}\n  sessionPersistence: {sessionName: s, type: Header}",
    );
    let forward = forward(&resolution);
    assert_eq!(
        (forward.request_timeout_ms, forward.backend_timeout_ms),
        (10_000, 0)
    );
    let retry = forward.retry.expect("retry");
    assert_eq!(
        (retry.statuses, retry.attempts, retry.backoff_ms),
        (vec![500, 503], 2, 50)
    );
    let session = forward.session.expect("session").kind;
    assert_eq!(
        session,
        Some(sesame_proto::schema::session_persistence::Kind::Header(
            "s".to_owned()
        ))
    );
}

#[test]
fn endpoints_prefer_ready_over_serving_terminating() {
    let slice = |name: &str, endpoints: &str| {
        format!(
            "---\nkind: EndpointSlice\nmetadata: {{name: {name}, namespace: web, labels: {{kubernetes.io/service-name: \
             b}}}}\naddressType: IPv4\nendpoints: {endpoints}\nports: [{{name: '', port: 9000}}]\n"
        )
    };
    let addresses = |slices: &str| -> Vec<String> {
        let yaml =
            gateway(HTTP) + &route("r", "rules: [{backendRefs: [{name: b, port: 80}]}]") + slices;
        let resolution = resolved(&yaml);
        let sets = &resolution.gateways[0].snapshot.endpoints;
        sets[0]
            .endpoints
            .iter()
            .map(|endpoint| endpoint.address.clone())
            .collect()
    };
    let ready = slice(
        "s1",
        "[{addresses: [10.0.0.9, 10.9.9.9]}, {addresses: [10.0.0.2], conditions: {ready: false}}]",
    ) + &slice(
        "s2",
        "[{addresses: [10.0.0.10], conditions: {ready: true}}, {addresses: [10.0.0.9]}]",
    ) + &slice(
        "s3",
        "[{addresses: [127.0.0.1]}, {addresses: [169.254.169.254]}, {addresses: [not-an-ip]}]",
    );
    assert_eq!(addresses(&ready), ["10.0.0.9", "10.0.0.10"]);
    let ending = slice(
        "s1",
        "[{addresses: [10.0.0.3], conditions: {ready: false, serving: true, terminating: true}}, {addresses: [10.0.0.4], \
         conditions: {ready: false, serving: false, terminating: true}}]",
    );
    assert_eq!(addresses(&ending), ["10.0.0.3"]);
}

/// RE2's cache cannot hold the states of these 128 matches: a 59 KB header kept an Envoy worker
/// busy for 41 seconds.
#[test]
fn expressions_that_would_stall_a_worker_are_refused() {
    use std::fmt::Write as _;

    let rules = (0..2).fold(String::new(), |mut rules, rule| {
        let _ = write!(rules, "- backendRefs: [{{name: a, port: 80}}]\n  matches:\n");
        for i in 0..64 {
            let _ = writeln!(
                rules,
                "  - headers: [{{type: RegularExpression, name: x-{rule}-{i}, value: '[ab]*a[ab]{{900}}c'}}]"
            );
        }
        rules
    });
    let resolution = with_rules(&rules);
    let conditions = resolution.route_conditions("r");
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(Reason::UnsupportedValue)
    );
    let message = &conditions[0].message;
    assert!(message.contains("116736 instructions"), "{message}");
    assert!(message.contains("3000"), "{message}");
    assert_eq!(answer_to(&resolution, "/"), "404");
}

#[test]
fn expression_cost_of_largest_route_set_is_bounded() {
    let routes: String = (0..50)
        .map(|i| {
            let rule = |j: usize| {
                format!(
                    "- matches: [{{path: {{type: RegularExpression, value: '/{i}/{j}/[ab]*a[ab]{{900}}c'}}}}]\n  \
                     backendRefs: [{{name: a, port: 80}}]\n"
                )
            };
            route(&format!("r{i:02}"), &format!("hostnames: [a.test]\nrules:\n{}{}{}", rule(0), rule(1), rule(2)))
        })
        .collect();
    let resolution = resolved(&(gateway(HTTP) + &routes));
    let snapshot = &resolution.gateways[0].snapshot;
    for host in snapshot
        .route_tables
        .iter()
        .flat_map(|table| &table.virtual_hosts)
    {
        let cost: u64 = host.routes.iter().map(expressions::of_route).sum();
        assert!(
            cost <= expressions::MAX_PER_VIRTUAL_HOST,
            "{}: {cost}",
            host.domain
        );
    }
    // The oldest routes fit within the limit; every other route gets the condition.
    let displaced = |name: &str| holds(resolution.route_conditions(name), ConditionType::Displaced);
    assert_eq!(
        (displaced("r00"), displaced("r01")),
        (ConditionState::Absent, ConditionState::Absent)
    );
    assert_eq!(
        (displaced("r02"), displaced("r49")),
        (ConditionState::True, ConditionState::True)
    );
    assert_eq!(resolution.problems.len(), 48);
}
