//! AccessPolicies on TLSRoutes, TCPRoutes and UDPRoutes.

use sesame_proto::schema::L4Route;

use super::{ConditionState, gateway, holds, resolved};
use crate::Resolution;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::Kind;

const LISTENERS: &str = "
- {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}
- {name: tcp, port: 5432, protocol: TCP}
- {name: udp, port: 53, protocol: UDP}
";

const KINDS: [(&str, &str, Kind); 3] = [
    ("TLSRoute", "tls", Kind::TlsRoute),
    ("TCPRoute", "tcp", Kind::TcpRoute),
    ("UDPRoute", "udp", Kind::UdpRoute),
];

const FILTER: &str = ", ipFilter: {allow: [10.0.0.0/8]}";
const HTTP_ONLY: &str = ", authorization: {rules: [{action: Allow, methods: [GET]}]}";

fn route(kind: &str, listener: &str) -> String {
    let hostnames = if kind == "TLSRoute" {
        "hostnames: [a.test], "
    } else {
        ""
    };
    format!(
        "---\nkind: {kind}\nmetadata: {{name: r, namespace: web, generation: 3}}\nspec: \
         {{parentRefs: [{{name: gw, sectionName: {listener}}}], {hostnames}rules: \
         [{{name: only, backendRefs: [{{name: a, port: 80}}]}}]}}\n"
    )
}

fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "---\nkind: AccessPolicy\nmetadata: {{name: {name}, namespace: web, generation: 4}}\n\
         spec: {{targetRefs: [{{group: gateway.networking.k8s.io, {target}}}]{spec}}}\n"
    )
}

fn served(policies: &str) -> Resolution {
    let service = "---\nkind: Service\nmetadata: {name: a, namespace: web}\n\
        spec: {ports: [{name: tcp, port: 80}, {name: udp, port: 80, protocol: UDP}]}\n";
    let routes = KINDS.map(|(kind, listener, _)| route(kind, listener));
    resolved(&(gateway(LISTENERS) + service + &routes.concat() + policies))
}

fn l4_route(resolution: &Resolution, kind: &str) -> L4Route {
    let ports = resolution.gateways[0].snapshot.ports.iter();
    let mut routes = ports
        .flat_map(|port| &port.listeners)
        .flat_map(|it| &it.l4_routes);
    let found = routes.find(|it| it.name.starts_with(kind));
    found.expect("the route exists").clone()
}

fn filters(route: &L4Route) -> Vec<&str> {
    let filters = route.address_filters.iter();
    filters.map(|it| it.name.as_str()).collect()
}

fn is_refused(route: &L4Route) -> bool {
    route.backends.is_empty() && !route.refused_by.is_empty()
}

fn accepted(resolution: &Resolution, name: &str) -> (ConditionState, String) {
    let key = Kind::AccessPolicy.named(NamespacedName::new("web", name));
    let conditions = &resolution.statuses.policies[&key].ancestors[0].conditions;
    let state = holds(conditions, ConditionType::Accepted);
    (state, conditions[0].message.clone())
}

fn affected(resolution: &Resolution, kind: Kind) -> &Condition {
    let key = kind.named(NamespacedName::new("web", "r"));
    let conditions = &resolution.statuses.routes[&key].parents[0].conditions;
    let type_ = ConditionType::AccessPolicyAffected;
    let found = conditions.iter().find(|it| it.type_ == type_);
    found.expect("the condition exists")
}

#[test]
fn filter_of_route_applies_to_that_route_only() {
    for (kind, _, key) in KINDS {
        for section in ["", ", sectionName: only"] {
            let target = format!("kind: {kind}, name: r{section}");
            let resolution = served(&policy("p", &target, FILTER));
            for (other, ..) in KINDS {
                let route = l4_route(&resolution, other);
                let expected = if other == kind {
                    &["AccessPolicy/web/p"][..]
                } else {
                    &[]
                };
                assert_eq!(filters(&route), expected, "{kind} {other}");
                assert!(!route.backends.is_empty(), "{other}");
            }
            assert_eq!(accepted(&resolution, "p").0, ConditionState::True);
            let message = &affected(&resolution, key).message;
            assert_eq!(message, "AccessPolicies: web/p");
        }
    }
}

#[test]
fn unknown_rule_of_route_is_not_found() {
    let target = "kind: TCPRoute, name: r, sectionName: other";
    let resolution = served(&policy("p", target, FILTER));
    let (state, message) = accepted(&resolution, "p");
    assert_eq!(state, ConditionState::False(Reason::TargetNotFound));
    assert!(
        message.contains("rule \"other\" of TCPRoute web/r"),
        "{message}"
    );
}

