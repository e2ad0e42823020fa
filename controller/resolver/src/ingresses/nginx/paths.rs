//! Reads rewrites, redirects, and Ingress paths that may be regular expressions.
//!
//! In ingress-nginx, `rewrite-target` or `use-regex` affects the paths of all Ingresses for the
//! same host. Here, each annotation affects only its own Ingress.

use sesame_proto::schema::path_match::Kind;
use sesame_proto::schema::{PathModifier, UrlRewrite, path_modifier};

use super::super::paths::{of_field, read_as};
use super::Annotations;
use super::values::{boolean, number};
use crate::filters::rewrites::RedirectTo;
use crate::filters::route_filter::substitution;
use crate::routes::matches::{self, RouteMatch};
use crate::syntax::limits::{self, MAX_PATH};
use crate::syntax::regexes::Regexes;
use crate::syntax::{hostnames, names};
use sesame_kinds::api::{FilterSubstitution, IngressPath, PathMatchType};

/// A dot alone does not make a path a regular expression.
const REGEX_CHARACTERS: &str = "^*+[](){}|?$\\";

#[derive(Default)]
pub(in super::super) struct Paths {
    pub(in super::super) are_expressions: bool,
    pub(super) rewrite_target: Option<String>,
    pub(in super::super) redirect: Option<RedirectTo>,
    pub(in super::super) app_root: Option<RedirectTo>,
}

impl Paths {
    pub(super) fn read(from: &mut Annotations<'_>) -> Self {
        let rewrite_target = from.require("rewrite-target", |target| {
            names::check_path("path", &without_groups(target))?;
            limits::max_bytes("path", target, MAX_PATH)?;
            if target.starts_with('/') || target.starts_with('$') {
                return Ok(target.to_owned());
            }
            Err(format!("{target:?}: expected a path such as /$1"))
        });
        let use_regex = from.require("use-regex", boolean).unwrap_or_default();
        let redirects = [
            ("temporal-redirect", "temporal-redirect-code", 302),
            ("permanent-redirect", "permanent-redirect-code", 301),
        ];
        // As in ingress-nginx, the temporary redirect takes precedence.
        let redirect = redirects.into_iter().find_map(|(name, code, default)| {
            from.get(name)?;
            let status = from.read(code, |text| {
                let status = number(text, 301..=308)?;
                let is_redirect = matches!(status, 301..=303 | 307..=308);
                Some(status)
                    .filter(|_| is_redirect)
                    .ok_or_else(|| format!("{text:?}: expected 301, 302, 303, 307 or 308"))
            });
            from.require(name, |url| redirect(url, status.unwrap_or(default)))
        });
        let app_root = from.require("app-root", |path| {
            let is_path = path.starts_with('/') && path != "/";
            if !is_path {
                return Err(format!("{path:?}: expected a path below /"));
            }
            Ok(RedirectTo {
                scheme: "",
                host: String::new(),
                port: None,
                path: Some(full(path)?),
                status: 302,
            })
        });
        Self {
            are_expressions: use_regex || rewrite_target.is_some(),
            rewrite_target,
            redirect,
            app_root,
        }
    }

    /// ingress-nginx ignores case and matches every path as a string prefix, even with type
    /// `Prefix`. Here, paths without special characters are case-sensitive string prefixes.
    pub(in super::super) fn read_match(
        path: &IngressPath,
        regexes: &mut Regexes,
    ) -> Result<RouteMatch, String> {
        let IngressPath {
            path: value,
            path_type: _,
            backend: _,
        } = path;
        if !is_expression(value) {
            let path = match matches::canonical_path(value)
                .map_err(|why| of_field(&why))?
                .as_str()
            {
                "/" => Kind::Prefix(String::new()),
                prefix => Kind::TextPrefix(prefix.to_owned()),
            };
            return Ok(RouteMatch {
                path,
                ..RouteMatch::all()
            });
        }
        if !value.starts_with('/') {
            return Err(format!("path {value:?} must start with '/'"));
        }
        let pattern = pattern(value);
        Ok(RouteMatch {
            ranked_length: Some(value.len()),
            ..read_as(PathMatchType::RegularExpression, &pattern, regexes)?
        })
    }

