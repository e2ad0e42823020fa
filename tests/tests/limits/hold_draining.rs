//! `spec.rollout.holdDraining`: changes that drain connections wait, and all others do not.

use serde_json::{Value, json};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, words};
use sesame_tests::backend::Backend;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::{Connection, Reply, Request};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge_with, gateway, http_listener, http_route, https_listener, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};

const OPEN: usize = 8;
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// Content of the manifests.
struct World<'w> {
    via: &'w str,
    rollout: Value,
    approved: &'w str,
    /// Hostname of the HTTPS listener.
    hostname: &'w str,
    backend: &'w Backend,
    routes: &'w [&'w str],
    leaf: &'w Leaf,
}

impl World<'_> {
    fn yaml(&self) -> String {
        let spec = json!({"edge": {"viaHeader": self.via}, "rollout": self.rollout});
        let listeners = [
            http_listener("http", 80, ""),
            https_listener("https", 443, self.hostname, "pair"),
        ];
        let mut all = edge_with(&spec, &listeners);
        if !self.approved.is_empty() {
            let annotation = "projectsesame.io/approve-draining";
            let gateway = all.last_mut().expect("a Gateway");
            gateway["metadata"]["annotations"][annotation] = json!(self.approved);
        }
        all.push(self.leaf.secret("pair"));
        all.extend(served("a", &[self.backend.address()]));
        for host in self.routes {
            let name = host.replace('.', "-");
            all.push(http_route(&name, &[host], &[rule_to("a", &[])]));
        }
        yaml(&all)
    }
}

async fn connect(request: &Request) -> Vec<Connection> {
    let mut all = Vec::new();
    for _ in 0..OPEN {
        let mut connection = Connection::open(request).await.expect("a connection");
        let reply = connection.send(request).await.expect("a response");
        assert_eq!(reply.status, 200);
        all.push(connection);
    }
    all
}

/// Panics unless each connection still serves without asking the client to reconnect.
async fn assert_kept(connections: &mut [Connection], request: &Request) {
    for connection in connections {
        let reply = connection.send(request).await.expect("a response");
        assert_eq!((reply.status, reply.header("connection")), (200, None));
        assert!(connection.is_open().await);
    }
}

async fn held(agent: &AgentUnderTest, part: &str) -> String {
    let message = |status: &Value| status["gateways"][0]["message"].to_string();
    let is_held = |status: &Value| {
        let message = message(status);
        message.contains("is held, because it drains connections") && message.contains(part)
    };
    message(&agent.wait_status("the change is held", is_held).await)
}

fn digest(message: &str) -> String {
    let (_, digest) = message.split_once("approve-draining=").expect("a digest");
    digest.chars().take(16).collect()
}

