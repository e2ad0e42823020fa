//! Random Gateways and routes. Each rule sets the header [`MARKER`] to its own name.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::world::World;
use sesame_proto::schema::Snapshot;
use sesame_resolver::{Options, resolve};
use sesame_tests::certs::Leaf;
use sesame_tests::manifests::{GATEWAY, on_listener, path, route, served, service, yaml};
use sesame_tests::seeded::Moments;

use super::gateways::{GatewayCount, LISTENERS, SECOND, any_settings, gateways, pods};

pub(crate) const MARKER: &str = "x-rule";
pub(crate) const READY: &str = "/ready-check";

pub(crate) const HOSTS: [&str; 6] = [
    "a.w.test",
    "b.w.test",
    "s.w.test",
    "x.a.w.test",
    "ready.w.test",
    "other.test",
];
const HOSTNAMES: [&str; 7] = [
    "a.w.test",
    "b.w.test",
    "s.w.test",
    "x.a.w.test",
    "*.w.test",
    "*.a.w.test",
    "*.test",
];
const EXACT: [&str; 7] = ["/", "/a", "/a/b", "/A", "/c.d", "/%7Ea", "/caf%C3%A9"];
const PREFIXES: [&str; 9] = [
    "/", "/a", "/a/", "/a/b", "/b", "/a.b", "/A", "/a%2Db", "/%c3%A9",
];
const EXPRESSIONS: [&str; 6] = [
    "/a/[a-z]+",
    "/a.*",
    "/(a|b)",
    "/.*\\.png",
    "(?i)/A/b",
    "/a/?",
];
const VALUES: [&str; 3] = ["1", "2", "one"];
pub(crate) const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "OPTIONS"];

pub(crate) struct GeneratedWorld {
    number: usize,
    objects: Vec<Value>,
}

pub(crate) fn one<'p>(moments: &mut Moments, of: &[&'p str]) -> &'p str {
    of[index(moments, of.len())]
}

pub(crate) fn index(moments: &mut Moments, bound: usize) -> usize {
    usize::try_from(moments.below(bound as u64)).expect("fits into usize")
}

/// The probability is 1 / `times`.
pub(crate) fn rarely(moments: &mut Moments, times: u64) -> bool {
    moments.below(times) == 0
}

impl GeneratedWorld {
    pub(crate) fn new(
        number: usize,
        count: GatewayCount,
        moments: &mut Moments,
        backend: SocketAddr,
        leaf: &Leaf,
    ) -> Self {
        let mut objects = gateways(count, &any_settings(moments));
        objects.push(leaf.secret("certificate"));
        objects.extend(served("shop", &[backend]));
        objects.push(service("empty", ""));
        objects.extend(pods(backend));
        let marker = format!("ready/{number}");
        let mut ready = route(
            "HTTPRoute",
            "ready",
            &["ready.w.test", "a.w.test", "s.w.test"],
            &[
                json!({"matches": [path("Exact", READY)], "filters": [marked(&marker)],
                "backendRefs": [{"name": "shop", "port": 80}]}),
            ],
        );
        if count == GatewayCount::Merged {
            ready["spec"]["parentRefs"] = json!([{"name": GATEWAY}, {"name": SECOND}]);
        }
        objects.push(ready);
        for at in 0..3 + index(moments, 9) {
            let name = format!("r{at}");
            let kind = if rarely(moments, 6) {
                "GRPCRoute"
            } else {
                "HTTPRoute"
            };
            objects.push(any_route(&name, kind, count, moments));
        }
        Self { number, objects }
    }

    pub(crate) fn yaml(&self) -> String {
        yaml(&self.objects)
    }

    pub(crate) fn marker(&self) -> String {
        format!("ready/{}", self.number)
    }
}

pub(crate) fn resolved(yaml: &str) -> Snapshot {
    let mut world = World::default();
    for document in decode::split(yaml) {
        for decoded in decode::decode(document.text, &DecodeLimits::default()) {
            world.insert(decoded.expect("generated objects are valid").object);
        }
    }
    let options = Options {
        allow_local_endpoints: true,
        ..Options::default()
    };
    super::only(resolve(&world, &options).gateways)
}

fn any_route(name: &str, kind: &str, count: GatewayCount, moments: &mut Moments) -> Value {
    let hostnames: Vec<&str> = (0..index(moments, 3))
        .map(|_| one(moments, &HOSTNAMES))
        .collect();
    let mut hostnames = hostnames;
    hostnames.sort_unstable();
    hostnames.dedup();
    let rules: Vec<Value> = (0..=index(moments, 3))
        .map(|rule| any_rule(&format!("{name}/{rule}"), kind == "GRPCRoute", moments))
        .collect();
    let mut made = route(kind, name, &hostnames, &rules);
    let year = 2020 + index(moments, 3);
    made["metadata"]["creationTimestamp"] = json!(format!("{year}-01-01T00:00:00Z"));
    let (listener, of_second) = LISTENERS[index(moments, LISTENERS.len())];
    let on_one = rarely(moments, 3);
    if on_one {
        made = on_listener(made, listener);
    }
    if count == GatewayCount::Merged {
        let parents = &mut made["spec"]["parentRefs"];
        match (on_one, moments.below(6)) {
            (true, _) if of_second => parents[0]["name"] = json!(SECOND),
            (false, 0) => *parents = json!([{"name": SECOND}]),
            (false, 1..5) => *parents = json!([{"name": GATEWAY}, {"name": SECOND}]),
            _ => {}
        }
    }
    made
}

fn marked(marker: &str) -> Value {
    json!({"type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": MARKER, "value": marker}]}})
}

