//! `ListenerSet` on a real Envoy. Changing a ListenerSet must not affect other listeners.

#[path = "../../../controller/resolver/src/tests/tls_override_rows.rs"]
mod tls_override_rows;

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};
use sesame_envoy::Admin;
use sesame_tests::agent::{AgentUnderTest, Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::controller::condition;
use sesame_tests::handshakes::Handshake;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, http_listener, http_route, https_listener, l4_listener, listener_set, on_listener_set,
    route, rule_to, served, yaml,
};
use sesame_tests::wait::{eventually, holds};

const CHANGES: usize = 20;

fn open_edge(listeners: &[Value]) -> Vec<Value> {
    let mut objects = edge(listeners);
    objects[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    objects
}

fn created(mut object: Value, year: u32) -> Value {
    object["metadata"]["creationTimestamp"] = json!(format!("{year}-01-01T00:00:00Z"));
    object
}

fn object<'s>(status: &'s Value, kind: &str, name: &str) -> &'s Value {
    status["objects"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|object| object["kind"] == kind && object["name"] == name)
        .map_or(&Value::Null, |object| &object["status"])
}

fn condition_text(status: &Value, kind: &str, name: &str, type_: &str) -> String {
    object(status, kind, name)["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == type_)
        .map(|condition| {
            let word = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}", word("status"), word("reason"))
        })
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn set_listeners_are_served_beside_gateway_listeners() {
    let authority = Authority::new("tests");
    let mut objects = open_edge(&[http_listener("same", 80, "gateway.test")]);
    let mut backends = Vec::new();
    for name in ["gateway", "older", "younger"] {
        let backend = Backend::start(name).await;
        objects.extend(served(name, &[backend.address()]));
        let route = http_route(name, &[], &[rule_to(name, &[])]);
        objects.push(match name {
            "gateway" => route,
            set => on_listener_set(route, set),
        });
        backends.push(backend);
    }
    objects.push(
        authority
            .issue(&["older.test", "younger.test"])
            .secret("pair"),
    );
    objects.push(created(
        listener_set(
            "older",
            &[
                http_listener("same", 80, "older.test"),
                // Conflicts with a listener of the Gateway.
                http_listener("lost", 80, "gateway.test"),
                https_listener("https", 443, "older.test", "pair"),
                http_listener("alone", 8080, ""),
            ],
        ),
        2024,
    ));
    objects.push(created(
        listener_set(
            "younger",
            &[
                https_listener("https", 443, "younger.test", "pair"),
                // Conflicts with a listener of the older ListenerSet.
                http_listener("same", 80, "older.test"),
                l4_listener("tcp", 8080, "TCP"),
            ],
        ),
        2025,
    ));
    objects.push(listener_set(
        "refused",
        &[http_listener("only", 80, "gateway.test")],
    ));
    // A route attaches to a ListenerSet only if it refers to the ListenerSet, not the Gateway.
    objects.push(on_listener_set(
        route(
            "TCPRoute",
            "tcp",
            &[],
            &[json!({"backendRefs": [{"name": "younger", "port": 80}]})],
        ),
        "younger",
    ));
    let agent = Setup::with_ports(&[80, 443, 8080]).start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "gateway.test", "/")).await;
    let mut checks = Checks::default();
    for (port, host, backend) in [
        (80, "gateway.test", "gateway"),
        (80, "older.test", "older"),
        (8080, "anything.test", "older"),
    ] {
        checks.backend(agent.get(port, host, "/"), backend).await;
    }
    for host in ["older.test", "younger.test"] {
        let request = agent.get(443, host, "/").tls(host, &authority.trust());
        checks
            .backend(request, host.trim_end_matches(".test"))
            .await;
    }
    let misdirected = agent
        .get(443, "younger.test", "/")
        .tls("older.test", &authority.trust());
    checks.status(misdirected, 421).await;
    statuses(&agent, &mut checks).await;
    checks.finish();
}

