//! Session ticket keys in a Secret that hosts share. Changes must not affect listeners.

use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_envoy::Admin;
use sesame_render::xds::{Subscription, XdsKind};
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT, listener_condition};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Leaf;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::yaml;
use sesame_tests::wait::{eventually, holds};

use super::site::{Site, unmoved};
use super::tickets::{Resumer, age, assert_all_resume, clients, keys};

const ONE: [u8; 80] = [1; 80];
const TWO: [u8; 80] = [2; 80];

fn ticket_secret(keys: &[[u8; 80]]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tickets", "namespace": "default"},
        "type": "Opaque",
        "data": {"session-ticket-keys": STANDARD.encode(keys.concat())},
    })
}

fn put(agent: &AgentUnderTest, keys: &[[u8; 80]]) {
    agent.write("tickets.yaml", &yaml(&[ticket_secret(keys)]));
}

/// If `keys` is empty, no Secret is created.
async fn host(
    site: &Site,
    mut agent: AgentUnderTest,
    backend: SocketAddr,
    leaf: &Leaf,
    keys: &[[u8; 80]],
) -> AgentUnderTest {
    let objects = site.objects(backend, |mut listener| {
        listener["tls"]["options"] = json!({"projectsesame.io/session-ticket-keys": "tickets"});
        listener
    });
    agent.write("site.yaml", &objects);
    Site::write(&agent, 0, leaf);
    if !keys.is_empty() {
        put(&agent, keys);
    }
    agent.restart();
    site.wait_shown(&agent, 0, leaf).await;
    agent
}

async fn hosts(
    site: &Site,
    backend: SocketAddr,
    leaf: &Leaf,
    keys: &[[u8; 80]],
) -> [AgentUnderTest; 2] {
    let setup = || Setup::with_ports(&[443]);
    let one = host(site, setup().prepare(), backend, leaf, keys).await;
    let other = host(site, setup().prepare_beside(&one), backend, leaf, keys).await;
    [one, other]
}

/// Returns clients that have a session ticket from `agent`.
async fn with_tickets(agent: &AgentUnderTest, site: &Site) -> Vec<Resumer> {
    let all = clients(agent, site);
    for client in &all {
        assert!(!client.resumes().await.expect("a request"), "the first");
    }
    all
}

