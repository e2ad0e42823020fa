//! Matchers for the subject alternative names of certificates.

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    SubjectAltNameMatcher, subject_alt_name_matcher::SanType,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use crate::wrappers;

pub(crate) struct PeerNames<'a> {
    pub(crate) dns_names: &'a [String],
    pub(crate) uris: &'a [String],
    pub(crate) dns_suffixes: &'a [String],
    pub(crate) uri_prefixes: &'a [String],
}

#[derive(Clone, Copy)]
pub(crate) enum Wildcards {
    /// A wildcard matches other names, as in server certificates.
    Expanded,
    /// A wildcard matches only itself.
    Literal,
}

impl PeerNames<'_> {
    /// Returns an error if a name would match any certificate.
    pub(crate) fn matchers(
        self,
        wildcards: Wildcards,
    ) -> Result<Vec<SubjectAltNameMatcher>, String> {
        let Self {
            dns_names,
            uris,
            dns_suffixes,
            uri_prefixes,
        } = self;
        let bad_suffix = |suffix: &&String| !suffix.starts_with('.') || suffix.len() < 2;
        if let Some(suffix) = dns_suffixes.iter().find(bad_suffix) {
            return Err(format!(
                "{suffix:?} is not a suffix of DNS names, such as \".svc\""
            ));
        }
        let bad_prefix = |prefix: &&String| {
            let authority = prefix.split_once("://").map(|(_, rest)| rest);
            authority.is_none_or(|rest| rest.find('/').is_none_or(|at| at == 0))
        };
        if let Some(prefix) = uri_prefixes.iter().find(bad_prefix) {
            return Err(format!(
                "{prefix:?} is not a prefix of URIs, such as \"spiffe://example.com/\""
            ));
        }
        let matcher = |san_type: SanType, pattern: MatchPattern| SubjectAltNameMatcher {
            san_type: san_type.into(),
            matcher: Some(wrappers::string(pattern)),
            ..Default::default()
        };
        let dns_name = |name: &String| match wildcards {
            Wildcards::Expanded => MatchPattern::Exact(name.clone()),
            // Envoy expands wildcards in a certificate only for an exact matcher.
            Wildcards::Literal => {
                MatchPattern::SafeRegex(wrappers::regex(format!("(?i){}", escaped(name))))
            }
        };
        let dns_names = dns_names
            .iter()
            .map(|name| matcher(SanType::Dns, dns_name(name)));
        let uris = uris
            .iter()
            .map(|uri| matcher(SanType::Uri, MatchPattern::Exact(uri.clone())));
        let suffixes = dns_suffixes
            .iter()
            .map(|suffix| matcher(SanType::Dns, MatchPattern::Suffix(suffix.clone())));
        let prefixes = uri_prefixes
            .iter()
            .map(|prefix| matcher(SanType::Uri, MatchPattern::Prefix(prefix.clone())));
        Ok(dns_names
            .chain(uris)
            .chain(suffixes)
            .chain(prefixes)
            .collect())
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_has_no_operators() {
        assert_eq!(escaped("a-b.example.com"), "a\\-b\\.example\\.com");
    }
}
