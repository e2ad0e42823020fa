//! Every `HTTPRoute` filter on a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{backend_ref, edge, http_listener, http_route, path, served, yaml};

/// From the Gateway API specification of `ReplacePrefixMatch`: matched prefix, replacement,
/// request, result.
const PREFIX_TABLE: [(&str, &str, &str, &str); 14] = [
    ("/foo", "/xyz", "/foo/bar", "/xyz/bar"),
    ("/foo", "/xyz/", "/foo/bar", "/xyz/bar"),
    ("/foo/", "/xyz", "/foo/bar", "/xyz/bar"),
    ("/foo/", "/xyz/", "/foo/bar", "/xyz/bar"),
    ("/foo", "/xyz", "/foo", "/xyz"),
    ("/foo", "/xyz", "/foo/", "/xyz/"),
    ("/foo", "", "/foo/bar", "/bar"),
    ("/foo", "", "/foo/", "/"),
    ("/foo", "", "/foo", "/"),
    ("/foo", "/", "/foo/", "/"),
    ("/foo", "/", "/foo", "/"),
    // These cases follow from the table.
    ("/foo", "/", "/foo/bar", "/bar"),
    ("/foo", "/xyz", "/foo/bar/", "/xyz/bar/"),
    ("/", "/xyz", "/bar", "/xyz/bar"),
];

/// These values are special in Envoy's format strings, but must be sent literally.
const PERCENTS: [(&str, &str); 4] = [
    ("x-percent", "100%"),
    ("x-twice", "50%%"),
    ("x-command", "%REQ(:path)%"),
    ("x-unknown-command", "%NOT_A_COMMAND%"),
];

const ORIGIN: &str = "access-control-allow-origin";
const CREDENTIALS: &str = "access-control-allow-credentials";
const METHODS: &str = "access-control-allow-methods";
const HEADERS: &str = "access-control-allow-headers";
const MAX_AGE: &str = "access-control-max-age";
const EXPOSED: &str = "access-control-expose-headers";

struct Backends {
    main: Backend,
    second: Backend,
    mirror: Backend,
    other_mirror: Backend,
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_follow_specification() {
    let (agent, backends) = start().await;
    agent
        .wait_ok(&agent.get(80, "full.rewrite.test", "/"))
        .await;
    let mut checks = Checks::default();
    request_headers(&agent, &mut checks).await;
    response_headers(&agent, &mut checks).await;
    backend_headers(&agent, &mut checks).await;
    redirects(&agent, &mut checks).await;
    rewrites(&agent, &mut checks).await;
    mirrors(&agent, &backends, &mut checks).await;
    cors_preflight(&agent, &backends, &mut checks).await;
    cors_simple(&agent, &mut checks).await;
    cors_without_backend(&agent, &mut checks).await;
    checks.finish();
}

async fn start() -> (AgentUnderTest, Backends) {
    let backends = Backends {
        main: Backend::start("main").await,
        second: Backend::start("second").await,
        mirror: Backend::start("mirror").await,
        other_mirror: Backend::start("other-mirror").await,
    };
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("high", 8088, ""),
    ]);
    let Backends {
        main,
        second,
        mirror,
        other_mirror,
    } = &backends;
    for backend in [main, second, mirror, other_mirror] {
        objects.extend(served(backend.name(), &[backend.address()]));
    }
    objects.extend(header_routes());
    objects.extend(redirect_routes());
    objects.extend(rewrite_routes());
    objects.extend(mirror_routes());
    objects.extend(cors_routes());
    objects.extend(cors_routes_without_backend());
    let agent = Setup::with_ports(&[80, 8088]).start(&[("all.yaml", &yaml(&objects))]);
    (agent, backends)
}

fn filtered(host: &str, filters: &Value) -> Value {
    let rule = json!({"filters": filters, "backendRefs": [backend_ref("main")]});
    http_route(&host.replace('.', "-"), &[host], &[rule])
}

