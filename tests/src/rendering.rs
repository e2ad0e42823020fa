//! Render options for tests.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_render::layout::XdsLayout;
use sesame_render::limits::Limits;
use sesame_render::{EndpointRules, RenderOptions};

/// Returns render options for a host with these addresses.
pub fn options(addresses: Vec<IpAddr>) -> RenderOptions {
    RenderOptions {
        addresses,
        port_map: BTreeMap::new(),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: Limits::default(),
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: 0,
        fleet_hosts: 1,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: EndpointRules {
            zone: "zone-a".to_owned(),
            ..EndpointRules::default()
        },
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
        retained: BTreeMap::new(),
    }
}
