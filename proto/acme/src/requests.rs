//! Which certificates the configuration requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;

/// Default directory of the CA.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Maximum length of an encoded key. CAs use about 90 characters.
const MAX_MAC_KEY: usize = 2048;

/// A CA, and the account there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeIssuer {
    /// URL of the directory.
    pub directory: String,
    /// Address for the CA's messages.
    pub email: Option<String>,
    /// How the CA validates hostnames.
    pub method: ChallengeMethod,
    /// PEM of the CA certificates that the directory's server certificate must chain to. `None`
    /// means the system's CA certificates.
    pub ca_bundle: Option<String>,
    /// The operator's account with the CA.
    pub external: Option<ExternalAccount>,
}

/// An account with a CA outside ACME, to which new ACME accounts are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Identifier of the key.
    pub key_id: String,
    /// The key, or `None` if its Secret is missing or invalid. Existing accounts need no key.
    pub key: Option<MacKey>,
}

/// Key for HMAC. Its debug format does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct MacKey(Vec<u8>);

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MacKey").finish_non_exhaustive()
    }
}

impl MacKey {
    /// Decodes base64url, with or without padding. Returns `None` if it is malformed, empty or too
    /// long.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let config =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let decoder = GeneralPurpose::new(&alphabet::URL_SAFE, config);
        let is_plausible = (1..=MAX_MAC_KEY).contains(&text.len());
        let bytes = is_plausible.then(|| decoder.decode(text).ok()).flatten()?;
        (!bytes.is_empty()).then_some(Self(bytes))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How a CA validates a hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeMethod {
    /// A request to port 80 of the hostname.
    Http01,
    /// A TXT record, which a program on the host creates.
    Dns01,
}

/// An HTTP listener that can serve challenges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChallengeParent {
    /// The Gateway or ListenerSet with the listener.
    pub object: ObjectKey,
    /// The Gateway that serves the listener.
    pub gateway: NamespacedName,
    /// Name of the listener.
    pub listener: String,
    /// Port that clients use.
    pub port: u16,
    /// Port that hosts open.
    pub opened: u16,
}

/// A certificate to order and renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The Gateways and ListenerSets whose listeners refer to the Secret, in its namespace.
    pub requesters: BTreeSet<ObjectKey>,
    /// Hostnames that the certificate must have.
    pub hostnames: BTreeSet<String>,
    /// Listeners that can serve challenges. Empty if the method needs none.
    pub parents: BTreeSet<ChallengeParent>,
    /// The CA.
    pub issuer: AcmeIssuer,
    /// True if the objects are the operator's, so that the CA may validate hostnames in other ways.
    pub is_operators: bool,
    /// True if the Secret exists. A change makes the client look at the Secret again.
    pub exists: bool,
}

/// Requested certificates, keyed by Secret.
pub type CertificateRequests = BTreeMap<NamespacedName, CertificateRequest>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_keys_are_base64url_and_hidden() {
        let expected = MacKey(vec![0xfb, 0xef, 0xfe, 0x01]);
        for text in ["--_-AQ", "--_-AQ==", " --_-AQ==\n"] {
            assert_eq!(MacKey::decode(text.as_bytes()), Some(expected.clone()));
        }
        for text in [
            "",
            "\n",
            "++/+AQ",
            "a",
            "key!",
            &"A".repeat(MAX_MAC_KEY + 1),
        ] {
            assert_eq!(MacKey::decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(format!("{expected:?}"), "MacKey { .. }");
    }
}