fn header_list(headers: &[(&str, &str)]) -> Value {
    headers
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

fn header_routes() -> Vec<Value> {
    let modifier = json!({
        "set": [{"name": "X-Set", "value": "ours"}, {"name": "x-new", "value": "new"}],
        "add": [{"name": "x-add", "value": "added"}, {"name": "x-alone", "value": "alone"}],
        "remove": ["X-Remove"],
    });
    let percents = json!({"set": header_list(&PERCENTS[..2]), "add": header_list(&PERCENTS[2..])});
    let request = |modifier: &Value| json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}]);
    let response = |modifier: &Value| json!([{"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier}]);
    let mut on_backends = json!({"backendRefs": [backend_ref("main"), backend_ref("second")]});
    for (index, name) in ["main", "second"].into_iter().enumerate() {
        let modifier = json!({"set": [{"name": "x-for", "value": format!("{name} 100%")}]});
        let filters = json!([request(&modifier)[0], response(&modifier)[0]]);
        on_backends["backendRefs"][index]["filters"] = filters;
    }
    let changes_backend_headers = json!({
        "set": [{"name": "x-backend", "value": "hidden"}],
        "add": [{"name": "content-type", "value": "text/x-added"}, {"name": "x-alone", "value": "alone"}],
    });
    vec![
        filtered("request.headers.test", &request(&modifier)),
        filtered("request-percent.headers.test", &request(&percents)),
        filtered("response.headers.test", &response(&changes_backend_headers)),
        filtered(
            "response-remove.headers.test",
            &response(&json!({"remove": ["X-Backend"]})),
        ),
        filtered("response-percent.headers.test", &response(&percents)),
        http_route("backend-headers", &["backend.headers.test"], &[on_backends]),
    ]
}

async fn request_headers(agent: &AgentUnderTest, checks: &mut Checks) {
    let request = agent
        .get(80, "request.headers.test", "/")
        .header("x-set", "theirs")
        .header("x-add", "theirs")
        .header("x-remove", "theirs")
        .header("x-untouched", "theirs");
    if let Some(reply) = checks.reply(&request).await {
        let echo = reply.echo();
        checks.same("set", echo.values("x-set"), vec!["ours"]);
        checks.same("set a new one", echo.values("x-new"), vec!["new"]);
        let added = echo.values("x-add").join(",").replace(' ', "");
        checks.same("add to the existing value", added.as_str(), "theirs,added");
        checks.same("add a new one", echo.values("x-alone"), vec!["alone"]);
        checks.same("remove", echo.values("x-remove"), vec![]);
        checks.same("others", echo.values("x-untouched"), vec!["theirs"]);
    }
    let request = agent.get(80, "request-percent.headers.test", "/path");
    if let Some(reply) = checks.reply(&request).await {
        let echo = reply.echo();
        for (name, value) in PERCENTS {
            checks.same(name, echo.values(name), vec![value]);
        }
    }
}

async fn response_headers(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |host: &str| agent.get(80, host, "/");
    if let Some(reply) = checks.reply(&get("response.headers.test")).await {
        checks.same(
            "set in the answer",
            reply.values("x-backend"),
            vec!["hidden"],
        );
        let types = reply.values("content-type").join(",").replace(' ', "");
        checks.same(
            "add to a response header",
            types.as_str(),
            "application/json,text/x-added",
        );
        checks.same(
            "add a new response header",
            reply.values("x-alone"),
            vec!["alone"],
        );
    }
    if let Some(reply) = checks.reply(&get("response-remove.headers.test")).await {
        checks.same("remove from the answer", reply.values("x-backend"), vec![]);
    }
    if let Some(reply) = checks.reply(&get("response-percent.headers.test")).await {
        for (name, value) in PERCENTS {
            checks.same(
                format!("{name} in the answer"),
                reply.values(name),
                vec![value],
            );
        }
    }
}

async fn backend_headers(agent: &AgentUnderTest, checks: &mut Checks) {
    for _ in 0..20 {
        let request = agent.get(80, "backend.headers.test", "/");
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        let echo = reply.echo();
        let expected = format!("{} 100%", echo.backend);
        checks.same(
            "for one backend",
            echo.values("x-for"),
            vec![expected.as_str()],
        );
        checks.same(
            "from one backend",
            reply.values("x-for"),
            vec![expected.as_str()],
        );
    }
}

fn redirect(host: &str, fields: &Value) -> Value {
    let filters = json!([{"type": "RequestRedirect", "requestRedirect": fields}]);
    http_route(
        &host.replace("*.", "any-").replace('.', "-"),
        &[host],
        &[json!({"filters": filters})],
    )
}

fn redirect_routes() -> Vec<Value> {
    let mut routes = vec![
        redirect("host.redirect.test", &json!({"hostname": "other.test"})),
        redirect("scheme.redirect.test", &json!({"scheme": "https"})),
        redirect(
            "scheme-port.redirect.test",
            &json!({"scheme": "https", "port": 8443}),
        ),
        redirect("port.redirect.test", &json!({"port": 8080})),
        redirect(
            "port-80.redirect.test",
            &json!({"scheme": "http", "port": 80}),
        ),
        redirect("own-port.redirect.test", &json!({"port": 80})),
        redirect("nothing.redirect.test", &json!({})),
        redirect("*.wild.redirect.test", &json!({})),
        redirect("*.wild-scheme.redirect.test", &json!({"scheme": "https"})),
        redirect(
            "full.redirect.test",
            &json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}}),
        ),
        redirect(
            "all.redirect.test",
            &json!({
                "scheme": "https",
                "hostname": "other.test",
                "port": 9443,
                "statusCode": 308,
                "path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"},
            }),
        ),
    ];
    for status in [301, 302, 303, 307, 308] {
        let host = format!("status-{status}.redirect.test");
        routes.push(redirect(
            &host,
            &json!({"hostname": "other.test", "statusCode": status}),
        ));
    }
    for (index, (prefix, replacement, _, _)) in PREFIX_TABLE.into_iter().enumerate() {
        let host = format!("row-{index}.redirect.test");
        let change = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": replacement});
        let mut route = redirect(&host, &json!({"hostname": "other.test", "path": change}));
        route["spec"]["rules"][0]["matches"] = json!([path("PathPrefix", prefix)]);
        routes.push(route);
    }
    routes
}