fn any_rule(marker: &str, grpc: bool, moments: &mut Moments) -> Value {
    let matches: Vec<Value> = (0..=index(moments, 2))
        .map(|_| {
            if grpc {
                grpc_match(moments)
            } else {
                http_match(moments)
            }
        })
        .collect();
    let mut filters = vec![marked(marker)];
    let pods = json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "pods"});
    let backend = match moments.below(14) {
        0 => json!([{"name": "nothing", "port": 80}]),
        1 => json!([{"name": "shop", "port": 80}, {"name": "shop", "port": 80, "weight": 0}]),
        2 => json!([{"name": "empty", "port": 80}]),
        3 => json!([pods]),
        4 => json!([{"name": "shop", "port": 80, "weight": 3}, pods]),
        5 => json!([{"name": "shop", "port": 80, "filters": [changed_header("x-two", moments)]}]),
        _ => json!([{"name": "shop", "port": 80}]),
    };
    // Changed headers and mirroring must not affect the response.
    if rarely(moments, 5) {
        filters.push(changed_header("x-one", moments));
    }
    if rarely(moments, 5) {
        filters.push(json!({"type": "RequestMirror",
            "requestMirror": {"backendRef": {"name": "shop", "port": 80}}}));
    }
    if grpc {
        return json!({"matches": matches, "filters": filters, "backendRefs": backend});
    }
    if rarely(moments, 5) {
        filters.push(json!({"type": "CORS", "cors": {
            "allowOrigins": [one(moments, &["https://o.test", "https://*.o.test"])],
            "allowMethods": ["GET", "PUT"]}}));
    }
    match moments.below(8) {
        0 => {
            filters
                .push(json!({"type": "RequestRedirect", "requestRedirect": any_redirect(moments)}));
            return json!({"matches": matches, "filters": filters});
        }
        1 => filters.push(json!({"type": "URLRewrite", "urlRewrite": {
            "hostname": "rewritten.test", "path": any_replacement(moments)}})),
        2 => filters
            .push(json!({"type": "URLRewrite", "urlRewrite": {"path": any_replacement(moments)}})),
        _ => {}
    }
    let mut made = json!({"matches": matches, "filters": filters, "backendRefs": backend});
    if rarely(moments, 4) {
        made["timeouts"] = json!({"request": "20s", "backendRequest": "10s"});
    }
    if rarely(moments, 4) {
        made["retry"] = json!({"codes": [500, 503], "attempts": 2, "backoff": "1ms"});
    }
    if rarely(moments, 6) {
        made["sessionPersistence"] = json!({"sessionName": "session"});
    }
    made
}

fn changed_header(name: &str, moments: &mut Moments) -> Value {
    let value = one(moments, &VALUES);
    let how = one(moments, &["set", "add"]);
    json!({"type": "RequestHeaderModifier",
        "requestHeaderModifier": {how: [{"name": name, "value": value}]}})
}

fn any_replacement(moments: &mut Moments) -> Value {
    if rarely(moments, 2) {
        json!({"type": "ReplaceFullPath", "replaceFullPath": one(moments, &["/full", "/f\\1"])})
    } else {
        let to = one(moments, &["/", "", "/new", "/new/"]);
        json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": to})
    }
}

fn any_redirect(moments: &mut Moments) -> Value {
    let mut redirect = json!({"statusCode": 301 + index(moments, 2)});
    if rarely(moments, 3) {
        redirect["scheme"] = json!(one(moments, &["http", "https"]));
    }
    if rarely(moments, 3) {
        redirect["hostname"] = json!("elsewhere.test");
    }
    if rarely(moments, 3) {
        redirect["port"] = json!(8443);
    }
    if rarely(moments, 3) {
        redirect["path"] = any_replacement(moments);
    }
    redirect
}

fn http_match(moments: &mut Moments) -> Value {
    let mut made = match moments.below(10) {
        0..3 => path("Exact", one(moments, &EXACT)),
        3..7 => path("PathPrefix", one(moments, &PREFIXES)),
        7..9 => path("RegularExpression", one(moments, &EXPRESSIONS)),
        _ => json!({}),
    };
    if rarely(moments, 5) {
        made["method"] = json!(one(moments, &METHODS));
    }
    if rarely(moments, 4) {
        made["headers"] = json!([any_value(
            one(
                moments,
                &[
                    "x-one",
                    "X-Two",
                    "host",
                    "x-forwarded-proto",
                    "x-envoy-attempt-count"
                ]
            ),
            moments
        )]);
    }
    if rarely(moments, 4) {
        made["queryParams"] = json!([any_value(one(moments, &["q", "Q"]), moments)]);
    }
    made
}

fn grpc_match(moments: &mut Moments) -> Value {
    match moments.below(4) {
        0 => json!({"method": {"service": "a"}}),
        1 => json!({"method": {"service": "a", "method": "b"}}),
        2 => json!({"method": {"method": "b"}, "headers": [any_value("x-one", moments)]}),
        _ => json!({"headers": [any_value("x-two", moments)]}),
    }
}

fn any_value(name: &str, moments: &mut Moments) -> Value {
    match name {
        "host" => json!({"name": name, "value": one(moments, &HOSTS)}),
        "x-forwarded-proto" => json!({"name": name, "value": one(moments, &["http", "https"])}),
        _ if rarely(moments, 3) => {
            json!({"name": name, "type": "RegularExpression", "value": one(moments, &["[0-9]", "o.*", "1|2", "1,2"])})
        }
        _ => json!({"name": name, "value": one(moments, &VALUES)}),
    }
}
