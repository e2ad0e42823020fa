//! Renders one Envoy listener for each combination of port, address and transport.
//!
//! Names contain the port, because one update cannot swap ports between listener names. Each
//! address has its own listener, because a new listener may not use an address of an existing one.
//! A listener contains nothing specific to a route or tenant, because changing it drains its
//! connections.

mod filter_chains;
mod quic;

use std::net::IpAddr;

use envoy_types::pb::envoy::config::core::v3::socket_address::Protocol as Transport;
use envoy_types::pb::envoy::config::listener::v3::{
    Listener as EnvoyListener, ListenerFilter, UdpListenerConfig, listener_filter,
};
use envoy_types::pb::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol as ProxyProtocolFilter;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{self, Port};

use crate::access_log::LoggedPlace;
use crate::context::RenderContext;
use crate::http::protocol_options;
use crate::l4::{self, udp};
use crate::rendered::{RenderProblems, Resource, by_name};
use crate::wrappers;

pub(crate) fn render(
    ports: &[Port],
    context: &mut RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<Resource> {
    let mut listeners = Vec::new();
    let edge = context.edge;
    for port in ports {
        context.edge = port.edge.unwrap_or(edge);
        let bind = context.options.bound(port);
        if !(1..=65_535).contains(&bind) {
            let reason = format!(
                "port {bind} cannot be bound; expected 1 to 65535; the listener is left out"
            );
            for listener in &port.listeners {
                problems.add(&listener.name, &*reason);
            }
            continue;
        }
        let template = match port.transport() {
            schema::Transport::Tcp => tcp(port, quic::serves(port, ports), context, problems),
            schema::Transport::Udp if port.http3 => match quic::render(port, ports, context) {
                Some(listener) => listener,
                None => continue,
            },
            schema::Transport::Udp => udp(port, context, problems),
        };
        let addresses = &context.options.addresses;
        listeners.extend(addresses.iter().map(|ip| at(&template, port, *ip, bind)));
    }
    context.edge = edge;
    by_name(listeners, problems)
}

fn tcp(
    port: &Port,
    http3: bool,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> EnvoyListener {
    let mut filter_chains = filter_chains::render(port, http3, context, problems);
    if filter_chains.is_empty() {
        // Bind the port even without routes, and close its connections.
        let name = format!("refused/{}", port.port);
        let place = LoggedPlace::new("tcp", port.port, None);
        filter_chains.push(filter_chains::chain(&name, l4::refuse(place, context)));
    }
    // The inspector waits for the client's first byte, but in some protocols the backend speaks first.
    let mut listeners = port.listeners.iter();
    let is_plain = |it| matches!(it, schema::Protocol::RawTcp | schema::Protocol::Http);
    let inspects_tls = !listeners.all(|it| is_plain(it.protocol()))
        && filter_chains
            .iter()
            .any(|chain| chain.filter_chain_match.is_some() || chain.transport_socket.is_some());
    let tls_inspector = inspects_tls.then(|| {
        listener_filter(
            "envoy.filters.listener.tls_inspector",
            pack_any(TlsInspector::default()),
        )
    });
    EnvoyListener {
        filter_chains,
        // The PROXY protocol header precedes all other bytes.
        listener_filters: proxy_protocol(port)
            .into_iter()
            .chain(tls_inspector)
            .collect(),
        per_connection_buffer_limit_bytes: wrappers::uint32(protocol_options::connection_buffer(
            context.edge,
        )),
        ..Default::default()
    }
}

fn proxy_protocol(port: &Port) -> Option<ListenerFilter> {
    let is_optional = match ProxyProtocol::try_from(port.proxy_protocol) {
        Ok(ProxyProtocol::None) => return None,
        Ok(ProxyProtocol::Optional) => true,
        // An unknown mode must not let clients choose their addresses.
        Ok(ProxyProtocol::Required) | Err(_) => false,
    };
    Some(listener_filter(
        "envoy.filters.listener.proxy_protocol",
        pack_any(ProxyProtocolFilter {
            allow_requests_without_proxy_protocol: is_optional,
            ..Default::default()
        }),
    ))
}

fn udp(port: &Port, context: &RenderContext<'_>, problems: &mut RenderProblems) -> EnvoyListener {
    EnvoyListener {
        listener_filters: vec![listener_filter(
            "envoy.filters.udp_listener.udp_proxy",
            udp::proxy(port, context, problems),
        )],
        udp_listener_config: Some(UdpListenerConfig {
            downstream_socket_config: Some(udp::socket()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn at(template: &EnvoyListener, port: &Port, address: IpAddr, bind: u32) -> Resource {
    let (word, protocol) = match port.transport() {
        schema::Transport::Tcp => ("tcp", Transport::Tcp),
        schema::Transport::Udp => ("udp", Transport::Udp),
    };
    let listener = EnvoyListener {
        name: format!("{word}/{address}/{bind}"),
        address: Some(wrappers::socket(address, bind, protocol)),
        ..template.clone()
    };
    Resource::new(&listener.name, &listener)
}

fn listener_filter(name: &str, config: Any) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(config)),
        ..Default::default()
    }
}