#[test]
fn filters_of_gateway_and_route_add_up() {
    let gateway = policy("all", "kind: Gateway, name: gw", FILTER);
    let listener = policy("tcp", "kind: Gateway, name: gw, sectionName: tcp", FILTER);
    let own = policy("own", "kind: TCPRoute, name: r", FILTER);
    let resolution = served(&(gateway + &listener + &own));
    let names = ["all", "own", "tcp"].map(|it| format!("AccessPolicy/web/{it}"));
    assert_eq!(filters(&l4_route(&resolution, "TCPRoute")), names);
    for kind in ["TLSRoute", "UDPRoute"] {
        assert_eq!(filters(&l4_route(&resolution, kind)), names[..1]);
    }
}

#[test]
fn invalid_policy_refuses_its_layer_4_targets() {
    for spec in [
        "",
        ", ipFilter: {allow: [10.0.0.1]}",
        ", ipFilter: {denyRefs: [{name: none}]}",
        ", ipFilter: {deny: [10.0.0.0/8]}, exemptions: [{kind: Gateway, name: gw}]",
    ] {
        let everywhere = served(&policy("p", "kind: Gateway, name: gw", spec));
        for (kind, _, key) in KINDS {
            assert!(is_refused(&l4_route(&everywhere, kind)), "{kind} {spec}");
            let target = format!("kind: {kind}, name: r");
            let resolution = served(&policy("p", &target, spec));
            let route = l4_route(&resolution, kind);
            assert!(is_refused(&route), "{kind} {spec}");
            assert_eq!(route.refused_by, ["AccessPolicy/web/p"]);
            let (state, message) = accepted(&resolution, "p");
            assert_eq!(state, ConditionState::False(Reason::Invalid));
            assert!(message.ends_with("the targets get no traffic"), "{message}");
            let message = &affected(&resolution, key).message;
            assert!(message.ends_with("because web/p is not valid"), "{message}");
        }
    }
}

#[test]
fn http_parts_refuse_only_layer_4_targets() {
    for spec in [HTTP_ONLY.to_owned(), format!("{FILTER}{HTTP_ONLY}")] {
        for (kind, ..) in KINDS {
            let target = format!("kind: {kind}, name: r");
            let resolution = served(&policy("p", &target, &spec));
            assert!(is_refused(&l4_route(&resolution, kind)), "{kind} {spec}");
            let (state, message) = accepted(&resolution, "p");
            assert_eq!(state, ConditionState::False(Reason::Invalid));
            assert!(
                message.contains("does not support spec.authorization"),
                "{message}"
            );
        }
    }
}

#[test]
fn http_parts_of_gateway_do_not_affect_layer_4_routes() {
    let invalid = ", authorization: {rules: []}";
    for (parts, expected) in [
        (HTTP_ONLY.to_owned(), &[][..]),
        (invalid.to_owned(), &[]),
        (format!("{FILTER}{HTTP_ONLY}"), &["AccessPolicy/web/p"]),
        (format!("{FILTER}{invalid}"), &["AccessPolicy/web/p"]),
    ] {
        let resolution = served(&policy("p", "kind: Gateway, name: gw", &parts));
        for (kind, ..) in KINDS {
            let route = l4_route(&resolution, kind);
            assert!(!route.backends.is_empty(), "{kind} {parts}");
            assert_eq!(filters(&route), expected, "{kind} {parts}");
        }
    }
}

#[test]
fn gateway_policy_exempts_layer_4_route() {
    for (kind, ..) in KINDS {
        let spec = format!("{FILTER}, exemptions: [{{kind: {kind}, name: r}}]");
        let resolution = served(&policy("p", "kind: Gateway, name: gw", &spec));
        for (other, ..) in KINDS {
            let route = l4_route(&resolution, other);
            let is_exempt = other == kind;
            assert_eq!(filters(&route).is_empty(), is_exempt, "{kind} {other}");
            assert_eq!(!route.exempt_from.is_empty(), is_exempt, "{kind} {other}");
        }
    }
}

#[test]
fn routes_beyond_network_limit_are_refused() {
    let lists = (0..16).map(|i| {
        let networks = (0..128).map(|j| format!("10.{i}.{j}.0/24"));
        networks.collect::<Vec<_>>().join(", ")
    });
    let lists: Vec<String> = lists.collect();
    let hostnames: Vec<String> = (0..100).map(|i| format!("h{i}.test")).collect();
    let policies = lists.iter().enumerate().map(|(i, list)| {
        let spec = format!(", ipFilter: {{deny: [{list}]}}");
        policy(&format!("p{i}"), "kind: TLSRoute, name: r", &spec)
    });
    let policies: String = policies.collect();
    let many = route("TLSRoute", "tls").replace("a.test", &hostnames.join(", "));
    let is_served = |route: &str| {
        let resolution = resolved(&(gateway(LISTENERS) + route + &policies));
        !l4_route(&resolution, "TLSRoute").backends.is_empty()
    };
    assert!(is_served(&route("TLSRoute", "tls")));
    assert!(!is_served(&many));
}
