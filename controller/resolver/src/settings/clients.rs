//! Edge settings that identify clients: the PROXY protocol, and forwarded client certificates.

use sesame_proto::schema::edge::ForwardedClientCertificate;
use sesame_proto::schema::port::ProxyProtocol;
use sesame_proto::schema::{Edge, ForwardClientCertificate};

use super::edge::excerpt;
use crate::syntax::limits;
use sesame_kinds::api::{
    ClientCertificateDetail, ForwardedCertificateMode, ForwardedCertificateSettings,
    ProxyProtocolMode, ProxyProtocolSettings,
};

const MAX_DETAILS: usize = 5;

/// An error starts with the name of the field in `spec.edge`.
pub(super) fn proxy_protocol(settings: &ProxyProtocolSettings) -> Result<ProxyProtocol, String> {
    let ProxyProtocolSettings { mode } = settings;
    match mode {
        None | Some(ProxyProtocolMode::Required) => Ok(ProxyProtocol::Required),
        Some(ProxyProtocolMode::Optional) => Ok(ProxyProtocol::Optional),
        Some(ProxyProtocolMode::Disabled) => Ok(ProxyProtocol::None),
        Some(ProxyProtocolMode::Other(other)) => {
            let words = ProxyProtocolMode::WORDS;
            Err(unknown("proxyProtocol.mode", other, words))
        }
    }
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

    #[test]
    fn invalid_proxy_protocol_names_field_and_value() {
        let read = proxy_protocol(&ProxyProtocolSettings {
            mode: Some("required".into()),
        });
        let expected =
            "proxyProtocol.mode: \"required\" is not one of Required, Optional, Disabled";
        assert_eq!(read, Err(expected.to_owned()));
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
