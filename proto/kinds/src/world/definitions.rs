//! Determines which Gateway API release a cluster's CRDs come from.

use std::collections::BTreeMap;
use std::fmt;

use super::Kind;

/// Annotation that contains a CRD's Gateway API release.
pub const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
/// Annotation that contains a CRD's release channel.
pub const CHANNEL: &str = "gateway.networking.k8s.io/channel";

/// A minor Gateway API release. Its patch releases have the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiRelease {
    /// Major version, such as 1 in v1.6.
    pub major: u32,
    /// Minor version, such as 6 in v1.6.
    pub minor: u32,
}

impl ApiRelease {
    /// Parses a version such as `v1.6.3`, `v1.7.0-rc.1` or `v1.6.0-dev`.
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

/// The standard channel has fewer kinds and fields than the experimental one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the API's own words")]
pub enum ReleaseChannel {
    Standard,
    Experimental,
}

impl ReleaseChannel {
    /// Returns the channel's name in CRD annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Experimental => "experimental",
        }
    }
}

/// A CRD's Gateway API release, according to its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionRelease {
    /// Both annotations are valid.
    Known(ApiRelease, ReleaseChannel),
    /// An annotation is missing or malformed.
    Unknown {
        /// Value of [`BUNDLE_VERSION`], or empty if missing.
        version: String,
        /// Value of [`CHANNEL`], or empty if missing.
        channel: String,
    },
}

impl DefinitionRelease {
    /// Reads the release from a CRD's annotations.
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

/// Maximum length of an unknown annotation value, in characters.
const MAX_SHOWN: usize = 64;

/// The CRDs that define the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Definitions {
    /// Objects do not come from a cluster, so they may use all fields that Sesame knows.
    #[default]
    OwnTypes,
    /// Release of each CRD in the cluster.
    Installed(BTreeMap<Kind, DefinitionRelease>),
}

impl Definitions {
    /// Returns true if the kind's CRD is from Gateway API 1.`minor` or later.
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
