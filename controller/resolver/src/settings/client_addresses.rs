//! Proxies that report the addresses of clients.

use std::collections::BTreeSet;

use sesame_proto::network::Network;
use sesame_proto::schema::{ClientAddress, Port, Protocol, Transport};

use super::edge::excerpt;
use crate::syntax::{header_names, limits};
use sesame_kinds::api::ClientAddressSettings;

/// Limits of the schema.
const MAX_NETWORKS: usize = 64;
const MAX_HOPS: i32 = 16;
/// Headers that Envoy changes before it looks for an address, or that contain several addresses.
const OTHER_HEADERS: [&str; 2] = ["forwarded", "x-forwarded-for"];

/// An error starts with the name of the field in `spec.edge`.
pub(super) fn read(settings: &ClientAddressSettings) -> Result<ClientAddress, String> {
    let ClientAddressSettings {
        networks,
        hops,
        header,
    } = settings;
    let networks = networks.as_deref().map(read_networks).transpose()?;
    let header = header.as_deref().map(read_header).transpose()?;
    let hops = hops.map(read_hops).transpose()?;
    match (&networks, hops, &header) {
        (None, None, None) => {
            return Err("clientAddress: expected networks or hops".to_owned());
        }
        (None, _, Some(_)) => {
            return Err(
                "clientAddress.header: requires networks, because other clients could forge it"
                    .to_owned(),
            );
        }
        (_, Some(_), Some(_)) => {
            return Err("clientAddress.hops: not allowed with header".to_owned());
        }
        (Some(_), Some(0), None) => {
            return Err("clientAddress.hops: 0: expected 1 to 16 with networks".to_owned());
        }
        _ => {}
    }
    Ok(ClientAddress {
        networks: networks.unwrap_or_default(),
        hops: hops.unwrap_or_default(),
        header: header.unwrap_or_default(),
    })
}

/// Returns true if the port has connections whose requests may come from proxies.
pub(super) fn has_requests(port: &Port) -> bool {
    let is_http = |it: Protocol| matches!(it, Protocol::Http | Protocol::Https);
    let mut listeners = port.listeners.iter();
    port.transport() == Transport::Tcp && listeners.any(|it| is_http(it.protocol()))
}

fn read_networks(networks: &[String]) -> Result<Vec<String>, String> {
    limits::entries("clientAddress.networks", networks.len(), 1..=MAX_NETWORKS)?;
    let networks = networks.iter().enumerate().map(|(i, text)| {
        let network = text.parse::<Network>();
        let field = format!("clientAddress.networks[{i}]");
        let network = network.map_err(|why| format!("{field}: {why}"))?;
        if network.bits() == 0 {
            return Err(format!(
                "{field}: {text:?}: expected the networks of your proxies, because every client \
                 could forge its address"
            ));
        }
        Ok(network.to_string())
    });
    // Equal settings must result in equal snapshots.
    let networks: BTreeSet<String> = networks.collect::<Result<_, _>>()?;
    Ok(networks.into_iter().collect())
}

fn read_hops(hops: i32) -> Result<u32, String> {
    let number = u32::try_from(hops).ok().filter(|_| hops <= MAX_HOPS);
    number.ok_or_else(|| format!("clientAddress.hops: {hops}: expected 0 to {MAX_HOPS}"))
}

fn read_header(name: &str) -> Result<String, String> {
    let at = format_args!("clientAddress.header:");
    header_names::check_name(at, name)?;
    let header = name.to_ascii_lowercase();
    if OTHER_HEADERS.contains(&header.as_str()) || header.starts_with("x-envoy-") {
        return Err(format!(
            "clientAddress.header: {:?}: expected a header with only the client's address, such \
             as cf-connecting-ip; for x-forwarded-for, omit header",
            excerpt(name)
        ));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::Listener;

    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&it| it.to_owned()).collect()
    }

    #[test]
    fn client_address_applies_to_requests_over_tcp() {
        let port = |transport: Transport, protocol: Protocol| Port {
            transport: transport.into(),
            listeners: vec![Listener {
                protocol: protocol.into(),
                ..Listener::default()
            }],
            ..Port::default()
        };
        for (transport, protocol, expected) in [
            (Transport::Tcp, Protocol::Http, true),
            (Transport::Tcp, Protocol::Https, true),
            (Transport::Tcp, Protocol::RawTcp, false),
            (Transport::Udp, Protocol::RawUdp, false),
        ] {
            assert_eq!(has_requests(&port(transport, protocol)), expected);
        }
    }

    #[test]
    fn networks_are_sorted_and_headers_are_lower_case() {
        let settings = ClientAddressSettings {
            networks: Some(owned(&["2001:db8::/32", "192.0.2.0/24", "192.0.2.0/24"])),
            header: Some("CF-Connecting-IP".to_owned()),
            hops: None,
        };
        let expected = ClientAddress {
            networks: vec!["192.0.2.0/24".to_owned(), "2001:db8::/32".to_owned()],
            hops: 0,
            header: "cf-connecting-ip".to_owned(),
        };
        assert_eq!(read(&settings), Ok(expected));
    }

    #[test]
    fn invalid_client_address_names_field_and_value() {
        let cdn = || Some(owned(&["192.0.2.0/24"]));
        for (networks, hops, header, expected) in [
            (None, None, None, "clientAddress: expected networks or hops"),
            (
                None,
                None,
                Some("x-real-ip"),
                "clientAddress.header: requires networks",
            ),
            (
                None,
                Some(1),
                Some("x-real-ip"),
                "clientAddress.header: requires networks",
            ),
            (
                cdn(),
                Some(1),
                Some("x-real-ip"),
                "clientAddress.hops: not allowed with header",
            ),
            (
                cdn(),
                Some(0),
                None,
                "clientAddress.hops: 0: expected 1 to 16 with networks",
            ),
            (
                None,
                Some(17),
                None,
                "clientAddress.hops: 17: expected 0 to 16",
            ),
            (
                None,
                Some(-1),
                None,
                "clientAddress.hops: -1: expected 0 to 16",
            ),
            (
                Some(owned(&["192.0.2.1"])),
                None,
                None,
                "clientAddress.networks[0]: \"192.0.2.1\"",
            ),
            (
                Some(owned(&["::/0"])),
                None,
                None,
                "clientAddress.networks[0]: \"::/0\": expected the networks",
            ),
            (
                Some(owned(&[])),
                None,
                None,
                "clientAddress.networks has 0 entries",
            ),
            (
                Some(owned(&["192.0.2.0/24"; 65])),
                None,
                None,
                "clientAddress.networks has 65 entries",
            ),
            (
                cdn(),
                None,
                Some("X-Forwarded-For"),
                "clientAddress.header: \"X-Forwarded-For\"",
            ),
            (
                cdn(),
                None,
                Some("x-envoy-peer"),
                "clientAddress.header: \"x-envoy-peer\"",
            ),
            (
                cdn(),
                None,
                Some(":path"),
                "clientAddress.header: \":path\"",
            ),
        ] {
            let settings = ClientAddressSettings {
                networks,
                hops,
                header: header.map(str::to_owned),
            };
            let found = read(&settings).expect_err(expected);
            assert!(found.starts_with(expected), "{expected}: {found}");
        }
    }
}
