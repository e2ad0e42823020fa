//! Changes to routes, Services, clusters and endpoints under load. No request may fail.

use std::net::SocketAddr;

use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::backends::start_served;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{
    edge, endpoint_slices, http_listener, http_route, path, rule_to, served, service, yaml,
};
use sesame_tests::seeded::count;
use sesame_tests::wait::holds;

fn gateway() -> String {
    yaml(&edge(&[http_listener("http", 80, "")]))
}

fn route_to(service: &str) -> String {
    yaml(&[http_route(
        "switched",
        &["switch.test"],
        &[rule_to(service, &[])],
    )])
}

async fn wait_backend(agent: &AgentUnderTest, host: &str, backend: &str) {
    let request = agent.get(80, host, "/");
    agent.wait_backend(&request, backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn route_switches_backend_repeatedly_without_failed_request() {
    let switches = count("SESAME_SWITCHES", 100, 1000);
    let mut objects = Vec::new();
    let _backends = start_served(&["a", "b"], &mut objects).await;
    let agent = Setup::with_ports(&[80]).start(&[
        ("gateway.yaml", &gateway()),
        ("backends.yaml", &yaml(&objects)),
        ("route.yaml", &route_to("a")),
    ]);
    wait_backend(&agent, "switch.test", "a").await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "switch.test", "/")]));
    for switch in 0..switches {
        let to = if switch % 2 == 0 { "b" } else { "a" };
        // Users write files in place, or rename new files into place.
        if switch % 5 == 0 {
            agent.write_in_place("route.yaml", &route_to(to));
        } else {
            agent.write("route.yaml", &route_to(to));
        }
        wait_backend(&agent, "switch.test", to).await;
    }
    let report = load.stop().await;
    report.clean(&format!("a route's backend switched {switches} times"));
}

#[tokio::test(flavor = "multi_thread")]
async fn route_switches_between_short_lived_services_without_failure() {
    let backend = Backend::start("only").await;
    let both = |name: &str| {
        let mut objects = served(name, &[backend.address()]);
        objects.push(http_route(
            "switched",
            &["switch.test"],
            &[rule_to(name, &[])],
        ));
        yaml(&objects)
    };
    let agent = Setup::with_ports(&[80]).start(&[
        ("gateway.yaml", &gateway()),
        ("all.yaml", &both("service-0")),
    ]);
    wait_backend(&agent, "switch.test", "only").await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "switch.test", "/0")]));
    for change in 1..=50 {
        let mut objects = served(&format!("service-{change}"), &[backend.address()]);
        let matches = [
            path("PathPrefix", &format!("/{change}")),
            path("PathPrefix", "/0"),
        ];
        let rule = rule_to(&format!("service-{change}"), &matches);
        objects.push(http_route("switched", &["switch.test"], &[rule]));
        agent.write("all.yaml", &yaml(&objects));
        let request = agent.get(80, "switch.test", &format!("/{change}"));
        agent.wait_ok(&request).await;
    }
    load.stop().await.assert_clean();
}

/// Traffic uses a cluster that does not change.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_and_listeners_change_without_failed_request() {
    let clusters = count("SESAME_CLUSTERS_CHANGED", 60, 300);
    let backend = Backend::start("only").await;
    let gateway = |second: bool| {
        let mut listeners = vec![http_listener("http", 80, "")];
        if second {
            listeners.push(http_listener("second", 81, ""));
        }
        yaml(&edge(&listeners))
    };
    let kept = |name: &str| {
        let mut objects = served(name, &[backend.address()]);
        let host = format!("{name}.test");
        objects.push(http_route(name, &[&host], &[rule_to(name, &[])]));
        yaml(&objects)
    };
    // By default, the agent would hold back a removal of more than half.
    let agent = Setup::with_ports(&[80, 81])
        .flag("--max-removal-share=100")
        .start(&[
            ("gateway.yaml", &gateway(false)),
            ("kept.yaml", &kept("kept")),
        ]);
    wait_backend(&agent, "kept.test", "only").await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "kept.test", "/")]));
    let tens = clusters.div_ceil(10);
    for round in 0..2 * tens {
        let (ten, adds) = (round % tens, round < tens);
        let names: Vec<String> = (0..10).map(|index| format!("more-{ten}-{index}")).collect();
        let file = format!("more-{ten}.yaml");
        agent.write("gateway.yaml", &gateway(round % 2 == 0));
        let host = format!("{}.test", names[9]);
        let status = if adds {
            let texts: Vec<String> = names.iter().map(|name| kept(name)).collect();
            agent.write(&file, &texts.concat());
            200
        } else {
            agent.remove(&file);
            404
        };
        let request = agent.get(80, &host, "/");
        agent
            .wait_served(&request, |reply| reply.status == status)
            .await;
        let second = agent.get(81, "kept.test", "/");
        if round % 2 == 0 {
            agent.wait_ok(&second).await;
        }
    }
    let report = load.stop().await;
    report.clean(&format!(
        "{clusters} clusters added and removed, a listener {tens} times"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_in_files_change_without_a_failed_request() {
    endpoints_change(Setup::with_ports(&[80]), "by file").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_beyond_budget_change_without_failed_request() {
    let setup = Setup::with_ports(&[80]).flag("--subscription-budget=2");
    endpoints_change(setup, "inline").await;
}

async fn endpoints_change(setup: Setup, how: &str) {
    let changes = count("SESAME_ENDPOINT_CHANGES", 30, 1000);
    let slices = |endpoints: &[SocketAddr]| yaml(&endpoint_slices("churned", endpoints));
    let mut current = Backend::start("backend-0").await;
    let agent = setup.start(&[
        ("gateway.yaml", &gateway()),
        ("service.yaml", &yaml(&[service("churned", "")])),
        ("slices.yaml", &slices(&[current.address()])),
        (
            "route.yaml",
            &yaml(&[http_route(
                "churned",
                &["churn.test"],
                &[rule_to("churned", &[])],
            )]),
        ),
    ]);
    wait_backend(&agent, "churn.test", "backend-0").await;
    let load = Load::start(&Plan::new(vec![agent.get(80, "churn.test", "/")]));
    for change in 1..=changes {
        // The old backend closes gracefully.
        let name = format!("backend-{change}");
        let next = Backend::start(&name).await;
        if change % 2 == 0 {
            agent.write("slices.yaml", &slices(&[current.address(), next.address()]));
            wait_backend(&agent, "churn.test", &name).await;
        }
        agent.write("slices.yaml", &slices(&[next.address()]));
        wait_backend(&agent, "churn.test", &name).await;
        only(&agent, &load, &next).await;
        std::mem::replace(&mut current, next).close().await;
    }
    let report = load.stop().await;
    report.clean(&format!("{changes} endpoint changes, {how}"));
}

/// With both backends in use, the probability of 20 equal responses is one in a million.
async fn only(agent: &AgentUnderTest, load: &Load, backend: &Backend) {
    let request = agent.get(80, "churn.test", "/");
    let mut in_a_row = 0;
    sesame_tests::wait::eventually(
        "only the new endpoint gets requests",
        sesame_tests::agent::TEST_TIMEOUT,
        async || {
            let reply = request.send().await.map_err(|error| format!("{error:#}"))?;
            in_a_row = if reply.backend().as_deref() == Some(backend.name()) {
                in_a_row + 1
            } else {
                0
            };
            holds(in_a_row >= 20, || format!("{in_a_row} in a row"))
        },
    )
    .await;
    load.pass(20).await;
}
