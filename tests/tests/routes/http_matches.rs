//! Every kind of `HTTPRoute` match on a real Envoy.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::checks::Checks;
use sesame_tests::client::Request;
use sesame_tests::manifests::{
    backend_ref, edge, http_listener, http_route, on_listener, path, rule_to, yaml,
};

/// The backend identifies the rule.
const BACKENDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_rule_of_specification() {
    let (agent, _backends) = start().await;
    agent.wait_ok(&agent.get(80, "exact.test", "/one")).await;
    let mut checks = Checks::default();
    paths(&agent, &mut checks).await;
    methods(&agent, &mut checks).await;
    headers(&agent, &mut checks).await;
    query_params(&agent, &mut checks).await;
    hostnames(&agent, &mut checks).await;
    precedence(&agent, &mut checks).await;
    precedence_across_routes(&agent, &mut checks).await;
    fall_through(&agent, &mut checks).await;
    same_intersection(&agent, &mut checks).await;
    checks.finish();
}

async fn start() -> (AgentUnderTest, Vec<Backend>) {
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        http_listener("same", 80, "same.test"),
    ]);
    // A matched header has an underscore in its name.
    objects[1]["metadata"]["annotations"] = json!({"projectsesame.io/header-underscores": "allow"});
    let backends = start_served(&BACKENDS, &mut objects).await;
    objects.extend(path_routes());
    objects.extend(method_routes());
    objects.extend(header_routes());
    objects.extend(query_routes());
    objects.extend(hostname_routes());
    objects.extend(precedence_routes());
    objects.extend(competing_routes());
    objects.extend(fall_through_routes());
    objects.extend(same_intersection_routes());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&objects))]);
    (agent, backends)
}

fn one(name: &str, hostname: &str, backend: &str, of: Value) -> Value {
    http_route(name, &[hostname], &[rule_to(backend, &[of])])
}

fn path_routes() -> Vec<Value> {
    vec![
        one("exact", "exact.test", "a", path("Exact", "/one")),
        http_route(
            "escaped",
            &["escaped.test"],
            &[
                rule_to("a", &[path("Exact", "/%7Ealice")]),
                rule_to("b", &[path("PathPrefix", "/a%2Db/")]),
                rule_to("c", &[path("Exact", "/caf%c3%A9")]),
                json!({
                    "matches": [path("PathPrefix", "/th%C3%A9")],
                    "filters": [{"type": "URLRewrite", "urlRewrite": {
                        "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/tea"}}}],
                    "backendRefs": [backend_ref("d")],
                }),
            ],
        ),
        http_route(
            "prefix",
            &["prefix.test"],
            &[
                rule_to("a", &[path("PathPrefix", "/p")]),
                rule_to("b", &[path("PathPrefix", "/q/")]),
            ],
        ),
        http_route("everything", &["everything.test"], &[rule_to("a", &[])]),
        http_route(
            "regex",
            &["regex.test"],
            &[
                rule_to("a", &[path("RegularExpression", "/r/[0-9]+")]),
                rule_to("b", &[path("RegularExpression", "/s/.*\\.png")]),
            ],
        ),
        http_route(
            "either",
            &["either.test"],
            &[rule_to(
                "a",
                &[path("Exact", "/one"), path("PathPrefix", "/two")],
            )],
        ),
    ]
}

async fn paths(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |host: &str, path: &str| agent.get(80, host, path);
    for path in ["/one", "/one?x=y"] {
        checks.backend(get("exact.test", path), "a").await;
    }
    for path in ["/", "/one/", "/one/two", "/ONE", "/on", "/ones"] {
        checks.status(get("exact.test", path), 404).await;
    }
    for path in ["/p", "/p/", "/p/x", "/p/x/", "/p?x=y", "/p/?x=y"] {
        checks.backend(get("prefix.test", path), "a").await;
    }
    // A trailing slash in a prefix has no effect.
    for path in ["/q", "/q/", "/q/x", "/q?x=y"] {
        checks.backend(get("prefix.test", path), "b").await;
    }
    for path in ["/", "/px", "/P", "/P/x", "/qq", "/x/p"] {
        checks.status(get("prefix.test", path), 404).await;
    }
    for path in ["/", "/x", "/x/y?z=1"] {
        checks.backend(get("everything.test", path), "a").await;
    }
    // Paths are normalized as in RFC 3986, section 6.2.2.
    for (path, backend) in [
        ("/~alice", "a"),
        ("/%7Ealice", "a"),
        ("/%7e%61lice", "a"),
        ("/a-b/x", "b"),
        ("/a%2db", "b"),
        ("/caf%C3%A9", "c"),
        ("/caf%c3%a9?x", "c"),
        ("/th%c3%a9", "d"),
        ("/th%C3%A9/x", "d"),
    ] {
        checks.backend(get("escaped.test", path), backend).await;
    }
    for path in ["/%257Ealice", "/CAF%C3%A9", "/caf%C3%A8", "/th%C3%A9x"] {
        checks.status(get("escaped.test", path), 404).await;
    }
    checks.backend(get("regex.test", "/r/12"), "a").await;
    checks.backend(get("regex.test", "/r/12?x=y"), "a").await;
    checks.backend(get("regex.test", "/s/x/y.png"), "b").await;
    for path in ["/r/", "/r/12/x", "/x/r/12", "/r/1x", "/s/x.png/y"] {
        checks.status(get("regex.test", path), 404).await;
    }
    checks.backend(get("either.test", "/one"), "a").await;
    checks.backend(get("either.test", "/two/x"), "a").await;
    checks.status(get("either.test", "/one/x"), 404).await;
}

