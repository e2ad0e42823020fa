//! Reads endpoints from EndpointSlices.
//!
//! If a port has no ready endpoint, terminating endpoints that still serve are used, as in
//! kube-proxy. Addresses that could reach the host or its cloud metadata service are rejected
//! unless the options allow them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use sesame_proto::addresses::{self, RefusedAddress};
use sesame_proto::schema::{Endpoint, EndpointSet};

use super::settings;
use crate::context::{Options, Problem, Problems, ResolveContext};
use crate::syntax::names;
use sesame_kinds::api::{
    EndpointConditions, EndpointSlice, Metadata, NamespacedName, Service, ServicePort, ServiceSpec,
    SliceEndpoint, SlicePort,
};
use sesame_kinds::world::{Kind, World};

/// Keyed by namespace and name of the Service.
pub(crate) struct Slices<'w>(HashMap<(&'w str, &'w str), Vec<&'w EndpointSlice>>);

impl<'w> Slices<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        let mut slices: HashMap<(&str, &str), Vec<_>> =
            HashMap::with_capacity(world.endpoint_slices.len());
        for slice in &world.endpoint_slices {
            if let Some(service) = slice.service() {
                slices
                    .entry((slice.metadata.namespace.as_str(), service))
                    .or_default()
                    .push(slice.as_ref());
            }
        }
        Self(slices)
    }

    /// Returns distinct endpoints, sorted.
    pub(crate) fn endpoints(
        &self,
        set: String,
        service: &Metadata,
        port: &ServicePort,
        cx: &mut ResolveContext<'w, '_>,
    ) -> EndpointSet {
        let name = (service.namespace.as_str(), service.name.as_str());
        let slices = self.0.get(&name).map(Vec::as_slice).unwrap_or_default();
        settings::check(service, &mut cx.problems);
        of_port(set, port, slices, cx.options, &mut cx.problems)
    }
}

/// Returns the endpoint set of each port, and problems in slices and annotations. Nothing else in a
/// resolution depends on EndpointSlices.
pub fn endpoint_sets(
    service: &Service,
    slices: &[&EndpointSlice],
    options: &Options,
) -> (Vec<EndpointSet>, Vec<Problem>) {
    let mut problems = Problems::default();
    settings::check(&service.metadata, &mut problems);
    let key = service.metadata.key();
    let ports = &service.spec.ports;
    let sets = ports.iter().filter_map(|port| {
        let transport = transport_of(&port.protocol);
        let first = service_port(&service.spec, port.port, transport)?;
        std::ptr::eq(first, port).then(|| {
            let name = set_name(&key, port.port, transport);
            of_port(name, port, slices, options, &mut problems)
        })
    });
    let sets = sets.collect();
    (sets, problems.into_sorted())
}

pub(crate) fn service_port<'s>(
    spec: &'s ServiceSpec,
    number: i32,
    transport: &str,
) -> Option<&'s ServicePort> {
    let mut same_number = spec.ports.iter().filter(|port| port.port == number);
    same_number.find(|port| transport_of(&port.protocol) == transport)
}

/// TCP and UDP ports may share a number, so names of UDP ports end with `/UDP`.
pub(crate) fn set_name(service: &NamespacedName, number: i32, transport: &str) -> String {
    match transport {
        "UDP" => format!("Service/{service}/{number}/UDP"),
        _ => format!("Service/{service}/{number}"),
    }
}

