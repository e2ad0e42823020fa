//! Verification of client certificates.

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, certificate_validation_context::TrustChainVerification,
    common_tls_context::ValidationContextType,
};
use sesame_proto::schema::TlsTermination;
use sesame_proto::schema::tls_termination::ClientMode;

use super::alt_names::{PeerNames, Wildcards};
use super::validated;
use crate::context::RenderContext;

pub(super) fn validation(
    tls: &TlsTermination,
    context: &RenderContext<'_>,
) -> Result<Option<ValidationContextType>, String> {
    let mode = ClientMode::try_from(tls.client_mode).map_err(|_| "unknown client mode")?;
    let asks = tls.asks_for_certificate();
    if !asks && mode != ClientMode::Required {
        return Err(
            "client_trust_bundle is empty, but client_mode needs trusted authorities; set client_trust_bundle".to_owned(),
        );
    }
    let names = PeerNames {
        dns_names: &tls.client_dns_names,
        uris: &tls.client_uris,
        dns_suffixes: &tls.client_dns_suffixes,
        uri_prefixes: &tls.client_uri_prefixes,
    };
    // A wildcard in a client certificate must not match other names.
    let names = names.matchers(Wildcards::Literal)?;
    let verified = asks && mode == ClientMode::Required;
    if !verified && !names.is_empty() {
        return Err(
            "client names are set, but no client certificate is required to match them; set client_trust_bundle, and client_mode REQUIRED"
                .to_owned(),
        );
    }
    if !asks {
        return Ok(None);
    }
    // Fail closed without a trust bundle: no client certificate passes validation.
    let mut how = CertificateValidationContext {
        match_typed_subject_alt_names: names,
        ..Default::default()
    };
    if matches!(
        mode,
        ClientMode::OptionalUnverified | ClientMode::RequiredUnverified
    ) {
        how.trust_chain_verification = TrustChainVerification::AcceptUntrusted.into();
    }
    if tls.client_trust_bundle.is_empty() {
        return Ok(Some(ValidationContextType::ValidationContext(how)));
    }
    validated(how, &tls.client_trust_bundle, context).map(Some)
}