async fn statuses(agent: &AgentUnderTest, checks: &mut Checks) {
    let status = agent
        .wait_status("the set is programmed", |status| {
            condition_text(status, "ListenerSet", "older", "Programmed") == "True Programmed"
        })
        .await;
    for (set, accepted, programmed) in [
        ("older", "True ListenersNotValid", "True Programmed"),
        ("younger", "True ListenersNotValid", "True Programmed"),
        (
            "refused",
            "False ListenersNotValid",
            "False ListenersNotValid",
        ),
    ] {
        let of = |type_| condition_text(&status, "ListenerSet", set, type_);
        checks.same(set, of("Accepted"), accepted.to_owned());
        checks.same(set, of("Programmed"), programmed.to_owned());
    }
    let gateway = object(&status, "Gateway", "edge");
    checks.same(
        "attached sets",
        gateway["attachedListenerSets"].as_i64(),
        Some(2),
    );
    checks.same(
        "listeners of the Gateway",
        gateway["listeners"].as_array().map(Vec::len),
        Some(1),
    );
    let older = object(&status, "ListenerSet", "older");
    let attached: Vec<Option<i64>> = older["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|listener| listener["attachedRoutes"].as_i64())
        .collect();
    checks.same("attached routes", attached, vec![Some(1); 4]);
    let parent = &object(&status, "HTTPRoute", "older")["parents"][0]["parentRef"];
    checks.same("the parent", parent["kind"].as_str(), Some("ListenerSet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn set_changes_fail_no_request_to_others() {
    let authority = Authority::new("tests");
    let mut objects = open_edge(&[
        http_listener("http", 80, "gateway.test"),
        https_listener("https", 443, "gateway.test", "pair"),
    ]);
    for name in ["gateway", "set", "waiting"] {
        // Leak the backend, which stops with the test's runtime.
        let backend = Box::leak(Box::new(Backend::start(name).await));
        objects.extend(served(name, &[backend.address()]));
    }
    objects.push(
        authority
            .issue(&["gateway.test", "set.test"])
            .secret("pair"),
    );
    objects.push(http_route("gateway", &[], &[rule_to("gateway", &[])]));
    let set = |name: &str, year| {
        let listeners = [
            http_listener("http", 80, "set.test"),
            https_listener("https", 443, "set.test", "pair"),
        ];
        [
            created(listener_set(name, &listeners), year),
            on_listener_set(http_route(name, &[], &[rule_to(name, &[])]), name),
        ]
    };
    objects.extend(set("waiting", 2025));
    let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &yaml(&objects))]);
    let plain = |host: &str| agent.get(80, host, "/");
    let secure = |host: &str| agent.get(443, host, "/").tls(host, &authority.trust());
    for request in [
        plain("gateway.test"),
        secure("gateway.test"),
        secure("set.test"),
    ] {
        agent.wait_ok(&request).await;
    }
    let load = Load::start(&Plan::new(vec![
        plain("gateway.test"),
        secure("gateway.test"),
        secure("gateway.test").http2(),
        // One of the two ListenerSets always serves this hostname.
        plain("set.test"),
    ]));
    for change in 0..CHANGES {
        let owner = if change % 2 == 0 {
            agent.write("set.yaml", &yaml(&set("set", 2024)));
            "set"
        } else {
            agent.remove("set.yaml");
            "waiting"
        };
        for request in [plain("set.test"), secure("set.test")] {
            agent.wait_backend(&request, owner).await;
        }
    }
    load.stop().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn held_port_is_reported_to_listener_set() {
    let backend = Backend::start("a").await;
    let mut objects = open_edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    let mut on_both = http_route("a", &[], &[rule_to("a", &[])]);
    on_both["spec"]["parentRefs"] =
        json!([{"name": "edge"}, {"kind": "ListenerSet", "name": "set"}]);
    objects.push(on_both);
    objects.push(listener_set("set", &[http_listener("held", 8080, "")]));
    let agent = Setup::with_ports(&[80, 8080]).start(&[(
        "gateway.yaml",
        &yaml(&edge(&[http_listener("http", 80, "")])),
    )]);
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, agent.address(8080).port()))
        .expect("the port is free");
    agent.write("gateway.yaml", &yaml(&objects));
    let status = agent
        .wait_status("the conflict is reported", |status| {
            condition_text(status, "ListenerSet", "set", "Programmed") == "False ListenersNotValid"
                && condition_text(status, "Gateway", "edge", "Programmed") == "True Programmed"
        })
        .await;
    let set = object(&status, "ListenerSet", "set");
    let message = set["listeners"][0]["conditions"][1]["message"].as_str();
    assert!(
        message.is_some_and(|message| message.contains("Address already in use")),
        "{set:#}"
    );
    assert_eq!(status["gateways"][0]["refused"][0]["kind"], "ListenerSet");
    agent.wait_ok(&agent.get(80, "any.test", "/")).await;
    drop(held);
    agent.wait_ok(&agent.get(8080, "any.test", "/")).await;
    agent
        .wait_status("the set is programmed", |status| {
            condition_text(status, "ListenerSet", "set", "Programmed") == "True Programmed"
        })
        .await;
}