fn method_routes() -> Vec<Value> {
    vec![http_route(
        "method",
        &["method.test"],
        &[
            rule_to("a", &[json!({"method": "POST"})]),
            rule_to("b", &[json!({"method": "DELETE"})]),
            rule_to(
                "c",
                &[json!({"method": "GET", "path": {"type": "Exact", "value": "/c"}})],
            ),
        ],
    )]
}

async fn methods(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |path: &str| agent.get(80, "method.test", path);
    checks.backend(get("/").method("POST").body("x"), "a").await;
    checks.backend(get("/").method("DELETE"), "b").await;
    checks.backend(get("/c"), "c").await;
    checks.backend(get("/c").method("POST"), "a").await;
    checks.status(get("/"), 404).await;
    checks.status(get("/c").method("PUT"), 404).await;
}

fn header_routes() -> Vec<Value> {
    let header =
        |type_: &str, name: &str, value: &str| json!({"type": type_, "name": name, "value": value});
    vec![
        http_route(
            "header",
            &["header.test"],
            &[
                rule_to(
                    "a",
                    &[json!({"headers": [{"name": "X-One", "value": "1"}]})],
                ),
                rule_to(
                    "b",
                    &[json!({"headers": [
                        header("Exact", "x-two", "2"),
                        header("Exact", "x-three", "3"),
                    ]})],
                ),
                rule_to(
                    "c",
                    &[json!({"headers": [header("RegularExpression", "x-version", "v[0-9]+")]})],
                ),
                rule_to(
                    "e",
                    &[json!({"headers": [header("Exact", "x_under_score", "1")]})],
                ),
                rule_to(
                    "d",
                    &[
                        json!({"headers": [header("Exact", "x-colour", "blue")]}),
                        json!({"headers": [header("Exact", "x-colour", "green")]}),
                    ],
                ),
            ],
        ),
        http_route(
            "header-twice",
            &["header-twice.test"],
            // If a match contains a duplicate header name, only the first entry counts.
            &[rule_to(
                "a",
                &[json!({"headers": [
                    header("Exact", "x-one", "first"),
                    header("Exact", "X-One", "second"),
                ]})],
            )],
        ),
    ]
}

async fn headers(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = || agent.get(80, "header.test", "/");
    checks.backend(get().header("x-one", "1"), "a").await;
    checks
        .backend(get().header("X-ONE", "1").header("x-other", "1"), "a")
        .await;
    checks
        .backend(get().header("x-two", "2").header("x-three", "3"), "b")
        .await;
    checks.backend(get().header("x-version", "v12"), "c").await;
    checks.backend(get().header("x-colour", "green"), "d").await;
    checks
        .backend(get().header("x_under_score", "1"), "e")
        .await;
    checks.status(get().header("x-under-score", "1"), 404).await;
    checks.backend(get().header("x-colour", "blue"), "d").await;
    for (name, value) in [
        ("x-one", "11"),
        ("x-one", "0"),
        ("x-two", "2"),
        ("x-version", "v"),
        ("x-version", "v1.2"),
        ("x-version", "av1"),
        ("x-colour", "BLUE"),
    ] {
        checks.status(get().header(name, value), 404).await;
    }
    checks.status(get(), 404).await;
    checks
        .status(get().header("x-two", "2").header("x-three", "2"), 404)
        .await;
    let twice = || agent.get(80, "header-twice.test", "/");
    checks.backend(twice().header("x-one", "first"), "a").await;
    checks.status(twice().header("x-one", "second"), 404).await;
}

