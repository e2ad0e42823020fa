//! The Gateway API release of each definition (CRD) that is installed in a cluster.

use std::collections::BTreeMap;
use std::fmt;

use super::Kind;

/// Annotation of a definition that states its release.
pub const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
/// Annotation of a definition that states its channel.
pub const CHANNEL: &str = "gateway.networking.k8s.io/channel";

/// A minor release of the Gateway API, such as 1.6. All of its patch releases have the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiRelease {
    /// The 1 in 1.6.
    pub major: u32,
    /// The 6 in 1.6.
    pub minor: u32,
}

impl ApiRelease {
    /// Parses a version such as `v1.6.3`, `v1.7.0-rc.1` or `v1.6.0-dev`, or returns `None`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix('v')?.splitn(3, '.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        numbers.next()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for ApiRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor } = self;
        write!(f, "v{major}.{minor}")
    }
}

/// Channel of a release. The standard channel has fewer kinds and fields than the experimental one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the API's own words")]
pub enum ReleaseChannel {
    Standard,
    Experimental,
}

impl ReleaseChannel {
    /// Returns the name of the channel as it appears in definitions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
        }
    }
}

/// The release that a definition's annotations state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionRelease {
    /// A release and channel that could be parsed.
    Known(ApiRelease, ReleaseChannel),
    /// At least one annotation is missing or malformed. Both are kept as written.
    Unknown {
        /// Value of [`BUNDLE_VERSION`]; empty if missing.
        version: String,
        /// Value of [`CHANNEL`]; empty if missing.
        channel: String,
    },
}

impl DefinitionRelease {
    /// Reads the annotations of a definition.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| {
            annotations
                .get(name)
                .map(String::as_str)
                .unwrap_or_default()
        };
        let (version, channel) = (value(BUNDLE_VERSION), value(CHANNEL));
        let known = match channel {
            "standard" => Some(ReleaseChannel::Standard),
            "experimental" => Some(ReleaseChannel::Experimental),
            _ => None,
        };
        match (ApiRelease::parse(version), known) {
            (Some(release), Some(channel)) => Self::Known(release, channel),
            _ => Self::Unknown {
                version: version.chars().take(MAX_SHOWN).collect(),
                channel: channel.chars().take(MAX_SHOWN).collect(),
            },
        }
    }
}

/// Maximum number of characters of an annotation that a message quotes.
const MAX_SHOWN: usize = 64;

/// The definitions on which the objects are based.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Definitions {
    /// Objects do not come from a cluster. They may use all fields that Sesame knows.
    #[default]
    OwnTypes,
    /// The release of each kind that is installed in the cluster.
    Installed(BTreeMap<Kind, DefinitionRelease>),
}

impl Definitions {
    /// Returns true if the definition of this kind is from Gateway API 1.`minor` or a later
    /// release.
    pub fn since(&self, kind: Kind, minor: u32) -> bool {
        let since = ApiRelease { major: 1, minor };
        match self {
            Self::OwnTypes => false,
            Self::Installed(all) => matches!(
                all.get(&kind),
                Some(DefinitionRelease::Known(release, _)) if *release >= since
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_ignores_patch_and_keeps_unknown_text() {
        let read = |version: &str, channel: &str| {
            let pairs = [(BUNDLE_VERSION, version), (CHANNEL, channel)];
            let owned = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            DefinitionRelease::read(&owned.into())
        };
        let known =
            |major, minor, channel| DefinitionRelease::Known(ApiRelease { major, minor }, channel);
        assert_eq!(
            read("v1.6.3", "standard"),
            known(1, 6, ReleaseChannel::Standard)
        );
        let candidate = read("v1.7.0-rc.1", "experimental");
        assert_eq!(candidate, known(1, 7, ReleaseChannel::Experimental));
        for (version, channel) in [
            ("1.6.3", "standard"),
            ("v1", "standard"),
            ("v1.6.3", "beta"),
            ("", ""),
        ] {
            let (version, channel) = (version.to_owned(), channel.to_owned());
            let unknown = read(&version, &channel);
            assert_eq!(unknown, DefinitionRelease::Unknown { version, channel });
        }
    }
}
