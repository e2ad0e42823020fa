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
    /// `HTTP01`, the default, needs an HTTP listener that clients reach at port 80. `DNS01` works
    /// only on hosts with manifests, and needs their setting `acme-dns-hook`.
    pub challenge: Option<AcmeChallenge>,
    /// CA certificates (PEM) for the directory's server. The default is the system's.
    #[schemars(length(max = 65536))]
    pub ca_bundle: Option<String>,
}
