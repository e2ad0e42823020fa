//! Options for how this host serves, shared by all commands that render.

use std::net::IpAddr;

use clap::Args;

use sesame_host::free_ports::{BoundPort, PortMap};
use sesame_kinds::api::CONTROLLER_NAME;
use sesame_proto::dns_name::is_label_value;
use sesame_sources::manifests::ReadLimits;

/// This host's settings for all of its Gateways.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostArgs {
    /// Ports to bind instead of the ports that clients use: OUTSIDE:BOUND,... (redirects use the
    /// outside port). With BOUND `free`, the agent chooses a free port and keeps it.
    #[arg(long, env = "SESAME_PORT_MAP", value_name = "80:8080,443:8443", value_parser = port_map, default_value = "", hide_default_value = true)]
    pub(crate) port_map: PortMap,
    /// Address to listen on; repeatable. All addresses by default. Gateways share the addresses.
    #[arg(
        long = "address",
        env = "SESAME_ADDRESSES",
        value_delimiter = ',',
        value_name = "IP"
    )]
    pub(crate) addresses: Vec<IpAddr>,
    /// With manifests, serve only GatewayClasses with this spec.controllerName.
    #[arg(
        long,
        env = "SESAME_CONTROLLER_NAME",
        default_value = CONTROLLER_NAME,
        value_name = "NAME"
    )]
    pub(crate) controller_name: String,
    /// Allow endpoints on this host itself, and on link-local and metadata addresses.
    #[arg(long, env = "SESAME_ALLOW_LOCAL_ENDPOINTS")]
    pub(crate) allow_local_endpoints: bool,
    /// Apply GatewayMeshPolicies, which let Gateways outside a cluster speak mTLS to its mesh (for
    /// manifests; experimental).
    #[arg(long, env = "SESAME_EXTRA_MINIMAL_OCG")]
    pub(crate) extra_minimal_ocg: bool,
    /// Follow symbolic links that point outside the manifest directory.
    #[arg(long, env = "SESAME_FOLLOW_LINKS")]
    pub(crate) follow_links: bool,
    /// Trust the forwarding headers of this many proxies in front of Envoy.
    #[arg(
        long,
        env = "SESAME_TRUSTED_HOPS",
        default_value_t = 0,
        value_name = "N"
    )]
    pub(crate) trusted_hops: u32,
    /// Divide rate limits with scope Fleet among this many hosts, unless a controller counts them.
    #[arg(
        long,
        env = "SESAME_FLEET_HOSTS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        value_name = "N"
    )]
    pub(crate) fleet_hosts: u32,
    /// This host's zone, for zone preferences and the cluster's inventory.
    #[arg(
        long,
        env = "SESAME_ZONE",
        value_parser = zone,
        value_name = "NAME"
    )]
    pub(crate) zone: Option<String>,
}

impl HostArgs {
    pub(crate) fn resolve_options(&self) -> sesame_resolver::Options {
        sesame_resolver::Options {
            controller_name: self.controller_name.clone(),
            allow_local_endpoints: self.allow_local_endpoints,
            extra_minimal_ocg: self.extra_minimal_ocg,
            ..sesame_resolver::Options::default()
        }
    }

    pub(crate) fn manifest_limits(&self) -> ReadLimits {
        ReadLimits {
            links_out: self.follow_links,
            ..ReadLimits::default()
        }
    }
}

fn port_map(text: &str) -> Result<PortMap, String> {
    let mut map = PortMap::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (outside, bound) = pair
            .split_once(':')
            .ok_or_else(|| format!("{pair:?}: expected OUTSIDE:BOUND, for example 80:8080"))?;
        let outside = port(outside)?;
        let bound = match bound.trim() {
            "free" => BoundPort::Free,
            bound => BoundPort::Fixed(port(bound)?),
        };
        if let BoundPort::Fixed(port) = bound
            && map.values().any(|other| *other == bound)
        {
            return Err(format!("port {port} is bound twice"));
        }
        if map.insert(outside, bound).is_some() {
            return Err(format!("port {outside} is mapped twice"));
        }
    }
    Ok(map)
}

fn port(text: &str) -> Result<u32, String> {
    match text.trim().parse::<u16>() {
        Ok(port) if port > 0 => Ok(port.into()),
        _ => Err(format!(
            "{text:?}: expected a port from 1 to 65535, or `free` to bind a free port"
        )),
    }
}

/// The value is empty in Pods on nodes without a zone.
fn zone(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    label(text)
}

pub(super) fn label(text: &str) -> Result<String, String> {
    if is_label_value(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?}: expected up to 63 letters, digits, \"-\", \"_\" and \".\""
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::port_map;
    use sesame_host::free_ports::BoundPort::{Fixed, Free};

    #[test]
    fn port_map_parses_and_errors_name_fault() {
        assert_eq!(
            port_map("80:8080,443:free,8443:free").unwrap(),
            [(80, Fixed(8080)), (443, Free), (8443, Free)].into()
        );
        assert_eq!(port_map("").unwrap(), [].into());
        for (text, word) in [
            ("80", "OUTSIDE:BOUND"),
            ("80:0", "\"0\""),
            ("80:70000", "\"70000\""),
            ("80:1,80:2", "mapped twice"),
            ("80:1,81:1", "bound twice"),
        ] {
            let error = port_map(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
