//! Objects for the hosts to serve, and requests to the hosts.

use std::net::{Ipv4Addr, SocketAddr};

use sesame_tests::backend::Backend;
use sesame_tests::client::{Reply, Request};
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, served, yaml};

use crate::inside::BACKEND;

pub(crate) const HOST: &str = "host.test";

/// The route's path contains the number.
pub(crate) fn version(backend: SocketAddr, number: u32) -> String {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    objects.extend(served("app", &[backend]));
    let matches = [
        path("PathPrefix", "/always"),
        path("Exact", &format!("/{number}")),
    ];
    objects.push(http_route("app", &[HOST], &[rule_to("app", &matches)]));
    yaml(&objects)
}

pub(crate) fn get(path: &str) -> Request {
    Request::get((Ipv4Addr::LOCALHOST, 80).into(), HOST, path)
}

pub(crate) async fn backend() -> Backend {
    let address = format!("{BACKEND}:0").parse().expect("an address");
    Backend::start_at("app", address)
        .await
        .expect("the machine has the address")
}

pub(crate) async fn wait_version(number: u32) -> Reply {
    let request = get(&format!("/{number}"));
    let what = format!("version {number} is served");
    sesame_tests::wait::eventually(&what, crate::inside::TIMEOUT, async || {
        match request.send().await {
            Ok(reply) if reply.status == 200 => Ok(reply),
            Ok(reply) => Err(format!("status {}", reply.status)),
            Err(error) => Err(format!("{error:#}")),
        }
    })
    .await
}
