//! The controller's HTTP pages: access control, content and escaping. One test uses a real browser.

use std::net::SocketAddr;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sesame_tests::browser::{document, take_picture};
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::{Reply, Request};
use sesame_tests::cluster::{Channel, TestCluster};
use sesame_tests::controller::{ControllerUnderTest, TEST_TIMEOUT, deployed};
use sesame_tests::guarded::GuardDirectory;
use sesame_tests::manifests::{
    edge, edge_name, http_listener, http_route, https_listener, path, rule_to, served,
};
use sesame_tests::ports::free_port;
use sesame_tests::reports::{report, report_serving, write_report};
use sesame_tests::wait::{eventually, holds};

const HOSTILE: &str = "<img src=x onerror=alert(1)><script>document.title='owned'</script>";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sesame-reports";
const TOKEN: &str = "0123456789abcdef";
const NEXT_TOKEN: &str = "fedcba9876543210";

/// Returns a free address, and the flag that sets it.
fn address() -> (SocketAddr, String) {
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    (address, format!("--metrics-address={address}"))
}

async fn ask(address: SocketAddr, path: &str) -> Reply {
    let reply = Request::get(address, "controller", path).send().await;
    reply.expect("an answer")
}

async fn shown(address: SocketAddr) -> Result<String, String> {
    let reply = Request::get(address, "controller", "/status").send().await;
    let reply = reply.map_err(|error| format!("{error:#}"))?;
    Ok(String::from_utf8_lossy(&reply.body).into_owned())
}

async fn wait_page(address: SocketAddr, parts: &[&str]) -> String {
    eventually("the page is current", TEST_TIMEOUT, async || {
        let body = shown(address).await?;
        let missing = parts.iter().find(|part| !body.contains(**part));
        holds(missing.is_none(), || {
            format!("{missing:?} is not in {body}")
        })?;
        Ok::<_, String>(body)
    })
    .await
}

/// The error message for the route `bad` contains hostile content.
fn objects(certificate: &Leaf) -> Vec<Value> {
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "shop.example.com", "shop"),
    ]);
    objects.push(certificate.secret("shop"));
    objects.extend(served(
        "cart",
        &["192.0.2.7:80".parse().expect("an address")],
    ));
    objects.push(http_route(
        "shop",
        &["shop.example.com"],
        &[rule_to("cart", &[])],
    ));
    let bad = path("RegularExpression", &format!("{HOSTILE}("));
    objects.push(http_route(
        "bad",
        &["bad.example.com"],
        &[
            rule_to("cart", &[bad]),
            rule_to("cart", &[path("PathPrefix", "/good")]),
        ],
    ));
    objects
}

/// One host serves, one has been silent for an hour, and one sends hostile content.
async fn hosts_report(cluster: &TestCluster) {
    let (admin, gateway) = (cluster.admin(), edge_name());
    report_serving(admin, &gateway, "host-1", "192.0.2.1").await;
    let an_hour_ago = Timestamp::now() - SignedDuration::from_hours(1);
    let lost = json!({"state": "Serving", "appliedRevision": "0123456789ab", "addresses": ["192.0.2.2"],
        "heartbeat": an_hour_ago});
    let result = write_report(admin, &gateway, "host-2", &lost).await;
    result.expect("a report");
    let hostile = json!({
        "state": "Degraded", "message": format!("a revision is held: {HOSTILE}"),
        "wantedRevision": HOSTILE, "appliedRevision": "0123456789ab", "addresses": [HOSTILE],
        "refusedListeners": [{"name": HOSTILE, "reason": HOSTILE}],
        "refusedRoutes": [{"route": "HTTPRoute/default/shop", "rules": [{"rule": 0, "reason": HOSTILE}], "works": true}],
        "nextCertificateExpiry": "2030-01-01T00:00:00Z",
    });
    let result = write_report(admin, &gateway, "host-3", &hostile).await;
    result.expect("a report");
}

