//! Annotations for ingress-nginx. Changes under load must not fail requests.

use serde_json::{Value, json};
use sesame_tests::agent::Setup;
use sesame_tests::authorizing::Authorizing;
use sesame_tests::backends::start_served;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, https_listener, served, yaml};

use crate::ingress_default_backend::{annotated, class};
use crate::ingress_sign_in::{PAGES, sign_ins};

const ALL: (&str, &str, &str) = ("/", "Prefix", "a");

fn objects() -> Vec<Value> {
    let regex = |path, to| (path, "ImplementationSpecific", to);
    let canary = [
        ("canary", "true"),
        ("canary-by-header", "x-canary"),
        ("canary-by-cookie", "canary"),
    ];
    let mut by_weight = annotated(
        "weight.test",
        &[("canary", "true"), ("canary-weight", "100")],
        &[ALL],
    );
    by_weight["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = json!("b");
    let alias = ("server-alias", "also-secure.test");
    let mut secure = annotated("secure.test", &[alias], &[ALL]);
    secure["spec"]["tls"] = json!([{"hosts": ["secure.test"]}]);
    let mut open = annotated("open.test", &[("ssl-redirect", "false")], &[ALL]);
    open["spec"]["tls"] = json!([{"hosts": ["open.test"]}]);
    vec![
        class(),
        annotated(
            "rewrite.test",
            &[
                ("rewrite-target", "/$2"),
                ("upstream-vhost", "inside.test"),
                ("x-forwarded-prefix", "/api"),
            ],
            &[regex("/api(/|$)(.*)", "a")],
        ),
        annotated(
            "regex.test",
            &[("use-regex", "true")],
            &[
                regex("/v[0-9]", "a"),
                ("/v1/users", "Prefix", "b"),
                ("/", "Prefix", "c"),
            ],
        ),
        annotated("canary.test", &[], &[ALL]),
        annotated("canary.test", &canary, &[("/", "Prefix", "b")]),
        annotated("weight.test", &[], &[ALL]),
        by_weight,
        annotated(
            "far.test",
            &[("whitelist-source-range", "192.0.2.0/24")],
            &[ALL],
        ),
        annotated(
            "near.test",
            &[("allowlist-source-range", "127.0.0.0/8")],
            &[ALL],
        ),
        annotated(
            "denied.test",
            &[("denylist-source-range", "127.0.0.1")],
            &[ALL],
        ),
        annotated(
            "unreadable.test",
            &[("whitelist-source-range", "office")],
            &[ALL],
        ),
        annotated("snippet.test", &[("server-snippet", "return 200;")], &[ALL]),
        annotated(
            "limited.test",
            &[("limit-rpm", "2"), ("limit-burst-multiplier", "1")],
            &[ALL],
        ),
        annotated("small.test", &[("proxy-body-size", "1k")], &[ALL]),
        annotated("cors.test", &[("enable-cors", "true")], &[ALL]),
        annotated(
            "moved.test",
            &[("permanent-redirect", "https://new.test:8443/x")],
            &[("/", "Prefix", "absent")],
        ),
        annotated("root.test", &[("app-root", "/app")], &[ALL]),
        annotated(
            "named.test",
            &[
                ("server-alias", "alias.test, root.test"),
                ("from-to-www-redirect", "true"),
            ],
            &[("/", "Prefix", "b")],
        ),
        annotated(
            "sticky.test",
            &[("affinity", "cookie"), ("session-cookie-name", "route")],
            &[ALL],
        ),
        secure,
        open,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_of_nginx_decide_responses() {
    let mut all = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "", "pair"),
    ]);
    let authority = Authority::new("tests");
    all.push(authority.issue(&["secure.test"]).secret("pair"));
    let _backends = start_served(&["a", "b", "c"], &mut all).await;
    all.extend(objects());
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&all))]);
    let get = |host: &str, path: &str| agent.get(80, host, path);
    agent.wait_ok(&get("near.test", "/")).await;
    let mut checks = Checks::default();

    for (path, expected) in [
        ("/api/users?a=/api/b", "/users?a=/api/b"),
        ("/API/users", "/users"),
        ("/api", "/"),
    ] {
        let request = get("rewrite.test", path).header("x-real-ip", "192.0.2.66");
        if let Some(reply) = checks.reply(&request).await {
            let echo = reply.echo();
            checks.same(&request, echo.value("x-real-ip"), Some("127.0.0.1"));
            let prefix = echo.value("x-forwarded-prefix");
            let seen = (&*echo.path, &*echo.host, prefix);
            checks.same(&request, seen, (expected, "inside.test", Some("/api")));
        }
    }
    checks.status(get("rewrite.test", "/apis"), 404).await;
    for (path, expected) in [
        ("/v1/users", "b"),
        ("/v2/x", "a"),
        ("/vx", "c"),
        ("/V3", "a"),
    ] {
        checks.backend(get("regex.test", path), expected).await;
    }
    for (header, value, expected) in [
        ("x-canary", "always", "b"),
        ("x-canary", "never", "a"),
        ("x-canary", "other", "a"),
        ("cookie", "a=1; canary=always; b=2", "b"),
        ("cookie", "canary=never", "a"),
        ("cookie", "xcanary=always", "a"),
    ] {
        let request = get("canary.test", "/").header(header, value);
        checks.backend(request, expected).await;
    }
    let both = get("canary.test", "/").header("cookie", "canary=always");
    checks.backend(both.header("x-canary", "never"), "a").await;
    checks.backend(get("weight.test", "/"), "b").await;
    for (host, status) in [
        ("far.test", 403),
        ("near.test", 200),
        ("denied.test", 403),
        ("unreadable.test", 500),
        ("snippet.test", 500),
        ("limited.test", 200),
        ("limited.test", 200),
        ("limited.test", 503),
        ("secure.test", 308),
        ("also-secure.test", 308),
        ("open.test", 200),
    ] {
        checks.status(get(host, "/"), status).await;
    }
    for (length, status) in [(1024, 200), (1025, 413)] {
        let body = get("small.test", "/")
            .method("POST")
            .body(vec![b'x'; length]);
        checks.status(body, status).await;
    }
    for (host, path, status, location) in [
        ("moved.test", "/y", 301, "https://new.test:8443/x"),
        ("root.test", "/", 302, "http://root.test/app"),
        ("www.named.test", "/x?y", 308, "http://named.test/x?y"),
    ] {
        let request = get(host, path);
        if let Some(reply) = checks.reply(&request).await {
            let seen = (reply.status, reply.header("location"));
            checks.same(&request, seen, (status, Some(location)));
        }
    }
    // The alias `root.test` yields to a rule for this host.
    checks.backend(get("root.test", "/other"), "a").await;
    checks.backend(get("named.test", "/"), "b").await;
    checks.backend(get("alias.test", "/"), "b").await;
    let request = get("cors.test", "/").header("origin", "https://page.test");
    if let Some(reply) = checks.reply(&request).await {
        let seen = [
            reply.header("access-control-allow-origin"),
            reply.header("access-control-allow-credentials"),
        ];
        checks.same(&request, seen, [Some("https://page.test"), Some("true")]);
    }
    let request = get("sticky.test", "/");
    if let Some(reply) = checks.reply(&request).await {
        let cookie = reply.header("set-cookie").unwrap_or_default();
        checks.that(
            cookie.starts_with("route="),
            format_args!("cookie {cookie:?}"),
        );
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_weights_change_without_failed_request() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["a", "b"], &mut all).await;
    let manifests = |weight: usize| {
        let weight = weight.to_string();
        let canary = [("canary", "true"), ("canary-weight", weight.as_str())];
        let mut all = all.clone();
        all.extend([
            class(),
            annotated("canary.test", &[("limit-rps", "100000")], &[ALL]),
            annotated("canary.test", &canary, &[("/", "Prefix", "b")]),
        ]);
        yaml(&all)
    };
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &manifests(0))]);
    let request = agent.get(80, "canary.test", "/");
    agent.wait_ok(&request).await;
    let load = Load::start(&Plan::new(vec![request.clone()]));
    for weight in [10, 50, 100, 30, 100] {
        load.pass(50).await;
        agent.write("all.yaml", &manifests(weight));
        let expected = if weight == 100 { "b" } else { "a" };
        agent.wait_backend(&request, expected).await;
    }
    let report = load.stop().await;
    report.print("a canary's weight changes");
    report.assert_clean();
}

