//! Source of certificates. Private keys in files never leave their hosts.

use sesame_kinds::api::{ListenerTls, Metadata};

pub(crate) const LISTENER_OPTION: &str = "projectsesame.io/certificate-source";
pub(crate) const GATEWAY_ANNOTATION: &str = "projectsesame.io/client-certificate-source";

/// Where to find referenced certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateSource {
    /// In the referenced Secrets.
    #[default]
    Secret,
    /// In files on each host. The Secrets need not exist.
    Host,
}

impl CertificateSource {
    pub(crate) const WORDS: [&'static str; 2] = ["secret", "host"];

    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "secret" => Some(Self::Secret),
            "host" => Some(Self::Host),
            _ => None,
        }
    }

    /// Returns the source of a listener's certificates. Defaults to the Secret if the option is
    /// invalid, but then the listener is not served.
    pub fn of_listener(tls: &ListenerTls) -> Self {
        let word = tls.options.get(LISTENER_OPTION);
        word.and_then(|word| Self::named(word)).unwrap_or_default()
    }

    /// Returns the source of a Gateway's client certificate. Defaults to the Secret if the
    /// annotation is invalid.
    pub fn of_gateway(gateway: &Metadata) -> Self {
        let word = gateway.annotations.get(GATEWAY_ANNOTATION);
        word.and_then(Self::named).unwrap_or_default()
    }

    pub(crate) fn fault(gateway: &Metadata) -> Option<String> {
        let word = gateway.annotations.get(GATEWAY_ANNOTATION)?;
        let excerpt: String = word.chars().take(100).collect();
        Self::named(word).is_none().then(|| {
            let words = Self::WORDS.join(" or ");
            format!("metadata.annotations[{GATEWAY_ANNOTATION}]: {excerpt:?} is not {words}")
        })
    }
}
