//! HTTP/3 of a host that was installed by packages, with a client that a package ships.

use std::net::Ipv4Addr;

use serde_json::json;
use sesame_tests::certs::Authority;
use sesame_tests::curl;
use sesame_tests::manifests::{edge_with, https_listener, plain_route, served, yaml};
use sesame_tests::wait::eventually;

use crate::inside::{Inside, TIMEOUT};
use crate::life::in_runtime;
use crate::objects::{HOST, backend};

/// Runs in the machine's network namespace, but with the test's files.
pub(crate) fn serve(inside: &Inside) {
    in_runtime(async {
        let (backend, servers) = (backend().await, Authority::new("gateway"));
        let settings = json!({"edge": {"http3": {}}});
        let listeners = [https_listener("https", 443, HOST, "cert")];
        let mut objects = edge_with(&settings, &listeners);
        objects.extend(served("app", &[backend.address()]));
        objects.push(servers.issue(&[HOST]).secret("cert"));
        objects.push(plain_route("app", HOST, "app"));
        inside.serve(&yaml(&objects));
        let address = (Ipv4Addr::LOCALHOST, 443).into();
        eventually("HTTP/2 and HTTP/3", TIMEOUT, async || {
            curl::fetches_over_http3(HOST, address, servers.pem())
        })
        .await;
    });
}
