//! Policies on `HTTPProxy` routes, with a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::manifests::{edge, http_listener, http_proxy, ingress_class, yaml};

async fn serve(spec: &Value) -> (AgentUnderTest, Vec<Backend>) {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a", "b"], &mut all).await;
    all.push(ingress_class());
    let mut spec = spec.clone();
    spec["virtualhost"]["fqdn"] = json!("shop.test");
    all.push(http_proxy("shop", &spec));
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    agent.wait_ok(&agent.get(80, "shop.test", "/")).await;
    (agent, backends)
}

fn to(service: &str) -> Value {
    json!([{"name": service, "port": 80}])
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_response_has_its_body() {
    let body = "100% gone\n".repeat(400);
    let (agent, _backends) = serve(&json!({"routes": [
        {"services": to("a")},
        {"conditions": [{"prefix": "/gone"}], "directResponsePolicy": {"statusCode": 410, "body": body}},
        {"conditions": [{"prefix": "/long"}],
            "directResponsePolicy": {"statusCode": 200, "body": "x".repeat(4097)}},
    ]}))
    .await;
    let mut checks = Checks::default();
    let reply = checks.reply(&agent.get(80, "shop.test", "/gone")).await;
    let seen = reply.map(|reply| (reply.status, reply.body));
    checks.same("an answer", seen, Some((410, body.into())));
    checks
        .status(agent.get(80, "shop.test", "/long"), 500)
        .await;
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn header_values_come_from_requests_and_services() {
    let set = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut services = to("b");
    services[0]["requestHeadersPolicy"] = json!({"set": [
        set("x-service", "%CONTOUR_SERVICE_NAME%.%CONTOUR_NAMESPACE%:%CONTOUR_SERVICE_PORT%"),
        set("x-where", "service")]});
    services[0]["responseHeadersPolicy"] = json!({"set": [set("x-where", "service")]});
    let (agent, _backends) = serve(&json!({"routes": [
        {"services": to("a"),
            "requestHeadersPolicy": {"set": [set("x-both", "%REQ(x-in)%, 100% %PROTOCOL%"),
                set("x-subject", "%DOWNSTREAM_PEER_SUBJECT%"), set("x-unknown", "%UNKNOWN%"),
                set("Host", "%REQ(x-host)%")], "remove": ["x-in"]},
            "responseHeadersPolicy": {"set": [set("x-flags", "%RESPONSE_CODE_DETAILS%")]}},
        {"conditions": [{"prefix": "/service"}], "services": services,
            "requestHeadersPolicy": {"set": [set("x-where", "route"), set("x-route", "route")]},
            "responseHeadersPolicy": {"set": [set("x-where", "route")]}},
    ]}))
    .await;
    let mut checks = Checks::default();
    let get = |path: &str| agent.get(80, "shop.test", path);
    let given = [
        ("x-in", "i"),
        ("x-subject", "CN=admin"),
        ("x-host", "other.test"),
    ];
    let request = given.iter().fold(get("/"), |request, (name, value)| {
        request.header(name, value)
    });
    for (request, host) in [(request, "other.test"), (get("/"), "shop.test")] {
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        let echo = reply.echo();
        // Headers are removed first, and then set.
        checks.same("both", &echo.value("x-both"), &Some(", 100% HTTP/1.1"));
        checks.same("claimed subject", &echo.value("x-subject"), &None);
        checks.same(
            "unknown variable",
            &echo.value("x-unknown"),
            &Some("%UNKNOWN%"),
        );
        checks.same("host", &echo.host.as_str(), &host);
        checks.same("details", &reply.header("x-flags"), &Some("via_upstream"));
    }
    if let Some(reply) = checks.reply(&get("/service")).await {
        let echo = reply.echo();
        // In requests, the Service's value replaces the route's.
        for (name, expected) in [
            ("x-service", "b.default:80"),
            ("x-where", "service"),
            ("x-route", "route"),
        ] {
            checks.same(name, echo.values(name).join("|").as_str(), expected);
        }
        // As with Contour, Envoy sets the route's response headers last.
        checks.same("response", reply.header("x-where"), Some("route"));
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn cors_policy_answers_preflights_of_all_routes() {
    let policy = json!({"allowOrigin": ["https://a.test", "https://(b|c)[.]test"], "allowCredentials": true,
        "allowMethods": ["PUT"], "allowHeaders": ["x-ask"], "exposeHeaders": ["x-tell"], "maxAge": "0",
        "allowPrivateNetwork": true});
    let (agent, backends) = serve(&json!({"virtualhost": {"corsPolicy": policy}, "routes": [
        {"conditions": [{"exact": "/"}], "services": to("a")},
        {"conditions": [{"prefix": "/h"}, {"header": {"name": "x-in", "exact": "1"}}], "services": to("b")},
        {"conditions": [{"prefix": "/moved"}], "requestRedirectPolicy": {"path": "/"}},
    ]}))
    .await;
    let before: u64 = backends.iter().map(Backend::count).sum();
    let mut checks = Checks::default();
    for (path, origin, allowed) in [
        ("/", "https://a.test", true),
        ("/", "https://b.test", true),
        ("/", "https://d.test", false),
        ("/h", "https://c.test", true),
        ("/moved", "https://a.test", true),
    ] {
        let request = agent
            .get(80, "shop.test", path)
            .method("OPTIONS")
            .header("origin", origin);
        let request = request.header("access-control-request-method", "PUT");
        let request = request.header("access-control-request-private-network", "true");
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.same(&request, &reply.status, &200);
        let seen = reply.header("access-control-allow-origin");
        checks.same(&request, seen, allowed.then_some(origin));
        // Browsers require the response to echo the origin.
        let others = [
            ("allow-credentials", "true"),
            ("allow-methods", "PUT"),
            ("allow-headers", "x-ask"),
            ("allow-private-network", "true"),
            ("max-age", "0"),
        ];
        for (header, expected) in others {
            let seen = reply.header(&format!("access-control-{header}"));
            checks.same(format!("{header} of {request}"), seen, Some(expected));
        }
    }
    let after: u64 = backends.iter().map(Backend::count).sum();
    checks.same("requests that reached backends", &after, &before);
    for (path, origin, expected) in [
        ("/", "https://b.test", Some("https://b.test")),
        ("/", "https://d.test", None),
        ("/moved", "https://a.test", Some("https://a.test")),
    ] {
        let request = agent.get(80, "shop.test", path).header("origin", origin);
        let reply = checks.reply(&request).await;
        let seen = reply
            .as_ref()
            .and_then(|it| it.header("access-control-allow-origin"));
        checks.same(&request, &seen, &expected);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_follow_conditions() {
    let retrying = |path: &str, policy: Value| json!({"conditions": [{"prefix": path}], "services": to("a"), "retryPolicy": policy});
    let (agent, backends) = serve(&json!({"routes": [
        {"services": to("a")},
        retrying("/5", json!({"count": 2})),
        retrying("/4", json!({"retryOn": ["retriable-4xx"], "count": 0})),
        retrying("/own", json!({"retryOn": ["retriable-status-codes"], "retriableStatusCodes": [404], "count": 3})),
        retrying("/none", json!({"count": -1})),
    ]}))
    .await;
    let mut checks = Checks::default();
    let seen = || backends.iter().map(Backend::count).sum::<u64>();
    for (path, status, tries) in [
        ("/5", 500, 3),
        ("/5", 404, 1),
        ("/4", 409, 2),
        ("/4", 500, 1),
        ("/own", 404, 4),
        ("/own", 503, 1),
        ("/none", 503, 1),
        ("/", 503, 1),
    ] {
        let before = seen();
        let path = format!("{}/status/{status}", path.trim_end_matches('/'));
        let request = agent.get(80, "shop.test", &path);
        checks.status(request.clone(), status).await;
        checks.same(format!("tries of {request}"), seen() - before, tries);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_timeout_cuts_silent_streams() {
    let idle = |path: &str, idle: &str| {
        json!({"conditions": [{"prefix": path}], "services": to("a"),
            "timeoutPolicy": {"response": "infinity", "idle": idle}})
    };
    let (agent, _backends) = serve(&json!({"routes": [
        {"services": to("a")},
        idle("/short", "300ms"),
        idle("/never", "infinity"),
    ]}))
    .await;
    let mut checks = Checks::default();
    for (path, expected) in [("/short", 504), ("/never", 200)] {
        let request = agent.get(80, "shop.test", &format!("{path}/delay/1500ms"));
        checks.status(request, expected).await;
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_of_backends_are_followed() {
    let following = |path: &str, policy: Value| json!({"conditions": [{"prefix": path}], "services": to("a"), "internalRedirectPolicy": policy});
    // The backend redirects all requests to the same path.
    let repeating = |path: &str, denies: bool| {
        let to_itself = format!("/status/302/location{path}");
        let policy = json!({"maxInternalRedirects": 4, "denyRepeatedRouteRedirect": denies});
        let mut route = following(path, policy);
        route["pathRewritePolicy"] = json!({"replacePrefix": [{"replacement": to_itself}]});
        route
    };
    let (agent, backends) = serve(&json!({"routes": [
        {"services": to("b")},
        following("/once", json!({})),
        following("/own", json!({"redirectResponseCodes": [307], "maxInternalRedirects": 2})),
        repeating("/repeated", false),
        repeating("/denied", true),
    ]}))
    .await;
    let mut checks = Checks::default();
    let get = |path: &str| agent.get(80, "shop.test", path);
    for path in ["/once/status/302/location/x", "/own/status/307/location/x"] {
        checks.backend(get(path), "b").await;
    }
    let seen = || backends.iter().map(Backend::count).sum::<u64>();
    for (path, expected, requests) in [
        ("/status/302/location/once", 302, 1),
        ("/once/status/301/location/x", 301, 1),
        ("/own/status/302/location/x", 302, 1),
        ("/repeated", 302, 5),
        ("/denied", 302, 2),
    ] {
        let before = seen();
        checks.status(get(path), expected).await;
        checks.same(format!("requests for {path}"), seen() - before, requests);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_rewritten_and_redirected() {
    let replaced = |conditions: Value, service: &str, to_path: &str| {
        json!({"conditions": conditions, "services": to(service),
            "pathRewritePolicy": {"replacePrefix": [{"replacement": to_path}]}})
    };
    let moved = |path: &str, policy: Value| json!({"conditions": [{"prefix": path}], "requestRedirectPolicy": policy});
    let only = json!([{"prefix": "/same"}, {"header": {"name": "x-in", "exact": "1"}}]);
    let (agent, _backends) = serve(&json!({"routes": [
        replaced(json!([{"prefix": "/"}]), "a", "/to"),
        replaced(only, "b", "/"),
        replaced(json!([{"prefix": "/same"}]), "a", "/"),
        moved("/host", json!({"hostname": "new.test"})),
        moved("/all", json!({"scheme": "https", "hostname": "new.test", "port": 8443, "statusCode": 307, "path": "/p"})),
        moved("/prefix", json!({"prefix": "/q", "statusCode": 301})),
    ]}))
    .await;
    let mut checks = Checks::default();
    let get = |path: &str| agent.get(80, "shop.test", path);
    for (request, backend, path) in [
        (get("/"), "a", "/to/"),
        (get("/bar?x=1"), "a", "/to/bar?x=1"),
        (get("/same"), "a", "/"),
        (get("/same/x"), "a", "/x"),
        (get("/same").header("x-in", "1"), "b", "/"),
        (get("/same/x").header("x-in", "1"), "b", "/x"),
    ] {
        if let Some(reply) = checks.reply(&request).await {
            let echo = reply.echo();
            let seen = (echo.backend.as_str(), echo.path.as_str());
            checks.same(&request, seen, (backend, path));
        }
    }
    for (path, status, location) in [
        ("/host/x?y=1", 302, "http://new.test/host/x?y=1"),
        ("/all/x", 307, "https://new.test:8443/p"),
        ("/prefix/x", 301, "http://shop.test/q/x"),
    ] {
        let request = get(path);
        if let Some(reply) = checks.reply(&request).await {
            let seen = (reply.status, reply.header("location"));
            checks.same(&request, seen, (status, Some(location)));
        }
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_across_schemes_follow_policy() {
    let authority = Authority::new("servers");
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a", "b"], &mut all).await;
    all.push(ingress_class());
    all.push(authority.issue(&["shop.test"]).secret("pair"));
    let following = |path: &str, policy: Value| json!({"conditions": [{"prefix": path}], "services": to("a"), "internalRedirectPolicy": policy});
    let across = |word: &str| json!({"allowCrossSchemeRedirect": word});
    let host = json!({"fqdn": "shop.test", "tls": {"secretName": "pair"}});
    let routes = json!([
        {"services": to("b")},
        following("/default", json!({})),
        following("/never", across("Never")),
        following("/always", across("Always")),
        following("/safe", across("SafeOnly")),
    ]);
    all.push(http_proxy(
        "shop",
        &json!({"virtualhost": host, "routes": routes}),
    ));
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let get = |path: &str| {
        let request = agent.get(443, "shop.test", path);
        request.tls("shop.test", &authority.trust())
    };
    agent.wait_backend(&get("/"), "b").await;
    let mut checks = Checks::default();
    // The backend redirects from https to http.
    for path in ["/default", "/never"] {
        let path = format!("{path}/status/302/location/x");
        checks.status(get(&path), 302).await;
    }
    for path in ["/always", "/safe"] {
        let path = format!("{path}/status/302/location/x");
        checks.backend(get(&path), "b").await;
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_redirects_never_leave_plain_http() {
    let following = |path: &str, word: &str| json!({"conditions": [{"prefix": path}], "services": to("a"), "internalRedirectPolicy": {"allowCrossSchemeRedirect": word}});
    let (agent, _backends) = serve(&json!({"routes": [
        {"services": to("b")},
        following("/always", "Always"),
        following("/safe", "SafeOnly"),
        following("/never", "Never"),
    ]}))
    .await;
    let mut checks = Checks::default();
    // The backend redirects from http to https.
    let get = |path: &str| {
        let path = format!("{path}/status/302/secure/location/x");
        agent.get(80, "shop.test", &path)
    };
    checks.backend(get("/always"), "b").await;
    for path in ["/safe", "/never"] {
        let reply = checks.reply(&get(path)).await;
        let seen = reply.map(|reply| (reply.status, reply.header("location").map(str::to_owned)));
        let location = "https://shop.test/x".to_owned();
        checks.same(path, seen, Some((302, Some(location))));
    }
    checks.finish();
}
