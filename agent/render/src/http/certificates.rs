//! Conditions on the names in client certificates.
//!
//! Only certificates that Envoy has validated match, so plaintext requests and unverified
//! certificates never do. Listeners that request certificates never resume sessions, because Envoy
//! would not know whether the certificate of a resumed session was valid.

use envoy_types::pb::envoy::config::rbac::v3::{
    Principal,
    principal::{Authenticated, Identifier},
};
use envoy_types::pb::envoy::extensions::rbac::principals::mtls_authenticated::v3::Config;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    SubjectAltNameMatcher, subject_alt_name_matcher::SanType,
};
use envoy_types::util::pack_any;
use sesame_proto::schema::CertificateNames;

use super::address_filters::to_principal;
use super::authorization::{all_of, any_of, not};
use crate::tls::alt_names::{PeerNames, Wildcards};
use crate::wrappers;

pub(crate) fn principal(names: &CertificateNames) -> Result<Principal, String> {
    let CertificateNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
        subject,
    } = names;
    let lists = [dns_names, uris, dns_suffixes, uri_prefixes];
    let count: usize = lists.map(Vec::len).iter().sum();
    let most = CertificateNames::MAX_NAMES;
    if count > most {
        return Err(format!(
            "a rule's certificate has {count} alternative names; at most {most} are allowed"
        ));
    }
    let is_bad = |name: &&String| name.is_empty() || name.chars().any(char::is_control);
    if let Some(name) = lists.into_iter().flatten().find(is_bad) {
        return Err(format!(
            "a rule's certificate has the invalid name {name:?}"
        ));
    }
    let names = PeerNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
    };
    // A wildcard in a client certificate must not match other names.
    let alt_names = names.matchers(Wildcards::Literal)?;
    let mut parts = Vec::new();
    if !alt_names.is_empty() {
        parts.push(any_of(alt_names.into_iter().map(alt_name).collect()));
    }
    if !subject.is_empty() {
        parts.push(subject_principal(subject));
    }
    if parts.is_empty() {
        return Err("a rule's certificate has no names".to_owned());
    }
    Ok(all_of(parts))
}

/// Envoy compares a principal name with URIs and DNS names before the subject. Certificates whose
/// URI or DNS name equals the subject are therefore excluded.
fn subject_principal(subject: &str) -> Principal {
    let authenticated = Authenticated {
        principal_name: Some(wrappers::exact(subject)),
    };
    let as_alt_name = |san_type: SanType| {
        not(alt_name(SubjectAltNameMatcher {
            san_type: san_type.into(),
            matcher: Some(wrappers::exact(subject)),
            ..Default::default()
        }))
    };
    all_of(vec![
        // Also matches certificates that Envoy has not validated.
        to_principal(Identifier::Authenticated(authenticated)),
        validated(Config {
            any_validated_client_certificate: true,
            ..Default::default()
        }),
        as_alt_name(SanType::Uri),
        as_alt_name(SanType::Dns),
    ])
}

fn alt_name(matcher: SubjectAltNameMatcher) -> Principal {
    validated(Config {
        san_matcher: Some(matcher),
        ..Default::default()
    })
}

fn validated(config: Config) -> Principal {
    let name = "envoy.rbac.principals.mtls_authenticated";
    let extension = wrappers::extension(name, pack_any(config));
    to_principal(Identifier::Custom(extension))
}