fn via(reply: &Reply) -> Option<&str> {
    reply.header("via")
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_change_waits_for_approval_under_load() {
    let (first, second) = (
        Backend::start("first").await,
        Backend::start("second").await,
    );
    let authority = Authority::new("servers");
    let [old, new] = [(); 2].map(|()| authority.issue(&["s.test"]));
    let before = World {
        via: "Omit",
        rollout: json!({"holdDraining": true}),
        approved: "",
        hostname: "s.test",
        backend: &first,
        routes: &["a.test", "s.test"],
        leaf: &old,
    };
    let mut agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &before.yaml())]);
    let request = agent.get(80, "a.test", "/");
    let secure = |agent: &AgentUnderTest| {
        let request = agent.get(443, "s.test", "/");
        request.tls("s.test", &authority.trust())
    };
    let over_tls = secure(&agent);
    agent.wait_backend(&over_tls, "first").await;
    agent.wait_stored().await;
    let load = Load::start(&Plan::new(vec![request.clone()]));
    let mut idle = connect(&request).await;
    idle.extend(connect(&over_tls).await);

    // Endpoints, routes and keys change together with the listeners, and only the latter wait.
    let mut after = World {
        via: "Append",
        backend: &second,
        routes: &["a.test", "s.test", "new.test"],
        leaf: &new,
        ..before
    };
    agent.write("all.yaml", &after.yaml());
    let message = held(&agent, "port 443/TCP: ").await;
    assert!(message.contains("port 80/TCP: "), "{message}");
    agent.wait_backend(&request, "second").await;
    agent
        .wait_backend(&agent.get(80, "new.test", "/"), "second")
        .await;
    let shown = |reply: &Reply| reply.certificate.as_ref() == Some(&new.der);
    let reply = agent.wait_served(&over_tls, shown).await;
    assert_eq!(via(&reply), None);
    assert_kept(&mut idle[..OPEN], &request).await;
    assert_kept(&mut idle[OPEN..], &over_tls).await;

    // A restart neither applies nor forgets the change.
    agent.restart();
    let again = held(&agent, "port 80/TCP").await;
    assert_eq!(digest(&again), digest(&message));
    after.backend = &first;
    agent.write("all.yaml", &after.yaml());
    agent.wait_backend(&request, "first").await;
    assert_kept(&mut idle[..OPEN], &request).await;
    assert_kept(&mut idle[OPEN..], &over_tls).await;
    load.pass(100).await;

    // Another approval has no effect.
    after.approved = "0123456789abcdef";
    after.routes = &["a.test", "s.test", "newer.test"];
    agent.write("all.yaml", &after.yaml());
    agent.wait_ok(&agent.get(80, "newer.test", "/")).await;
    held(&agent, &digest(&message)).await;
    let digest = digest(&message);
    after.approved = &digest;
    agent.write("all.yaml", &after.yaml());
    for request in [&request, &over_tls] {
        let is_changed = |reply: &Reply| via(reply) == Some("1.1 sesame");
        agent.wait_served(request, is_changed).await;
    }
    agent.wait_healthy().await;
    eventually("the old connections drain", TEST_TIMEOUT, async || {
        let mut left = 0;
        for connection in &mut idle {
            left += usize::from(connection.is_open().await);
        }
        holds(left == 0, || format!("{left} are open"))
    })
    .await;
    load.stop()
        .await
        .clean("held, restarted and approved change of listeners");
}

/// Routes of a listener with another hostname do not fit the present listener.
#[tokio::test(flavor = "multi_thread")]
async fn dependent_routes_wait_until_operator_accepts() {
    let (first, second) = (
        Backend::start("first").await,
        Backend::start("second").await,
    );
    let leaf = Authority::new("servers").issue(&["s.test", "t.test"]);
    let world = |hostname, backend, routes| World {
        via: "Omit",
        rollout: json!({"holdDraining": true}),
        approved: "",
        hostname,
        backend,
        routes,
        leaf: &leaf,
    };
    let before = world("s.test", &first, &["a.test"]);
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &before.yaml())]);
    let request = agent.get(80, "a.test", "/");
    agent.wait_backend(&request, "first").await;
    agent.wait_stored().await;
    let mut idle = connect(&request).await;
    let after = world("t.test", &second, &["a.test", "new.test"]);
    agent.write("all.yaml", &after.yaml());
    held(&agent, "port 443/TCP: ").await;
    agent.wait_backend(&request, "second").await;
    held(&agent, "newer routes, protections and revocations wait too").await;
    let new = agent.get(80, "new.test", "/");
    assert_eq!(new.send().await.expect("a response").status, 404);
    let output = agent.order(&["accept"]).await;
    assert!(
        words(&output).contains("applying the held"),
        "{}",
        words(&output)
    );
    agent.wait_backend(&new, "second").await;
    agent.wait_healthy().await;
    // The change drains only port 443.
    assert_kept(&mut idle, &request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_window_applies_draining_change() {
    let backend = Backend::start("a").await;
    let leaf = Authority::new("servers").issue(&["s.test"]);
    let world = |via, windows: Value| World {
        via,
        rollout: json!({"holdDraining": true, "windows": windows}),
        approved: "",
        hostname: "s.test",
        backend: &backend,
        routes: &["a.test"],
        leaf: &leaf,
    };
    // A day that is neither today nor tomorrow, whatever the time of the test.
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let day = usize::try_from(now.weekday().to_monday_zero_offset()).expect("0 to 6");
    let day = DAYS[(day + 3) % DAYS.len()];
    let closed = json!([{"days": [day], "start": "00:00", "end": "01:00"}]);
    let before = world("Omit", closed.clone()).yaml();
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &before)]);
    let request = agent.get(80, "a.test", "/");
    agent.wait_ok(&request).await;
    agent.wait_stored().await;
    agent.write("all.yaml", &world("Append", closed).yaml());
    held(&agent, "the next maintenance window opens at 20").await;
    let always = json!([{"start": "00:00", "end": "00:00"}]);
    agent.write("all.yaml", &world("Append", always).yaml());
    agent
        .wait_served(&request, |reply| via(reply) == Some("1.1 sesame"))
        .await;
}

