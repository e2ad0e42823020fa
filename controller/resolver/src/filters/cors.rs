//! Reads CORS filters. Each origin becomes an exact match or a regular expression.

use sesame_proto::schema;

use crate::syntax::{hostnames, limits, names};
use sesame_kinds::api::Cors;

const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*",
];

pub(crate) fn read(spec: &Cors) -> Result<schema::Cors, String> {
    let Cors {
        allow_origins,
        allow_credentials,
        allow_methods,
        allow_headers,
        expose_headers,
        max_age,
    } = spec;
    for (field, list, most) in [
        ("allowOrigins", allow_origins, limits::MAX_CORS_ENTRIES),
        ("allowMethods", allow_methods, limits::MAX_CORS_METHODS),
        ("allowHeaders", allow_headers, limits::MAX_CORS_ENTRIES),
        ("exposeHeaders", expose_headers, limits::MAX_CORS_ENTRIES),
    ] {
        limits::entries(field, list.len(), 0..=most)?;
        let several = list.len() > 1 && field != "exposeHeaders";
        if several && list.iter().any(|entry| entry == "*") {
            return Err(format!("{field} must not combine \"*\" with other values"));
        }
    }
    for (i, method) in allow_methods.iter().enumerate() {
        if !METHODS.contains(&method.as_str()) {
            return Err(format!(
                "allowMethods[{i}] {method:?} is unknown; expected one of {}",
                METHODS.join(", ")
            ));
        }
    }
    for (field, list) in [
        ("allowHeaders", allow_headers),
        ("exposeHeaders", expose_headers),
    ] {
        for (i, name) in list.iter().enumerate() {
            if !names::is_token(name) {
                return Err(format!("{field}[{i}] {name:?} is not a header name"));
            }
        }
    }
    let max_age = max_age.unwrap_or(5);
    let max_age_seconds = u32::try_from(max_age)
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("maxAge {max_age} is out of range; expected at least 1"))?;
    let mut origins = Vec::with_capacity(allow_origins.len());
    for (i, text) in allow_origins.iter().enumerate() {
        let kind = origin(text).map_err(|why| format!("allowOrigins[{i}] {text:?} {why}"))?;
        origins.push(schema::CorsOrigin { kind: Some(kind) });
    }
    Ok(schema::Cors {
        allow_origins: origins,
        allow_credentials: allow_credentials.unwrap_or(false),
        allow_methods: allow_methods.clone(),
        allow_headers: allow_headers.clone(),
        expose_headers: expose_headers.clone(),
        max_age_seconds: Some(max_age_seconds),
        allow_private_network: false,
        ignores_matched_headers: false,
    })
}

/// Excludes URL delimiters, so a wildcard in a host cannot match beyond the host.
const OPEN_HOST: &str = "[a-z0-9._-]+";

/// Parses an origin: `*` or `<scheme>://<host>[:<port>]`, where the host may be `*` or start with
/// `*.`.
///
/// Browsers omit the scheme's default port, so it is removed from the origin. A `*` in the host
/// matches one or more labels.
pub(crate) fn origin(text: &str) -> Result<schema::cors_origin::Kind, String> {
    use schema::cors_origin::Kind;
    const SHAPE: &str =
        "is not an origin; expected \"*\" or a value such as \"https://*.example.com:8443\"";
    if text == "*" {
        return Ok(Kind::Regex(".*".to_owned()));
    }
    if text.len() > 253 {
        return Err("has more than 253 characters".to_owned());
    }
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once("://").ok_or(SHAPE)?;
    let own_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(SHAPE.to_owned()),
    };
    let (host, port) = match rest.split_once(':') {
        None => (rest, None),
        Some((host, port)) => {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            let number = port.parse::<u16>().ok().filter(|port| digits && *port > 0);
            (
                host,
                Some(number.ok_or("has a port out of range; expected 1 to 65535")?),
            )
        }
    };
    let port = match port {
        Some(port) if port != own_port => format!(":{port}"),
        _ => String::new(),
    };
    if host == "*" {
        return Ok(Kind::Regex(format!("^{scheme}://{OPEN_HOST}{port}$")));
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    // Unlike a route's hostname, an origin's host may be an IP address.
    if name.parse::<std::net::Ipv4Addr>().is_err() || name.len() < host.len() {
        hostnames::check_precise(name).map_err(|_| SHAPE)?;
    }
    Ok(if name.len() < host.len() {
        Kind::Regex(format!(
            "^{scheme}://{OPEN_HOST}\\.{}{port}$",
            regex::escape(name)
        ))
    } else {
        Kind::Exact(format!("{scheme}://{host}{port}"))
    })
}

#[cfg(test)]
mod tests {
    use schema::cors_origin::Kind;

    use super::*;

    #[test]
    fn origins() {
        let exact = |text: &str| Ok::<_, String>(Kind::Exact(text.to_owned()));
        for (text, expected) in [
            ("https://foo.com", exact("https://foo.com")),
            ("https://Foo.com:443", exact("https://foo.com")),
            ("http://foo.com:80", exact("http://foo.com")),
            ("http://foo.com:443", exact("http://foo.com:443")),
            ("http://10.0.0.1:3000", exact("http://10.0.0.1:3000")),
        ] {
            assert_eq!(origin(text), expected, "{text}");
        }
        for bad in [
            "",
            "foo.com",
            "ftp://a.com",
            "https://",
            "https://a.com/",
            "https://a.com:0",
            "https://a.*.com",
            "https://a.com:99999",
            "https://a.com:+80",
            "https://*.1.2.3.4",
        ] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wildcard_origins_match_subdomains_of_any_depth_only() {
        for (pattern, good, bad) in [
            (
                "https://*.bar.com",
                vec!["https://a.bar.com", "https://a.b.bar.com"],
                vec![
                    "https://bar.com",
                    "https://abar.com",
                    "http://a.bar.com",
                    "https://a.bar.com:8443",
                    "https://a.bar.com.evil.com",
                    "https://evil.com/.bar.com",
                    "https://evil.com?.bar.com",
                    "https://evil.com#.bar.com",
                    "https://evil@x.bar.com",
                    "https://evil.com\\.bar.com",
                    "https://evil.com%2f.bar.com",
                    "https://evil.com .bar.com",
                    "https://a.barxcom",
                ],
            ),
            (
                "https://*:8443",
                vec!["https://a.com:8443"],
                vec![
                    "https://a.com",
                    "https://a.com:84430",
                    "https://a@b.com:8443",
                ],
            ),
            ("*", vec!["https://a.com:8443", "null"], vec![]),
        ] {
            let Ok(Kind::Regex(made)) = origin(pattern) else {
                panic!("{pattern}")
            };
            let regex = regex::Regex::new(&format!("^(?:{made})$")).expect("valid");
            assert!(
                good.iter().all(|origin| regex.is_match(origin)),
                "{pattern}"
            );
            assert!(
                !bad.iter().any(|origin| regex.is_match(origin)),
                "{pattern}"
            );
        }
    }
}
