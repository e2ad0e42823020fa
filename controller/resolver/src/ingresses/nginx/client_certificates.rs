//! Client certificates: `auth-tls-secret`, and the annotations that modify it.
//!
//! The Ingress's TLS hosts become listeners that validate clients. No other listener may serve its
//! rules.

use sesame_proto::schema::header_part::{Fact, Kind as PartKind};
use sesame_proto::schema::tls_termination::ClientMode;
use sesame_proto::schema::{Header, HeaderModifier, HeaderPart};

use super::Annotations;
use super::values::boolean;
use crate::listeners::implicit::HostClients;
use sesame_kinds::api::{Metadata, NGINX_TLS_SECRET, ObjectRef, nginx_reference};

const VERIFY: &str = "auth-tls-verify-client";
const DEPTH: &str = "auth-tls-verify-depth";
const PASS: &str = "auth-tls-pass-certificate-to-upstream";
const ERROR_PAGE: &str = "auth-tls-error-page";

const SUBJECT: &str = "ssl-client-subject-dn";
const ISSUER: &str = "ssl-client-issuer-dn";
/// Header with the client's certificate as URL-encoded PEM.
const CERTIFICATE: &str = "ssl-client-cert";

pub(super) struct ClientCertificates {
    /// `None` if clients need no certificate.
    pub(super) clients: Option<HostClients>,
    /// The backend receives the certificate.
    passes: bool,
}

impl ClientCertificates {
    /// Adds ingress-nginx's headers about the certificate, which clients must not set.
    pub(super) fn add_headers(&self, headers: &mut HeaderModifier) {
        let is_verified = self.clients.is_some();
        headers.set.push(Header {
            name: "ssl-client-verify".to_owned(),
            value: if is_verified { "SUCCESS" } else { "NONE" }.to_owned(),
            parts: Vec::new(),
        });
        if !is_verified {
            let names = [SUBJECT, ISSUER, CERTIFICATE];
            headers.remove.extend(names.map(str::to_owned));
            return;
        }
        let subject = (SUBJECT, Fact::DownstreamPeerSubject);
        let issuer = (ISSUER, Fact::DownstreamPeerIssuer);
        let certificate = (CERTIFICATE, Fact::DownstreamPeerCert);
        let certificate = self.passes.then_some(certificate);
        let facts = [subject, issuer].into_iter().chain(certificate);
        headers.set.extend(facts.map(|(name, fact)| Header {
            name: name.to_owned(),
            value: String::new(),
            parts: vec![HeaderPart {
                kind: Some(PartKind::Fact(fact.into())),
            }],
        }));
        if !self.passes {
            headers.remove.push(CERTIFICATE.to_owned());
        }
    }
}

/// Returns the validation for the Ingress's TLS hosts. With invalid annotations, there is none, but
/// all requests of the Ingress are rejected.
pub(in crate::ingresses) fn host_clients(metadata: &Metadata) -> Option<HostClients> {
    let mut from = Annotations::of(metadata);
    let read = read(&mut from)?;
    read.clients.filter(|_| from.withheld.is_empty())
}

/// Returns `None` if there is no `auth-tls-secret` or an annotation is invalid. An invalid annotation
/// rejects all requests.
pub(super) fn read(from: &mut Annotations<'_>) -> Option<ClientCertificates> {
    if from.get(NGINX_TLS_SECRET).is_none() {
        let modifiers = [VERIFY, DEPTH, PASS, ERROR_PAGE];
        from.ignore(&modifiers, "auth-tls-secret is not set");
        return None;
    }
    let verifies = from.require(VERIFY, |value| match value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!(
            "{other:?} is not supported, because backends could not tell whether the client has a \
             valid certificate; expected on or off"
        )),
    });
    from.ignore(&[DEPTH], "chains of any length are accepted");
    from.ignore(
        &[ERROR_PAGE],
        "clients without a valid certificate cannot connect",
    );
    let passes = from.require(PASS, boolean);
    let metadata = from.metadata;
    let secret = from.require(NGINX_TLS_SECRET, |value| {
        let (namespace, name) = nginx_reference(metadata, value);
        if namespace != metadata.namespace {
            return Err(format!(
                "{value:?}: expected a Secret in the Ingress's own namespace"
            ));
        }
        Ok(ObjectRef {
            name: name.to_owned(),
            // Listeners of several Ingresses are compared.
            namespace: Some(namespace.to_owned()),
            ..ObjectRef::default()
        })
    })?;
    let clients = HostClients {
        mode: ClientMode::Required,
        authorities: Some(secret),
        revoked: None,
        leaf_only: false,
        forward: None,
    };
    Some(ClientCertificates {
        clients: verifies.unwrap_or(true).then_some(clients),
        passes: passes.unwrap_or_default(),
    })
}
