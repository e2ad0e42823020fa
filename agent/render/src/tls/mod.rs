//! TLS to clients and to backends: certificates, their verification, and protocol parameters.

pub(crate) mod alt_names;
mod clients;
mod parameters;
pub(crate) mod secrets;

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TransportSocket, data_source::Specifier, transport_socket,
};
use envoy_types::pb::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret,
    SubjectAltNameMatcher, TlsCertificate, UpstreamTlsContext,
    common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
    downstream_tls_context::{OcspStaplePolicy, SessionTicketKeysType},
    secret::Type,
    tls_parameters::TlsProtocol,
};
use envoy_types::util::pack_any;
use prost::{Message as _, Name};
use sesame_proto::schema::{AppProtocol, BackendTls, TlsTermination};
use sesame_proto::tls_parameters::is_application_protocol;

use self::alt_names::{PeerNames, Wildcards};
use crate::context::RenderContext;
use crate::rendered::find;
use crate::{config_sources, wrappers};

/// `alpn` lists the default protocols, in order of preference.
pub(crate) fn downstream(
    tls: &TlsTermination,
    alpn: &[&str],
    context: &RenderContext<'_>,
) -> Result<TransportSocket, String> {
    Ok(socket(termination(tls, alpn, context)?))
}

/// The caller has checked that `tls` may be used over HTTP/3.
pub(crate) fn over_quic(
    tls: &TlsTermination,
    context: &RenderContext<'_>,
) -> Result<TransportSocket, String> {
    let transport = QuicDownstreamTransport {
        downstream_tls_context: Some(termination(tls, &["h3"], context)?),
        // Anyone can replay early data, and most backends do not expect that.
        enable_early_data: wrappers::boolean(false),
        ..Default::default()
    };
    Ok(TransportSocket {
        name: "envoy.transport_sockets.quic".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(pack_any(
            transport,
        ))),
    })
}

fn termination(
    tls: &TlsTermination,
    alpn: &[&str],
    context: &RenderContext<'_>,
) -> Result<DownstreamTlsContext, String> {
    let TlsTermination {
        keys,
        client_trust_bundle: _,
        client_mode: _,
        min_version: _,
        max_version: _,
        cipher_suites: _,
        alpn: asked,
        session_ticket_keys,
        client_dns_names: _,
        client_uris: _,
        client_dns_suffixes: _,
        client_uri_prefixes: _,
        // The connection manager sets the header that this field affects.
        forward_client_certificate: _,
        key_exchange_groups: _,
    } = tls;
    if let Some(name) = asked.iter().find(|name| !is_application_protocol(name)) {
        return Err(format!("{name:?} is not a valid ALPN protocol name"));
    }
    let alpn_protocols = match asked.as_slice() {
        [] => alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
        asked => asked.to_vec(),
    };
    let certificates = OwnCertificates::of(keys, context)?;
    let asks = tls.asks_for_certificate();
    let validation = clients::validation(tls, context)?;
    Ok(DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters::of_listener(tls)?),
            tls_certificates: certificates.inline,
            tls_certificate_sds_secret_configs: certificates.in_files,
            alpn_protocols,
            validation_context_type: validation,
            ..Default::default()
        }),
        // On resumption, Envoy would not verify the client certificate again, and would accept an
        // expired one.
        session_ticket_keys_type: if asks {
            Some(SessionTicketKeysType::DisableStatelessSessionResumption(
                true,
            ))
        } else {
            ticket_keys(session_ticket_keys, context)?
        },
        disable_stateful_session_resumption: asks,
        // Present a certificate even if its OCSP staple is missing or invalid.
        ocsp_staple_policy: OcspStaplePolicy::LenientStapling.into(),
        // Set explicitly, because Envoy's default is about to change.
        require_client_certificate: wrappers::boolean(tls.requires_certificate()).filter(|_| asks),
        ..Default::default()
    })
}