/// Columns: port, host, path, status, and location.
const REDIRECTS: &str = "
80   host.redirect.test                /a/b    302 http://other.test/a/b
80   host.redirect.test                /a?b=c  302 http://other.test/a?b=c
80   scheme.redirect.test              /a      302 https://scheme.redirect.test/a
# The redirect never copies the port in Host.
80   scheme.redirect.test:12345        /a      302 https://scheme.redirect.test/a
80   nothing.redirect.test:12345       /a      302 http://nothing.redirect.test/a
80   port.redirect.test:12345          /a      302 http://port.redirect.test:8080/a
# If a route has a wildcard hostname, Envoy cannot omit the port, only correct it.
80   a.wild.redirect.test:12345        /a      302 http://a.wild.redirect.test:80/a
80   a.wild.redirect.test              /a      302 http://a.wild.redirect.test/a
80   a.wild-scheme.redirect.test:12345 /a      302 https://a.wild-scheme.redirect.test:443/a
80   host.redirect.test:12345          /a      302 http://other.test/a
80   nothing.redirect.test             /a      302 http://nothing.redirect.test/a
80   scheme-port.redirect.test         /a      302 https://scheme-port.redirect.test:8443/a
80   port.redirect.test                /a      302 http://port.redirect.test:8080/a
80   port-80.redirect.test             /a      302 http://port-80.redirect.test/a
80   full.redirect.test                /a/b    302 http://full.redirect.test/new
80   all.redirect.test                 /a/b    308 https://other.test:9443/new
80   status-301.redirect.test          /       301 http://other.test/
80   status-302.redirect.test          /       302 http://other.test/
80   status-303.redirect.test          /       303 http://other.test/
80   status-307.redirect.test          /       307 http://other.test/
80   status-308.redirect.test          /       308 http://other.test/
# Without a new scheme, the listener's port is kept. A new scheme implies its default port.
8088 host.redirect.test                /a      302 http://other.test:8088/a
8088 scheme.redirect.test              /a      302 https://scheme.redirect.test/a
8088 port.redirect.test                /a      302 http://port.redirect.test:8080/a
# Port 80 replaces the listener's port and the client's port.
8088 own-port.redirect.test            /a      302 http://own-port.redirect.test/a
8088 own-port.redirect.test:8088       /a      302 http://own-port.redirect.test/a
";

