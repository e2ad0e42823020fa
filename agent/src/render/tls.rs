//! TLS on both sides: what clients are shown, and what backends must show.

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TransportSocket, data_source::Specifier, transport_socket,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
    SubjectAltNameMatcher, TlsParameters, UpstreamTlsContext,
    certificate_validation_context::TrustChainVerification,
    common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
    subject_alt_name_matcher::SanType,
    tls_parameters::TlsProtocol,
};
use envoy_types::util::pack_any;
use prost::{Message, Name};
use sesame_proto::schema::{AppProtocol, BackendTls, TlsTermination};

use super::{Context, config_sources, wrappers};

/// Terminates TLS. `alpn` is what is offered to clients, best first.
pub(super) fn downstream(
    tls: &TlsTermination,
    alpn: &[&str],
    context: &Context<'_>,
) -> Result<TransportSocket, String> {
    let TlsTermination {
        keys,
        client_trust_bundle,
        client_insecure_fallback,
    } = tls;
    let certificates: Vec<_> = keys
        .iter()
        .filter_map(|key| secret(key, context).ok())
        .collect();
    if certificates.is_empty() {
        return Err(match keys.as_slice() {
            [] => "the listener terminates TLS but names no key pair".to_owned(),
            [first, ..] => match secret(first, context) {
                Err(reason) => reason,
                Ok(_) => "no key pair is usable".to_owned(),
            },
        });
    }
    let mut require_client_certificate = false;
    let mut validation = None;
    if !client_trust_bundle.is_empty() {
        // Without the bundle, nobody could be validated: closed, not open.
        let bundle = secret(client_trust_bundle, context)?;
        validation = Some(if *client_insecure_fallback {
            // Asks, and takes whatever comes, or nothing.
            ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
                default_validation_context: Some(CertificateValidationContext {
                    trust_chain_verification: TrustChainVerification::AcceptUntrusted.into(),
                    ..Default::default()
                }),
                validation_context_sds_secret_config: Some(bundle),
                ..Default::default()
            })
        } else {
            require_client_certificate = true;
            ValidationContextType::ValidationContextSdsSecretConfig(bundle)
        });
    }
    Ok(socket(&DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters()),
            tls_certificate_sds_secret_configs: certificates,
            alpn_protocols: alpn.iter().map(|&p| p.to_owned()).collect(),
            validation_context_type: validation,
            ..Default::default()
        }),
        // Said where a client is asked: Envoy's default is about to change.
        require_client_certificate: (!client_trust_bundle.is_empty())
            .then(|| wrappers::boolean(require_client_certificate))
            .flatten(),
        ..Default::default()
    }))
}

/// Speaks TLS to a backend, and verifies it.
pub(super) fn upstream(
    tls: &BackendTls,
    protocol: AppProtocol,
    context: &Context<'_>,
) -> Result<TransportSocket, String> {
    let BackendTls {
        sni,
        trust_bundle,
        dns_names,
        uris,
        client_key,
    } = tls;
    let names = |kind: SanType, names: &[String]| {
        names
            .iter()
            .map(|name| SubjectAltNameMatcher {
                san_type: kind.into(),
                matcher: Some(wrappers::exact(name)),
                ..Default::default()
            })
            .collect::<Vec<_>>()
    };
    let mut expected = names(SanType::Dns, dns_names);
    expected.extend(names(SanType::Uri, uris));
    if expected.is_empty() {
        // Without a name, any certificate of the authority would do.
        return Err(
            "TLS to the backend has neither dns_names nor uris to verify; at least one is needed"
                .to_owned(),
        );
    }
    let mut validation = CertificateValidationContext {
        match_typed_subject_alt_names: expected,
        ..Default::default()
    };
    let validation = if trust_bundle.is_empty() {
        // Not `system_root_certs`: Envoy refuses to verify names with it.
        validation.trusted_ca = Some(DataSource {
            specifier: Some(Specifier::Filename(
                context.options.system_ca.to_string_lossy().into_owned(),
            )),
            ..Default::default()
        });
        ValidationContextType::ValidationContext(validation)
    } else {
        ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
            default_validation_context: Some(validation),
            validation_context_sds_secret_config: Some(secret(trust_bundle, context)?),
            ..Default::default()
        })
    };
    let client_key = match client_key.as_str() {
        "" => Vec::new(),
        name => vec![secret(name, context)?],
    };
    Ok(socket(&UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters()),
            tls_certificate_sds_secret_configs: client_key,
            // Nothing for HTTP/1.1: servers that know no ALPN then have nothing to refuse.
            alpn_protocols: match protocol {
                AppProtocol::Http2 => vec!["h2".to_owned()],
                AppProtocol::Http1
                | AppProtocol::Websocket
                | AppProtocol::TcpBytes
                | AppProtocol::UdpDatagrams => Vec::new(),
            },
            validation_context_type: Some(validation),
            ..Default::default()
        }),
        sni: sni.clone(),
        ..Default::default()
    }))
}

fn parameters() -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
        ..Default::default()
    }
}

/// A key pair or trust bundle by file, or why there is none.
fn secret(name: &str, context: &Context<'_>) -> Result<SdsSecretConfig, String> {
    if !context.secrets.contains(name) {
        return Err(format!("`{name}` is not on this host"));
    }
    if !context.subscriptions.secrets.contains(name) {
        return Err(format!(
            "`{name}` would need one more file subscription than the budget of {} allows: raise fs.inotify.max_user_instances",
            context.options.subscription_budget
        ));
    }
    Ok(SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(config_sources::file(&context.options.layout.sds(name))),
    })
}

fn socket<M: Message + Name + Clone>(context: &M) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(pack_any(
            context.clone(),
        ))),
    }
}
