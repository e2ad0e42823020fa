//! Statuses of classes, Gateways, listeners and routes.

use super::{ConditionState, HTTP, gateway, holds, resolved, route};
use sesame_kinds::status::{ConditionType, Reason};

const R: &str = "rules: [{backendRefs: [{name: a, port: 80}]}]";

#[test]
fn a_good_gateway_waits_for_an_agent() {
    let resolution = resolved(&(gateway(HTTP) + &route("r", R)));
    for conditions in [
        resolution.gateway_conditions(),
        resolution.listener_conditions("http"),
    ] {
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            ConditionState::True
        );
        assert_eq!(
            holds(conditions, ConditionType::Programmed),
            ConditionState::Unknown
        );
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            ConditionState::True
        );
        assert!(
            conditions
                .iter()
                .all(|condition| condition.observed_generation == 7)
        );
    }
    let class = resolution
        .statuses
        .gateway_classes
        .values()
        .next()
        .expect("a class");
    assert_eq!(
        holds(&class.conditions, ConditionType::Accepted),
        ConditionState::True
    );
    assert_eq!(
        holds(&class.conditions, ConditionType::SupportedVersion),
        ConditionState::True
    );
    let route = resolution.statuses.routes.values().next().expect("a route");
    assert_eq!(route.parents[0].parent_ref.name, "gw");
    assert_eq!(route.parents[0].parent_ref.group, None);
}

#[test]
fn names_longer_than_dns_label_are_accepted() {
    let (long, too_long) = ("r".repeat(253), "r".repeat(254));
    for (name, accepted) in [(&long, true), (&too_long, false)] {
        let resolution = resolved(&(gateway(HTTP) + &route(name, R)));
        let conditions = resolution.route_conditions(name);
        let condition = holds(conditions, ConditionType::Accepted);
        assert_eq!(
            condition == ConditionState::True,
            accepted,
            "{}",
            name.len()
        );
    }
}

#[test]
fn objects_of_other_controllers_are_ignored() {
    let yaml = gateway(HTTP).replace("gatewayClassName: sesame", "gatewayClassName: other")
        + "---\nkind: GatewayClass\nmetadata: {name: other}\nspec: {controllerName: example.com/other}\n"
        + &route("r", R);
    let resolution = resolved(&yaml);
    assert!(resolution.gateways.is_empty());
    assert!(resolution.statuses.gateways.is_empty());
    assert!(resolution.statuses.routes.is_empty());
    assert_eq!(resolution.statuses.gateway_classes.len(), 1);
}

#[test]
fn unaccepted_route_states_reason() {
    let listeners = "
- {name: http, port: 80, protocol: HTTP, hostname: a.com, allowedRoutes: {namespaces: {from: Same}}}
- {name: sel, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: x}}}}}
- {name: kind, port: 82, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}";
    for (spec, reason) in [
        (
            "parentRefs: [{name: gw, sectionName: none}]",
            Reason::NoMatchingParent,
        ),
        (
            "parentRefs: [{name: gw, port: 99}]",
            Reason::NoMatchingParent,
        ),
        (
            "parentRefs: [{name: gw, port: 81, sectionName: http}]",
            Reason::NoMatchingParent,
        ),
        (
            "parentRefs: [{name: gw, sectionName: sel}]",
            Reason::NotAllowedByListeners,
        ),
        (
            "parentRefs: [{name: gw, sectionName: kind}]",
            Reason::NotAllowedByListeners,
        ),
        (
            "parentRefs: [{name: gw, sectionName: http}]\nhostnames: [b.com]",
            Reason::NoMatchingListenerHostname,
        ),
        (
            "parentRefs: [{name: gw, sectionName: http}]\nhostnames: [a.com, 1.2.3.4]",
            Reason::UnsupportedValue,
        ),
    ] {
        let resolution = resolved(&(gateway(listeners) + &route("r", &format!("{spec}\n{R}"))));
        let conditions = resolution.route_conditions("r");
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            ConditionState::False(reason),
            "{spec}"
        );
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            ConditionState::True,
            "{spec}"
        );
        for listener in ["http", "sel", "kind"] {
            assert_eq!(resolution.attached(listener), 0, "{spec}");
        }
    }
    // One accepting listener is sufficient.
    let resolution =
        resolved(&(gateway(listeners) + &route("r", &format!("hostnames: [a.com]\n{R}"))));
    assert_eq!(
        holds(resolution.route_conditions("r"), ConditionType::Accepted),
        ConditionState::True
    );
    let labelled = "---\nkind: Namespace\nmetadata: {name: web, labels: {team: x}}\n";
    let resolution = resolved(&(gateway(listeners) + &route("r", R) + labelled));
    assert_eq!(
        (resolution.attached("http"), resolution.attached("sel")),
        (1, 1)
    );
}

