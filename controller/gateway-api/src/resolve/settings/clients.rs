//! Edge settings that identify clients: the PROXY protocol, and forwarded client certificates.

use std::collections::BTreeSet;

use sesame_proto::schema::edge::ForwardedClientCertificate;
use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{Edge, ForwardClientCertificate, Port, Transport};

use super::edge::excerpt;
use crate::api::{
    ClientCertificateDetail, ForwardedCertificateMode, ForwardedCertificateSettings,
    ProxyProtocolMode, ProxyProtocolSettings,
};
use crate::resolve::syntax::{limits, names};

/// Maximum number of ports, as in the schema.
const MAX_PORTS: usize = 64;
const MAX_DETAILS: usize = 5;

/// Ports whose connections start with a PROXY protocol header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProxyProtocolPorts {
    mode: ProxyProtocol,
    /// `None` for all TCP ports.
    ports: Option<BTreeSet<u32>>,
}

impl ProxyProtocolPorts {
    /// An error starts with the name of the field in `spec.edge`.
    pub(super) fn read(settings: &ProxyProtocolSettings) -> Result<Self, String> {
        let ProxyProtocolSettings { mode, ports } = settings;
        let ports = ports.as_deref();
        let ports = ports.map(|it| listed("proxyProtocol", it)).transpose()?;
        let mode = match mode {
            None | Some(ProxyProtocolMode::Required) => ProxyProtocol::Required,
            Some(ProxyProtocolMode::Optional) => ProxyProtocol::Optional,
            Some(ProxyProtocolMode::Disabled) => return Ok(Self::default()),
            Some(ProxyProtocolMode::Other(other)) => {
                let words = ProxyProtocolMode::WORDS;
                return Err(unknown("proxyProtocol.mode", other, words));
            }
        };
        Ok(Self { mode, ports })
    }

    pub(super) fn apply(&self, ports: &mut [Port]) {
        let Self {
            mode,
            ports: listed,
        } = self;
        for port in ports {
            let is_listed = listed.as_ref().is_none_or(|it| it.contains(&port.port));
            if is_listed && port.transport() == Transport::Tcp {
                port.set_proxy_protocol(*mode);
            }
        }
    }

    /// Returns true if a header may precede the connections of a TCP port.
    pub(super) fn applies_to(&self, port: u16) -> bool {
        let Self { mode, ports } = self;
        let is_listed = |listed: &BTreeSet<u32>| listed.contains(&u32::from(port));
        *mode != ProxyProtocol::None && ports.as_ref().is_none_or(is_listed)
    }
}

/// `field` is the name of a field in `spec.edge`.
pub(super) fn listed(field: &str, ports: &[i32]) -> Result<BTreeSet<u32>, String> {
    limits::entries(&format!("{field}.ports"), ports.len(), 1..=MAX_PORTS)?;
    let ports = ports.iter().enumerate().map(|(i, port)| {
        let number = names::port(*port).map(u32::from);
        number.ok_or_else(|| format!("{field}.ports[{i}]: {port}: expected 1 to 65535"))
    });
    ports.collect()
}

/// An error starts with the name of the field in `spec.edge`.
pub(super) fn forward_certificates(
    edge: &mut Edge,
    settings: &ForwardedCertificateSettings,
) -> Result<(), String> {
    let ForwardedCertificateSettings { mode, details } = settings;
    let parts = details.as_deref().map(parts).transpose()?;
    let (action, adds) = match mode {
        None | Some(ForwardedCertificateMode::Sanitize) => {
            (ForwardedClientCertificate::Remove, false)
        }
        Some(ForwardedCertificateMode::SanitizeSet) => (ForwardedClientCertificate::Replace, true),
        Some(ForwardedCertificateMode::ForwardOnly) => (ForwardedClientCertificate::Forward, false),
        Some(ForwardedCertificateMode::AppendForward) => (ForwardedClientCertificate::Append, true),
        Some(ForwardedCertificateMode::Other(other)) => {
            let words = ForwardedCertificateMode::WORDS;
            return Err(unknown("forwardClientCertificate.mode", other, words));
        }
    };
    if parts.is_some() && !adds {
        return Err(
            "forwardClientCertificate.details: allowed only with mode SanitizeSet or AppendForward"
                .to_owned(),
        );
    }
    edge.set_forwarded_client_certificate(action);
    edge.client_certificate_parts =
        parts.filter(|parts| *parts != ForwardClientCertificate::default());
    Ok(())
}

fn parts(details: &[ClientCertificateDetail]) -> Result<ForwardClientCertificate, String> {
    limits::entries(
        "forwardClientCertificate.details",
        details.len(),
        0..=MAX_DETAILS,
    )?;
    let mut parts = ForwardClientCertificate::default();
    for (i, detail) in details.iter().enumerate() {
        match detail {
            ClientCertificateDetail::Subject => parts.subject = true,
            ClientCertificateDetail::Cert => parts.cert = true,
            ClientCertificateDetail::Chain => parts.chain = true,
            ClientCertificateDetail::Dns => parts.dns = true,
            ClientCertificateDetail::Uri => parts.uri = true,
            ClientCertificateDetail::Other(other) => {
                let field = format!("forwardClientCertificate.details[{i}]");
                return Err(unknown(&field, other, ClientCertificateDetail::WORDS));
            }
        }
    }
    Ok(parts)
}

