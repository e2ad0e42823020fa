//! The request header `x-forwarded-client-cert`.
//!
//! A header that a client sends is forwarded only if the client's certificate was verified.

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails, SetCurrentClientCertDetails,
};
use sesame_proto::schema::edge::ForwardedClientCertificate;
use sesame_proto::schema::tls_termination::ClientMode;
use sesame_proto::schema::{Edge, ForwardClientCertificate, TlsTermination};

use crate::wrappers;

/// `tls` is `None` for plaintext.
pub(super) fn render(
    tls: Option<&TlsTermination>,
    edge: Edge,
) -> (i32, Option<SetCurrentClientCertDetails>) {
    let own = tls.and_then(|tls| tls.forward_client_certificate);
    if let Some(parts) = own {
        return (
            ForwardClientCertDetails::SanitizeSet.into(),
            Some(details(parts)),
        );
    }
    let action = if tls.is_some_and(verifies_clients) {
        edge.forwarded_client_certificate()
    } else {
        ForwardedClientCertificate::Remove
    };
    let parts = details(edge.client_certificate_parts.unwrap_or_default());
    let (action, parts) = match action {
        ForwardedClientCertificate::Remove => (ForwardClientCertDetails::Sanitize, None),
        ForwardedClientCertificate::Replace => (ForwardClientCertDetails::SanitizeSet, Some(parts)),
        ForwardedClientCertificate::Forward => (ForwardClientCertDetails::ForwardOnly, None),
        ForwardedClientCertificate::Append => {
            (ForwardClientCertDetails::AppendForward, Some(parts))
        }
    };
    (action.into(), parts)
}

/// Returns true if Envoy verifies client certificates. If an optional certificate is missing, Envoy
/// itself removes the header.
fn verifies_clients(tls: &TlsTermination) -> bool {
    let is_verified = match ClientMode::try_from(tls.client_mode) {
        Ok(ClientMode::Required | ClientMode::Optional) => true,
        Ok(ClientMode::OptionalUnverified | ClientMode::RequiredUnverified) | Err(_) => false,
    };
    is_verified && !tls.client_trust_bundle.is_empty()
}

fn details(parts: ForwardClientCertificate) -> SetCurrentClientCertDetails {
    let ForwardClientCertificate {
        subject,
        cert,
        chain,
        dns,
        uri,
    } = parts;
    SetCurrentClientCertDetails {
        subject: wrappers::boolean(subject),
        cert,
        chain,
        dns,
        uri,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(tls: Option<&TlsTermination>, action: ForwardedClientCertificate) -> (i32, bool) {
        let edge = Edge {
            forwarded_client_certificate: action.into(),
            client_certificate_parts: Some(ForwardClientCertificate {
                uri: true,
                ..Default::default()
            }),
            ..Edge::default()
        };
        let (action, parts) = render(tls, edge);
        (action, parts.is_some_and(|it| it.uri))
    }

    fn validating(mode: ClientMode) -> TlsTermination {
        TlsTermination {
            client_trust_bundle: "ConfigMap/ns/ca/ca.crt".to_owned(),
            client_mode: mode.into(),
            ..Default::default()
        }
    }

    const ACTIONS: [ForwardedClientCertificate; 4] = [
        ForwardedClientCertificate::Remove,
        ForwardedClientCertificate::Replace,
        ForwardedClientCertificate::Forward,
        ForwardedClientCertificate::Append,
    ];

    #[test]
    fn verified_clients_get_configured_action() {
        use ForwardClientCertDetails::{AppendForward, ForwardOnly, Sanitize, SanitizeSet};
        for mode in [ClientMode::Required, ClientMode::Optional] {
            let found = ACTIONS.map(|action| rendered(Some(&validating(mode)), action));
            let expected = [
                (Sanitize, false),
                (SanitizeSet, true),
                (ForwardOnly, false),
                (AppendForward, true),
            ];
            assert_eq!(found, expected.map(|(action, uri)| (action.into(), uri)));
        }
    }

    #[test]
    fn header_of_unverified_client_is_removed() {
        let unverified = [
            ClientMode::OptionalUnverified,
            ClientMode::RequiredUnverified,
        ];
        let mut all: Vec<Option<TlsTermination>> = unverified
            .iter()
            .map(|mode| Some(validating(*mode)))
            .collect();
        let mut unknown = validating(ClientMode::Required);
        unknown.client_mode = 77;
        all.extend([None, Some(TlsTermination::default()), Some(unknown)]);
        for tls in &all {
            for action in ACTIONS {
                let expected = (ForwardClientCertDetails::Sanitize.into(), false);
                assert_eq!(rendered(tls.as_ref(), action), expected, "{tls:?}");
            }
        }
    }

    #[test]
    fn own_parts_of_listener_take_precedence() {
        let tls = TlsTermination {
            forward_client_certificate: Some(ForwardClientCertificate::default()),
            ..validating(ClientMode::Required)
        };
        for action in ACTIONS {
            let expected = (ForwardClientCertDetails::SanitizeSet.into(), false);
            assert_eq!(rendered(Some(&tls), action), expected);
        }
    }
}
