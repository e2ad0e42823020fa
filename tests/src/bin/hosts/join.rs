//! A host joins a cluster with a single command, and later leaves it. Only the packages are
//! installed on its machine.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use serde_json::json;
use sesame_tests::backend::Backend;
use sesame_tests::client::Request;
use sesame_tests::clock::Clock;
use sesame_tests::controller::ControllerUnderTest;
use sesame_tests::joining::{Host, Site, refused};
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served};
use sesame_tests::wait::{eventually, holds};

use crate::doctor;
use crate::inside::{Inside, TIMEOUT};
use crate::life::in_runtime;
use crate::machine::Machine;
use crate::network::{HOST, SITE, attach, inside_own};
use crate::packages::Packages;

const AGENT: &str = "sesame-agent.service";
const SETTINGS: &str = "/etc/sesame/agent.yaml";
const TOKEN: &str = "/root/join-token";
/// Maximum time from the join command to the first response.
const JOIN: Duration = Duration::from_secs(60);
/// All namespaces share the machine's clock, so a preloaded library shifts the agent's clock.
const CLOCK_UNIT: &str = "/run/systemd/system/sesame-agent.service.d/clock.conf";
const CLOCK: [&str; 2] = ["/usr/lib/clock.so", "/usr/lib/clock.offset"];

pub(crate) fn scenario(packages: &Packages) {
    if inside_own("join") {
        in_runtime(lives(packages));
    }
}

async fn lives(packages: &Packages) {
    let site = Site::start_at(SITE).await;
    let controller = ControllerUnderTest::start(&site.cluster, &[]).await;
    controller.wait_ready().await;
    let backend = Backend::start_at("app", (SITE, 0).into()).await;
    let backend = backend.expect("the machine has the address");
    publish(&site, &backend, 1).await;
    let machine = Machine::with_packages("join", packages);
    let inside = machine.inside();
    attach(&inside);
    let shipped = inside.read(SETTINGS);
    let clock = clock(&inside);

    let begun = Instant::now();
    let token = invite(&site, &inside, "edge-1");
    let joined = inside.ok(&[
        "sesame-agent",
        "join",
        "--zone",
        "rack-7",
        "--token-file",
        TOKEN,
    ]);
    answers(1, JOIN.saturating_sub(begun.elapsed())).await;
    println!(
        "host: from the invitation to the first response: {:.1?}",
        begun.elapsed()
    );
    assert!(joined.contains("is commented out"), "{joined}");
    let load = Load::start(&Plan::new(vec![get("/always")]));
    inventory(&site).await;
    refused(&Host::new().join(&token), "join token");
    doctor::examine(&inside, "held by this host's Envoys");
    publish(&site, &backend, 2).await;
    answers(2, TIMEOUT).await;

    let first = credential(&inside);
    // More than half of the credential's lifetime.
    clock(310);
    inside.wait_for("the credential is renewed", |inside| {
        let now = credential(inside);
        (now != first)
            .then_some(())
            .ok_or("the first credential is still in use")
    });
    clock(0);
    let renewed = site.cluster.bearer(&credential(&inside));
    let path = "/api/v1/namespaces/sesame-system/configmaps";
    renewed
        .get(path)
        .await
        .expect("the renewed credential is valid");

    let mut life = Life {
        site,
        controller,
        backend,
        machine,
    };
    life.without_cluster(load).await;
    let inside = life.machine.inside();
    leaves(&life.site, &inside, &shipped);
    revoked(&life.site, &inside).await;
}

struct Life {
    site: Site,
    controller: ControllerUnderTest,
    backend: Backend,
    machine: Machine,
}

impl Life {
    async fn without_cluster(&mut self, load: Load) {
        let Self {
            site,
            controller,
            backend,
            machine,
        } = self;
        controller.kill9();
        site.cluster.stop_apiserver();
        load.pass(100).await;
        machine.inside().ok(&["systemctl", "restart", AGENT]);
        load.pass(100).await;
        load.stop().await.clean(
            "host: joined, credential renewed, controller and API server stopped, agent restarted",
        );

        machine.reboot();
        let inside = machine.inside();
        attach(&inside);
        answers(2, TIMEOUT).await;
        println!(
            "host: first response after a reboot without API server and controller: {} ms",
            inside.age().as_millis()
        );
        let load = Load::start(&Plan::new(vec![get("/always")]));
        site.cluster.start_apiserver().await;
        controller.restart();
        controller.wait_ready().await;
        publish(site, backend, 3).await;
        answers(3, TIMEOUT).await;
        load.pass(100).await;
        let report = load.stop().await;
        report.clean("host: rebooted, cluster available again");
    }
}