const EXPECTED_TEXTS: [&str; 13] = [
    "This replica is ready.",
    "This replica is the leader",
    "<td>default/edge</td>",
    "1 of 3, 1 lost",
    "<td>Gateway/default/edge</td><td>https</td><td>1</td>",
    "<td>HTTPRoute/default/shop</td><td>edge</td>",
    "Accepted=True",
    "PartiallyInvalid",
    "<td>Secret/default/shop</td><td>certificate</td><td>default/edge</td>",
    "lost; it was Serving",
    "Degraded: a revision is held: &lt;img",
    "HTTPRoute/default/shop/rules/0",
    "2030-01-01T00:00:00Z",
];

fn only_our_markup(page: &str) {
    let text = page.replace("&lt;img src=x", "");
    for part in ["<img", "<script", "src=", "href=", "PRIVATE KEY"] {
        assert!(!text.contains(part), "{part}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_page_shows_state_and_escapes_markup() {
    let cluster = deployed(Channel::Standard).await;
    let ((first, at_first), (second, at_second)) = (address(), address());
    let controller = ControllerUnderTest::start(&cluster, &[&at_first]).await;
    let leaf = Authority::new("page").issue(&["shop.example.com"]);
    cluster.apply_all(&objects(&leaf)).await;
    hosts_report(&cluster).await;
    let page = wait_page(first, &EXPECTED_TEXTS).await;
    only_our_markup(&page);
    // The admission policy would reject this report.
    cluster.delete(BINDING).await;
    eventually("the forged report is shown", TEST_TIMEOUT, async || {
        // The controller soon removes the report, so write it again.
        let forged = report("forged", "default/edge", "host-4");
        let applied = cluster.admin().apply_value(&forged).await;
        applied.map_err(|error| error.to_string())?;
        let body = ask(first, "/status").await.body;
        let body = String::from_utf8_lossy(&body).into_owned();
        holds(body.contains("<td>forged</td>"), || body)
    })
    .await;
    let reply = ask(first, "/").await;
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{:?}", reply.headers);
    }
    let policy = reply.header("content-security-policy");
    assert!(
        policy.is_some_and(|it| it.starts_with("default-src 'none'; style-src 'sha256-")),
        "{policy:?}"
    );
    assert_eq!(ask(first, "/healthz").await.status, 404);

    let metrics = ask(first, "/metrics").await;
    assert_eq!(metrics.status, 200);
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(
        metrics.contains("sesame_controller_hosts_lost 1"),
        "{metrics}"
    );
    let (status, words) = controller.get("/metrics").await.expect("an answer");
    assert!(
        status == 404 && words.contains("--metrics-address"),
        "{words}"
    );
    assert_eq!(controller.get("/status").await.expect("an answer").0, 404);
    for probe in ["/healthz", "/readyz"] {
        let answer = controller.get(probe).await;
        assert_eq!(answer, Ok((200, "ok\n".to_owned())), "{probe}");
    }

    // Exactly one of the two pages must say that its replica is not the leader.
    let _waiting = ControllerUnderTest::start(&cluster, &[&at_second]).await;
    wait_page(second, &["<td>HTTPRoute/default/shop</td>", "host-2"]).await;
    // On a busy machine, the first replica may have lost its Lease.
    eventually("one replica is not the leader", TEST_TIMEOUT, async || {
        let pages = [shown(first).await?, shown(second).await?];
        let follows = |page: &&String| page.contains("This replica is not the leader");
        let following = pages.iter().filter(follows).count();
        holds(following == 1, || {
            format!("{following} replicas are not the leader")
        })
    })
    .await;

    // The page shows problems first, and counts the omitted objects.
    let rules = [rule_to("cart", &[])];
    let route = |number| http_route(&format!("many-{number}"), &["many.example.com"], &rules);
    let many: Vec<Value> = (0..300).map(route).collect();
    cluster.apply_all(&many).await;
    let page = wait_page(first, &["more</p>", "PartiallyInvalid"]).await;
    let objects = page.split("<h2>Objects</h2>").nth(1).expect("a table");
    let objects = objects.split("</table>").next().expect("a table");
    assert_eq!(
        objects.matches("<tr>").count(),
        501,
        "including the heading"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn guard_requires_certificate_and_token_except_for_probes() {
    let files = GuardDirectory::new("controller.test", TOKEN);
    let (address, at) = address();
    let guard = files.options();
    let guard = guard.map(|(option, file)| format!("{option}={}", file.display()));
    let flags = [&[at], guard.as_slice()].concat();
    let cluster = deployed(Channel::Standard).await;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut controller = ControllerUnderTest::start(&cluster, &flags).await;
    controller.wait_ready().await;
    let client = files.clients.issue(&["prometheus.test"]);
    let plain = |path: &str| Request::get(address, "controller.test", path);
    let with = |path: &str, authority: &Authority, token: &str| {
        plain(path)
            .tls("controller.test", &authority.trust())
            .showing(&client)
            .header("authorization", &format!("Bearer {token}"))
    };
    let status = async |request: Request| request.send().await.ok().map(|reply| reply.status);
    for path in ["/metrics", "/status"] {
        assert_eq!(status(with(path, &files.servers, TOKEN)).await, Some(200));
        assert_eq!(
            status(with(path, &files.servers, NEXT_TOKEN)).await,
            Some(401)
        );
        let without_token = plain(path)
            .tls("controller.test", &files.servers.trust())
            .showing(&client);
        assert_eq!(status(without_token).await, Some(401));
        let token = format!("Bearer {TOKEN}");
        let with_token = plain(path).header("authorization", &token);
        let without_certificate = with_token
            .clone()
            .tls("controller.test", &files.servers.trust());
        assert_eq!(status(without_certificate).await, None);
        assert_eq!(status(with_token).await, None, "plain HTTP");
    }
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(controller.get(probe).await.expect("an answer").0, 200);
    }
    // The last valid files must remain in use.
    files.put("tls.crt", "-----BEGIN CERTIFICATE-----\n");
    files.remove("token");
    let request = |authority: &Authority, token: &str| with("/status", authority, token);
    assert_eq!(status(request(&files.servers, NEXT_TOKEN)).await, Some(401));
    assert_eq!(status(request(&files.servers, TOKEN)).await, Some(200));
    let next = Authority::new("next servers");
    let server = next.issue(&["controller.test"]);
    files.put("tls.key", &server.key_pem);
    files.put("tls.crt", &server.certificate_pem);
    files.put("token", NEXT_TOKEN);
    assert_eq!(status(request(&next, NEXT_TOKEN)).await, Some(200));
    assert_eq!(status(request(&next, TOKEN)).await, Some(401));
    assert!(!controller.log().contains(TOKEN) && !controller.log().contains(NEXT_TOKEN));

    files.put("token", "short");
    controller.stop().await;
    controller.restart();
    eventually("the log states the reason", TEST_TIMEOUT, async || {
        let log = controller.log();
        holds(
            log.contains("cannot set up access control") && log.contains("expected one token"),
            || log,
        )
    })
    .await;
    assert_eq!(status(request(&next, NEXT_TOKEN)).await, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "requires a browser: make test-browser"]
async fn controller_page_runs_no_script_in_browser() {
    let cluster = deployed(Channel::Standard).await;
    let (address, at) = address();
    let _controller = ControllerUnderTest::start(&cluster, &[&at]).await;
    let leaf = Authority::new("page").issue(&["shop.example.com"]);
    let mut objects = objects(&leaf);
    let hostile = objects.pop().expect("the bad route");
    objects.push(http_route(
        "old-shop",
        &["old.example.com"],
        &[rule_to("gone", &[])],
    ));
    cluster.apply_all(&objects).await;
    let (admin, gateway) = (cluster.admin(), edge_name());
    report_serving(admin, &gateway, "host-1", "192.0.2.1").await;
    report_serving(admin, &gateway, "host-2", "192.0.2.2").await;
    wait_page(
        address,
        &["2 of 2", "BackendNotFound", "This replica is the leader"],
    )
    .await;
    let url = format!("http://{address}/status");
    take_picture(&url, "controller-page.png", (1180, 1120)).await;

    cluster.apply_all(&[hostile]).await;
    hosts_report(&cluster).await;
    wait_page(address, &["&lt;img src=x", "host-3"]).await;
    let dom = document(&url).await;
    assert!(
        dom.contains("<title>Sesame controller</title>"),
        "a script has run: {dom}"
    );
    for part in [
        "<td>default/edge</td>",
        "class=\"good\"",
        "<h2>Certificates</h2>",
    ] {
        assert!(dom.contains(part), "{part}: {dom}");
    }
    only_our_markup(&dom);
}
