//! gRPC, gRPC-Web and JSON for gRPC backends, over HTTP/3 and HTTP/2.

use std::net::Ipv4Addr;

use serde_json::json;
use sesame_tests::agent::{Setup, TEST_TIMEOUT};
use sesame_tests::backend::Backend;
use sesame_tests::certs::Authority;
use sesame_tests::checks::Checks;
use sesame_tests::client::{Reply, Request};
use sesame_tests::grpc::{self, code};
use sesame_tests::http3::Connection;
use sesame_tests::manifests::{
    class_with_parameters, endpoint_slices, gateway, https_listener, service, traffic_policy, yaml,
};
use sesame_tests::wait::eventually;

/// RouteFilters for JSON, and a descriptor set for `books.v1.Books`.
const JSON: &str = include_str!("../../golden/route-filter-transcoding/input.yaml");
const CALL: &str = "shop.Cart/Add";

fn manifests(backend: &Backend, servers: &Authority) -> String {
    let settings = json!({"edge": {"http3": {}}});
    let [parameters, class] = class_with_parameters("edge", "parameters", &settings);
    let listeners = [https_listener("https", 443, "a.test", "cert")];
    let mut objects = vec![parameters, class, gateway("edge", &listeners)];
    objects.push(service("backend", "kubernetes.io/h2c"));
    objects.extend(endpoint_slices("backend", &[backend.address()]));
    objects.push(servers.issue(&["a.test"]).secret("cert"));
    let target = json!({"kind": "HTTPRoute", "name": "route"});
    objects.push(traffic_policy("calls", target, &json!({"grpcWeb": true})));
    yaml(&objects) + &JSON.replace("{name: gateway}", "{name: edge}")
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_and_its_translations_work_over_http3() {
    let (backend, servers) = (Backend::start("backend").await, Authority::new("gateway"));
    let agent = Setup::with_ports(&[443]).start(&[("all.yaml", &manifests(&backend, &servers))]);
    let (address, trust) = (agent.address(443), servers.trust());
    let over_tls = |request: Request| request.tls("a.test", &trust).http2();
    let call = over_tls(grpc::call(address, "a.test", CALL));
    let is_ok = |reply: &Reply| grpc::status(reply) == Some(code::OK);
    agent.wait_served(&call, is_ok).await;
    let mut quic = eventually("an HTTP/3 connection", TEST_TIMEOUT, async || {
        let opened = Connection::open(Ipv4Addr::LOCALHOST.into(), address, "a.test", &trust);
        opened.await.map_err(|error| format!("{error:#}"))
    })
    .await;

    let mut checks = Checks::default();
    let web = over_tls(grpc::web_call(address, "a.test", CALL));
    let book = over_tls(
        Request::get(address, "a.test", "/v1/books/iliad?page_count=7").header(grpc::RETURNED, "1"),
    );
    for (request, content_type, is_good) in [
        (&call, "application/grpc", is_ok as fn(&Reply) -> bool),
        (&web, "application/grpc-web+proto", |reply| {
            reply.body.ends_with(b"grpc-status:0\r\n")
        }),
        (&book, "application/json", |reply| {
            reply.body == r#"{"name":"iliad","pageCount":7}"#
        }),
    ] {
        let over_http3 = quic.send(request.message().expect("a request"));
        for (protocol, reply) in [("h2", request.send().await), ("h3", over_http3.await)] {
            let reply = reply.expect("a reply");
            let what = format!("{protocol}: {request}");
            checks.same(&what, reply.status, 200);
            checks.same(&what, reply.header("content-type"), Some(content_type));
            checks.that(is_good(&reply), format_args!("{what}: {reply:?}"));
        }
    }
    checks.finish();
}