/// Falls back to the host's keys. Returns `None` if the host has no keys; Envoy then generates
/// them.
fn ticket_keys(
    name: &str,
    context: &RenderContext<'_>,
) -> Result<Option<SessionTicketKeysType>, String> {
    let in_files = SessionTicketKeysType::SessionTicketKeysSdsSecretConfig;
    if find(context.secrets, name).is_none() {
        return Ok(context.subscriptions.tickets.then(|| {
            in_files(SdsSecretConfig {
                name: secrets::SESSION_TICKET_KEYS.to_owned(),
                sds_config: Some(config_sources::file(&context.options.layout.tickets())),
            })
        }));
    }
    if !context.subscriptions.secrets.is_inline(name) {
        return Ok(Some(in_files(in_file(name, context))));
    }
    match inline(name, context)? {
        Some(Type::SessionTicketKeys(keys)) => {
            Ok(Some(SessionTicketKeysType::SessionTicketKeys(keys)))
        }
        _ => Err(format!("`{name}` has no session ticket keys")),
    }
}

pub(crate) fn upstream(
    tls: &BackendTls,
    protocol: AppProtocol,
    context: &RenderContext<'_>,
) -> Result<TransportSocket, String> {
    let BackendTls {
        sni,
        trust_bundle,
        dns_names: _,
        uris: _,
        client_key,
        dns_suffixes: _,
        uri_prefixes: _,
        mesh,
        min_version,
        max_version,
        cipher_suites,
        unverified,
        key_exchange_groups,
    } = tls;
    let versions = (*min_version, *max_version);
    let mut parameters = parameters::checked(versions, cipher_suites, key_exchange_groups)?;
    // As a client, Envoy uses at most TLS 1.2 by default.
    if parameters.tls_minimum_protocol_version == i32::from(TlsProtocol::TlSv13) {
        parameters.tls_maximum_protocol_version = TlsProtocol::TlSv13.into();
    }
    if *mesh && (client_key.is_empty() || trust_bundle.is_empty()) {
        return Err(
            "a mesh backend needs both a client_key to present and a trust_bundle to verify the server"
                .to_owned(),
        );
    }
    let mut validation = CertificateValidationContext {
        match_typed_subject_alt_names: expected_names(tls)?,
        ..Default::default()
    };
    let validation = if *unverified {
        None
    } else if trust_bundle.is_empty() {
        // With `system_root_certs`, Envoy cannot verify names.
        validation.trusted_ca = Some(DataSource {
            specifier: Some(Specifier::Filename(
                context.options.system_ca.to_string_lossy().into_owned(),
            )),
            ..Default::default()
        });
        Some(ValidationContextType::ValidationContext(validation))
    } else {
        Some(validated(validation, trust_bundle, context)?)
    };
    let client_key = match client_key.as_str() {
        "" => OwnCertificates::default(),
        _ => OwnCertificates::of(std::slice::from_ref(client_key), context)?,
    };
    Ok(socket(UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters),
            tls_certificates: client_key.inline,
            tls_certificate_sds_secret_configs: client_key.in_files,
            // An HTTP/1.1 server without ALPN support might reject the handshake.
            alpn_protocols: match protocol {
                AppProtocol::Http2 => vec!["h2".to_owned()],
                AppProtocol::Http1
                | AppProtocol::Websocket
                | AppProtocol::TcpBytes
                | AppProtocol::UdpDatagrams => Vec::new(),
            },
            validation_context_type: validation,
            ..Default::default()
        }),
        sni: sni.clone(),
        ..Default::default()
    }))
}

/// Names are optional in a mesh, where every certificate from the mesh's authority is valid.
/// Elsewhere, returns an error without names. Always returns an error if a name would match any
/// certificate.
fn expected_names(tls: &BackendTls) -> Result<Vec<SubjectAltNameMatcher>, String> {
    let BackendTls {
        sni: _,
        trust_bundle,
        dns_names,
        uris,
        client_key: _,
        dns_suffixes,
        uri_prefixes,
        mesh,
        min_version: _,
        max_version: _,
        cipher_suites: _,
        unverified,
        key_exchange_groups: _,
    } = tls;
    let names = PeerNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
    };
    let names = names.matchers(Wildcards::Expanded)?;
    if *unverified {
        if !names.is_empty() || !trust_bundle.is_empty() || *mesh {
            return Err("unverified TLS allows neither names nor a trust bundle".to_owned());
        }
        return Ok(names);
    }
    if names.is_empty() && !mesh {
        // Any certificate from the authority would be accepted.
        return Err(
            "TLS to the backend has no names to verify; set at least one of dns_names, uris, dns_suffixes and uri_prefixes"
                .to_owned(),
        );
    }
    Ok(names)
}

