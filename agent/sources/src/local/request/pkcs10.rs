//! Generates a key and a certificate request. Never keep another copy of the key.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::entry::{CertificateRequest, RequestedNames, RequestedUsage};

pub(super) struct NewKey {
    pub(super) key: String,
    pub(super) request: String,
}

pub(super) fn make(request: &CertificateRequest) -> Result<NewKey, rcgen::Error> {
    let RequestedNames {
        common_name,
        dns_names,
        uris,
    } = &request.names;
    let mut params = CertificateParams::new(dns_names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(name) = common_name {
        params
            .distinguished_name
            .push(DnType::CommonName, name.as_str());
    }
    for uri in uris {
        let uri = uri.as_str().try_into()?;
        params.subject_alt_names.push(SanType::URI(uri));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match request.usage {
        RequestedUsage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        RequestedUsage::Server => ExtendedKeyUsagePurpose::ServerAuth,
    }];
    let key = KeyPair::generate()?;
    Ok(NewKey {
        request: params.serialize_request(&key)?.pem()?,
        key: key.serialize_pem(),
    })
}
