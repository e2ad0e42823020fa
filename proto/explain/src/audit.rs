//! Lists the checks that each rule applies before forwarding, and the checks it is exempt from.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sesame_proto::provenance::Provenance;
use sesame_proto::schema::external_auth::Protocol as AuthProtocol;
use sesame_proto::schema::{
    CredentialSet, ExternalAuth, L4Route, Listener, Port, Protocol, RequestFilters, Route,
    Snapshot, TokenPolicy, VirtualHost, route::Action, tls_termination::ClientMode,
};

/// A rule's checks, for all hosts with the same checks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleAccess {
    /// `namespace/name` of the Gateway.
    pub gateway: String,
    /// `HTTPRoute/namespace/name/rules/0`.
    pub rule: String,
    /// Host URLs without a path. A wildcard host starts with `*`. The schemes of layer 4 routes are
    /// `tls`, `tcp` and `udp`.
    pub hosts: Vec<String>,
    /// Checks that a request must pass. Each entry names the kind of check and the object that
    /// requires the check.
    pub checks: Vec<String>,
    /// Checks that other rules apply for these hosts, but that this rule is exempt from.
    pub exempt_from: Vec<String>,
}

impl RuleAccess {
    /// Returns the namespace and name of the object that defines the rule.
    pub fn object(&self) -> Option<(&str, &str)> {
        let mut parts = self.rule.split('/').skip(1);
        Some((parts.next()?, parts.next()?))
    }
}

/// Returns the checks of all rules that forward requests, sorted by Gateway and rule.
pub fn access_of_rules(snapshot: &Snapshot) -> Vec<RuleAccess> {
    let mut hosts: BTreeMap<(&str, Checks), BTreeSet<String>> = BTreeMap::new();
    for table in &snapshot.route_tables {
        let listeners = snapshot.ports.iter().flat_map(|port| {
            let uses_table = move |it: &&Listener| it.route_table == table.name;
            let listeners = port.listeners.iter().filter(uses_table);
            listeners.map(move |listener| (listener, port.port))
        });
        for (listener, port) in listeners {
            for host in &table.virtual_hosts {
                let url = url(listener, port, &host.domain);
                for route in &host.routes {
                    if !matches!(route.action, Some(Action::Forward(_))) {
                        continue;
                    }
                    let checks = checks(snapshot, listener, host, route);
                    let rule = route.name.split("/matches/").next().unwrap_or_default();
                    let urls = hosts.entry((rule, checks)).or_default();
                    urls.insert(url.clone());
                }
            }
        }
    }
    for port in &snapshot.ports {
        for listener in &port.listeners {
            let routes = listener
                .l4_routes
                .iter()
                .filter(|it| !it.backends.is_empty());
            for route in routes {
                let urls = hosts.entry((&route.name, connection_checks(listener, route)));
                urls.or_default()
                    .extend(connection_urls(port, listener, route));
            }
        }
    }
    let gateway = Provenance::parse(&snapshot.gateway);
    let gateway = gateway.map(|it| format!("{}/{}", it.namespace, it.name));
    let gateway = gateway.unwrap_or_else(|_| snapshot.gateway.clone());
    let rules = hosts
        .into_iter()
        .map(|((rule, (checks, exempt_from)), hosts)| RuleAccess {
            gateway: gateway.clone(),
            rule: rule.to_owned(),
            hosts: hosts.into_iter().collect(),
            checks,
            exempt_from,
        });
    rules.collect()
}

fn url(listener: &Listener, port: u32, domain: &str) -> String {
    let (scheme, default) = match listener.tls {
        Some(_) => ("https", 443),
        None => ("http", 80),
    };
    if port == default {
        format!("{scheme}://{domain}")
    } else {
        format!("{scheme}://{domain}:{port}")
    }
}

fn connection_urls(port: &Port, listener: &Listener, route: &L4Route) -> Vec<String> {
    let scheme = match listener.protocol() {
        Protocol::RawUdp => "udp",
        Protocol::RawTcp => "tcp",
        Protocol::Http | Protocol::Https | Protocol::Tls => "tls",
    };
    let url = |host: &str| format!("{scheme}://{host}:{}", port.port);
    match route.hostnames.as_slice() {
        [] => vec![url("*")],
        hosts => hosts.iter().map(|host| url(host)).collect(),
    }
}

