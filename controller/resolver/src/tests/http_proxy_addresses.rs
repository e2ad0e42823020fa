//! `ipAllowPolicy` and `ipDenyPolicy` in HTTPProxies.

use sesame_proto::schema::AddressFilter;

use super::http_proxies::{NONE, ask, errors, proxy, with};
use super::router::{GET, Request, find};
use crate::Resolution;

fn lists(host_lists: &str, route_lists: &str) -> Resolution {
    let route = format!("{{services: [{{name: a, port: 80}}]{route_lists}}}");
    with(&[proxy(
        "r",
        &format!("virtualhost: {{fqdn: h.test{host_lists}}}\nroutes: [{route}]"),
    )])
}

fn filters(resolution: &Resolution) -> &[AddressFilter] {
    let tables = &resolution.gateways[0].snapshot.route_tables;
    let mut hosts = tables.iter().flat_map(|table| &table.virtual_hosts);
    let host = hosts.find(|host| host.domain == "h.test").expect("a host");
    let filters = host.routes[0].filters.as_deref();
    filters.map_or(&[], |it| it.address_filters.as_slice())
}

const HOST_LISTS: &str =
    ", ipDenyPolicy: [{source: Peer, cidr: 192.0.2.0/24}, {source: Remote, cidr: '2001:db8::1'}]";

#[test]
fn route_replaces_list_of_its_host() {
    let resolution = lists(HOST_LISTS, "");
    assert_eq!(errors(&resolution, "r"), NONE);
    let [filter] = filters(&resolution) else {
        panic!("{:?}", filters(&resolution));
    };
    assert_eq!(filter.name, "HTTPProxy/web/r/ipFilter");
    assert!(filter.allow.is_empty());
    let denied = filter.deny.iter().map(|it| (it.network.as_str(), it.peer));
    let denied: Vec<_> = denied.collect();
    assert_eq!(denied, [("192.0.2.0/24", true), ("2001:db8::1/128", false)]);

    let own = ", ipAllowPolicy: [{source: Remote, cidr: 10.0.0.1}]";
    let resolution = lists(HOST_LISTS, own);
    let [filter] = filters(&resolution) else {
        panic!("{:?}", filters(&resolution));
    };
    assert_eq!(filter.name, "HTTPProxy/web/r/routes/0/ipFilter");
    assert!(filter.deny.is_empty());
    assert_eq!(filter.allow[0].network, "10.0.0.1/32");
}

#[test]
fn list_with_any_fault_refuses_requests() {
    let good = "{source: Peer, cidr: 10.0.0.0/8}";
    for (list, why) in [
        (
            format!(", ipAllowPolicy: [{{source: Peer, cidr: 10.0.0.0/33}}, {good}]"),
            "InvalidCIDR",
        ),
        (
            format!(", ipDenyPolicy: [{good}, {{source: Peer, cidr: x}}]"),
            "InvalidCIDR",
        ),
        (
            ", ipDenyPolicy: [{source: Any, cidr: 10.0.0.0/8}]".to_owned(),
            "InvalidCIDR",
        ),
        (
            format!(", ipAllowPolicy: [{good}], ipDenyPolicy: [{good}]"),
            "IncompatibleIPAddressFilters",
        ),
    ] {
        for resolution in [lists(&list, ""), lists("", &list)] {
            assert_eq!(ask(&resolution, "/"), "500", "{list}");
            let errors = errors(&resolution, "r");
            let found = format!("{errors:?}");
            assert!(
                found.contains("IPFilterError") && found.contains(why),
                "{found}"
            );
        }
    }
}

#[test]
fn included_routes_and_answers_are_filtered() {
    let spec = format!(
        "virtualhost: {{fqdn: h.test{HOST_LISTS}}}\nincludes: [{{name: child, conditions: [{{prefix: /child}}]}}]\n\
         routes:\n- {{conditions: [{{prefix: /away}}], requestRedirectPolicy: {{hostname: o.test}}}}\n\
         - {{conditions: [{{prefix: /gone}}], directResponsePolicy: {{statusCode: 410}}}}"
    );
    let child = "routes:\n- {services: [{name: a, port: 80}]}\n- {conditions: [{prefix: /own}], services: \
                 [{name: a, port: 80}], ipAllowPolicy: [{source: Peer, cidr: 10.0.0.1}]}";
    let resolution = with(&[proxy("r", &spec), proxy("child", child)]);
    for (path, name) in [
        ("/away", "HTTPProxy/web/r/ipFilter"),
        ("/gone", "HTTPProxy/web/r/ipFilter"),
        ("/child/x", "HTTPProxy/web/r/ipFilter"),
        ("/child/own", "HTTPProxy/web/child/routes/1/ipFilter"),
    ] {
        let request = Request {
            host: "h.test",
            path,
            ..GET
        };
        let route = find(&resolution.gateways[0].snapshot, &request).expect("a route");
        let filters = route.filters.as_deref().map(|it| &it.address_filters);
        let names: Vec<&str> = filters
            .into_iter()
            .flatten()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(names, [name], "{path}");
    }
    assert_eq!(errors(&resolution, "child"), NONE);
}
