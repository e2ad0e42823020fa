//! Tests how routes are rendered as Envoy messages.

use sesame_proto::schema::{
    Cors, CorsOrigin, DirectResponse, HeaderModifier, Redirect, Route, VirtualHost, cors_origin,
    route::Action,
};

use super::everything::everything;
use super::parts::{API, WEB, forward, header, options, route, to};
use crate::context::RenderContext;
use crate::http::{headers, request_filters};
use crate::l4::weights::{self, REFUSED_CLUSTER};
use crate::rendered::RenderProblems;
use crate::{dump, render};

fn printed_routes(routes: &[Route]) -> Vec<serde_json::Value> {
    let (mut snapshot, keys) = everything();
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts = vec![VirtualHost {
        domain: "*".into(),
        routes: routes.to_vec(),
        ..VirtualHost::default()
    }];
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    printed["routes"][0]["virtual_hosts"][0]["routes"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn single_backend_has_no_weights() {
    let routes = printed_routes(&[route(
        "one",
        "/a",
        Action::Forward(forward(&[to(WEB, 7), to(API, 0)])),
    )]);
    assert_eq!(
        routes,
        [serde_json::json!({
            "name": "HTTPRoute/ns/one/rules/0/matches/0",
            "match": {"path_separated_prefix": "/a"},
            "route": {"cluster": WEB, "timeout": "0s"},
        })]
    );
}

#[test]
fn redirect_drops_port_named_by_client() {
    let redirect = |scheme: &str, host: &str| {
        printed_routes(&[route(
            "redirect",
            "",
            Action::Redirect(Redirect {
                scheme: scheme.into(),
                host: host.into(),
                status: 301,
                implied_port: 443,
                ..Default::default()
            }),
        )])
    };
    assert_eq!(redirect("", "").len(), 2);
    let routes = redirect("https", "");
    assert_eq!(routes.len(), 2);
    assert_eq!(routes[0]["match"]["headers"][0]["name"], ":authority");
    assert_eq!(routes[0]["redirect"]["port_redirect"], 443);
    assert_eq!(
        routes[1]["redirect"]["port_redirect"],
        serde_json::Value::Null
    );
    assert_eq!(redirect("https", "example.org").len(), 1);
    assert_eq!(redirect("", "example.org").len(), 1);
}

#[test]
fn cors_route_with_method_matches_its_preflight() {
    let cors = Route {
        method: "PUT".into(),
        cors: Some(Box::new(Cors::default())),
        ..route("cors", "/a", Action::Forward(forward(&[to(WEB, 1)])))
    };
    let routes = printed_routes(&[cors]);
    assert_eq!(routes.len(), 2);
    let matched: Vec<_> = routes[1]["match"]["headers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|header| header["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        matched,
        [":method", "access-control-request-method", "origin"]
    );
    assert_eq!(
        routes[1]["typed_per_filter_config"],
        routes[0]["typed_per_filter_config"]
    );
}

fn response_headers(route: &serde_json::Value) -> Vec<(&str, &str)> {
    let added = route["response_headers_to_add"].as_array().unwrap();
    let headers = added.iter().map(|option| &option["header"]);
    let pairs = headers.map(|h| (h["key"].as_str().unwrap(), h["value"].as_str().unwrap()));
    pairs.collect()
}

#[test]
fn direct_answers_use_cors_headers_of_route() {
    let origin = |kind| CorsOrigin { kind: Some(kind) };
    let cors = Cors {
        allow_origins: vec![
            origin(cors_origin::Kind::Exact("https://a.test".into())),
            origin(cors_origin::Kind::Regex(r"https://.*\.b\.test".into())),
        ],
        allow_credentials: true,
        expose_headers: vec!["x-seen".into()],
        ..Default::default()
    };
    let redirect = Action::Redirect(Redirect {
        scheme: "https".into(),
        status: 302,
        implied_port: 443,
        ..Default::default()
    });
    let answer = Action::DirectResponse(DirectResponse::new(500));
    // A redirect on all hosts becomes two routes, with and without a port in `Host`.
    for (action, expected) in [(redirect, 5), (answer, 3)] {
        let routes = printed_routes(&[Route {
            cors: Some(Box::new(cors.clone())),
            ..route("cors", "/a", action)
        }]);
        assert_eq!(routes.len(), expected);
        assert_eq!(
            routes[0]["match"]["headers"][0]["string_match"]["exact"],
            "OPTIONS"
        );
        assert_eq!(routes[0]["route"]["cluster"], REFUSED_CLUSTER);
        let allowed = &routes[expected - 2];
        assert_eq!(
            allowed["match"]["headers"][0]["string_match"]["safe_regex"]["regex"],
            r"https\://a\.test|(?:https://.*\.b\.test)"
        );
        let headers = response_headers(allowed);
        let (vary, others) = headers.split_last().unwrap();
        assert_eq!(
            others,
            [
                ("access-control-allow-origin", "%REQ(origin)%"),
                ("access-control-allow-credentials", "true"),
                ("access-control-expose-headers", "x-seen"),
            ]
        );
        // Caches must distinguish responses by origin even if the origin is not allowed.
        assert_eq!(vary.0, "vary");
        assert_eq!(response_headers(&routes[expected - 1]), [*vary]);
    }
}

#[test]
fn weights_keep_proportion_when_sum_overflows() {
    let (snapshot, keys) = everything();
    let options = options();
    let clusters = render(&snapshot, &keys, &options).clusters;
    let filters = request_filters::of_snapshot(None, &[]);
    let context = RenderContext {
        clusters: &clusters,
        ..RenderContext::new(&snapshot, &[], filters, &options)
    };
    let backends = [to(WEB, u32::MAX), to(API, u32::MAX), to("", 1), to(WEB, 0)];
    let shares = weights::shares("route", &backends, &context, &mut RenderProblems::default());
    let weights: Vec<u32> = shares.iter().map(|share| share.weight).collect();
    assert_eq!(weights, [u32::MAX / 5, u32::MAX / 5, 1]);
    assert_eq!(shares[2].cluster, REFUSED_CLUSTER);
}

#[test]
fn backend_header_changes_override_rule_changes() {
    let modifier = |set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]| HeaderModifier {
        set: set.iter().map(|(n, v)| header(n, v)).collect(),
        add: add.iter().map(|(n, v)| header(n, v)).collect(),
        remove: remove.iter().map(|&n| n.to_owned()).collect(),
    };
    let changes =
        |modifier| headers::changes("route", Some(&modifier), &mut RenderProblems::default());
    let rule = changes(modifier(
        &[("X-A", "rule"), ("x-b", "rule")],
        &[("x-c", "rule")],
        &["x-d"],
    ));
    let backend = changes(modifier(
        &[("x-a", "backend")],
        &[("x-c", "backend")],
        &["x-b"],
    ));
    let both = rule.then(&backend);
    let added: Vec<_> = both
        .add
        .iter()
        .filter_map(|option| option.header.as_ref())
        .map(|header| (header.key.as_str(), header.value.as_str()))
        .collect();
    assert_eq!(
        added,
        [("x-c", "rule"), ("x-a", "backend"), ("x-c", "backend")]
    );
    assert_eq!(both.remove, ["x-d", "x-b"]);
}