fn query_routes() -> Vec<Value> {
    let param =
        |type_: &str, name: &str, value: &str| json!({"type": type_, "name": name, "value": value});
    vec![
        http_route(
            "query",
            &["query.test"],
            &[
                rule_to(
                    "a",
                    &[json!({"queryParams": [{"name": "q", "value": "1"}]})],
                ),
                rule_to(
                    "b",
                    &[json!({"queryParams": [param("Exact", "x", "1"), param("Exact", "y", "2")]})],
                ),
                rule_to(
                    "c",
                    &[json!({"queryParams": [param("RegularExpression", "re", "v[0-9]+")]})],
                ),
                rule_to(
                    "d",
                    &[json!({
                        "path": {"type": "Exact", "value": "/d"},
                        "queryParams": [param("Exact", "empty", "")],
                    })],
                ),
            ],
        ),
        http_route(
            "query-twice",
            &["query-twice.test"],
            &[rule_to(
                "a",
                &[
                    json!({"queryParams": [param("Exact", "q", "first"), param("Exact", "q", "second")]}),
                ],
            )],
        ),
    ]
}

async fn query_params(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |path: &str| agent.get(80, "query.test", path);
    checks.backend(get("/?q=1"), "a").await;
    checks.backend(get("/deep/path?z=0&q=1&r=2"), "a").await;
    checks.backend(get("/?y=2&x=1"), "b").await;
    checks.backend(get("/?re=v12"), "c").await;
    for path in [
        "/", "/?q=", "/?q=2", "/?q=11", "/?Q=1", "/?qq=1", "/?x=1", "/?re=v1x", "/?re=xv1",
    ] {
        checks.status(get(path), 404).await;
    }
    let twice = |path: &str| agent.get(80, "query-twice.test", path);
    checks.backend(twice("/?q=first"), "a").await;
    checks.status(twice("/?q=second"), 404).await;
}

fn hostname_routes() -> Vec<Value> {
    vec![
        http_route("wild", &["*.wild.test"], &[rule_to("a", &[])]),
        http_route("wilder", &["*.deep.wild.test"], &[rule_to("b", &[])]),
        http_route("tame", &["tame.wild.test"], &[rule_to("c", &[])]),
        http_route(
            "two-names",
            &["one-name.test", "other-name.test"],
            &[rule_to("d", &[])],
        ),
    ]
}

async fn hostnames(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |host: &str| agent.get(80, host, "/");
    checks.backend(get("x.wild.test"), "a").await;
    checks.backend(get("x.y.wild.test"), "a").await;
    checks.backend(get("x.deep.wild.test"), "b").await;
    checks.backend(get("deep.wild.test"), "a").await;
    checks.backend(get("tame.wild.test"), "c").await;
    checks.backend(get("x.tame.wild.test"), "a").await;
    checks.backend(get("one-name.test"), "d").await;
    checks.backend(get("other-name.test"), "d").await;
    // The backend receives `Host` as the client sent it.
    checks.backend(get("TAME.wild.TEST"), "c").await;
    for host in ["tame.wild.test:80", "tame.wild.test:12345"] {
        checks.backend(get(host), "c").await;
        if let Some(reply) = checks.reply(&get(host)).await {
            checks.same("Host at the backend", reply.echo().host.as_str(), host);
        }
    }
    checks.backend(get("x.wild.test:8080"), "a").await;
    for host in ["wild.test", "xwild.test", "unknown.test", "x.one-name.test"] {
        checks.status(get(host), 404).await;
    }
}

fn precedence_routes() -> Vec<Value> {
    vec![
        // From the least to the most specific.
        http_route(
            "longest",
            &["longest.test"],
            &[
                rule_to("a", &[path("PathPrefix", "/")]),
                rule_to("b", &[path("PathPrefix", "/x")]),
                rule_to("c", &[path("PathPrefix", "/x/y")]),
                rule_to("d", &[path("Exact", "/x/y")]),
            ],
        ),
        http_route(
            "kinds",
            &["kinds.test"],
            &[
                rule_to(
                    "a",
                    &[json!({"queryParams": [{"name": "q", "value": "1"}]})],
                ),
                rule_to(
                    "b",
                    &[json!({"queryParams": [
                        {"name": "q", "value": "1"},
                        {"name": "p", "value": "2"},
                    ]})],
                ),
                rule_to("c", &[json!({"headers": [{"name": "h", "value": "1"}]})]),
                rule_to(
                    "d",
                    &[json!({"headers": [
                        {"name": "h", "value": "1"},
                        {"name": "i", "value": "1"},
                    ]})],
                ),
                rule_to("e", &[json!({"method": "POST"})]),
                rule_to("f", &[path("PathPrefix", "/longer")]),
            ],
        ),
        http_route(
            "first",
            &["first.test"],
            &[
                rule_to("b", &[path("Exact", "/same")]),
                rule_to("a", &[path("Exact", "/same"), path("Exact", "/other")]),
            ],
        ),
    ]
}