#[test]
fn foreign_parents_have_no_status_entry() {
    let spec = format!(
        "parentRefs: [{{name: none}}, {{name: a, kind: Service, group: ''}}, {{name: gw, kind: ListenerSet}}, {{name: \
         gw, sectionName: http}}, {{name: gw, sectionName: http}}]\n{R}"
    );
    let resolution = resolved(&(gateway(HTTP) + &route("r", &spec)));
    let status = resolution
        .statuses
        .routes
        .values()
        .next()
        .expect("a status");
    assert_eq!(status.parents.len(), 1);
    assert_eq!(resolution.attached("http"), 1);
}

#[test]
fn refused_listener_states_reason_and_gateway_continues() {
    for (bad, reason) in [
        (
            "{name: bad, port: 0, protocol: HTTP}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 65536, protocol: HTTP}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 81, protocol: HTTP, hostname: 1.2.3.4}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 81, protocol: HTTP, tls: {}}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 81, protocol: HTTPS}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 81, protocol: HTTPS, tls: {mode: Passthrough}}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 81, protocol: SPDY}",
            Reason::UnsupportedProtocol,
        ),
        (
            "{name: bad, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector}}}",
            Reason::UnsupportedValue,
        ),
        (
            "{name: bad, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: Some}}}",
            Reason::UnsupportedValue,
        ),
    ] {
        let resolution = resolved(&gateway(&format!("{HTTP}\n- {bad}")));
        let conditions = resolution.listener_conditions("bad");
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            ConditionState::False(reason),
            "{bad}"
        );
        assert_eq!(
            holds(conditions, ConditionType::Programmed),
            ConditionState::False(Reason::Invalid),
            "{bad}"
        );
        assert_eq!(
            holds(
                resolution.listener_conditions("http"),
                ConditionType::Accepted
            ),
            ConditionState::True
        );
        let accepted = &resolution.gateway_conditions()[0];
        assert_eq!(
            (accepted.status.as_str(), accepted.reason),
            ("True", Reason::ListenersNotValid),
            "{bad}"
        );
        let ports: Vec<u32> = resolution.gateways[0]
            .snapshot
            .ports
            .iter()
            .map(|port| port.port)
            .collect();
        assert_eq!(ports, [80], "{bad}");

        let alone = resolved(&gateway(&format!("- {bad}")));
        assert!(alone.gateways.is_empty(), "{bad}");
        let accepted = holds(alone.gateway_conditions(), ConditionType::Accepted);
        assert_eq!(
            accepted,
            ConditionState::False(Reason::ListenersNotValid),
            "{bad}"
        );
    }
}

#[test]
fn conflicting_listeners_are_refused_but_count_routes() {
    let listeners = format!(
        "{HTTP}\n- {{name: x, port: 81, protocol: HTTP}}\n- {{name: w, port: 81, protocol: HTTP}}"
    );
    let resolution = resolved(&(gateway(&listeners) + &route("r", R)));
    for name in ["x", "w"] {
        let conditions = resolution.listener_conditions(name);
        let refused = ConditionState::False(Reason::HostnameConflict);
        assert_eq!(
            holds(conditions, ConditionType::Conflicted),
            ConditionState::True
        );
        assert_eq!(holds(conditions, ConditionType::Accepted), refused);
        assert_eq!(holds(conditions, ConditionType::Programmed), refused);
        assert_eq!(resolution.attached(name), 1);
    }
    let conflicted = holds(
        resolution.listener_conditions("http"),
        ConditionType::Conflicted,
    );
    assert_eq!(conflicted, ConditionState::False(Reason::NoConflicts));
    assert_eq!(resolution.gateways[0].snapshot.ports.len(), 1);
}

