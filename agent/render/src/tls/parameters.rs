//! TLS versions, cipher suites and key exchange groups.

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    TlsParameters, tls_parameters::TlsProtocol,
};
use sesame_proto::schema::TlsTermination;
use sesame_proto::schema::tls_termination::Version;
use sesame_proto::tls_parameters::{is_cipher_suite, is_key_exchange_group};

/// Returns an error if the parameters are insecure or allow no connection.
pub(super) fn of_listener(tls: &TlsTermination) -> Result<TlsParameters, String> {
    let versions = (tls.min_version, tls.max_version);
    checked(versions, &tls.cipher_suites, &tls.key_exchange_groups)
}

pub(super) fn checked(
    (min_version, max_version): (i32, i32),
    cipher_suites: &[String],
    groups: &[String],
) -> Result<TlsParameters, String> {
    let version = |version| match version {
        Version::Unset => None,
        Version::Tls12 => Some(TlsProtocol::TlSv12),
        Version::Tls13 => Some(TlsProtocol::TlSv13),
    };
    let known = |number| Version::try_from(number).map_err(|_| "unknown TLS version");
    let oldest = version(known(min_version)?);
    let newest = version(known(max_version)?);
    if (oldest, newest) == (Some(TlsProtocol::TlSv13), Some(TlsProtocol::TlSv12)) {
        return Err("the minimum TLS version is newer than the maximum".to_owned());
    }
    if let Some(name) = cipher_suites.iter().find(|name| !is_cipher_suite(name)) {
        return Err(format!("cipher suite {name:?} is not supported"));
    }
    if let Some(name) = groups.iter().find(|name| !is_key_exchange_group(name)) {
        return Err(format!("key exchange group {name:?} is not supported"));
    }
    Ok(TlsParameters {
        tls_minimum_protocol_version: oldest.unwrap_or(TlsProtocol::TlSv12).into(),
        tls_maximum_protocol_version: newest.unwrap_or(TlsProtocol::TlsAuto).into(),
        cipher_suites: cipher_suites.to_owned(),
        ecdh_curves: groups.to_owned(),
        ..Default::default()
    })
}