pub(super) fn unknown(field: &str, value: &str, words: &[&str]) -> String {
    let words = words.join(", ");
    format!("{field}: {:?} is not one of {words}", excerpt(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(transport: Transport, number: u32) -> Port {
        Port {
            transport: transport.into(),
            port: number,
            ..Port::default()
        }
    }

    fn modes(mode: Option<&str>, ports: Option<Vec<i32>>) -> Vec<ProxyProtocol> {
        let settings = ProxyProtocolSettings {
            mode: mode.map(ProxyProtocolMode::from),
            ports,
        };
        let mut all = [
            port(Transport::Tcp, 80),
            port(Transport::Tcp, 443),
            port(Transport::Udp, 443),
        ];
        let settings = ProxyProtocolPorts::read(&settings).expect("settings");
        settings.apply(&mut all);
        all.iter().map(Port::proxy_protocol).collect()
    }

    #[test]
    fn proxy_protocol_applies_to_listed_tcp_ports() {
        use ProxyProtocol::{None as Never, Optional, Required};
        assert_eq!(modes(None, None), [Required, Required, Never]);
        assert_eq!(
            modes(Some("Optional"), Some(vec![443, 9, 443])),
            [Never, Optional, Never]
        );
        assert_eq!(modes(Some("Disabled"), None), [Never; 3]);
    }

    #[test]
    fn invalid_proxy_protocol_names_field_and_value() {
        for (mode, ports, expected) in [
            (
                "required",
                None,
                "proxyProtocol.mode: \"required\" is not one of Required, Optional, Disabled",
            ),
            (
                "Required",
                Some(vec![80, 70_000]),
                "proxyProtocol.ports[1]: 70000: expected 1 to 65535",
            ),
            (
                "Disabled",
                Some(vec![0]),
                "proxyProtocol.ports[0]: 0: expected 1 to 65535",
            ),
            (
                "Optional",
                Some(Vec::new()),
                "proxyProtocol.ports has 0 entries; 1 to 64 are allowed",
            ),
            (
                "Optional",
                Some(vec![80; 65]),
                "proxyProtocol.ports has 65 entries; 1 to 64 are allowed",
            ),
        ] {
            let mode = Some(mode.into());
            let read = ProxyProtocolPorts::read(&ProxyProtocolSettings { mode, ports });
            assert_eq!(read, Err(expected.to_owned()));
        }
    }

    fn forwarded(mode: Option<&str>, details: Option<&[&str]>) -> Result<Edge, String> {
        let settings = ForwardedCertificateSettings {
            mode: mode.map(ForwardedCertificateMode::from),
            details: details.map(|all| all.iter().map(|it| (*it).into()).collect()),
        };
        let mut edge = Edge::default();
        forward_certificates(&mut edge, &settings).map(|()| edge)
    }

    #[test]
    fn forwarded_certificates_have_selected_details() {
        let edge = forwarded(Some("AppendForward"), Some(&["DNS", "Subject", "DNS"]));
        let expected = Edge {
            forwarded_client_certificate: ForwardedClientCertificate::Append.into(),
            client_certificate_parts: Some(ForwardClientCertificate {
                subject: true,
                dns: true,
                ..ForwardClientCertificate::default()
            }),
            ..Edge::default()
        };
        assert_eq!(edge, Ok(expected));
        assert_eq!(forwarded(None, None), Ok(Edge::default()));
        assert_eq!(forwarded(Some("Sanitize"), None), Ok(Edge::default()));
    }

    #[test]
    fn invalid_forwarded_certificates_name_field_and_value() {
        let without =
            "forwardClientCertificate.details: allowed only with mode SanitizeSet or AppendForward";
        for (mode, details, expected) in [
            (None, Some(&["URI"][..]), without),
            (Some("ForwardOnly"), Some(&["URI"]), without),
            (
                Some("AlwaysForwardOnly"),
                None,
                "forwardClientCertificate.mode: \"AlwaysForwardOnly\" is not one of Sanitize, \
                 SanitizeSet, ForwardOnly, AppendForward",
            ),
            (
                Some("SanitizeSet"),
                Some(&["URI", "Hash"]),
                "forwardClientCertificate.details[1]: \"Hash\" is not one of Subject, Cert, Chain, \
                 DNS, URI",
            ),
            (
                Some("SanitizeSet"),
                Some(&["URI"; 6]),
                "forwardClientCertificate.details has 6 entries; at most 5 are allowed",
            ),
        ] {
            assert_eq!(forwarded(mode, details), Err(expected.to_owned()));
        }
    }
}
