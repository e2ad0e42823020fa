//! Which ports listeners may use, and which ports hosts open for them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use sesame_proto::schema;

use crate::listeners::CheckedListener;
use crate::syntax::names;
use sesame_kinds::api::PortMapping;
use sesame_kinds::status::Reason;

const MAX_REPORTED: usize = 40;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PortLimits {
    /// Ports that hosts open, by listener port.
    map: BTreeMap<u16, u16>,
    /// Configuration that sets the map.
    mapped_by: String,
    /// Added to listener ports that are not in the map.
    offset: u16,
    /// Configuration that sets the offset.
    offset_by: String,
    /// A port is allowed only if every entry allows it.
    allowed: Vec<AllowedPorts>,
}

#[derive(Clone, Debug, PartialEq)]
struct AllowedPorts {
    ranges: Vec<RangeInclusive<u16>>,
    /// The ranges as written in the configuration.
    text: String,
    source: String,
}

impl AllowedPorts {
    fn holds(&self, port: u16) -> bool {
        self.ranges.iter().any(|range| range.contains(&port))
    }
}

impl PortLimits {
    /// Validation has already rejected invalid ports.
    pub(super) fn map(&mut self, map: &[PortMapping], source: &str) {
        let pairs = map.iter().filter_map(|PortMapping { outside, inside }| {
            Some((names::port(*outside)?, names::port(*inside)?))
        });
        self.map = pairs.collect();
        source.clone_into(&mut self.mapped_by);
    }

    /// Validation has already rejected an invalid offset.
    pub(super) fn set_offset(&mut self, offset: i32, source: &str) {
        self.offset = u16::try_from(offset).unwrap_or_default();
        source.clone_into(&mut self.offset_by);
    }

    pub(super) fn allow(&mut self, ports: &[String], source: &str) {
        self.allowed.push(AllowedPorts {
            ranges: ports.iter().filter_map(|text| range(text).ok()).collect(),
            text: ports.join(", "),
            source: source.to_owned(),
        });
    }

    /// Cannot overflow for listeners that `refuse` accepts.
    pub(super) fn opened(&self, port: u16) -> u16 {
        let mapped = self.map.get(&port).copied();
        mapped.unwrap_or_else(|| port.saturating_add(self.offset))
    }

    pub(super) fn maps_as(&self, other: &Self) -> bool {
        self.map == other.map && self.offset == other.offset
    }

    /// Rejects listeners whose port is not allowed, out of range, or opened on hosts for another
    /// port in `used`.
    pub(crate) fn refuse(&self, listeners: &mut [CheckedListener<'_>], used: &[Socket]) {
        for listener in listeners {
            let Some((udp, port)) = socket(listener) else {
                continue;
            };
            let refuses = |allowed: &&AllowedPorts| !allowed.holds(port);
            for AllowedPorts { text, source, .. } in self.allowed.iter().filter(refuses) {
                let expected = if text.is_empty() { "none" } else { text };
                let message = format!(
                    "port {port} is not allowed; {source} allows {expected} (spec.ports.allowed)"
                );
                listener.accepted.refuse(Reason::PortUnavailable, message);
            }
            if !self.map.contains_key(&port) && port.checked_add(self.offset).is_none() {
                let message = format!(
                    "port {port} is above 65535 with the offset {} ({}, spec.ports.offset); choose another port, or list it in spec.ports.map",
                    self.offset, self.offset_by
                );
                listener.accepted.refuse(Reason::PortUnavailable, message);
            }
            let opened = self.opened(port);
            let holder = self.map.iter().find(|(outside, inside)| {
                **outside != port && **inside == opened && used.contains(&(udp, **outside))
            });
            if let Some((outside, _)) = holder {
                let message = format!(
                    "hosts open port {opened} for port {outside} ({}, spec.ports.map); choose another port",
                    self.mapped_by
                );
                listener.accepted.refuse(Reason::PortUnavailable, message);
            }
        }
    }

    pub(super) fn open(&self, ports: &mut [schema::Port]) {
        for port in ports {
            let outside = u16::try_from(port.port).unwrap_or_default();
            let is_same = self.offset == 0 && !self.map.contains_key(&outside);
            port.inside = if is_same {
                0
            } else {
                self.opened(outside).into()
            };
        }
    }
}

/// UDP flag and port number.
pub(crate) type Socket = (bool, u16);

/// Returns `None` if the port or protocol is invalid.
pub(crate) fn socket(listener: &CheckedListener<'_>) -> Option<Socket> {
    let protocol = listener.protocol?;
    Some((protocol == schema::Protocol::RawUdp, listener.port?))
}

/// Example: `443` or `8000-8999`.
pub(super) fn range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|port| plain && *port > 0)
    };
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => {
            let excerpt: String = text.chars().take(MAX_REPORTED).collect();
            Err(format!(
                "{excerpt:?} is neither a port nor a range of ports; expected a value such as \"443\" or \"8000-8999\""
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_parse_and_invalid_ones_are_explained() {
        assert_eq!(range("443"), Ok(443..=443));
        assert_eq!(range("8000-8999"), Ok(8000..=8999));
        for bad in [
            "", "0", "-", "80-", "-80", "9-8", "70000", "+80", "80-90-95", "http",
        ] {
            let why = range(bad).expect_err(bad);
            assert!(why.contains("8000-8999"), "{why}");
        }
    }
}
