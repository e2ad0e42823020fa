//! ListenerSets: attachment, precedence and status.

use super::{ConditionState, HTTP, gateway, holds, resolved};
use crate::Resolution;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ConditionType, ListenerSetStatus, Reason};

const ALLOWED: &str = "allowedListeners: {namespaces: {from: All}}";

fn gateway_with(field: &str, listeners: &str) -> String {
    gateway(listeners).replace("spec:\n", &format!("spec:\n  {field}\n"))
}

fn set(namespace: &str, name: &str, listeners: &str) -> String {
    format!(
        "---\nkind: ListenerSet\nmetadata: {{name: {name}, namespace: {namespace}, generation: 5}}\nspec:\n  parentRef: \
         {{name: gw, namespace: web}}\n  listeners: [{listeners}]\n"
    )
}

fn route(namespace: &str, parents: &str) -> String {
    format!(
        "---\nkind: HTTPRoute\nmetadata: {{name: r, namespace: {namespace}}}\nspec: {{parentRefs: [{parents}], rules: \
         [{{backendRefs: [{{name: a, namespace: web, port: 80}}]}}]}}\n"
    )
}

fn status<'r>(resolution: &'r Resolution, namespace: &str, name: &str) -> &'r ListenerSetStatus {
    let key = NamespacedName::new(namespace, name);
    &resolution.statuses.listener_sets[&key]
}

fn says(resolution: &Resolution, name: &str) -> (ConditionState, ConditionState) {
    let conditions = &status(resolution, "web", name).conditions;
    assert!(conditions.iter().all(|c| c.observed_generation == 5));
    (
        holds(conditions, ConditionType::Accepted),
        holds(conditions, ConditionType::Programmed),
    )
}

fn attached(resolution: &Resolution) -> i32 {
    let statuses = &resolution.statuses.gateways;
    statuses[&NamespacedName::new("web", "gw")].attached_listener_sets
}

const EXTRA: &str = "{name: extra, port: 8080, protocol: HTTP}";

#[test]
fn gateway_limits_namespaces_of_listener_sets() {
    let namespace = "---\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n";
    for (field, own, other) in [
        ("allowedListeners: {}", false, false),
        ("allowedListeners: {namespaces: {from: None}}", false, false),
        ("allowedListeners: {namespaces: {from: Same}}", true, false),
        (ALLOWED, true, true),
        (
            "allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}",
            false,
            true,
        ),
        (
            "allowedListeners: {namespaces: {from: Selector}}",
            false,
            false,
        ),
        ("allowedListeners: {namespaces: {from: Some}}", false, false),
    ] {
        let resolution = resolved(
            &(gateway_with(field, HTTP)
                + &set("web", "own", EXTRA)
                + &set("shop", "other", "{name: extra, port: 8081, protocol: HTTP}")
                + namespace),
        );
        for (namespace, name, allowed) in [("web", "own", own), ("shop", "other", other)] {
            let status = status(&resolution, namespace, name);
            let expected = if allowed {
                (ConditionState::True, ConditionState::Unknown)
            } else {
                let refused = || ConditionState::False(Reason::NotAllowed);
                (refused(), refused())
            };
            let pair = (
                holds(&status.conditions, ConditionType::Accepted),
                holds(&status.conditions, ConditionType::Programmed),
            );
            assert_eq!(pair, expected, "{field} {name}");
            assert_eq!(status.listeners.len(), usize::from(allowed));
        }
        assert_eq!(attached(&resolution), i32::from(own) + i32::from(other));
    }
}

#[test]
fn set_without_valid_listener_or_gateway_is_refused() {
    let both = |reason| (ConditionState::False(reason), ConditionState::False(reason));
    let no_listener = both(Reason::ListenersNotValid);
    let bad = "{name: bad, port: 80, protocol: TCP}";
    let resolution = resolved(&(gateway_with(ALLOWED, HTTP) + &set("web", "s", bad)));
    assert_eq!(says(&resolution, "s"), no_listener);
    let conditions = &status(&resolution, "web", "s").listeners[0].conditions;
    for type_ in [ConditionType::Accepted, ConditionType::Programmed] {
        assert_eq!(
            holds(conditions, type_),
            ConditionState::False(Reason::ProtocolConflict)
        );
    }
    assert_eq!(
        holds(conditions, ConditionType::Conflicted),
        ConditionState::True
    );

    let elsewhere = "{name: tls, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: x, namespace: other}]}}";
    let resolution = resolved(&(gateway_with(ALLOWED, HTTP) + &set("web", "s", elsewhere)));
    assert_eq!(says(&resolution, "s"), no_listener);
    let conditions = &status(&resolution, "web", "s").listeners[0].conditions;
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(conditions, ConditionType::ResolvedRefs),
        ConditionState::False(Reason::RefNotPermitted)
    );

    let resolution = resolved(&(gateway_with(ALLOWED, HTTP) + &set("web", "s", "")));
    assert_eq!(says(&resolution, "s"), both(Reason::Invalid));

    let refused = gateway_with(
        &format!(
            "{ALLOWED}\n  infrastructure: {{parametersRef: {{group: a.b, kind: C, name: d}}}}"
        ),
        HTTP,
    );
    let resolution = resolved(&(refused + &set("web", "s", EXTRA)));
    assert_eq!(
        says(&resolution, "s"),
        (
            ConditionState::False(Reason::ParentNotAccepted),
            ConditionState::False(Reason::ParentNotProgrammed)
        )
    );
    assert_eq!(attached(&resolution), 0);
}