#[test]
fn unknown_route_kinds_are_reported_and_others_serve() {
    let listeners = "- {name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: FooRoute}]}}";
    let resolution = resolved(&(gateway(listeners) + &route("r", R)));
    let conditions = resolution.listener_conditions("http");
    let refused = ConditionState::False(Reason::InvalidRouteKinds);
    assert_eq!(holds(conditions, ConditionType::ResolvedRefs), refused);
    assert_eq!(
        holds(conditions, ConditionType::Accepted),
        ConditionState::True
    );
    let status = resolution
        .statuses
        .gateways
        .values()
        .next()
        .expect("a Gateway");
    assert_eq!(status.listeners[0].supported_kinds.len(), 1);
    assert_eq!(resolution.attached("http"), 1);
}

#[test]
fn addresses_and_parameters() {
    for (spec, accepted, addresses) in [
        (
            "addresses: [{value: 192.0.2.1}, {type: IPAddress, value: '2001:DB8::1'}]",
            ConditionState::True,
            vec!["192.0.2.1", "2001:db8::1"],
        ),
        (
            "addresses: [{type: IPAddress, value: ''}]",
            ConditionState::True,
            vec![],
        ),
        (
            "addresses: [{type: Hostname, value: a.com}]",
            ConditionState::False(Reason::UnsupportedAddress),
            vec![],
        ),
        (
            "addresses: [{value: nonsense}, {value: 192.0.2.1}]",
            ConditionState::True,
            vec!["192.0.2.1"],
        ),
        (
            "infrastructure: {parametersRef: {group: x, kind: K, name: z}}",
            ConditionState::False(Reason::InvalidParameters),
            vec![],
        ),
    ] {
        let resolution = resolved(&format!("{}  {spec}\n", gateway(HTTP)));
        let conditions = resolution.gateway_conditions();
        assert_eq!(
            holds(conditions, ConditionType::Accepted),
            accepted,
            "{spec}"
        );
        match resolution.gateways.first() {
            Some(gateway) => assert_eq!(gateway.snapshot.addresses, addresses, "{spec}"),
            None => assert_eq!(
                holds(conditions, ConditionType::Programmed),
                ConditionState::False(Reason::Invalid)
            ),
        }
    }
}

#[test]
fn names_that_imitate_provenance_are_refused() {
    let yaml = gateway(HTTP) + &route("x/rules/0", R);
    let resolution = resolved(&yaml);
    let accepted = holds(
        resolution.route_conditions("x/rules/0"),
        ConditionType::Accepted,
    );
    assert_eq!(accepted, ConditionState::False(Reason::UnsupportedValue));
    assert!(resolution.gateways[0].snapshot.backends.is_empty());

    let yaml = gateway(HTTP).replace("name: gw", "name: gw/listeners");
    let resolution = resolved(&yaml);
    let accepted = holds(resolution.gateway_conditions(), ConditionType::Accepted);
    assert_eq!(accepted, ConditionState::False(Reason::Invalid));
    assert!(resolution.gateways.is_empty());
}

#[test]
fn statuses_print_as_the_api_shows_them() {
    let resolution = resolved(&(gateway(HTTP) + &route("r", R)));
    let json = serde_json::to_value(&resolution.statuses).expect("JSON");
    let listener = &json["gateways"]["web/gw"]["listeners"][0];
    assert_eq!(listener["attachedRoutes"], 1);
    assert_eq!(
        listener["supportedKinds"][0]["group"],
        "gateway.networking.k8s.io"
    );
    assert_eq!(listener["conditions"][0]["type"], "Accepted");
    assert_eq!(listener["conditions"][0]["observedGeneration"], 7);
    let parent = &json["routes"]["HTTPRoute/web/r"]["parents"][0];
    assert_eq!(parent["parentRef"], serde_json::json!({"name": "gw"}));
    assert_eq!(
        parent["controllerName"],
        "projectsesame.io/gateway-controller"
    );
}