impl tls_override_rows::Override {
    /// The Gateway's generation identifies the row.
    fn objects(&self, generation: usize) -> Vec<Value> {
        let mut listeners = vec![http_listener("http", 80, "")];
        if self.gateway {
            listeners.push(https_listener("https", 443, "*.example.org", "gateway"));
        }
        let mut objects = edge(&listeners);
        objects[1]["metadata"]["generation"] = json!(generation);
        objects[1]["spec"]["allowedListeners"] = json!({"namespaces": {"from": self.allowed}});
        let mut own = https_listener("own", 443, &self.hostname, "");
        match &self.secret {
            Some(secret) => own["tls"]["certificateRefs"][0]["name"] = json!(secret),
            None => own["tls"] = Value::Null,
        }
        objects.push(listener_set("set", &[own]));
        objects
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gets_certificate_of_owner_of_hostname() {
    let authority = Authority::new("tests");
    let [gateway_leaf, set_leaf] =
        [(); 2].map(|()| authority.issue(&["*.example.org", "*.org", "a.test"]));
    let secrets = yaml(&[gateway_leaf.secret("gateway"), set_leaf.secret("set")]);
    let rows = tls_override_rows::rows();
    let objects = |number: usize| yaml(&rows[number].objects(number + 1));
    let agent = Setup::with_ports(&[80, 443])
        .start(&[("secrets.yaml", &secrets), ("edge.yaml", &objects(0))]);
    let mut checks = Checks::default();
    for (number, row) in rows.iter().enumerate() {
        agent.write("edge.yaml", &objects(number));
        let what = format!("{row:?} is programmed");
        agent
            .wait_status(&what, |status| {
                let gateway = object(status, "Gateway", "edge");
                let programmed = condition(&gateway["conditions"], "Programmed");
                let is_read = programmed["observedGeneration"] == number + 1;
                // If only the ListenerSet changes, the Gateway's `Programmed` condition stays true.
                let edge = &status["gateways"][0];
                is_read && programmed["status"] == "True" && edge["applied"] == edge["wanted"]
            })
            .await;
        let client = Handshake::with(agent.address(443), &row.client, &authority.trust());
        let found = client.shake().await.ok().map(|agreed| {
            let owners = [("gateway", &gateway_leaf), ("set", &set_leaf)];
            let found = owners
                .into_iter()
                .find(|(_, leaf)| leaf.der == agreed.certificate);
            found.map_or("another", |(name, _)| name).to_owned()
        });
        checks.same(format!("{row:?}"), &found, &row.shown);
    }
    checks.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_sets_leave_half_of_the_connections() {
    let ports: Vec<u16> = (80..=90).collect();
    let backend = Backend::start("a").await;
    let mut objects = open_edge(&[http_listener("http", 80, "")]);
    objects.extend(served("a", &[backend.address()]));
    objects.push(http_route("a", &[], &[rule_to("a", &[])]));
    let added = ports[1..].iter();
    let added: Vec<Value> = added
        .map(|port| http_listener(&format!("p{port}"), *port, ""))
        .collect();
    // 1024 descriptors allow 312 client connections.
    let setup = Setup::with_ports(&ports).wrapper(&["prlimit", "--nofile=1024:1024"]);
    let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
    agent.wait_ok(&agent.get(80, "a.test", "/")).await;
    let status = agent.wait_healthy().await;
    let admin = status["gateways"][0]["envoy"]["admin"].as_str();
    let admin = Admin::new(admin.expect("an admin socket"));
    let name = format!("tcp/127.0.0.1/{}", agent.address(80).port());
    let key = format!("envoy.resource_limits.listener.{name}.connection_limit");
    let wait_share = async |expected: &str| {
        eventually(
            "the Gateway port's connection limit",
            TEST_TIMEOUT,
            async || {
                let runtime = admin.get("/runtime").await.map_err(|e| e.to_string())?;
                let runtime: Value = serde_json::from_slice(&runtime).expect("JSON");
                let share = &runtime["entries"][&key]["final_value"];
                holds(share == expected, || share.to_string())
            },
        )
        .await;
    };
    wait_share("312").await;
    agent.write("set.yaml", &yaml(&[listener_set("set", &added)]));
    wait_share("156").await;
    let message = "10 of 11 listening sockets may have fewer than 16 connections";
    let warned = |status: &Value| status.to_string().contains(message);
    agent.wait_status(message, warned).await;
    let changed = r"^listener_manager\.listener_(modified|in_place_updated)$";
    let changed = admin.counters(changed).await.expect("Envoy answers");
    assert_eq!(changed.values().sum::<u64>(), 0, "{changed:?}");
}