/// Envoy requires that all certificates are in files or all are inline.
#[derive(Default)]
struct OwnCertificates {
    in_files: Vec<SdsSecretConfig>,
    inline: Vec<TlsCertificate>,
}

impl OwnCertificates {
    fn of(names: &[String], context: &RenderContext<'_>) -> Result<Self, String> {
        let there = names
            .iter()
            .filter(|name| find(context.secrets, name).is_some());
        let there: Vec<&String> = there.collect();
        let mut certificates = Self::default();
        let granted = &context.subscriptions.secrets;
        if there.iter().any(|name| granted.is_inline(name)) {
            for name in there {
                if let Some(Type::TlsCertificate(certificate)) = inline(name, context)? {
                    certificates.inline.push(certificate);
                }
            }
        } else {
            certificates.in_files = there.iter().map(|name| in_file(name, context)).collect();
        }
        if certificates.inline.is_empty() && certificates.in_files.is_empty() {
            return Err(match names {
                [] => "the listener terminates TLS but names no key pair".to_owned(),
                [first, ..] => not_here(first),
            });
        }
        Ok(certificates)
    }
}

fn validated(
    how: CertificateValidationContext,
    bundle: &str,
    context: &RenderContext<'_>,
) -> Result<ValidationContextType, String> {
    if context.subscriptions.secrets.is_inline(bundle)
        && let Some(Type::ValidationContext(authorities)) = inline(bundle, context)?
    {
        return Ok(ValidationContextType::ValidationContext(
            CertificateValidationContext {
                trusted_ca: authorities.trusted_ca,
                crl: authorities.crl,
                only_verify_leaf_cert_crl: authorities.only_verify_leaf_cert_crl,
                ..how
            },
        ));
    }
    find(context.secrets, bundle).ok_or_else(|| not_here(bundle))?;
    let bundle = in_file(bundle, context);
    if how == CertificateValidationContext::default() {
        return Ok(ValidationContextType::ValidationContextSdsSecretConfig(
            bundle,
        ));
    }
    Ok(ValidationContextType::CombinedValidationContext(
        CombinedCertificateValidationContext {
            default_validation_context: Some(how),
            validation_context_sds_secret_config: Some(bundle),
            ..Default::default()
        },
    ))
}

fn inline(name: &str, context: &RenderContext<'_>) -> Result<Option<Type>, String> {
    let secret = find(context.secrets, name).ok_or_else(|| not_here(name))?;
    let secret = Secret::decode(&*secret.bytes).map_err(|_| format!("`{name}` is not a secret"))?;
    Ok(secret.r#type)
}

fn not_here(name: &str) -> String {
    format!("`{name}` is not on this host")
}

/// Returns an error if the secret is not on this host, or Envoy may watch no more files.
pub(crate) fn in_watched_file(
    name: &str,
    context: &RenderContext<'_>,
) -> Result<SdsSecretConfig, String> {
    find(context.secrets, name).ok_or_else(|| not_here(name))?;
    if context.subscriptions.secrets.is_inline(name) {
        return Err(format!(
            "Envoy may not watch a file with `{name}`; increase fs.inotify.max_user_instances"
        ));
    }
    Ok(in_file(name, context))
}

fn in_file(name: &str, context: &RenderContext<'_>) -> SdsSecretConfig {
    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(config_sources::file(&context.options.layout.sds(name))),
    }
}

fn socket(context: impl Name) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(pack_any(context))),
    }
}