pub(crate) fn of_port(
    name: String,
    port: &ServicePort,
    slices: &[&EndpointSlice],
    options: &Options,
    problems: &mut Problems,
) -> EndpointSet {
    let mut ready = Vec::new();
    let mut terminating = Vec::new();
    for slice in slices {
        let lists = (&mut ready, &mut terminating);
        read(slice, port, options, problems, lists);
    }
    let mut found = if ready.is_empty() { terminating } else { ready };
    found.sort_unstable();
    found.dedup_by_key(|(address, port, _)| (*address, *port));
    let zones: BTreeSet<&str> = found.iter().filter_map(|(_, _, zone)| *zone).collect();
    let zones: Vec<&str> = zones.into_iter().collect();
    let number = |zone: &str| {
        let place = zones.binary_search(&zone).ok()?;
        u32::try_from(place + 1).ok()
    };
    let endpoints = found.into_iter().map(|(address, port, zone)| Endpoint {
        address: address.to_string(),
        port: port.into(),
        zone: zone.and_then(number).unwrap_or(0),
        group: 0,
    });
    EndpointSet {
        name,
        endpoints: endpoints.collect(),
        zones: zones.iter().map(ToString::to_string).collect(),
        weights: Vec::new(),
    }
}

fn port_number(ports: &[SlicePort], service_port: &ServicePort) -> Option<i32> {
    ports.iter().find_map(|slice_port| {
        let SlicePort {
            name,
            port,
            protocol,
        } = slice_port;
        let same_name = name.as_deref().unwrap_or_default() == &*service_port.name;
        let protocol = protocol.as_deref().unwrap_or_default();
        let same_protocol = transport_of(protocol) == transport_of(&service_port.protocol);
        (same_name && same_protocol).then_some(*port)?
    })
}

/// An empty `protocol` means TCP.
fn transport_of(protocol: &str) -> &str {
    match protocol {
        "" => "TCP",
        protocol => protocol,
    }
}

/// Maximum length of a zone's name in bytes, which is a label value.
const MAX_ZONE: usize = 63;

/// Addresses, ports and zones.
type Found<'w> = Vec<(IpAddr, u16, Option<&'w str>)>;

/// Skips endpoints unless they are ready, or terminating but still serving.
fn read<'w>(
    slice: &'w EndpointSlice,
    service_port: &ServicePort,
    options: &Options,
    problems: &mut Problems,
    (ready, terminating): (&mut Found<'w>, &mut Found<'w>),
) {
    let EndpointSlice {
        metadata,
        address_type,
        endpoints,
        ports,
    } = slice;
    let object = || Kind::EndpointSlice.named(metadata.key());
    let Some(number) = port_number(ports, service_port) else {
        return;
    };
    let Some(number) = names::port(number) else {
        let message = format!("ports: {number} is out of range; expected 1 to 65535");
        return problems.add(object(), message);
    };
    if !matches!(&**address_type, "IPv4" | "IPv6") {
        let message =
            format!("addressType {address_type:?} is not supported; expected IPv4 or IPv6");
        return problems.add(object(), message);
    }
    let mut refused: Vec<(&str, String)> = Vec::new();
    for endpoint in endpoints {
        let SliceEndpoint {
            address,
            conditions,
            zone,
        } = endpoint;
        let EndpointConditions {
            ready: is_ready,
            serving,
            terminating: is_terminating,
        } = conditions;
        let list = if is_ready.unwrap_or(true) {
            &mut *ready
        } else if *serving == Some(true) && *is_terminating == Some(true) {
            &mut *terminating
        } else {
            continue;
        };
        let Some(text) = address.as_deref() else {
            continue;
        };
        match usable(text, options) {
            Ok(address) => {
                let zone = zone.as_deref();
                let zone = zone.filter(|it| (1..=MAX_ZONE).contains(&it.len()));
                list.push((address, number, zone));
            }
            Err(why) => refused.push((text, why)),
        }
    }
    if let Some((first, why)) = refused.first() {
        problems.add(
            object(),
            format!(
                "{} endpoints are rejected, starting with {first:?}, which is {why}; expected \
                addresses of other machines",
                refused.len()
            ),
        );
    }
}

/// Fails if the address must not be used.
pub(super) fn usable(text: &str, options: &Options) -> Result<IpAddr, String> {
    let address = text
        .parse::<IpAddr>()
        .map_err(|_| "not an IP address".to_owned())?;
    match addresses::refused(address) {
        Some(RefusedAddress { network, what, .. }) if !options.allow_local_endpoints => {
            Err(format!("{what} ({network})"))
        }
        _ => Ok(address),
    }
}