async fn redirects(agent: &AgentUnderTest, checks: &mut Checks) {
    let rows = REDIRECTS.lines().filter(|row| !row.is_empty());
    for row in rows.filter(|row| !row.starts_with('#')) {
        let [port, host, path, status, location] = row
            .split_whitespace()
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_else(|cells| panic!("five cells: {cells:?}"));
        let request = agent.get(port.parse().expect("a port"), host, path);
        let status = status.parse().expect("a status");
        redirected(checks, &request, status, location).await;
    }
    for (index, (_, _, path, result)) in PREFIX_TABLE.into_iter().enumerate() {
        let request = agent.get(80, &format!("row-{index}.redirect.test"), path);
        redirected(checks, &request, 302, &format!("http://other.test{result}")).await;
    }
}

async fn redirected(checks: &mut Checks, request: &Request, status: u16, location: &str) {
    if let Some(reply) = checks.reply(request).await {
        checks.same(
            request,
            (reply.status, reply.header("location")),
            (status, Some(location)),
        );
    }
}

fn rewrite(host: &str, fields: &Value) -> Value {
    filtered(host, &json!([{"type": "URLRewrite", "urlRewrite": fields}]))
}

fn rewrite_routes() -> Vec<Value> {
    let full = json!({"type": "ReplaceFullPath", "replaceFullPath": "/new"});
    let mut routes = vec![
        rewrite("host.rewrite.test", &json!({"hostname": "other.test"})),
        rewrite("full.rewrite.test", &json!({"path": full})),
        rewrite(
            "both.rewrite.test",
            &json!({"hostname": "other.test", "path": full}),
        ),
    ];
    let with_headers = json!([
        {"type": "URLRewrite", "urlRewrite": {"path": full}},
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-set", "value": "1"}]}},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-set", "value": "2"}]}},
    ]);
    routes.push(filtered("headers.rewrite.test", &with_headers));
    for (index, (prefix, replacement, _, _)) in PREFIX_TABLE.into_iter().enumerate() {
        let change = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": replacement});
        let mut route = rewrite(
            &format!("row-{index}.rewrite.test"),
            &json!({"path": change}),
        );
        route["spec"]["rules"][0]["matches"] = json!([path("PathPrefix", prefix)]);
        routes.push(route);
    }
    routes
}

async fn rewrites(agent: &AgentUnderTest, checks: &mut Checks) {
    let mut cases: Vec<(String, String, String, String)> = vec![
        ("host.rewrite.test", "/a?b=c", "other.test", "/a?b=c"),
        ("full.rewrite.test", "/a/b", "full.rewrite.test", "/new"),
        (
            "full.rewrite.test",
            "/a?b=c",
            "full.rewrite.test",
            "/new?b=c",
        ),
        ("both.rewrite.test", "/a", "other.test", "/new"),
    ]
    .into_iter()
    .map(|(host, path, new_host, new_path)| {
        (
            host.to_owned(),
            path.to_owned(),
            new_host.to_owned(),
            new_path.to_owned(),
        )
    })
    .collect();
    for (index, (_, _, path, result)) in PREFIX_TABLE.into_iter().enumerate() {
        let host = format!("row-{index}.rewrite.test");
        cases.push((
            host.clone(),
            path.to_owned(),
            host.clone(),
            result.to_owned(),
        ));
        cases.push((
            host.clone(),
            format!("{path}?q=/foo"),
            host,
            format!("{result}?q=/foo"),
        ));
    }
    for (host, path, new_host, new_path) in cases {
        let request = agent.get(80, &host, &path);
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.same(&request, reply.status, 200);
        if reply.status == 200 {
            let echo = reply.echo();
            checks.same(&request, (echo.host, echo.path), (new_host, new_path));
        }
    }
    if let Some(reply) = checks
        .reply(&agent.get(80, "headers.rewrite.test", "/a"))
        .await
    {
        let echo = reply.echo();
        checks.same("path with headers", echo.path.as_str(), "/new");
        checks.same("request header with path", echo.values("x-set"), vec!["1"]);
        checks.same(
            "response header with path",
            reply.values("x-set"),
            vec!["2"],
        );
    }
}

