//! Reads RequestRedirect and URLRewrite filters.

use sesame_proto::schema;

use crate::syntax::{hostnames, limits, names};
use sesame_kinds::api::{PathModifier, PathModifierType, RequestRedirect, UrlRewrite};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RedirectTo {
    /// `http` or `https`. If empty, the request's scheme is kept.
    pub(crate) scheme: &'static str,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) path: Option<schema::PathModifier>,
    pub(crate) status: u32,
}

impl RedirectTo {
    pub(crate) fn https(port: u16) -> Self {
        Self {
            scheme: "https",
            host: String::new(),
            port: Some(port),
            path: None,
            status: 301,
        }
    }

    /// Uses the explicit port, else the default port of an explicitly set scheme, else the
    /// listener's external port. Omits the port if the scheme implies it.
    pub(crate) fn on(&self, listener_scheme: &str, listener_port: u16) -> schema::Redirect {
        let scheme = if self.scheme.is_empty() {
            listener_scheme
        } else {
            self.scheme
        };
        let implied = if scheme == "https" { 443 } else { 80 };
        let port = self.port.unwrap_or(if self.scheme.is_empty() {
            listener_port
        } else {
            implied
        });
        let (port, implied_port) = if port == implied {
            (0, implied)
        } else {
            (port, 0)
        };
        schema::Redirect {
            scheme: self.scheme.to_owned(),
            host: self.host.clone(),
            port: port.into(),
            path: self.path.clone(),
            status: self.status,
            implied_port: implied_port.into(),
        }
    }
}

pub(crate) fn read_redirect(
    spec: &RequestRedirect,
    one_prefix: bool,
) -> Result<RedirectTo, String> {
    let RequestRedirect {
        scheme,
        hostname,
        path,
        port,
        status_code,
    } = spec;
    let scheme = match scheme.as_deref() {
        None | Some("") => "",
        Some("http") => "http",
        Some("https") => "https",
        Some(other) => {
            return Err(format!(
                "scheme {other:?} is unknown; expected http or https"
            ));
        }
    };
    let port = match port {
        None => None,
        Some(port) => Some(
            names::port(*port)
                .ok_or_else(|| format!("port {port} is out of range; expected 1 to 65535"))?,
        ),
    };
    let status = status_code.unwrap_or(302);
    if ![301, 302, 303, 307, 308].contains(&status) {
        return Err(format!(
            "statusCode {status} is not supported; expected 301, 302, 303, 307 or 308"
        ));
    }
    Ok(RedirectTo {
        scheme,
        host: read_hostname(hostname.as_deref())?,
        port,
        path: read_path(path.as_ref(), one_prefix)?,
        status: status.unsigned_abs(),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendRewrites {
    Unsupported,
    Supported { one_prefix: bool },
}

pub(crate) fn read_rewrite(
    spec: &UrlRewrite,
    one_prefix: bool,
) -> Result<schema::UrlRewrite, String> {
    let UrlRewrite { hostname, path } = spec;
    Ok(schema::UrlRewrite {
        host: read_hostname(hostname.as_deref())?,
        path: read_path(path.as_ref(), one_prefix)?,
        host_header: String::new(),
    })
}

fn read_hostname(hostname: Option<&str>) -> Result<String, String> {
    let Some(hostname) = hostname.filter(|hostname| !hostname.is_empty()) else {
        return Ok(String::new());
    };
    hostnames::check_precise(hostname).map_err(|why| format!("hostname {why}"))?;
    Ok(hostname.to_owned())
}

fn read_path(
    spec: Option<&PathModifier>,
    one_prefix: bool,
) -> Result<Option<schema::PathModifier>, String> {
    let Some(PathModifier {
        type_,
        replace_full_path,
        replace_prefix_match,
    }) = spec
    else {
        return Ok(None);
    };
    let kind = match (type_, replace_full_path, replace_prefix_match) {
        (PathModifierType::ReplaceFullPath, Some(path), None) => {
            check_path("path.replaceFullPath", path)?;
            // Envoy requires a non-empty path.
            let path = if path.is_empty() { "/" } else { path };
            schema::path_modifier::Kind::Full(path.to_owned())
        }
        (PathModifierType::ReplacePrefixMatch, None, Some(prefix)) => {
            if !one_prefix {
                return Err(
                    "path.type ReplacePrefixMatch needs a rule with exactly one match, of type PathPrefix".to_owned(),
                );
            }
            check_path("path.replacePrefixMatch", prefix)?;
            // Ignore a trailing slash, as in the matched prefix.
            schema::path_modifier::Kind::Prefix(
                prefix.strip_suffix('/').unwrap_or(prefix).to_owned(),
            )
        }
        (PathModifierType::Other(other), ..) => {
            return Err(format!(
                "path.type {other:?} is unknown; expected ReplaceFullPath or ReplacePrefixMatch"
            ));
        }
        _ => {
            return Err(format!(
                "path: set only the field that matches type {type_}"
            ));
        }
    };
    Ok(Some(schema::PathModifier { kind: Some(kind) }))
}

fn check_path(field: &str, path: &str) -> Result<(), String> {
    limits::max_bytes(field, path, limits::MAX_PATH)?;
    if !path.is_empty() && !path.starts_with('/') {
        return Err(format!("{field} {path:?} must start with '/'"));
    }
    names::check_path(field, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(scheme: &'static str, port: Option<u16>) -> RedirectTo {
        RedirectTo {
            scheme,
            host: String::new(),
            port,
            path: None,
            status: 302,
        }
    }

    #[test]
    fn redirect_ports() {
        for (scheme, port, on, expected) in [
            ("", None, ("http", 80), ("", 0, 80)),
            ("", None, ("https", 443), ("", 0, 443)),
            ("", None, ("http", 8080), ("", 8080, 0)),
            ("", None, ("https", 8443), ("", 8443, 0)),
            ("", None, ("http", 443), ("", 443, 0)),
            ("https", None, ("http", 8080), ("https", 0, 443)),
            ("http", None, ("https", 8443), ("http", 0, 80)),
            ("https", Some(8443), ("http", 80), ("https", 8443, 0)),
            ("https", Some(443), ("http", 80), ("https", 0, 443)),
            ("", Some(80), ("http", 80), ("", 0, 80)),
            ("", Some(80), ("http", 8080), ("", 0, 80)),
            ("", Some(443), ("https", 8443), ("", 0, 443)),
            ("", Some(80), ("https", 443), ("", 80, 0)),
        ] {
            let made = redirect(scheme, port).on(on.0, on.1);
            assert_eq!(
                (made.scheme.as_str(), made.port, made.implied_port),
                expected,
                "{scheme:?} {port:?} on {on:?}"
            );
        }
    }

    #[test]
    fn replaced_prefixes_lose_their_trailing_slash() {
        for (value, expected) in [("", ""), ("/", ""), ("/xyz", "/xyz"), ("/xyz/", "/xyz")] {
            let spec = PathModifier {
                type_: PathModifierType::ReplacePrefixMatch,
                replace_full_path: None,
                replace_prefix_match: Some(value.to_owned()),
            };
            let made = read_path(Some(&spec), true).expect("valid").expect("some");
            assert_eq!(
                made.kind,
                Some(schema::path_modifier::Kind::Prefix(expected.to_owned()))
            );
            assert!(read_path(Some(&spec), false).is_err());
        }
    }
}
