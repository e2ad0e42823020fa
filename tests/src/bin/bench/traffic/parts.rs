//! Attributes the cost of Sesame's configuration: copies all of its parts, or all but one, to the
//! configuration that is written by hand.

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Setup;
use super::load::Protocol;

/// Fields of a connection manager that both configurations have.
const OWN: &[&str] = &["@type", "codec_type", "rds", "route_config", "stat_prefix"];

/// Prints the CPU time per request without each part.
pub(super) fn measure(
    setup: &Setup,
    protocol: Protocol,
    rounds: usize,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let mut parts = all(setup, protocol)?;
    parts.insert(0, ("no parts".to_owned(), Value::Null));
    let mut targets = Vec::new();
    for (name, copied) in &parts {
        let envoy = setup.by_hand(copied)?;
        let opened = setup.target(envoy.pid(), envoy.address(), protocol);
        let target = runtime.block_on(opened).with_context(|| name.clone())?;
        targets.push((name, envoy, target));
    }
    for _ in 0..rounds {
        for (_, _, target) in &mut targets {
            runtime.block_on(target.send_alone())?;
        }
    }
    let base = targets[0].2.cpu_us();
    for (name, _, target) in &targets {
        let us = target.cpu_us();
        let percent = (us / base - 1.0) * 100.0;
        eprintln!("  {name}: {us:.1} µs, {percent:+.1} %");
    }
    Ok(())
}

/// Returns the fields of Sesame's configuration that do not depend on names and addresses.
pub(super) fn whole(setup: &Setup, protocol: Protocol) -> anyhow::Result<Value> {
    let dumped = |query: &str| setup.host.config_dump(query);
    let port = setup.host.address().port();
    let transport = match protocol {
        Protocol::Http3 => "udp",
        Protocol::Http1 | Protocol::Http2 => "tcp",
    };
    let listeners = dumped("resource=dynamic_listeners")?;
    let mut listener = find(&listeners, "/active_state/listener", |it| {
        let name = it["name"].as_str().unwrap_or_default();
        name.starts_with(transport) && name.ends_with(&format!("/{port}"))
    })?;
    // The dump omits its key.
    if let Some(options) = listener.pointer_mut("/udp_listener_config/quic_options") {
        options["connection_id_generator_config"].take();
    }
    let chain = &listener["filter_chains"][0];
    let filters = chain["filters"].as_array().context("no filters")?;
    let manager = filters.last().context("no manager")?["typed_config"].clone();
    let clusters = dumped("resource=dynamic_active_clusters")?;
    let cluster = find(&clusters, "/cluster", |it| {
        it["name"] == "Service/bench/s0/80"
    })?;
    let tables = dumped("resource=dynamic_route_configs")?;
    let table = find(&tables, "/route_config", |it| {
        it["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("https/"))
    })?;
    let bootstrap = find(&dumped("mask=bootstrap")?, "/bootstrap", |_| true)?;

    Ok(json!({
        "manager": without(&manager, OWN),
        "bootstrap": {
            "stats_config": bootstrap["stats_config"],
            "overload_manager": bootstrap["overload_manager"],
            "layered_runtime": bootstrap["layered_runtime"],
        },
        "listener": kept(&listener, transport == "tcp"),
        "quic": kept(&listener, transport == "udp"),
        "cluster": without(&cluster, &["@type", "type", "eds_cluster_config", "load_assignment"]),
        "table": without(&table, &["@type", "name"]),
    }))
}

fn all(setup: &Setup, protocol: Protocol) -> anyhow::Result<Vec<(String, Value)>> {
    let whole = whole(setup, protocol)?;
    let mut parts = vec![("all parts".to_owned(), whole.clone())];
    let mut add = |name: &str, remove: &dyn Fn(&mut Value)| {
        let mut rest = whole.clone();
        remove(&mut rest);
        parts.push((format!("all but {name}"), rest));
    };
    let is_disabled = |it: &Value| it["disabled"] == true;
    let is_named = |name: &'static str| move |it: &Value| it["name"] == name;
    add("disabled filters", &|it| drop_filters(it, is_disabled));
    add("`authority`", &|it| drop_filters(it, is_named("authority")));
    add("`announce_http3`", &|it| {
        drop_filters(it, is_named("announce_http3"));
    });
    add("settings of the manager", &|it| {
        it["manager"] = json!({"http_filters": it["manager"]["http_filters"]});
    });
    for name in ["stats_config", "overload_manager", "layered_runtime"] {
        add(name, &|it| {
            it["bootstrap"] = without(&it["bootstrap"], &[name]);
        });
    }
    add("settings of the listener", &|it| {
        it["listener"] = json!({});
        it["quic"] = json!({});
    });
    add("settings of the cluster", &|it| {
        it["cluster"] = json!({"name": it["cluster"]["name"]});
    });
    for name in ["retry_policy", "request_body_buffer_limit"] {
        add(name, &|it| {
            let host = &mut it["table"]["virtual_hosts"][0];
            *host = without(host, &[name]);
        });
    }
    add("settings of the route", &|it| {
        let route = &mut it["table"]["virtual_hosts"][0]["routes"][0];
        let action = json!({"cluster": route["route"]["cluster"], "timeout": "0s"});
        *route = json!({"match": route["match"], "route": action,
            "response_headers_to_add": route["response_headers_to_add"]});
    });
    Ok(parts)
}

/// Returns a listener's settings that do not depend on its address.
fn kept(listener: &Value, wanted: bool) -> Value {
    let mut kept = json!({});
    for name in [
        "per_connection_buffer_limit_bytes",
        "listener_filters",
        "udp_listener_config",
    ] {
        if wanted && !listener[name].is_null() {
            kept[name] = listener[name].clone();
        }
    }
    kept
}

fn without(object: &Value, names: &[&str]) -> Value {
    let mut rest = object.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
    rest
}

fn drop_filters(parts: &mut Value, unwanted: impl Fn(&Value) -> bool) {
    if let Some(filters) = parts["manager"]["http_filters"].as_array_mut() {
        filters.retain(|it| !unwanted(it));
    }
}

fn find(dump: &Value, pointer: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let configs = dump["configs"].as_array().context("no dump")?;
    let resources = configs.iter().filter_map(|it| it.pointer(pointer));
    let found = resources.into_iter().find(|it| wanted(it));
    found
        .cloned()
        .with_context(|| format!("no resource in {dump}"))
}