fn mirror_routes() -> Vec<Value> {
    let mirror = |service: &str, share: Value| {
        let mut fields = share;
        fields["backendRef"] = backend_ref(service);
        json!({"type": "RequestMirror", "requestMirror": fields})
    };
    vec![
        filtered("one.mirror.test", &json!([mirror("mirror", json!({}))])),
        filtered(
            "two.mirror.test",
            &json!([
                mirror("mirror", json!({})),
                mirror("other-mirror", json!({}))
            ]),
        ),
        filtered(
            "none.mirror.test",
            &json!([mirror("mirror", json!({"percent": 0}))]),
        ),
        filtered(
            "half.mirror.test",
            &json!([mirror("mirror", json!({"percent": 50}))]),
        ),
        filtered(
            "quarter.mirror.test",
            &json!([mirror(
                "mirror",
                json!({"fraction": {"numerator": 1, "denominator": 4}})
            )]),
        ),
    ]
}

/// Counts the requests that each mirror receives.
async fn mirrored(
    agent: &AgentUnderTest,
    backends: &Backends,
    checks: &mut Checks,
    host: &str,
    requests: usize,
    expected: Option<(u64, u64)>,
) -> (u64, u64) {
    let counts = || (backends.mirror.count(), backends.other_mirror.count());
    let before = counts();
    for _ in 0..requests {
        checks
            .backend(agent.get(80, host, "/mirrored"), "main")
            .await;
    }
    let so_far = || {
        let now = counts();
        (now.0 - before.0, now.1 - before.1)
    };
    if let Some(expected) = expected {
        // Envoy does not wait for mirrored requests.
        sesame_tests::wait::eventually(host, sesame_tests::agent::TEST_TIMEOUT, async || {
            if so_far() == expected {
                Ok(())
            } else {
                Err(format!("{:?}", so_far()))
            }
        })
        .await;
    }
    so_far()
}

async fn mirrors(agent: &AgentUnderTest, backends: &Backends, checks: &mut Checks) {
    mirrored(agent, backends, checks, "one.mirror.test", 5, Some((5, 0))).await;
    mirrored(agent, backends, checks, "two.mirror.test", 5, Some((5, 5))).await;
    let none = mirrored(agent, backends, checks, "none.mirror.test", 20, None).await;
    checks.same("0 percent", none, (0, 0));
    mirrored(agent, backends, checks, "one.mirror.test", 1, Some((1, 0))).await;
    // At 50 percent, a count outside this range has a probability below one in a million.
    let (half, _) = mirrored(agent, backends, checks, "half.mirror.test", 300, None).await;
    checks.that(
        (100..=200).contains(&half),
        format!("50 percent: {half} of 300"),
    );
    let (quarter, _) = mirrored(agent, backends, checks, "quarter.mirror.test", 300, None).await;
    checks.that(
        (30..=120).contains(&quarter),
        format!("one in four: {quarter} of 300"),
    );
}