async fn precedence(agent: &AgentUnderTest, checks: &mut Checks) {
    for (path, backend) in [
        ("/foo", "a"),
        ("/x", "b"),
        ("/x/z", "b"),
        ("/x/y", "d"),
        ("/x/y/", "c"),
        ("/x/y/z", "c"),
    ] {
        checks
            .backend(agent.get(80, "longest.test", path), backend)
            .await;
    }
    let get = |path: &str| agent.get(80, "kinds.test", path);
    checks.backend(get("/?q=1"), "a").await;
    checks.backend(get("/?q=1&p=2"), "b").await;
    checks.backend(get("/?q=1&p=2").header("h", "1"), "c").await;
    checks
        .backend(get("/?q=1&p=2").header("h", "1").header("i", "1"), "d")
        .await;
    let everything = |path: &str| get(path).header("h", "1").header("i", "1").method("POST");
    checks.backend(everything("/?q=1&p=2"), "e").await;
    checks.backend(everything("/longer/x?q=1&p=2"), "f").await;
    checks
        .backend(agent.get(80, "first.test", "/same"), "b")
        .await;
    checks
        .backend(agent.get(80, "first.test", "/other"), "a")
        .await;
}

fn competing_routes() -> Vec<Value> {
    let created = |mut route: Value, time: &str| {
        route["metadata"]["creationTimestamp"] = json!(time);
        route
    };
    let all = |backend: &str| [rule_to(backend, &[path("PathPrefix", "/")])];
    vec![
        created(
            http_route("aa-newer", &["age.test"], &all("a")),
            "2021-01-01T00:00:00Z",
        ),
        created(
            http_route("zz-older", &["age.test"], &all("b")),
            "2020-01-01T00:00:00Z",
        ),
        http_route("name-2", &["name.test"], &all("b")),
        http_route("name-1", &["name.test"], &all("a")),
        created(
            http_route("old-and-short", &["mixed.test"], &all("a")),
            "2020-01-01T00:00:00Z",
        ),
        created(
            one(
                "new-and-long",
                "mixed.test",
                "b",
                path("PathPrefix", "/long"),
            ),
            "2021-01-01T00:00:00Z",
        ),
        created(
            http_route(
                "newest-with-header",
                &["mixed.test"],
                &[rule_to(
                    "c",
                    &[json!({"headers": [{"name": "x-one", "value": "1"}]})],
                )],
            ),
            "2022-01-01T00:00:00Z",
        ),
    ]
}

async fn precedence_across_routes(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |host: &str, path: &str| agent.get(80, host, path);
    checks.backend(get("age.test", "/"), "b").await;
    checks.backend(get("name.test", "/"), "a").await;
    checks.backend(get("mixed.test", "/"), "a").await;
    checks.backend(get("mixed.test", "/long"), "b").await;
    checks
        .backend(get("mixed.test", "/").header("x-one", "1"), "c")
        .await;
    checks
        .backend(get("mixed.test", "/long").header("x-one", "1"), "b")
        .await;
}

fn fall_through_routes() -> Vec<Value> {
    vec![
        one("fall-exact", "x.fall.test", "a", path("PathPrefix", "/a")),
        one("fall-wild", "*.fall.test", "b", path("PathPrefix", "/b")),
        one("fall-wilder", "*.test", "c", path("Exact", "/fall-to-c")),
        http_route(
            "fall-any",
            &[],
            &[rule_to("d", &[path("Exact", "/fall-to-d")])],
        ),
    ]
}

/// If the most specific route does not match, the next less specific one must serve the request.
async fn fall_through(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |host: &str, path: &str| agent.get(80, host, path);
    checks.backend(get("x.fall.test", "/a"), "a").await;
    checks.backend(get("x.fall.test", "/b"), "b").await;
    checks.backend(get("x.fall.test", "/fall-to-c"), "c").await;
    checks.backend(get("x.fall.test", "/fall-to-d"), "d").await;
    checks.backend(get("y.fall.test", "/b"), "b").await;
    checks
        .backend(get("nowhere.example", "/fall-to-d"), "d")
        .await;
    checks.status(get("y.fall.test", "/a"), 404).await;
    checks.status(get("x.fall.test", "/x"), 404).await;
    checks
        .status(get("nowhere.example", "/fall-to-c"), 404)
        .await;
    let h2: Request = get("x.fall.test", "/b").http2();
    checks.backend(h2, "b").await;
}

/// Precedence depends first on the hostnames in the specs, then on matches and names.
fn same_intersection_routes() -> Vec<Value> {
    let wide = ["/cart/new", "/else"].map(|at| path("Exact", at));
    let wide = http_route("a-wide", &["*.test"], &[rule_to("a", &wide)]);
    let exact = one("b-exact", "same.test", "b", path("PathPrefix", "/cart"));
    vec![on_listener(wide, "same"), on_listener(exact, "same")]
}

async fn same_intersection(agent: &AgentUnderTest, checks: &mut Checks) {
    let get = |path: &str| agent.get(80, "same.test", path);
    checks.backend(get("/cart/new"), "b").await;
    checks.backend(get("/else"), "a").await;
    checks.status(get("/nothing"), 404).await;
}