fn leaves(site: &Site, inside: &Inside, shipped: &str) {
    inside.ok(&["sesame-agent", "leave"]);
    assert_eq!(
        site.row("edge-1"),
        json!(null),
        "the cluster no longer lists the host"
    );
    assert_eq!(inside.read(SETTINGS), shipped, "the settings are restored");
    assert!(!inside.path("/var/lib/sesame/cluster").exists());
    assert!(inside.envoys().is_empty(), "all Envoys have exited");
    let enabled = inside.output(&["systemctl", "is-enabled", "sesame.target"]);
    assert_eq!(enabled.trim(), "disabled");
    let left = inside.run(&["sesame-agent", "leave"]);
    refused(&left, "has not joined a cluster");
}

/// Uses a new name, because the first host's objects still exist.
async fn revoked(site: &Site, inside: &Inside) {
    let token = invite(site, inside, "edge-2");
    inside.ok(&["sesame-agent", "join", "--token-file", TOKEN]);
    answers(3, TIMEOUT).await;
    let load = Load::start(&Plan::new(vec![get("/always")]));
    let stolen = site.cluster.bearer(&credential(inside));
    let revoked = site.hosts(&["revoke", "edge-2"]);
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(site.row("edge-2"), json!(null));
    let path = "/api/v1/namespaces/sesame-system/configmaps";
    eventually("access is denied", TIMEOUT, async || {
        match stolen.get(path).await {
            Err(error) if error.is(401) || error.is(403) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    refused(&Host::new().join(&token), "join token");
    inside.ok(&["systemctl", "restart", AGENT]);
    load.pass(100).await;
    load.stop()
        .await
        .clean("host: access revoked, agent restarted");
    let left = inside.run(&["sesame-agent", "leave", "--force"]);
    assert!(left.status.success(), "{left:?}");
}

fn invite(site: &Site, inside: &Inside, host: &str) -> String {
    let token = site.token(&[
        "--gateway",
        "default/edge",
        "--host",
        host,
        "--lifetime",
        "10m",
    ]);
    inside.write(TOKEN, &token);
    token
}

async fn publish(site: &Site, backend: &Backend, number: u32) {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend.address()]));
    let matches = [
        path("PathPrefix", "/always"),
        path("Exact", &format!("/{number}")),
    ];
    objects.push(http_route(
        "app",
        &["join.test"],
        &[rule_to("app", &matches)],
    ));
    site.apply(&objects).await;
}

fn get(path: &str) -> Request {
    Request::get((HOST, 80).into(), "join.test", path).timeout(Duration::from_secs(5))
}

async fn answers(number: u32, patience: Duration) {
    let request = get(&format!("/{number}"));
    eventually(
        &format!("route {number} is served"),
        patience,
        async || match request.send().await {
            Ok(reply) => holds(reply.status == 200, || format!("status {}", reply.status)),
            Err(error) => Err(format!("{error:#}")),
        },
    )
    .await;
}

async fn inventory(site: &Site) {
    let row = eventually("the host is in the inventory", TIMEOUT, async || {
        let row = site.row("edge-1");
        holds(row["state"] == "Serving", || row.to_string())?;
        Ok(row)
    })
    .await;
    assert_eq!(row["access"], "joined", "{row:#}");
    assert_eq!(row["addresses"], json!([HOST.to_string()]), "{row:#}");
    assert_eq!(row["zone"], "rack-7", "{row:#}");
}

/// The credential must be sealed on disk.
fn credential(inside: &Inside) -> String {
    let stored = fs::read(inside.path("/var/lib/sesame/cluster/token")).expect("a credential");
    assert!(
        sesame_proto::at_rest::is_sealed(&stored),
        "the credential is not sealed"
    );
    inside.read("/run/sesame/cluster-token")
}

/// Returns a function that sets the clock's offset in seconds.
fn clock(inside: &Inside) -> impl Fn(i64) + use<> {
    let variables = Clock::new()
        .variables()
        .map(|(name, from)| (name, fs::read(from)));
    let mut unit = "[Service]\n".to_owned();
    for ((name, content), to) in variables.into_iter().zip(CLOCK) {
        fs::write(inside.path(to), content.expect("a clock file")).expect("a file");
        unit.extend(["Environment=", name, "=", to, "\n"]);
    }
    inside.write(CLOCK_UNIT, &unit);
    inside.ok(&["systemctl", "daemon-reload"]);
    let offset = fs::OpenOptions::new()
        .write(true)
        .open(inside.path(CLOCK[1]));
    let offset = offset.expect("a file in the machine");
    move |seconds| {
        // Write in place, because the agent has mapped the file.
        let set = offset.write_all_at(&seconds.to_ne_bytes(), 0);
        set.expect("the clock is set");
    }
}
