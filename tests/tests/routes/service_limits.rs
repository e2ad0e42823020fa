//! Rate limits that a service decides, on a real Envoy.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sesame_kit::wait::{eventually, holds};
use sesame_tests::agent::Setup;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::limiting::{Descriptor, Limiting};
use sesame_tests::manifests::{
    edge, edge_with_parameters, http_listener, http_proxy, ingress_class, plain_route, route,
    rule_to, served, traffic_policy, yaml,
};
use sesame_tests::ports::free_port;

use crate::access_tokens::{gateway_target, route_target};

const DOMAIN: &str = "shop";

fn limit(name: &str, service: &str, more: &Value) -> Value {
    let mut limit = json!({"name": name, "scope": "Service",
        "service": {"backendRef": {"name": service, "port": 80}, "domain": DOMAIN}});
    for (field, value) in more.as_object().into_iter().flatten() {
        match field.as_str() {
            "domain" | "failOpen" => limit["service"][field] = value.clone(),
            "namespace" => limit["service"]["backendRef"][field] = value.clone(),
            _ => limit[field] = value.clone(),
        }
    }
    limit
}

fn limits(limits: &[Value]) -> Value {
    json!({ "rateLimits": limits })
}

fn objects() -> Vec<Value> {
    let none = json!({});
    let keys = json!({"headers": "DraftVersion03", "keys": [
        {"type": "ClientAddress"},
        {"type": "Header", "name": "X-User"},
        {"type": "Cookie", "name": "session"},
        {"type": "QueryParameter", "name": "tenant"},
    ]});
    let method = json!({"keys": [{"type": "Path"}, {"type": "Method"}]});
    let report = json!({"mode": "Report"});
    let open = json!({"failOpen": true});
    let local = json!({"name": "local", "requests": 1, "per": "Hour"});
    let hour = json!({"name": "own", "requests": 100, "per": "Hour"});
    [
        ("keyed", limits(&[limit("user", "limits", &keys)])),
        ("methods", limits(&[limit("method", "limits", &method)])),
        ("all", limits(&[hour, limit("all", "limits", &none)])),
        ("reported", limits(&[limit("all", "limits", &report)])),
        ("local", limits(&[local, limit("all", "limits", &report)])),
        ("closed", limits(&[limit("all", "closed", &none)])),
        ("open", limits(&[limit("all", "closed", &open)])),
        ("missing", limits(&[limit("all", "missing", &none)])),
        ("absent", limits(&[limit("all", "missing", &open)])),
        (
            "elsewhere",
            limits(&[limit("all", "limits", &json!({"namespace": "elsewhere"}))]),
        ),
        (
            "several",
            limits(&[
                limit("all", "limits", &none),
                limit("other", "limits", &json!({"domain": "other"})),
            ]),
        ),
    ]
    .into_iter()
    .flat_map(|(name, spec)| {
        [
            plain_route(name, &format!("{name}.test"), "a"),
            traffic_policy(name, route_target(name), &spec),
        ]
    })
    .chain([
        plain_route("unlimited", "unlimited.test", "a"),
        route("GRPCRoute", "calls", &["calls.test"], &[rule_to("a", &[])]),
    ])
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_decide_and_failures_reject_requests() {
    let service = Limiting::start(2).await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(served("limits", &[service.address()]));
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    all.extend(served("closed", &[closed]));
    all.extend(objects());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "unlimited.test", "/")).await;
    let mut checks = Checks::default();
    for (host, path, expected) in [
        ("keyed.test", "/", [200, 200, 429, 429]),
        ("keyed.test", "/?tenant=a", [200, 200, 429, 429]),
        ("methods.test", "/", [200, 200, 429, 429]),
        ("methods.test", "/other", [200, 200, 429, 429]),
        ("all.test", "/", [200, 200, 429, 429]),
        ("reported.test", "/", [200; 4]),
        ("local.test", "/", [200, 429, 429, 429]),
        ("closed.test", "/", [500; 4]),
        ("open.test", "/", [200; 4]),
        ("missing.test", "/", [500; 4]),
        ("absent.test", "/", [200; 4]),
        ("elsewhere.test", "/", [500; 4]),
        ("several.test", "/", [500; 4]),
    ] {
        let found = agent.statuses(host, path, expected.len()).await;
        let at = format_args!("{host}{path}");
        checks.same(at, found.as_slice(), &expected[..]);
    }
    let user = agent.get(80, "keyed.test", "/").header("x-user", "b");
    let user = user.header("cookie", "a=b; session=c");
    if let Some(reply) = checks.reply(&user).await {
        checks.same("another user", reply.status, 200);
        let header = |name| reply.header(name).map(str::to_owned);
        let limit = header("x-ratelimit-limit").unwrap_or_default();
        checks.that(limit.starts_with('2'), format_args!("limit {limit:?}"));
        checks.same(
            "rest",
            header("x-ratelimit-remaining").as_deref(),
            Some("1"),
        );
        checks.same("source", header("x-envoy-ratelimited"), None);
    }
    let unknown = agent.get(80, "methods.test", "/").method("PROPFIND");
    checks.status(unknown, 200).await;
    let seen = service.descriptors();
    let is_seen = |entries: &[(&str, &str)]| seen.contains(&Descriptor::new(DOMAIN, entries));
    for entries in [
        &[
            ("limit", "default/keyed/user"),
            ("remote_address", "127.0.0.1"),
            ("header:x-user", "=b"),
            ("cookie:session", "=c"),
            ("query_parameter:tenant", "="),
        ][..],
        &[
            ("limit", "default/methods/method"),
            ("path", "=/other"),
            ("method", "=GET"),
        ],
        &[
            ("limit", "default/methods/method"),
            ("path", "=/"),
            ("method", "?"),
        ],
        &[("limit", "default/all/all")],
    ] {
        checks.that(is_seen(entries), format_args!("{entries:?} in {seen:#?}"));
    }
    checks.finish();
    // The service learns of a reported request only after its response.
    for (name, expected) in [("reported", 4), ("local", 1)] {
        let value = format!("default/{name}/all");
        let reported = Descriptor::new(DOMAIN, &[("limit", &value)]);
        eventually("reports", Duration::from_secs(20), async || {
            let count = service.count(&reported);
            holds(count == expected, || format!("{count} requests of {name}"))
        })
        .await;
    }
}