/// Two Envoys must not share a port, even if one of them holds it.
#[tokio::test(flavor = "multi_thread")]
async fn held_port_is_released_for_other_gateway() {
    let backend = Backend::start("a").await;
    let spec = json!({"rollout": {"holdDraining": true}});
    let world = |own: &[Value], others: &[Value]| {
        let mut all = edge_with(&spec, own);
        if !others.is_empty() {
            let mut second = gateway("second", others);
            second["spec"]["gatewayClassName"] = json!("edge");
            all.push(second);
        }
        all.extend(served("a", &[backend.address()]));
        let mut route = http_route("a", &["a.test"], &[rule_to("a", &[])]);
        let parents = json!([{"name": "edge"}, {"name": "second"}]);
        route["spec"]["parentRefs"] = parents;
        all.push(route);
        yaml(&all)
    };
    let [first, second] = [80, 8080].map(|port| http_listener(&format!("p{port}"), port, ""));
    let both = [first.clone(), second.clone()];
    let agent = Setup::with_ports(&[80, 8080]).start(&[("all.yaml", &world(&both, &[]))]);
    let request = agent.get(8080, "a.test", "/");
    agent.wait_backend(&request, "a").await;
    agent.wait_stored().await;
    agent.write("all.yaml", &world(&both[..1], &[]));
    held(&agent, "port 8080/TCP").await;
    agent.wait_backend(&request, "a").await;
    agent.write("all.yaml", &world(&both[..1], &both[1..]));
    agent
        .wait_status("both Gateways serve the newest change", |status| {
            let gateways = status["gateways"].as_array();
            gateways.is_some_and(|all| all.len() == 2) && status["healthy"] == true
        })
        .await;
    agent.wait_backend(&request, "a").await;
    agent.wait_backend(&agent.get(80, "a.test", "/"), "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_and_resume_end_the_hold() {
    let backend = Backend::start("a").await;
    let leaf = Authority::new("servers").issue(&["s.test"]);
    let world = |via| World {
        via,
        rollout: json!({"holdDraining": true}),
        approved: "",
        hostname: "s.test",
        backend: &backend,
        routes: &["a.test"],
        leaf: &leaf,
    };
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &world("Omit").yaml())]);
    let request = agent.get(80, "a.test", "/");
    agent.wait_ok(&request).await;
    agent.wait_stored().await;
    agent.write("all.yaml", &world("Append").yaml());
    held(&agent, "port 80/TCP").await;
    agent.order(&["rollback", "1"]).await;
    let refused = agent.order(&["accept"]).await;
    assert!(
        words(&refused).contains("rolled back"),
        "{}",
        words(&refused)
    );
    agent.order(&["resume"]).await;
    agent
        .wait_served(&request, |reply| via(reply) == Some("1.1 sesame"))
        .await;
    agent.wait_healthy().await;
}
