//! Replaces paths in rewrites and redirects.
//!
//! Gateway API replaces whole path elements (see `ReplacePrefixMatch` in `httproute_types.go`), but
//! Envoy replaces characters. If the results differ, use a regular expression.

use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use sesame_proto::canonical_path::in_either_case;
use sesame_proto::schema::{PathMatch, PathModifier, RegexSubstitution, path_match, path_modifier};

use super::headers;
use crate::wrappers;
pub(crate) use sesame_proto::expressions::quote;

/// Maximum length of a path prefix to remove, in bytes. Removal uses a regular expression that is
/// at least as long as the prefix.
const LONGEST_PREFIX: usize = 16_384;

/// Never includes the query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathReplacement {
    Keep,
    Full(String),
    Prefix(String),
    Regex {
        pattern: String,
        /// May refer to groups as `\1` to `\9`.
        to: String,
    },
}

pub(crate) fn replacement(
    matched: Option<&PathMatch>,
    modifier: &PathModifier,
) -> Result<PathReplacement, String> {
    let PathModifier { kind } = modifier;
    let check = |path: &str| {
        headers::check_target(path).map_err(|reason| format!("path replacement: {reason}"))
    };
    match kind {
        None => Ok(PathReplacement::Keep),
        Some(path_modifier::Kind::Regex(regex)) => {
            let literal = regex.literal()?;
            check(&literal)?;
            let RegexSubstitution {
                pattern,
                substitution,
            } = regex.clone();
            Ok(PathReplacement::Regex {
                pattern,
                to: substitution,
            })
        }
        Some(path_modifier::Kind::Full(path)) => {
            check(path)?;
            Ok(PathReplacement::Full(rooted(path)))
        }
        Some(path_modifier::Kind::Prefix(to)) => {
            check(to)?;
            let from = match matched.and_then(|path| path.kind.as_ref()) {
                None => "",
                Some(path_match::Kind::Prefix(prefix)) => prefix.trim_end_matches('/'),
                // The match includes the slash: `/foo/x` becomes `/to/x`.
                Some(path_match::Kind::TextPrefix(prefix)) if prefix.ends_with('/') => {
                    let to = rooted(to);
                    let to = format!("{}/", to.trim_end_matches('/'));
                    return Ok(replaced(prefix, &to));
                }
                Some(path_match::Kind::TextPrefix(prefix)) => prefix,
                Some(path_match::Kind::Exact(_) | path_match::Kind::Regex(_)) => {
                    return Err("replacing a prefix requires a prefix match".to_owned());
                }
            };
            let to = rooted(to);
            let to = to.trim_end_matches('/');
            Ok(match (from, to) {
                ("", "") => PathReplacement::Keep,
                // The match includes the slash, so the replacement must, too: `/bar` becomes
                // `/to/bar`.
                ("", to) => PathReplacement::Prefix(format!("{to}/")),
                (from, "") if from.len() > LONGEST_PREFIX => {
                    return Err(format!(
                        "the prefix to remove is longer than {LONGEST_PREFIX} bytes"
                    ));
                }
                // Exactly one slash must remain at the start of the path.
                (from, "") => PathReplacement::Regex {
                    pattern: format!("^{}/?", in_either_case(from).unwrap_or_else(|| quote(from))),
                    to: "/".to_owned(),
                },
                (from, to) => replaced(from, to),
            })
        }
    }
}

fn replaced(from: &str, to: &str) -> PathReplacement {
    match in_either_case(from) {
        // With a regular expression match, Envoy's prefix rewrite would replace the whole path.
        Some(from) => PathReplacement::Regex {
            pattern: format!("^{from}"),
            to: literal(to),
        },
        None => PathReplacement::Prefix(to.to_owned()),
    }
}

pub(crate) fn substitute(pattern: &str, to: String) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute {
        pattern: Some(wrappers::regex(pattern)),
        substitution: to,
    }
}

/// Escapes `text`: `\1` must not refer to a group.
pub(crate) fn literal(text: &str) -> String {
    text.replace('\\', "\\\\")
}

fn rooted(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(from: &str, to: &str) -> PathReplacement {
        replacement(
            Some(&PathMatch {
                kind: Some(path_match::Kind::Prefix(from.into())),
            }),
            &PathModifier {
                kind: Some(path_modifier::Kind::Prefix(to.into())),
            },
        )
        .unwrap()
    }

    #[test]
    fn prefixes_are_replaced_by_whole_elements() {
        assert_eq!(
            prefix("/foo", "/xyz"),
            PathReplacement::Prefix("/xyz".into())
        );
        assert_eq!(
            prefix("/foo/", "/xyz/"),
            PathReplacement::Prefix("/xyz".into())
        );
        assert_eq!(prefix("", "/xyz"), PathReplacement::Prefix("/xyz/".into()));
        assert_eq!(prefix("", ""), PathReplacement::Keep);
        let removed = PathReplacement::Regex {
            pattern: r"^/fo\.o/?".into(),
            to: "/".into(),
        };
        assert_eq!(prefix("/fo.o", ""), removed);
        assert_eq!(prefix("/fo.o", "/"), removed);
    }

    #[test]
    fn prefix_replacement_is_refused_for_exact_match() {
        let result = replacement(
            Some(&PathMatch {
                kind: Some(path_match::Kind::Exact("/foo".into())),
            }),
            &PathModifier {
                kind: Some(path_modifier::Kind::Prefix("/bar".into())),
            },
        );
        assert!(result.is_err());
    }

    #[test]
    fn a_substitution_is_literal() {
        assert_eq!(literal(r"/a\1"), r"/a\\1");
    }
}