fn connection_checks(listener: &Listener, route: &L4Route) -> Checks {
    let addresses = route.address_filters.iter();
    let addresses = addresses.map(|it| format!("IPFilter {}", object(&it.name)));
    let checks = certificate(listener).into_iter().chain(addresses);
    let exempt = route.exempt_from.iter().map(|check| exempted(check));
    (checks.collect(), exempt.collect())
}

fn certificate(listener: &Listener) -> Option<String> {
    let tls = listener.tls.as_ref()?;
    let is_required = tls.client_mode() == ClientMode::Required;
    let bundle = &tls.client_trust_bundle;
    (is_required && !bundle.is_empty()).then(|| format!("ClientCertificate {bundle}"))
}

/// Checks that apply, in Envoy's order, and checks that the route is exempt from.
type Checks = (Vec<String>, Vec<String>);

fn checks(snapshot: &Snapshot, listener: &Listener, host: &VirtualHost, route: &Route) -> Checks {
    let host_filters = host.filters.as_ref().or(snapshot.filters.as_deref());
    let filters = route.filters.as_deref().or(host_filters);
    let own = filters.map(of_filters).unwrap_or_default();
    let exempt = filters.map_or(&[][..], |it| &it.exempt_from);
    let exempt = exempt.iter().map(|check| exempted(check)).collect();
    let authorized = |auth: &ExternalAuth| {
        if let Some(AuthProtocol::Oidc(_)) = auth.protocol {
            return format!("OIDC {}", auth.policy);
        }
        let open = if auth.fail_open { ", fails open" } else { "" };
        match auth.policy.as_str() {
            "" => format!("ExternalAuth {}", auth.backend),
            policy => format!("ExternalAuth {policy} ({}{open})", auth.backend),
        }
    };
    let before = host.external_auth.iter().map(authorized);
    let after = route.external_auth.iter().map(authorized);
    let checks = certificate(listener)
        .into_iter()
        .chain(before)
        .chain(own)
        .chain(after);
    (checks.collect(), exempt)
}

/// `check` is `AccessPolicy/namespace/name/part`.
fn exempted(check: &str) -> String {
    if let Some((policy, part)) = CredentialSet::checks(check).next() {
        return format!("{} {policy}", part.label());
    }
    let (policy, part) = check.rsplit_once('/').unwrap_or((check, ""));
    let name = match part {
        "ipFilter" => "IPFilter",
        "csrf" => "CSRF",
        "oidc" => "OIDC",
        "jwt" => "JWT",
        "authorization" => "Authorization",
        _ => "ExternalAuth",
    };
    format!("{name} {policy}")
}

fn of_filters(filters: &RequestFilters) -> Vec<String> {
    let addresses = filters.address_filters.iter();
    let addresses = addresses.map(|it| format!("IPFilter {}", object(&it.name)));
    let csrf = filters.csrf.iter();
    let csrf = csrf.map(|it| format!("CSRF {}", object(&it.name)));
    let tokens = filters.tokens.iter();
    let tokens = tokens.map(|name| format!("JWT {}", TokenPolicy::policy(name)));
    let credentials = CredentialSet::checks(&filters.credentials);
    let credentials = credentials.map(|(policy, part)| format!("{} {policy}", part.label()));
    let rules = filters.authorizations.iter();
    let rules = rules.map(|it| format!("Authorization {}", object(&it.name)));
    let identities = addresses.chain(csrf).chain(credentials).chain(tokens);
    identities.chain(rules).collect()
}

