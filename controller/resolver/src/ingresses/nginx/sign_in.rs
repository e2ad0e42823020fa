//! `auth-signin`: where clients sign in if the authorization service rejects them with 401.

use sesame_proto::schema::SignIn;

use super::Annotations;
use crate::syntax::hostnames::Hostname;
use crate::syntax::limits::{self, MAX_PATH};
use crate::syntax::names;

const PARAMETER: &str = "auth-signin-redirect-param";

/// Names of the request's host.
const OWN_HOSTS: [&str; 3] = ["$host", "$http_host", "$best_http_host"];
const OWN_SCHEMES: [&str; 2] = ["$scheme", "$pass_access_scheme"];
const OWN_PATH: &str = "$escaped_request_uri";

/// Returns `None` without `auth-url`, which has reported these annotations.
pub(super) fn read(from: &mut Annotations<'_>) -> Option<SignIn> {
    from.get("auth-url")?;
    let parameter = from.require(PARAMETER, |name| {
        let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
            return Err(format!(
                "{name:?}: expected at most 64 letters, digits, `_` and `-`"
            ));
        }
        Ok(name.to_owned())
    });
    let parameter = parameter.unwrap_or_else(|| "rd".to_owned());
    if from.get("auth-signin").is_none() {
        from.ignore(&[PARAMETER], "there is no auth-signin");
    }
    from.require("auth-signin", |url| parse(url, parameter))
}

fn parse(url: &str, parameter: String) -> Result<SignIn, String> {
    let Some((scheme @ ("http" | "https"), rest)) = url.split_once("://") else {
        return Err(format!("{url:?}: expected an http or https URL"));
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = if path.is_empty() { "/" } else { path };
    let mut page = SignIn {
        scheme: scheme.to_owned(),
        host: read_host(host)?,
        path: String::new(),
        parameter,
        path_only: false,
    };
    let mut parts: Vec<&str> = query.split('&').filter(|it| !it.is_empty()).collect();
    let prefix = format!("{}=", page.parameter);
    if let Some(value) = parts.iter().find_map(|it| it.strip_prefix(&prefix)) {
        if is_own_url(value) {
            page.path_only = value == OWN_PATH;
            let is_last = parts.pop().is_some_and(|it| it.starts_with(&prefix));
            if !is_last {
                return Err(format!("{url:?}: expected {prefix}{value} at the end"));
            }
        } else {
            page.parameter = String::new();
        }
    }
    let query = parts.join("&");
    if path.contains('$') || query.contains('$') {
        return Err(format!(
            "{url:?}: variables are not supported, except for {} as the host, and for \
             {prefix}{OWN_PATH} and {prefix}$scheme://$http_host{OWN_PATH} at the end",
            OWN_HOSTS[0]
        ));
    }
    names::check_path("path", path)?;
    names::check_path("query", &query)?;
    page.path = match query.as_str() {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    limits::max_bytes("path", &page.path, MAX_PATH)?;
    Ok(page)
}

/// Returns an empty string for the request's host.
fn read_host(host: &str) -> Result<String, String> {
    if OWN_HOSTS.contains(&host) {
        return Ok(String::new());
    }
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let is_port = |port: &str| {
        let digits = port.bytes().all(|c| c.is_ascii_digit());
        digits && port.parse::<u16>().is_ok_and(|it| it > 0)
    };
    if !port.is_none_or(is_port) {
        return Err(format!("host {host:?}: expected a port from 1 to 65535"));
    }
    let hostname = Hostname::parse(&name.to_ascii_lowercase())?;
    if name.is_empty() || name.contains('*') {
        return Err(format!("host {host:?}: expected a hostname"));
    }
    let name = hostname.key();
    Ok(match port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    })
}

/// Returns true if the value is the request's path or URL.
fn is_own_url(value: &str) -> bool {
    let Some(origin) = value.strip_suffix(OWN_PATH) else {
        return false;
    };
    origin.is_empty()
        || origin.split_once("://").is_some_and(|(scheme, host)| {
            OWN_HOSTS.contains(&host) && OWN_SCHEMES.contains(&scheme)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(url: &str) -> Result<SignIn, String> {
        parse(url, "rd".to_owned())
    }

    #[test]
    fn sign_in_pages_are_read_with_known_variables() {
        for (url, host, path, parameter, path_only) in [
            ("https://login.test", "login.test", "/", "rd", false),
            ("http://L.test:81/s", "l.test:81", "/s", "rd", false),
            (
                "https://$host/s?rd=$escaped_request_uri",
                "",
                "/s",
                "rd",
                true,
            ),
            (
                "https://$http_host/s?a=b&rd=$scheme://$http_host$escaped_request_uri",
                "",
                "/s?a=b",
                "rd",
                false,
            ),
            (
                "https://a.test/s?rd=/fixed",
                "a.test",
                "/s?rd=/fixed",
                "",
                false,
            ),
        ] {
            let page = page(url).unwrap();
            assert_eq!(page.host, host, "{url}");
            assert_eq!(page.path, path, "{url}");
            assert_eq!(page.parameter, parameter, "{url}");
            assert_eq!(page.path_only, path_only, "{url}");
        }
    }

    #[test]
    fn other_sign_in_pages_are_refused() {
        for url in [
            "",
            "/start",
            "//a.test/",
            "ftp://a.test/",
            "javascript://a.test/",
            "https://",
            "https://*.a.test/",
            "https://user@a.test/",
            "https://a.test:0/",
            "https://a.test:+1/",
            "https://a$host/",
            "https://a.test/$request_uri",
            "https://a.test/?x=$request_id",
            "https://a.test/?rd=$arg_rd",
            "https://a.test/?rd=https://$arg_x$escaped_request_uri",
            "https://a.test/?rd=$escaped_request_uri&a=b",
            "https://a.test/#a",
            "https://a.test/a b",
        ] {
            assert!(page(url).is_err(), "{url}");
        }
    }
}
