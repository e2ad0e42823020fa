//! Reads the addresses that a Gateway requests (`GatewaySpec.addresses`).
//!
//! A Gateway with an unsupported address type is rejected. An invalid address is ignored.

use std::net::IpAddr;

use crate::syntax::limits;
use sesame_kinds::api::{AddressType, GatewayAddress};
use sesame_kinds::status::{Reason, Verdict};

#[derive(Debug, Default)]
pub(crate) struct GatewayAddresses {
    /// If empty, the host chooses an address.
    pub(crate) usable: Vec<String>,
    pub(crate) unassigned: Vec<String>,
    /// Errors in addresses that cannot be used.
    pub(crate) unusable: Verdict,
    any: bool,
}

impl GatewayAddresses {
    pub(crate) fn read(addresses: &[GatewayAddress], accepted: &mut Verdict) -> Self {
        let too_many =
            limits::entries("spec.addresses", addresses.len(), 0..=limits::MAX_ADDRESSES).err();
        accepted.refuse_if(Reason::Invalid, too_many);
        let mut found = Self {
            any: addresses.is_empty(),
            ..Self::default()
        };
        for (i, address) in addresses.iter().take(limits::MAX_ADDRESSES).enumerate() {
            let GatewayAddress {
                type_,
                value,
                routability,
            } = address;
            let at = format!("spec.addresses[{i}]");
            if let Some(other) = type_.as_ref().filter(|it| **it != AddressType::IpAddress) {
                accepted.refuse(
                    Reason::UnsupportedAddress,
                    format!(
                        "{at} has type {:?}; only IPAddress is supported",
                        other.as_str()
                    ),
                );
                continue;
            }
            let routability = routability.as_deref().unwrap_or_default();
            if !routability.is_empty() {
                found.unassigned.push(format!(
                    "{at} has routability {routability:?}, which is not supported, so no address \
                    is assigned; leave it empty for the addresses of the hosts"
                ));
                continue;
            }
            if value.is_empty() {
                found.any = true;
                continue;
            }
            match value.parse::<IpAddr>().map(|ip| ip.to_string()) {
                Ok(ip) if found.usable.contains(&ip) => {
                    accepted.refuse(Reason::Invalid, format!("{at} {value:?} is listed twice"));
                }
                Ok(ip) => found.usable.push(ip),
                Err(_) => found.unusable.refuse(
                    Reason::AddressNotUsable,
                    format!("{at} {value:?} is not an IP address, so it is ignored"),
                ),
            }
        }
        if found.has_no_usable_address() && !found.unassigned.is_empty() {
            let message = found.unassigned.join("; ");
            found.unusable.refuse(Reason::AddressNotAssigned, message);
        }
        found
    }

    /// Takes the usable addresses for a load balancer, so hosts choose their own addresses instead.
    pub(crate) fn take_for_load_balancer(&mut self) -> Vec<String> {
        self.any |= !self.usable.is_empty();
        std::mem::take(&mut self.usable)
    }

    pub(crate) fn has_no_usable_address(&self) -> bool {
        !self.any && self.usable.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> (GatewayAddresses, Verdict) {
        let addresses: Vec<GatewayAddress> = values
            .iter()
            .map(|value| GatewayAddress {
                type_: None,
                value: (*value).to_owned(),
                routability: None,
            })
            .collect();
        let mut accepted = Verdict::default();
        (GatewayAddresses::read(&addresses, &mut accepted), accepted)
    }

    #[test]
    fn invalid_ip_address_affects_only_itself() {
        let (read, accepted) = read(&["999.1.1.1", "192.0.2.1"]);
        assert!(accepted.good());
        assert_eq!(read.usable, ["192.0.2.1"]);
        assert_eq!(
            read.unusable.fault().map(|(reason, _)| reason),
            Some(Reason::AddressNotUsable)
        );
    }

    #[test]
    fn gateway_without_usable_address_is_not_served() {
        for (values, nowhere) in [
            (&[][..], false),
            (&[""], false),
            (&["192.0.2.1"], false),
            (&["bad"], true),
            (&["bad", ""], false),
            (&["bad", "192.0.2.1"], false),
        ] {
            assert_eq!(
                read(values).0.has_no_usable_address(),
                nowhere,
                "{values:?}"
            );
        }
    }

    #[test]
    fn load_balancer_addresses_are_not_host_addresses() {
        for (values, taken, nowhere) in [
            (&["192.0.2.1"][..], &["192.0.2.1"][..], false),
            (&[], &[], false),
            (&["bad"], &[], true),
        ] {
            let mut read = read(values).0;
            assert_eq!(read.take_for_load_balancer(), taken);
            assert!(read.usable.is_empty());
            assert_eq!(read.has_no_usable_address(), nowhere, "{values:?}");
        }
    }

    #[test]
    fn unavailable_routability_is_not_substituted() {
        for (routabilities, unassigned, nowhere) in [
            (&[""][..], 0, false),
            (&["Cluster"], 1, true),
            (&["example.com/vpn", "Cluster"], 2, true),
            (&["Cluster", ""], 1, false),
        ] {
            let addresses: Vec<GatewayAddress> = routabilities
                .iter()
                .zip(1..)
                .map(|(routability, number)| GatewayAddress {
                    type_: None,
                    value: format!("192.0.2.{number}"),
                    routability: Some((*routability).to_owned()),
                })
                .collect();
            let read = GatewayAddresses::read(&addresses, &mut Verdict::default());
            assert_eq!(read.unassigned.len(), unassigned, "{routabilities:?}");
            assert_eq!(read.has_no_usable_address(), nowhere, "{routabilities:?}");
            assert_eq!(read.unusable.good(), !nowhere, "{routabilities:?}");
        }
    }

    #[test]
    fn duplicate_address_refuses_gateway() {
        let (_, accepted) = read(&["::1", "0:0::1"]);
        assert_eq!(
            accepted.fault().map(|(reason, _)| reason),
            Some(Reason::Invalid)
        );
    }
}