    pub(in super::super) fn rewrite(
        &self,
        path: &IngressPath,
        regexes: &mut Regexes,
    ) -> Result<Option<UrlRewrite>, String> {
        let Some(target) = &self.rewrite_target else {
            return Ok(None);
        };
        let modifier = if has_groups(target) {
            let IngressPath {
                path: value,
                path_type,
                backend: _,
            } = path;
            if path_type == "Exact" || !is_expression(value) {
                return Err(format!(
                    "path {value:?} has no groups, but rewrite-target {target:?} refers to one"
                ));
            }
            let spec = FilterSubstitution {
                pattern: format!("^{}", pattern(value)),
                substitution: group_references(target),
            };
            substitution(&spec, regexes)
                .map_err(|why| format!("path {value:?} with rewrite-target {target:?}: {why}"))?
        } else {
            full(target)?
        };
        Ok(Some(UrlRewrite {
            path: Some(modifier),
            ..UrlRewrite::default()
        }))
    }
}

/// Returns true if other controllers would read an `ImplementationSpecific` path as a regular
/// expression.
pub fn is_expression(path: &str) -> bool {
    path.contains(|c: char| REGEX_CHARACTERS.contains(c))
}

/// Returns the regular expression that whole paths match.
pub fn pattern(path: &str) -> String {
    format!("(?i:{path}).*")
}

fn full(path: &str) -> Result<PathModifier, String> {
    limits::max_bytes("path", path, MAX_PATH)?;
    names::check_path("path", path)?;
    Ok(PathModifier {
        kind: Some(path_modifier::Kind::Full(path.to_owned())),
    })
}

/// Returns true if a target refers to a group, such as `$1`.
pub fn has_groups(target: &str) -> bool {
    without_groups(target).len() < target.len()
}

fn without_groups(target: &str) -> String {
    replaced(target, |_| String::new())
}

/// Replaces references such as `$1` with `\1`.
pub fn group_references(target: &str) -> String {
    replaced(target, |digit| format!("\\{digit}"))
}

fn replaced(target: &str, group: impl Fn(char) -> String) -> String {
    let mut text = String::with_capacity(target.len());
    let mut rest = target.chars().peekable();
    while let Some(character) = rest.next() {
        match rest.peek() {
            Some(digit @ '1'..='9') if character == '$' => {
                text.push_str(&group(*digit));
                rest.next();
            }
            _ => text.push(character),
        }
    }
    text
}

fn redirect(url: &str, status: u32) -> Result<RedirectTo, String> {
    let invalid = || format!("{url:?}: expected a URL such as https://example.com/path");
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let scheme = match scheme {
        "http" => "http",
        "https" => "https",
        _ => return Err(invalid()),
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => {
            let port = port.parse().ok().and_then(names::port);
            (host, Some(port.ok_or_else(invalid)?))
        }
        None => (authority, None),
    };
    hostnames::check_precise(host).map_err(|_| invalid())?;
    Ok(RedirectTo {
        scheme,
        host: host.to_owned(),
        port,
        path: Some(full(path)?),
        status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_need_absolute_urls() {
        let read = redirect("https://b.test:8443/x", 301).expect("valid");
        assert_eq!(
            (read.scheme, &*read.host, read.port),
            ("https", "b.test", Some(8443))
        );
        for bad in [
            "/path",
            "ftp://b.test",
            "https://b.test/x?y=1",
            "https://a@b.test/",
            "https://$host$request_uri",
            "https://b.test:0/",
        ] {
            assert!(redirect(bad, 301).is_err(), "{bad}");
        }
    }

    #[test]
    fn groups_become_backslashes() {
        for (target, expected) in [("/$2", "/\\2"), ("/a/$1/$2", "/a/\\1/\\2"), ("/", "/")] {
            assert_eq!(group_references(target), expected);
            assert_eq!(has_groups(target), target != "/");
        }
    }
}