async fn assert_resume_at(clients: &[Resumer], host: &AgentUnderTest, expected: bool, after: &str) {
    for client in clients {
        let resumed = client.at(host.address(443)).resumes().await;
        assert_eq!(resumed.expect("a request"), expected, "{after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_with_same_ticket_keys_share_sessions() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let leaf = site.issue(0);
    let [one, other] = hosts(&site, backend.address(), &leaf, &[ONE]).await;
    let all = with_tickets(&one, &site).await;
    assert_resume_at(&all, &other, true, "a ticket from the other host").await;
}

async fn taken(admin: &Admin) -> String {
    let texts = admin.version_texts().await.expect("Envoy answers");
    let keys = Subscription::new(XdsKind::Secret, "Secret/default/tickets");
    texts.of(&keys, "").unwrap_or_default().to_owned()
}

async fn wait_taken(admin: &Admin, before: String) {
    eventually("the new keys are used", TEST_TIMEOUT, async || {
        let now = taken(admin).await;
        holds(now != before, || format!("version {now:?} is still used"))
    })
    .await;
}

/// Works even if the agent is unhealthy.
async fn admin(agent: &AgentUnderTest) -> Admin {
    let path = |status: &Value| Some(status["gateways"][0]["envoy"]["admin"].as_str()?.to_owned());
    let status = agent.wait_status("Envoy has an admin socket", |status| path(status).is_some());
    let path = path(&status.await).expect("an admin socket");
    Admin::new(PathBuf::from(path))
}

/// Applies `change` to each host and waits until its Envoy uses the new keys.
async fn change(hosts: &[AgentUnderTest; 2], change: impl Fn(&AgentUnderTest)) {
    for host in hosts {
        let admin = admin(host).await;
        let before = taken(&admin).await;
        change(host);
        wait_taken(&admin, before).await;
    }
}

async fn wait_resolved_refs(agent: &AgentUnderTest, status: &str, words: &str) {
    let is_reported = |state: &Value| {
        let found = listener_condition(state, "l0", "ResolvedRefs");
        let message = found["message"].as_str().unwrap_or_default();
        found["status"] == status && message.contains(words)
    };
    let what = format!("ResolvedRefs is {status}: {words}");
    agent.wait_status(&what, is_reported).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_tickets_resume_during_shared_key_rotation() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let leaf = site.issue(0);
    let hosts = hosts(&site, backend.address(), &leaf, &[ONE]).await;
    let [one, other] = &hosts;
    let admins = [admin(one).await, admin(other).await];
    let before = [unmoved(&admins[0]).await, unmoved(&admins[1]).await];
    let load = Load::start(&Plan::new(vec![site.get(one, 0), site.get(other, 0)]));
    load.pass(20).await;

    let old = with_tickets(one, &site).await;
    change(&hosts, |host| put(host, &[ONE, TWO])).await;
    assert_resume_at(&old, other, true, "the new key is known").await;
    change(&hosts, |host| put(host, &[TWO, ONE])).await;
    let new = with_tickets(one, &site).await;
    assert_resume_at(&old, other, true, "the new key is the first").await;
    load.pass(20).await;
    change(&hosts, |host| put(host, &[TWO])).await;
    assert_resume_at(&new, other, true, "the old key is gone").await;
    let stale = with_tickets(one, &site).await;
    change(&hosts, |host| put(host, &[ONE])).await;
    assert_resume_at(&stale, other, false, "its key is gone").await;

    load.pass(20).await;
    load.stop().await.assert_clean();
    let after = [unmoved(&admins[0]).await, unmoved(&admins[1]).await];
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_secret_changes_no_listener() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let leaf = site.issue(0);
    let mut hosts = hosts(&site, backend.address(), &leaf, &[]).await;
    let before = unmoved(&admin(&hosts[0]).await).await;
    for host in &hosts {
        let message = "Secret default/tickets does not exist; each host generates its own keys";
        wait_resolved_refs(host, "False", message).await;
    }
    let own = with_tickets(&hosts[0], &site).await;
    assert_all_resume(&own, "with a key of the host").await;
    assert_resume_at(&own, &hosts[1], false, "of another host").await;

    change(&hosts, |host| put(host, &[ONE])).await;
    wait_resolved_refs(&hosts[0], "True", "").await;
    let shared = with_tickets(&hosts[0], &site).await;
    assert_resume_at(&shared, &hosts[1], true, "the Secret exists").await;

    // If the Secret is broken, the last good keys must remain in use.
    for host in &hosts {
        let mut broken = ticket_secret(&[TWO]);
        broken["data"]["session-ticket-keys"] = json!(STANDARD.encode([3; 81]));
        host.write("tickets.yaml", &yaml(&[broken]));
        let message = "has 81 bytes of session-ticket-keys";
        wait_resolved_refs(host, "False", message).await;
        wait_resolved_refs(host, "False", "its last valid keys are used").await;
    }
    let kept = with_tickets(&hosts[0], &site).await;
    assert_resume_at(&kept, &hosts[1], true, "the Secret is broken").await;

    // If the Secret is deleted, each host must use its own keys.
    change(&hosts, |host| host.remove("tickets.yaml")).await;
    let own = with_tickets(&hosts[0], &site).await;
    assert_resume_at(&own, &hosts[1], false, "the Secret is gone").await;
    assert_eq!(unmoved(&admin(&hosts[0]).await).await, before);

    let own = with_tickets(&hosts[0], &site).await;
    hosts[0].wait_stored().await;
    let (admin, keys_before) = (admin(&hosts[0]).await, keys(&hosts[0]));
    let taken_before = taken(&admin).await;
    age(&hosts[0]);
    hosts[0].restart();
    wait_taken(&admin, taken_before).await;
    assert!(keys(&hosts[0]).ends_with(&keys_before));
    assert_ne!(keys(&hosts[0]), keys_before);
    assert_all_resume(&own, "a rotation of the host's keys").await;
    assert_eq!(unmoved(&admin).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_key_replaces_unusable_ticket_secret() {
    let backend = Backend::start("app").await;
    let site = Site::with_names(1);
    let leaf = site.issue(0);
    let setup = || Setup::with_ports(&[443]).flag("--session-ticket-hours=0");
    let agent = host(&site, setup().prepare(), backend.address(), &leaf, &[ONE]).await;
    let admin = admin(&agent).await;
    let before = unmoved(&admin).await;
    let taken_before = taken(&admin).await;
    agent.remove("tickets.yaml");
    wait_taken(&admin, taken_before).await;
    let all = with_tickets(&agent, &site).await;
    assert_all_resume(&all, "the Secret is gone").await;
    assert_eq!(unmoved(&admin).await, before);
}