#[test]
fn gateway_refused_for_own_listeners_takes_sets_along() {
    let refused = (
        ConditionState::False(Reason::ParentNotAccepted),
        ConditionState::False(Reason::ParentNotProgrammed),
    );
    let bad = "- {name: bad, port: 0, protocol: HTTP}";
    let resolution = resolved(&(gateway_with(ALLOWED, bad) + &set("web", "s", EXTRA)));
    let conditions = resolution.gateway_conditions();
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::False(Reason::ListenersNotValid)
    );
    assert_eq!(says(&resolution, "s"), refused);
    assert!(resolution.gateways.is_empty());
    assert_eq!(attached(&resolution), 0);

    // A Gateway listener without a certificate does not affect ListenerSets.
    let bare = "- {name: bare, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: x}]}}";
    let resolution = resolved(&(gateway_with(ALLOWED, bare) + &set("web", "s", EXTRA)));
    let conditions = resolution.gateway_conditions();
    assert_eq!(
        holds(conditions, ConditionType::Programmed),
        ConditionState::False(Reason::Invalid)
    );
    assert_eq!(
        says(&resolution, "s"),
        (ConditionState::True, ConditionState::Unknown)
    );
    assert_eq!(resolution.gateways[0].snapshot.ports.len(), 1);

    // A Gateway without listeners still serves its ListenerSets.
    let empty = gateway_with(ALLOWED, "").replace("  listeners:\n\n", "  listeners: []\n");
    let resolution = resolved(&(empty.clone() + &set("web", "s", EXTRA)));
    let conditions = resolution.gateway_conditions();
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(conditions, ConditionType::Programmed),
        ConditionState::Unknown
    );
    assert_eq!(
        says(&resolution, "s"),
        (ConditionState::True, ConditionState::Unknown)
    );
    assert!(resolved(&empty).gateways.is_empty());

    // The Gateway has no usable address.
    let nowhere = gateway_with(
        &format!("{ALLOWED}\n  addresses: [{{value: nowhere}}]"),
        HTTP,
    );
    let resolution = resolved(&(nowhere + &set("web", "s", EXTRA)));
    assert_eq!(
        says(&resolution, "s"),
        (
            ConditionState::True,
            ConditionState::False(Reason::ParentNotProgrammed)
        )
    );
}

#[test]
fn route_attaches_to_named_gateway_or_set_only() {
    let resolve = |parents: &str| {
        resolved(
            &(gateway_with(
                ALLOWED,
                "- {name: own, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}",
            ) + &set("shop", "s", "{name: extra, port: 8080, protocol: HTTP}")
                + &route("shop", parents)),
        )
    };
    let set = "kind: ListenerSet, name: s";
    for (parents, gateway_routes, set_routes, accepted) in [
        ("{name: gw, namespace: web}", 1, 0, ConditionState::True),
        (
            "{name: gw, namespace: web, sectionName: extra}",
            0,
            0,
            ConditionState::False(Reason::NoMatchingParent),
        ),
        // The reference's namespace defaults to the route's namespace, `shop`.
        (&format!("{{{set}}}"), 0, 1, ConditionState::True),
        (
            &format!("{{{set}, sectionName: extra}}"),
            0,
            1,
            ConditionState::True,
        ),
        (
            &format!("{{{set}, port: 8080}}"),
            0,
            1,
            ConditionState::True,
        ),
        (
            &format!("{{{set}, sectionName: own}}"),
            0,
            0,
            ConditionState::False(Reason::NoMatchingParent),
        ),
        (
            &format!("{{{set}, port: 80}}"),
            0,
            0,
            ConditionState::False(Reason::NoMatchingParent),
        ),
    ] {
        let resolution = resolve(parents);
        assert_eq!(resolution.attached("own"), gateway_routes, "{parents}");
        let listener = &status(&resolution, "shop", "s").listeners[0];
        assert_eq!(listener.attached_routes, set_routes, "{parents}");
        let route = resolution.statuses.routes.values().next().expect("a route");
        let [parent] = route.parents.as_slice() else {
            panic!("expected one parent");
        };
        assert_eq!(
            holds(&parent.conditions, ConditionType::Accepted),
            accepted,
            "{parents}"
        );
        let through = parent.parent_ref.kind.as_deref() == Some("ListenerSet");
        let gateway = NamespacedName::new("web", "gw");
        assert_eq!(parent.through, through.then_some(gateway));
    }
}

