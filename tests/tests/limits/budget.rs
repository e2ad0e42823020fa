//! A Gateway has too many Services for Envoy to watch a file for each. Envoy aborts if it cannot
//! get an inotify instance. By default, the kernel allows 128 instances per user. A user namespace
//! can impose a lower limit.

use std::net::SocketAddr;

use serde_json::Value;
use sesame_render::MIN_SUBSCRIPTIONS;
use sesame_render::layout::file_name;
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backend::Backend;
use sesame_tests::load::{Load, Plan};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};

const SERVICES: usize = 300;
const MORE_SERVICES: usize = 30;

/// Default limit on inotify instances per user.
const LIMIT: usize = 128;

fn limited(setup: Setup, limit: usize) -> Setup {
    let script =
        format!(r#"echo {limit} > /proc/sys/user/max_inotify_instances && exec "$0" "$@""#);
    setup.wrapper(&["unshare", "--user", "--map-root-user", "sh", "-c", &script])
}

/// Returns `usize::MAX` if the limit cannot be read.
fn user_limit() -> usize {
    std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(usize::MAX)
}

fn name(index: usize) -> String {
    format!("s-{index:03}")
}

fn backend(index: usize, endpoint: SocketAddr) -> String {
    yaml(&served(&name(index), &[endpoint]))
}

/// The Gateway API allows 16 rules per route.
fn routes(count: usize) -> String {
    let rules: Vec<Value> = (0..count)
        .map(|index| {
            rule_to(
                &name(index),
                &[path("PathPrefix", &format!("/{}", name(index)))],
            )
        })
        .collect();
    let routes: Vec<Value> = rules
        .chunks(16)
        .enumerate()
        .map(|(index, rules)| http_route(&format!("route-{index}"), &["many.test"], rules))
        .collect();
    yaml(&routes)
}

async fn wait_backend(agent: &AgentUnderTest, index: usize, backend: &Backend) {
    let request = agent.get(80, "many.test", &format!("/{}", name(index)));
    let good = Some(backend.name());
    agent
        .wait_served(&request, |reply| {
            reply.status == 200 && reply.backend().as_deref() == good
        })
        .await;
}

async fn endures(setup: Setup) {
    let old = Backend::start("old").await;
    let new = Backend::start("new").await;
    let mut agent = setup.prepare();
    agent.write(
        "gateway.yaml",
        &yaml(&edge(&[http_listener("http", 80, "")])),
    );
    for index in 0..SERVICES {
        agent.write(
            &format!("{}.yaml", name(index)),
            &backend(index, old.address()),
        );
    }
    agent.write("routes.yaml", &routes(SERVICES));
    agent.restart();
    for index in (0..SERVICES).rev().step_by(29) {
        wait_backend(&agent, index, &old).await;
    }
    let envoy = agent.envoy_pids();
    assert_eq!(envoy.len(), 1, "one Envoy runs");

    let requests = [0, SERVICES / 2, SERVICES - 1]
        .map(|index| agent.get(80, "many.test", &format!("/{}", name(index))));
    let load = Load::start(&Plan::new(requests.to_vec()));
    // Change a few Services at a time, with and without endpoint files.
    let changed: Vec<usize> = (0..SERVICES).step_by(7).collect();
    for some in changed.chunks(4) {
        for index in some {
            agent.write(
                &format!("{}.yaml", name(*index)),
                &backend(*index, new.address()),
            );
        }
        for index in some {
            wait_backend(&agent, *index, &new).await;
        }
    }
    // Envoy would abort if the agent ignored the limit.
    for index in SERVICES..SERVICES + MORE_SERVICES {
        agent.write(
            &format!("{}.yaml", name(index)),
            &backend(index, new.address()),
        );
    }
    agent.write("routes.yaml", &routes(SERVICES + MORE_SERVICES));
    for index in SERVICES..SERVICES + MORE_SERVICES {
        wait_backend(&agent, index, &new).await;
    }
    wait_backend(&agent, 1, &old).await;
    load.stop().await.clean("inotify instances used up");
    assert_eq!(agent.envoy_pids(), envoy, "Envoy has not died");
    assert_eq!(agent.ended(), None, "the agent has not died");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_services_fit_in_default_limit() {
    let setup = Setup::with_ports(&[80]);
    endures(if user_limit() > LIMIT {
        limited(setup, LIMIT)
    } else {
        setup
    })
    .await;
}

/// The user namespace's limit applies instead of the user's.
#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_services_fit_in_user_namespace_limit() {
    endures(limited(Setup::with_ports(&[80]), 64)).await;
}

fn files(agent: &AgentUnderTest, count: usize) -> Vec<usize> {
    let gateways = std::fs::read_dir(agent.runtime().join("gateways")).expect("gateways");
    let roots: Vec<_> = gateways
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let has_file = |index: &usize| {
        let hash = file_name(&format!("Service/default/{}/80", name(*index)));
        let file = format!("xds/eds/{hash}/eds.pb");
        roots.iter().any(|root| root.join(&file).exists())
    };
    (0..count).filter(has_file).collect()
}

/// Requests in flight to either Service must succeed.
#[tokio::test(flavor = "multi_thread")]
async fn changing_service_takes_over_file_without_failed_request() {
    const FEW: usize = 24;
    let old = Backend::start("old").await;
    let new = Backend::start("new").await;
    let mut agent = Setup::with_ports(&[80])
        .flag(&format!("--subscription-budget={}", MIN_SUBSCRIPTIONS + 2))
        .prepare();
    agent.write(
        "gateway.yaml",
        &yaml(&edge(&[http_listener("http", 80, "")])),
    );
    for index in 0..FEW {
        let file = format!("{}.yaml", name(index));
        agent.write(&file, &backend(index, old.address()));
    }
    agent.write("routes.yaml", &routes(FEW));
    agent.restart();
    for index in 0..FEW {
        wait_backend(&agent, index, &old).await;
    }
    let status = agent.wait_healthy().await;
    let before = files(&agent, FEW);
    assert!(!before.is_empty() && before.len() < FEW, "{before:?}");
    let inline = FEW - before.len();
    assert_eq!(status["gateways"][0]["inlineBackends"], inline);
    assert!(
        status["hints"]
            .to_string()
            .contains("have no file for their endpoints"),
        "{status:#}"
    );

    let requests = (0..FEW).flat_map(|index| {
        let path = format!("/{}", name(index));
        let slowly = format!("{path}/delay/200ms");
        [path, slowly].map(|path| agent.get(80, "many.test", &path))
    });
    let load = Load::start(&Plan::new(requests.collect()));
    let busy = (0..FEW)
        .find(|index| !before.contains(index))
        .expect("a backend without a file");
    let file = format!("{}.yaml", name(busy));
    for change in 0..12 {
        let to = [&new, &old][change % 2];
        agent.write(&file, &backend(busy, to.address()));
        wait_backend(&agent, busy, to).await;
    }
    let after = files(&agent, FEW);
    assert!(after.contains(&busy), "{busy} has no file: {after:?}");
    let lost: Vec<&usize> = before
        .iter()
        .filter(|index| !after.contains(index))
        .collect();
    assert_eq!((lost.len(), after.len()), (1, before.len()), "{after:?}");
    let file = format!("{}.yaml", name(*lost[0]));
    agent.write(&file, &backend(*lost[0], new.address()));
    wait_backend(&agent, *lost[0], &new).await;
    load.stop()
        .await
        .clean("an endpoint file moved to a busier Service");

    // A restart must not move files between Services.
    agent.kill9();
    agent.restart();
    agent.wait_healthy().await;
    agent.write(&file, &backend(*lost[0], old.address()));
    wait_backend(&agent, *lost[0], &old).await;
    assert_eq!(files(&agent, FEW), after);
}