fn cors_routes() -> Vec<Value> {
    let cors = |fields: Value| json!([{"type": "CORS", "cors": fields}]);
    vec![
        filtered(
            "strict.cors.test",
            &cors(json!({
                "allowOrigins": ["https://app.test", "https://*.wild.test", "http://port.test:8080"],
                "allowCredentials": true,
                "allowMethods": ["PUT", "DELETE"],
                "allowHeaders": ["x-one", "x-two"],
                "exposeHeaders": ["x-seen", "x-backend"],
                "maxAge": 3600,
            })),
        ),
        filtered(
            "open.cors.test",
            &cors(json!({"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"]})),
        ),
        filtered(
            "open-with-credentials.cors.test",
            &cors(json!({
                "allowOrigins": ["*"],
                "allowMethods": ["*"],
                "allowHeaders": ["*"],
                "allowCredentials": true,
            })),
        ),
    ]
}

/// Envoy itself responds with a redirect or status 500.
fn cors_routes_without_backend() -> Vec<Value> {
    let cors = json!({"type": "CORS", "cors": {
        "allowOrigins": ["https://app.test", "https://*.wild.test"],
        "allowCredentials": true,
        "allowMethods": ["PUT"],
        "exposeHeaders": ["x-seen"],
    }});
    let to_https = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}});
    let route = |host: &str, rule: Value| http_route(&host.replace('.', "-"), &[host], &[rule]);
    vec![
        route("redirect.cors.test", json!({"filters": [cors, to_https]})),
        route(
            "method.cors.test",
            json!({"matches": [{"method": "PUT"}], "filters": [cors, to_https]}),
        ),
        route("refused.cors.test", json!({"filters": [cors]})),
    ]
}

async fn cors_without_backend(agent: &AgentUnderTest, checks: &mut Checks) {
    for (host, status) in [
        ("redirect.cors.test", 302),
        ("method.cors.test", 302),
        ("refused.cors.test", 500),
    ] {
        let request = |method: &str, origin: &str| {
            agent
                .get(80, host, "/")
                .method(method)
                .header("origin", origin)
        };
        let preflight = |origin: &str| {
            request("OPTIONS", origin).header("access-control-request-method", "PUT")
        };
        for (origin, allowed) in [
            ("https://app.test", true),
            ("https://a.wild.test", true),
            ("https://wild.test", false),
            ("https://app.test.evil.test", false),
        ] {
            let expected = allowed.then_some(origin);
            if let Some(reply) = checks.reply(&preflight(origin)).await {
                let actual = (reply.status, reply.header(ORIGIN));
                checks.same(preflight(origin), actual, (200, expected));
            }
            let simple = request("PUT", origin);
            let Some(reply) = checks.reply(&simple).await else {
                continue;
            };
            checks.same(
                &simple,
                (reply.status, reply.header(ORIGIN)),
                (status, expected),
            );
            checks.same(
                format!("{simple}: vary"),
                reply.values("vary"),
                vec!["Origin"],
            );
            for (name, value) in [(CREDENTIALS, "true"), (EXPOSED, "x-seen")] {
                let expected = allowed.then_some(value);
                checks.same(format!("{simple}: {name}"), reply.header(name), expected);
            }
        }
        // Neither a preflight request nor a cross-origin request.
        checks.status(request("PUT", ""), status).await;
        checks
            .status(agent.get(80, host, "/").method("PUT"), status)
            .await;
    }
    let options = agent.get(80, "redirect.cors.test", "/").method("OPTIONS");
    checks.status(options, 302).await;
}

fn list(value: Option<&str>) -> Vec<String> {
    let mut elements: Vec<String> = value
        .unwrap_or_default()
        .split(',')
        .map(|part| part.trim().to_lowercase())
        .collect();
    elements.sort();
    elements
}