#[test]
fn gateway_grants_do_not_apply_to_its_sets() {
    let grant = |kind: &str| {
        format!(
            "---\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: keys}}\nspec: {{from: [{{group: \
             gateway.networking.k8s.io, kind: {kind}, namespace: web}}], to: [{{group: '', kind: Secret}}]}}\n"
        )
    };
    let https = "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: x, namespace: keys}]}}";
    for (kind, reason) in [
        ("Gateway", Reason::RefNotPermitted),
        ("ListenerSet", Reason::InvalidCertificateRef),
    ] {
        let resolution =
            resolved(&(gateway_with(ALLOWED, HTTP) + &set("web", "s", https) + &grant(kind)));
        let conditions = &status(&resolution, "web", "s").listeners[0].conditions;
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            ConditionState::False(reason),
            "{kind}"
        );
        // All references in the Gateway's own spec are valid.
        let gateway = resolution.gateway_conditions();
        assert_eq!(
            holds(gateway, ConditionType::ResolvedRefs),
            ConditionState::True
        );
    }
}

#[test]
fn listeners_beyond_gateway_limit_are_refused_individually() {
    let listeners = |from: usize| -> String {
        let one = |i| format!("{{name: l{i}, port: {}, protocol: HTTP}}", 1000 + from + i);
        (0..64).map(one).collect::<Vec<_>>().join(", ")
    };
    let sets: String = (0..33)
        .map(|i| set("web", &format!("s{i}"), &listeners(i * 64)))
        .collect();
    let resolution = resolved(&(gateway_with(ALLOWED, HTTP) + &sets));
    let ports = resolution.gateways[0].snapshot.ports.len();
    // The Gateway's port, and 1,023 ListenerSet ports. Each of these counts as a listener and as a
    // port.
    assert_eq!(ports, 1 + 1023);
    assert_eq!(says(&resolution, "s22").0, ConditionState::True);
    // `s9` is the last ListenerSet by name.
    let last = status(&resolution, "web", "s9").listeners.last();
    let last = &last.expect("a listener").conditions;
    assert_eq!(
        holds(last, ConditionType::Accepted),
        ConditionState::False(Reason::TooManyListeners)
    );
}

#[test]
fn crowded_namespace_takes_no_listeners_from_small_one() {
    let listeners = |from: usize, count: usize| -> String {
        let one = |i| format!("{{name: l{i}, port: {}, protocol: HTTP}}", 1000 + from + i);
        (0..count).map(one).collect::<Vec<_>>().join(", ")
    };
    // Namespace `greedy` sorts before `modest`.
    let greedy: String = (0..33)
        .map(|i| set("greedy", &format!("a{i:02}"), &listeners(i * 64, 64)))
        .collect();
    let modest = set("modest", "b0", &listeners(20000, 3));
    let resolution = resolved(&(gateway_with(ALLOWED, HTTP) + &greedy + &modest));
    let modest = &status(&resolution, "modest", "b0").conditions;
    assert_eq!(holds(modest, ConditionType::Accepted), ConditionState::True);
    // The Gateway's port, three ports in `modest`, and half of the remaining 2,047 - 6 listeners
    // and ports.
    assert_eq!(resolution.gateways[0].snapshot.ports.len(), 1 + 3 + 1020);
    let last = &status(&resolution, "greedy", "a32").listeners[0].conditions;
    let refused = last
        .iter()
        .find(|condition| condition.type_ == ConditionType::Accepted)
        .expect("an Accepted condition");
    assert_eq!(refused.reason, Reason::TooManyListeners);
    assert!(
        refused.message.contains("2041 listeners and ports"),
        "{}",
        refused.message
    );
}

#[test]
fn listeners_on_ports_of_the_gateway_count_once() {
    let listeners = |set: usize| -> String {
        let one =
            |i| format!("{{name: l{i}, port: 80, protocol: HTTP, hostname: a{i}.s{set}.test}}");
        (0..64).map(one).collect::<Vec<_>>().join(", ")
    };
    let sets: String = (0..33)
        .map(|i| set("web", &format!("s{i}"), &listeners(i)))
        .collect();
    let resolution = resolved(&(gateway_with(ALLOWED, HTTP) + &sets));
    let ports = &resolution.gateways[0].snapshot.ports;
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].listeners.len(), 2048);
}