fn object(name: &str) -> String {
    name.split('/').take(3).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::{
        AddressFilter, Authorization, Csrf, Forward, RouteTable, TlsTermination, WeightedBackend,
    };

    use super::*;

    fn filters(address: &str, rules: Option<&str>) -> RequestFilters {
        let authorizations = rules.map(|name| Authorization {
            name: name.to_owned(),
            ..Authorization::default()
        });
        RequestFilters {
            address_filters: vec![AddressFilter {
                name: address.to_owned(),
                ..AddressFilter::default()
            }],
            authorizations: authorizations.into_iter().collect(),
            csrf: vec![Csrf {
                name: "AccessPolicy/infra/origins".to_owned(),
                ..Csrf::default()
            }],
            ..RequestFilters::default()
        }
    }

    fn route(name: &str, filters: Option<RequestFilters>) -> Route {
        Route {
            name: format!("HTTPRoute/shop/{name}/rules/0/matches/0"),
            action: Some(Action::Forward(Forward::default())),
            filters: filters.map(Box::new),
            ..Route::default()
        }
    }

    #[test]
    fn checks_and_exemptions_are_listed_by_rule() {
        let gateway_filters = filters(
            "AccessPolicy/infra/office",
            Some("AccessPolicy/infra/staff"),
        );
        let exempt = RequestFilters {
            csrf: Vec::new(),
            exempt_from: ["origins/csrf", "staff/authorization"]
                .map(|it| format!("AccessPolicy/infra/{it}"))
                .into(),
            ..filters("AccessPolicy/infra/office", None)
        };
        let tls = TlsTermination {
            client_trust_bundle: "ConfigMap/infra/ca".to_owned(),
            ..TlsTermination::default()
        };
        let port = |port, tls| Port {
            port,
            listeners: vec![Listener {
                route_table: "all".to_owned(),
                tls,
                ..Listener::default()
            }],
            ..Port::default()
        };
        let snapshot = Snapshot {
            gateway: "Gateway/infra/edge".to_owned(),
            ports: vec![port(80, None), port(8443, Some(tls))],
            route_tables: vec![RouteTable {
                name: "all".to_owned(),
                virtual_hosts: vec![VirtualHost {
                    domain: "a.test".to_owned(),
                    routes: vec![route("cart", None), route("health", Some(exempt))],
                    ..VirtualHost::default()
                }],
            }],
            filters: Some(Box::new(gateway_filters)),
            ..Snapshot::default()
        };
        let found: Vec<String> = access_of_rules(&snapshot)
            .iter()
            .map(|it| {
                let lists = [&it.hosts, &it.checks, &it.exempt_from].map(|it| it.join(","));
                format!("{} {} {}", it.gateway, it.rule, lists.join(" | "))
            })
            .collect();
        let (office, staff) = (
            "IPFilter AccessPolicy/infra/office",
            "Authorization AccessPolicy/infra/staff",
        );
        let origins = "CSRF AccessPolicy/infra/origins";
        let certificate = "ClientCertificate ConfigMap/infra/ca";
        let (cart, health) = (
            "HTTPRoute/shop/cart/rules/0",
            "HTTPRoute/shop/health/rules/0",
        );
        assert_eq!(
            found,
            [
                format!(
                    "infra/edge {cart} https://a.test:8443 | {certificate},{office},{origins},{staff} | "
                ),
                format!("infra/edge {cart} http://a.test | {office},{origins},{staff} | "),
                format!(
                    "infra/edge {health} https://a.test:8443 | {certificate},{office} | {origins},{staff}"
                ),
                format!("infra/edge {health} http://a.test | {office} | {origins},{staff}"),
            ]
        );
    }

    #[test]
    fn layer_4_routes_are_listed_with_address_filters() {
        let route = L4Route {
            name: "TCPRoute/shop/db/rules/0".to_owned(),
            backends: vec![WeightedBackend::default()],
            address_filters: vec![AddressFilter {
                name: "AccessPolicy/infra/office".to_owned(),
                ..AddressFilter::default()
            }],
            exempt_from: vec!["AccessPolicy/infra/all/ipFilter".to_owned()],
            ..L4Route::default()
        };
        let port = |port, protocol: Protocol, route| Port {
            port,
            listeners: vec![Listener {
                protocol: protocol.into(),
                l4_routes: vec![route],
                ..Listener::default()
            }],
            ..Port::default()
        };
        let refused = L4Route {
            backends: Vec::new(),
            ..route.clone()
        };
        let by_name = L4Route {
            hostnames: vec!["a.test".to_owned()],
            ..route.clone()
        };
        let snapshot = Snapshot {
            gateway: "Gateway/infra/edge".to_owned(),
            ports: vec![
                port(443, Protocol::Tls, by_name),
                port(5432, Protocol::RawTcp, route),
                port(5433, Protocol::RawTcp, refused),
            ],
            ..Snapshot::default()
        };
        let [rule] = <[RuleAccess; 1]>::try_from(access_of_rules(&snapshot)).unwrap();
        assert_eq!(rule.hosts, ["tcp://*:5432", "tls://a.test:443"]);
        assert_eq!(rule.checks, ["IPFilter AccessPolicy/infra/office"]);
        assert_eq!(rule.exempt_from, ["IPFilter AccessPolicy/infra/all"]);
    }
}