/// The Gateway's limit also applies to the other route.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_limit_by_service_holds_while_policies_change() {
    const ALLOWED: u32 = 20;
    let service = Limiting::start(ALLOWED).await;
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(served("limits", &[service.address()]));
    all.push(plain_route("shop", "shop.test", "a"));
    let edge = limits(&[limit("all", "limits", &json!({}))]);
    all.push(traffic_policy("edge", gateway_target(), &edge));
    let tuned = |number: usize| {
        let timeouts = json!({"timeouts": {"request": format!("{}s", number + 10)}});
        let others = [limit("more", "limits", &json!({"timeout": "2s"}))];
        let spec = if number.is_multiple_of(2) {
            timeouts
        } else {
            limits(&others)
        };
        let path = format!("/{number}");
        let rule = rule_to("a", &[sesame_tests::manifests::path("PathPrefix", &path)]);
        let other = sesame_tests::manifests::http_route("other", &["other.test"], &[rule]);
        yaml(&[traffic_policy("tuned", route_target("shop"), &spec), other])
    };
    let setup = Setup::with_ports(&[80]);
    let agent = setup.start(&[("all.yaml", &yaml(&all)), ("tuned.yaml", &tuned(0))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/")).await;
    for number in 1..=10 {
        agent.write("tuned.yaml", &tuned(number));
        let path = format!("/{number}");
        let other = agent.get(80, "other.test", &path);
        agent
            .wait_served(&other, |reply| matches!(reply.status, 200 | 429))
            .await;
    }
    let mut checks = Checks::default();
    let rest = agent.statuses("shop.test", "/", ALLOWED as usize + 1).await;
    checks.same("over the limit", rest.last(), Some(&429));
    let total = service.count(&Descriptor::new(DOMAIN, &[("limit", "default/edge/all")]));
    let allowed = rest.iter().filter(|status| **status == 200).count();
    checks.that(
        allowed < ALLOWED as usize,
        format_args!("{allowed} of {total} requests pass"),
    );
    drop(service);
    let after = agent.statuses("shop.test", "/", 2).await;
    checks.same("without the service", after.as_slice(), &[500, 500][..]);
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_send_descriptors_to_the_service() {
    let service = Limiting::start(2).await;
    let settings = json!({"ingress": {"rateLimitService": {
        "extensionService": {"namespace": "default", "name": "limits"}, "domain": DOMAIN}}});
    let mut all = edge_with_parameters(&settings);
    let _backends = start_served(&["a"], &mut all).await;
    all.extend(served("limits", &[service.address()]));
    all.push(
        json!({"apiVersion": "projectcontour.io/v1alpha1", "kind": "ExtensionService",
        "metadata": {"name": "limits", "namespace": "default"},
        "spec": {"services": [{"name": "limits", "port": 80}], "protocol": "h2c"}}),
    );
    let global = |entries: Value| json!({"global": {"descriptors": [{"entries": entries}]}});
    let to = json!([{"name": "a", "port": 80}]);
    let at = |prefix: &str, policy: Value| json!({"conditions": [{"prefix": prefix}], "services": to, "rateLimitPolicy": policy});
    let user = json!({"requestHeader": {"headerName": "X-User", "descriptorKey": "user"}});
    let unpaid = json!({"requestHeaderValueMatch": {"value": "unpaid", "expectMatch": false,
        "headers": [{"name": "x-plan", "exact": "paid"}]}});
    let regex = json!({"requestHeaderValueMatch": {"value": "v",
        "headers": [{"name": "x-plan", "regex": "a"}]}});
    let spec = json!({
        "virtualhost": {"fqdn": "shop.test",
            "rateLimitPolicy": global(json!([{"genericKey": {"value": "shop"}}]))},
        "routes": [
            {"services": to},
            at("/users", global(json!([user]))),
            at("/plans", global(json!([{"remoteAddress": {}}, unpaid]))),
            at("/free", json!({"global": {"disabled": true}})),
            at("/wrong", global(json!([regex]))),
        ],
    });
    all.extend([ingress_class(), http_proxy("shop", &spec)]);
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/free")).await;
    let mut checks = Checks::default();
    for (path, expected) in [
        ("/", [200, 200, 429]),
        // The descriptor needs the header.
        ("/users", [200, 200, 200]),
        ("/plans", [200, 200, 429]),
        ("/free", [200, 200, 200]),
        ("/wrong", [500, 500, 500]),
    ] {
        let found = agent.statuses("shop.test", path, expected.len()).await;
        checks.same(path, found.as_slice(), &expected[..]);
    }
    let user = agent.get(80, "shop.test", "/users").header("x-user", "b");
    for expected in [200, 200, 429] {
        checks.status(user.clone(), expected).await;
    }
    let paid = agent
        .get(80, "shop.test", "/plans")
        .header("x-plan", "paid");
    checks.status(paid, 200).await;
    let expected = [
        Descriptor::new(DOMAIN, &[("generic_key", "shop")]),
        Descriptor::new(
            DOMAIN,
            &[("remote_address", "127.0.0.1"), ("header_match", "unpaid")],
        ),
        Descriptor::new(DOMAIN, &[("user", "b")]),
    ];
    checks.same("descriptors", service.descriptors().as_slice(), &expected);
    checks.finish();
}
