//! IP networks, such as `192.0.2.0/24`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Address and prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self { address, bits }
    }
}

impl Network {
    /// Parses a network or a single address.
    pub fn of_host_or_network(text: &str) -> Result<Self, String> {
        match text.parse::<IpAddr>() {
            Ok(ip) => Ok(Self::from(ip)),
            Err(_) => text.parse(),
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected a network such as 192.0.2.0/24 or 2001:db8::/64");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = bits.parse().map_err(|_| wrong())?;
        if bits > Self::from(address).bits {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Returns the address. Bits beyond the prefix may be set.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns true if the network contains the address.
    pub fn holds(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                let rest = 32 - u32::from(self.bits);
                let (a, b) = (u32::from(network), u32::from(ip));
                (a ^ b).checked_shr(rest).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let rest = 128 - u32::from(self.bits);
                let (a, b) = (u128::from(network), u128::from(ip));
                (a ^ b).checked_shr(rest).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        let holds = |network: &str, ip: &str| {
            let network: Network = network.parse().expect("good");
            network.holds(ip.parse().expect("good"))
        };
        assert!(holds("192.0.2.0/24", "192.0.2.255"));
        assert!(!holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "203.0.113.1"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("2001:db8::/64", "2001:db8::ffff"));
        assert!(!holds("2001:db8::1/128", "2001:db8::2"));
        for bad in ["192.0.2.0", "192.0.2.0/33", "::/129", "host/8", "/8"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