async fn cors_preflight(agent: &AgentUnderTest, backends: &Backends, checks: &mut Checks) {
    let preflight = |host: &str, origin: &str| {
        agent
            .get(80, host, "/")
            .method("OPTIONS")
            .header("origin", origin)
            .header("access-control-request-method", "PUT")
            .header("access-control-request-headers", "x-one")
    };
    let before = backends.main.count();
    for origin in [
        "https://app.test",
        "https://a.wild.test",
        "https://a.b.wild.test",
        "http://port.test:8080",
    ] {
        let request = preflight("strict.cors.test", origin);
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        let header = |name: &str| reply.header(name);
        checks.that(
            [200, 204].contains(&reply.status),
            format!("{request}: status {}", reply.status),
        );
        checks.same(&request, header(ORIGIN), Some(origin));
        checks.same(&request, header(CREDENTIALS), Some("true"));
        checks.same(&request, header(MAX_AGE), Some("3600"));
        checks.same(&request, list(header(METHODS)), list(Some("PUT, DELETE")));
        checks.same(&request, list(header(HEADERS)), list(Some("x-one, x-two")));
    }
    checks.same(
        "preflight requests that reached the backend",
        backends.main.count() - before,
        0,
    );
    for origin in [
        "https://other.test",
        "http://app.test",
        "https://app.test:8443",
        "https://wild.test",
        "https://xwild.test",
        "https://app.test.evil.test",
        "http://port.test",
    ] {
        let request = preflight("strict.cors.test", origin);
        let Some(reply) = checks.reply(&request).await else {
            continue;
        };
        checks.that(
            [200, 204, 403].contains(&reply.status),
            format!("{request}: status {}", reply.status),
        );
        checks.same(&request, reply.values(ORIGIN), vec![]);
    }
    let origin = "https://anybody.test";
    if let Some(reply) = checks.reply(&preflight("open.cors.test", origin)).await {
        let allowed = reply.header(ORIGIN);
        checks.that(
            [Some("*"), Some(origin)].contains(&allowed),
            format!("any origin: {allowed:?}"),
        );
        checks.same("no credentials", reply.values(CREDENTIALS), vec![]);
        checks.same("default age", reply.header(MAX_AGE), Some("5"));
    }
    if let Some(reply) = checks
        .reply(&preflight("open-with-credentials.cors.test", origin))
        .await
    {
        // Browsers do not accept `*` together with credentials.
        for (name, expected) in [
            (ORIGIN, origin),
            (CREDENTIALS, "true"),
            (METHODS, "PUT"),
            (HEADERS, "x-one"),
        ] {
            checks.same(
                format!("credentials and `*`: {name}"),
                reply.header(name),
                Some(expected),
            );
        }
    }
}

async fn cors_simple(agent: &AgentUnderTest, checks: &mut Checks) {
    let simple = |origin: &str| {
        agent
            .get(80, "strict.cors.test", "/")
            .header("origin", origin)
    };
    checks.backend(simple("https://app.test"), "main").await;
    if let Some(reply) = checks.reply(&simple("https://app.test")).await {
        let header = |name: &str| reply.header(name);
        checks.same("origin", header(ORIGIN), Some("https://app.test"));
        checks.same("credentials", header(CREDENTIALS), Some("true"));
        let exposed = list(header(EXPOSED));
        checks.same("exposed", exposed, list(Some("x-seen, x-backend")));
    }
    for (path, vary) in [
        ("/", "origin"),
        ("/vary/Accept-Encoding", "accept-encoding, origin"),
        ("/vary/Accept,ORIGIN", "accept, origin"),
        ("/vary/*", "*"),
    ] {
        for origin in ["https://app.test", "https://other.test", ""] {
            let request = agent
                .get(80, "strict.cors.test", path)
                .header("origin", origin);
            if let Some(reply) = checks.reply(&request).await {
                let seen = list(Some(&reply.values("vary").join(",")));
                checks.same(&request, seen, list(Some(vary)));
            }
        }
    }
    if let Some(reply) = checks.reply(&simple("https://other.test")).await {
        checks.same("another origin", reply.values(ORIGIN), vec![]);
    }
    let without_origin = agent.get(80, "strict.cors.test", "/");
    checks.backend(without_origin.clone(), "main").await;
    if let Some(reply) = checks.reply(&without_origin).await {
        checks.same("no origin", reply.values(ORIGIN), vec![]);
    }
}
