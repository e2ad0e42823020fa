//! The agent's status page. Browsers must never interpret values as markup.

use std::net::SocketAddr;

use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::browser::{document, take_picture};
use sesame_tests::certs::Authority;
use sesame_tests::manifests::{edge, http_listener, http_route, https_listener, rule_to, yaml};
use sesame_tests::ports::free_port;
use sesame_tests::wait::{eventually, holds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HOSTILE: &str = "<img src=x onerror=alert(1)><script>document.title='owned'</script>";

async fn ask(address: SocketAddr, path: &str, more: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("the address");
    let request = format!("GET {path} HTTP/1.1\r\nhost: agent\r\n{more}connection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("write the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    (head.to_ascii_lowercase(), body.to_owned())
}

async fn started(flags: &[&str]) -> (AgentUnderTest, SocketAddr, Vec<Backend>) {
    let mut objects = edge(&[
        http_listener("http", 80, ""),
        https_listener("https", 443, "shop.example.com", "shop"),
    ]);
    objects.push(
        Authority::new("page")
            .issue(&["shop.example.com"])
            .secret("shop"),
    );
    let backends = start_served(&["cart"], &mut objects).await;
    objects.push(http_route(
        "shop",
        &["shop.example.com"],
        &[rule_to("cart", &[])],
    ));
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut setup = Setup::with_ports(&[80, 443])
        .flag("--metrics-address")
        .flag(&address.to_string());
    for flag in flags {
        setup = setup.flag(flag);
    }
    let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "shop.example.com", "/")).await;
    (agent, address, backends)
}

async fn wait_page(address: SocketAddr, parts: &[&str]) -> (String, String) {
    eventually(
        "the page has the expected parts",
        TEST_TIMEOUT,
        async || {
            let (head, body) = ask(address, "/status", "").await;
            let missing = parts.iter().find(|part| !body.contains(**part));
            holds(missing.is_none(), || {
                format!("{missing:?} is not in {body}")
            })?;
            Ok::<_, String>((head, body))
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_metrics_port_does_not_stop_serving() {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    let _backends = start_served(&["cart"], &mut objects).await;
    objects.push(http_route("shop", &["a.test"], &[rule_to("cart", &[])]));
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = taken.local_addr().expect("an address");
    let agent = Setup::with_ports(&[80])
        .flag("--metrics-address")
        .flag(&address.to_string())
        .start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    drop(taken);
    eventually("the address is open", TEST_TIMEOUT, async || {
        let opened = TcpStream::connect(address).await;
        opened.map(drop).map_err(|error| error.to_string())
    })
    .await;
    wait_page(address, &["This host serves."]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_page_shows_host_state_and_escapes_markup() {
    let (agent, address, _backends) = started(&[]).await;
    let expected = [
        "This host serves.",
        "default/edge",
        "HTTPRoute/default/shop",
        "Accepted=True",
        "Secret/default/shop",
        "shop.example.com",
        "RevisionApplied",
    ];
    let (head, body) = wait_page(address, &expected).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'; style-src 'sha256-"),
        "{head}"
    );
    for part in [
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "cache-control: no-store",
    ] {
        assert!(head.contains(part), "{head}");
    }
    assert!(
        !body.contains("PRIVATE KEY") && !body.contains("src="),
        "{body}"
    );
    let (root, _) = ask(address, "/", "").await;
    assert!(root.starts_with("http/1.1 200"), "{root}");

    let hostile = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: \"{HOSTILE}\"}}\n"
    );
    agent.write("hostile.yaml", &hostile);
    let (_, body) = wait_page(address, &["&lt;img src=x onerror=alert(1)&gt;"]).await;
    assert!(
        !body.contains("<img") && !body.contains("<script"),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn status_page_requires_metrics_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    std::fs::write(&token, "a-token-of-some-length").expect("a token");
    let file = format!("--metrics-token-file={}", token.display());
    let (_agent, address, _backends) = started(&[&file]).await;
    let (head, body) = ask(address, "/status", "").await;
    assert!(head.starts_with("http/1.1 401"), "{head}");
    assert!(!body.contains("edge"), "{body}");
    let shown = "authorization: Bearer a-token-of-some-length\r\n";
    let (head, _) = ask(address, "/status", shown).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "requires a browser: make test-browser"]
async fn status_page_runs_no_script_in_browser() {
    let (agent, address, _backends) = started(&[]).await;
    wait_page(address, &["RevisionApplied", "Secret/default/shop"]).await;
    let url = format!("http://{address}/status");
    take_picture(&url, "status-page.png", (1180, 900)).await;

    let hostile = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: \"{HOSTILE}\"}}\n"
    );
    agent.write("hostile.yaml", &hostile);
    wait_page(address, &["&lt;img src=x"]).await;
    let dom = document(&url).await;
    assert!(
        dom.contains("<title>Sesame</title>"),
        "a script has run: {dom}"
    );
    for part in [
        "<td>default/edge</td>",
        "class=\"good\"",
        "<h2>Certificates</h2>",
    ] {
        assert!(dom.contains(part), "{part}: {dom}");
    }
    assert!(!dom.contains("<img") && !dom.contains("<script"), "{dom}");
}
