//! Tests how external authorizations are rendered as Envoy messages.

use serde_json::{Value, json};
use sesame_proto::schema::{
    ContextValue, ExternalAuth, ExternalAuthGrpc, ExternalAuthHttp, Route, external_auth::Protocol,
    route::Action,
};

use super::everything::everything;
use super::parts::{API, WEB, forward, options, route, to};
use crate::{dump, render};

/// Returns the virtual host.
fn printed(auths: &[&[ExternalAuth]]) -> Value {
    let (mut snapshot, keys) = everything();
    let routes = auths.iter().enumerate().map(|(i, auths)| Route {
        external_auth: auths.to_vec(),
        ..route(
            &format!("r{i}"),
            &format!("/{i}"),
            Action::Forward(forward(&[to(WEB, 1)])),
        )
    });
    snapshot.route_tables.truncate(1);
    snapshot.route_tables[0].virtual_hosts.truncate(1);
    let host = &mut snapshot.route_tables[0].virtual_hosts[0];
    host.external_auth = Vec::new();
    host.routes = routes.collect();
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    printed["routes"][0]["virtual_hosts"][0].clone()
}

fn filter<'v>(host: &'v Value, route: usize, place: &str) -> &'v Value {
    let config = &host["routes"][route]["typed_per_filter_config"][place];
    let action = &config["matcher"]["on_no_match"]["action"]["typed_config"];
    &action["typed_config"]["typed_config"]
}

fn grpc(context: &[(&str, &str)]) -> ExternalAuth {
    let value = |(name, value): &(&str, &str)| ContextValue {
        name: (*name).into(),
        value: (*value).into(),
    };
    ExternalAuth {
        backend: API.into(),
        protocol: Some(Protocol::Grpc(ExternalAuthGrpc::default())),
        context: context.iter().map(value).collect(),
        ..ExternalAuth::default()
    }
}

fn http(no_response_headers: bool) -> ExternalAuth {
    ExternalAuth {
        protocol: Some(Protocol::Http(ExternalAuthHttp::default())),
        no_response_headers,
        ..grpc(&[])
    }
}

#[test]
fn settings_of_authorization_are_rendered() {
    let every = ExternalAuth {
        protocol: Some(Protocol::Grpc(ExternalAuthGrpc {
            peer_certificate: true,
            text_body: true,
            ..ExternalAuthGrpc::default()
        })),
        max_body_bytes: 9,
        timeout_ms: 200,
        fail_open: true,
        partial_body: true,
        ..grpc(&[])
    };
    let host = printed(&[&[every], &[grpc(&[])], &[http(true)], &[http(false)]]);
    let [every, plain, none, all] = [0, 1, 2, 3].map(|i| filter(&host, i, "external_auth"));
    assert_eq!(every["failure_mode_allow"], json!(true));
    assert_eq!(every["include_peer_certificate"], json!(true));
    assert_eq!(every["grpc_service"]["timeout"], json!("0.200s"));
    let body = &every["with_request_body"];
    assert_eq!(body["max_request_bytes"], json!(9));
    assert_eq!(body["allow_partial_message"], json!(true));
    assert_eq!(body.get("pack_as_bytes"), None);
    assert_eq!(plain["grpc_service"]["timeout"], json!("5s"));
    assert_eq!(plain.get("failure_mode_allow"), None);
    let copied = |auth: &Value| {
        let response = &auth["http_service"]["authorization_response"];
        response.get("allowed_upstream_headers").is_some()
    };
    assert!(!copied(none) && copied(all));
}

#[test]
fn contexts_reach_only_their_services() {
    let host = printed(&[
        &[grpc(&[]), grpc(&[("team", "a"), ("z", "1")])],
        &[grpc(&[("team", "b")])],
        &[grpc(&[])],
    ]);
    let context = |place: &str| {
        let config = &host["typed_per_filter_config"][place];
        config["check_settings"]["context_extensions"].clone()
    };
    assert_eq!(context("external_auth/3"), json!({"team": "a", "z": "1"}));
    assert_eq!(context("external_auth/2"), json!({"team": "b"}));
    assert_eq!(context("external_auth"), Value::Null);
    for (route, places) in [
        (0, &["external_auth", "external_auth/3"][..]),
        (1, &["external_auth/2"]),
        (2, &["external_auth"]),
    ] {
        let configured = host["routes"][route]["typed_per_filter_config"].as_object();
        let configured: Vec<_> = configured.unwrap().keys().collect();
        assert_eq!(configured, places);
        for place in places {
            assert!(filter(&host, route, place)["grpc_service"].is_object());
        }
    }
}

#[test]
fn impossible_contexts_refuse_requests() {
    let with_http = ExternalAuth {
        context: grpc(&[("team", "a")]).context,
        ..http(false)
    };
    let contexts = ["a", "b", "c", "d", "e"].map(|value| [grpc(&[("team", value)])]);
    let mut auths: Vec<&[ExternalAuth]> =
        contexts.iter().map(<[ExternalAuth; 1]>::as_slice).collect();
    let refused = |auths: &[&[ExternalAuth]]| {
        let host = printed(auths);
        let routes = host["routes"].as_array().unwrap().iter();
        let routes = routes.take(auths.len());
        let is_refused = |it: &Value| it["direct_response"]["status"] == json!(500);
        routes.map(is_refused).collect::<Vec<_>>()
    };
    assert_eq!(refused(&auths), [false, false, false, false, true]);
    let other = [with_http];
    auths.clear();
    auths.push(&other);
    assert_eq!(refused(&auths), [true]);
}