/// The ConfigMap `headers` contains the header `x-frame-options`.
fn guarded() -> Vec<Value> {
    let url = (
        "auth-url",
        "http://auth.default.svc.cluster.local/check?a=b",
    );
    let missing = "http://missing.default.svc.cluster.local/check";
    let mirror = "http://b.default.svc.cluster.local$request_uri";
    let any = |host, range| {
        let range = ("whitelist-source-range", range);
        annotated(host, &[url, ("satisfy", "any"), range], &[ALL])
    };
    vec![
        class(),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "headers", "namespace": "default"},
            "data": {"x-frame-options": "DENY"}}),
        annotated(
            "guarded.test",
            &[url, ("auth-response-headers", "X-User, X-Role")],
            &[ALL],
        ),
        annotated("bare.test", &[url], &[ALL]),
        annotated("missing.test", &[("auth-url", missing)], &[ALL]),
        annotated("login.test", &[url, PAGES[0]], &[ALL]),
        annotated("own.test", &[url, PAGES[1], PAGES[2]], &[ALL]),
        annotated("variable.test", &[url, PAGES[3]], &[ALL]),
        any("near.test", "127.0.0.0/8"),
        any("far.test", "192.0.2.0/24"),
        annotated(
            "open.test",
            &[
                ("mirror-target", mirror),
                ("custom-headers", "default/headers"),
            ],
            &[ALL],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_url_decides_before_requests_reach_backends() {
    let mut all = edge(&[http_listener("http", 80, "")]);
    let backends = start_served(&["a", "b"], &mut all).await;
    let auth = Authorizing::start("auth").await;
    all.extend(served(auth.name(), &[auth.address()]));
    all.extend(guarded());
    let agent = Setup::with_ports(&[80]).start(&[("all.yaml", &yaml(&all))]);
    let get = |host: &str, path: &str| agent.get(80, host, path);
    agent.wait_ok(&get("open.test", "/")).await;
    let mut checks = Checks::default();

    let open = get("open.test", "/mirrored");
    if let Some(reply) = checks.reply(&open).await {
        let header = reply.header("x-frame-options");
        checks.same(&open, header, Some("DENY"));
    }
    let before = backends[0].count();
    for (host, status) in [
        ("guarded.test", 401),
        ("bare.test", 401),
        ("missing.test", 500),
        ("login.test", 302),
        ("own.test", 302),
        ("variable.test", 500),
        ("far.test", 401),
    ] {
        checks.status(get(host, "/"), status).await;
    }
    let passed = backends[0].count() - before;
    checks.same("requests that passed without a check", passed, 0);
    checks.same("questions", auth.take().len(), 5);
    checks.status(get("near.test", "/"), 200).await;
    checks.same("questions for exempt clients", auth.take().len(), 0);
    let allowed = get("far.test", "/").header("authorization", "auth");
    checks.status(allowed, 200).await;
    checks.same("questions", auth.take().len(), 1);
    sign_ins(&agent, &mut checks).await;
    auth.take();

    let request = get("guarded.test", "/a/b?c=d")
        .method("POST")
        .body("body")
        .header("authorization", "auth")
        .header("cookie", "session=1")
        .header("x-mine", "m")
        // The service sets the first header, but not the second.
        .header("x-user", "mallory")
        .header("x-role", "admin")
        .header("x-original-url", "http://evil.test/");
    if let Some(reply) = checks.reply(&request).await {
        checks.same(&request, reply.status, 200);
        let echo = reply.echo();
        checks.same("x-user", echo.values("x-user"), vec!["alice"]);
        checks.same("x-role", echo.values("x-role"), vec![]);
        checks.same("x-other", echo.values("x-other"), vec![]);
        checks.same("path", echo.path.as_str(), "/a/b?c=d");
    }
    let questions = auth.take();
    checks.same("questions", questions.len(), 1);
    for question in questions {
        checks.same("path", question.path.as_str(), "/check?a=b");
        checks.same("body", question.body.len(), 0);
        for (name, expected) in [
            ("cookie", Some("session=1")),
            ("x-mine", Some("m")),
            ("x-original-method", Some("POST")),
            ("x-auth-request-redirect", Some("/a/b?c=d")),
            ("content-length", Some("0")),
            ("x-role", None),
        ] {
            checks.same(name, question.header(name), expected);
        }
        let url = question.header("x-original-url").unwrap_or_default();
        let is_whole = url.starts_with("http://guarded.test") && url.ends_with("/a/b?c=d");
        checks.that(is_whole, format_args!("x-original-url {url:?}"));
    }
    let request = get("bare.test", "/").header("authorization", "auth");
    if let Some(reply) = checks.reply(&request).await {
        let echo = reply.echo();
        checks.same("x-user of bare.test", echo.values("x-user"), vec![]);
    }
    checks.finish();
}
