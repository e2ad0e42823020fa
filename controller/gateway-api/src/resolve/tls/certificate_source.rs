//! The source of certificates: Secrets, or files on the hosts that serve them. Private keys in
//! files never leave those hosts.

use crate::api::{ListenerTls, Metadata};

/// Listener option that selects the source of the listener's certificates.
pub(crate) const LISTENER_OPTION: &str = "projectsesame.io/certificate-source";
/// Gateway annotation that selects the source of the client certificate that the Gateway presents
/// to backends.
pub(crate) const GATEWAY_ANNOTATION: &str = "projectsesame.io/client-certificate-source";

/// Where to find referenced certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateSource {
    /// In the referenced Secrets.
    #[default]
    Secret,
    /// In files on each host. The referenced Secrets need not exist and are not looked up.
    Host,
}

impl CertificateSource {
    /// All valid values.
    pub(crate) const WORDS: [&'static str; 2] = ["secret", "host"];

    /// Parses one of [`Self::WORDS`].
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "secret" => Some(Self::Secret),
            "host" => Some(Self::Host),
            _ => None,
        }
    }

    /// Returns the source of a listener's certificates. If the option is invalid, the result does
    /// not matter, because the listener is not served.
    pub fn of_listener(tls: &ListenerTls) -> Self {
        let word = tls.options.get(LISTENER_OPTION);
        word.and_then(|word| Self::named(word)).unwrap_or_default()
    }

    /// Returns the source of the client certificate that a Gateway presents to backends. If the
    /// annotation is invalid, the source is the Secret.
    pub fn of_gateway(gateway: &Metadata) -> Self {
        let word = gateway.annotations.get(GATEWAY_ANNOTATION);
        word.and_then(Self::named).unwrap_or_default()
    }

    /// Returns an error if the Gateway's annotation is invalid.
    pub(crate) fn fault(gateway: &Metadata) -> Option<String> {
        let word = gateway.annotations.get(GATEWAY_ANNOTATION)?;
        let told: String = word.chars().take(100).collect();
        Self::named(word).is_none().then(|| {
            let words = Self::WORDS.join(" or ");
            format!("metadata.annotations[{GATEWAY_ANNOTATION}]: {told:?} is not {words}")
        })
    }
}
