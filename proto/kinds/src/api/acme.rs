//! `spec.acme` of a SesameConfiguration: certificates by ACME.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::enums::open_enum;

open_enum! {
    /// How the CA validates hostnames.
    AcmeChallenge {
        Http01 = "HTTP01",
        Dns01 = "DNS01",
    }
}

/// CA from which certificates are ordered for Gateways with the annotation
/// `projectsesame.io/acme: "true"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AcmeSettings {
    /// URL of the CA's directory. The default is Let's Encrypt's,
    /// `https://acme-v02.api.letsencrypt.org/directory`.
    #[schemars(length(max = 2048), regex(pattern = r"^https://"))]
    pub directory: Option<String>,
    /// Email address for messages from the CA.
    #[schemars(length(max = 254))]
    pub email: Option<String>,
    /// True if you agree to the CA's terms of service. Nothing is ordered otherwise.
    pub terms_agreed: Option<bool>,
    /// `HTTP01`, the default, needs an HTTP listener that clients reach at port 80. `DNS01` needs a
    /// program that changes DNS records: `acme-dns-hook` of the host, or of the controller.
    pub challenge: Option<AcmeChallenge>,
    /// CA certificates (PEM) for the directory's server. The default is the system's.
    #[schemars(length(max = 65536))]
    pub ca_bundle: Option<String>,
    /// Your account with the CA, to which the ACME account is bound (RFC 8555, section 7.3.4). Some
    /// CAs require it.
    pub external_account: Option<AcmeExternalAccount>,
}

/// An account with a CA, and its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcmeExternalAccount {
    /// Identifier of the key, from the CA.
    #[serde(rename = "keyID")]
    #[schemars(length(min = 1, max = 1024))]
    pub key_id: String,
    /// Secret whose `key` is the HMAC key, in base64url as the CA shows it.
    pub secret_ref: AcmeSecretRef,
}

/// The Secret with the key of an external account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AcmeSecretRef {
    /// Name of the Secret.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Namespace of the Secret. The default is the SesameConfiguration's; any other needs a
    /// ReferenceGrant.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}
