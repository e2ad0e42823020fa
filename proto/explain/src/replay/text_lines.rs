//! Reads lines of nginx's `combined` format, also with a virtual host in front or more fields at the
//! end (ingress-nginx, Traefik), and of Envoy's default format.

use super::super::request::UrlScheme;
use super::logged::{LoggedRequest, address};

/// Reads a line of nginx or Apache. Neither writes a quote that is not escaped.
pub(super) fn combined(line: &str) -> Result<LoggedRequest, &'static str> {
    const EXPECTED: &str = "unknown format; expected JSON of Sesame, Contour, Envoy Gateway or \
                            Traefik, nginx's combined with or without a virtual host, Envoy's \
                            default, or HAR";
    let (before, after) = line.split_once("] \"").ok_or(EXPECTED)?;
    let mut words = before.split(' ');
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    // The second word of `combined` is always `-`.
    let (vhost, client) = match second {
        Some("-") => (None, first),
        Some(client) => (Some(first), client),
        None => return Err(EXPECTED),
    };
    if address(client).is_none() && !client.starts_with("unix:") {
        return Err(EXPECTED);
    }
    let (request_line, rest) = quoted(after).ok_or("the request has no closing quote")?;
    let mut request = parsed(&request_line)?;
    request.client = address(client);
    if let Some(vhost) = vhost.filter(|_| request.authority.is_none()) {
        request.authority = Some(vhost.to_owned());
    }
    // Status and size precede the headers.
    if let Some((_, headers)) = rest.split_once('"') {
        let (referer, rest) = quoted(headers).ok_or("the referer has no closing quote")?;
        request.add_header("referer", Some(&referer));
        let agent = rest.split_once('"').and_then(|(_, agent)| quoted(agent));
        let agent = agent.map(|(agent, _)| agent);
        request.add_header("user-agent", agent.as_deref());
    }
    request.check()
}

/// Reads a line of Envoy's default format, which escapes nothing. Only a method, path, protocol
/// and host without spaces and quotes are unambiguous.
pub(super) fn envoy(line: &str) -> Result<LoggedRequest, &'static str> {
    let (_, after) = line.split_once("] \"").ok_or("the line has no request")?;
    let mut words = after.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (method, target, protocol, rest) = (word(), word(), word(), word());
    let protocol = protocol.strip_suffix('"').unwrap_or_default();
    let mut request = parsed(&format!("{method} {target} {protocol}"))?;
    // Clients choose the user agent, so read from the end.
    let mut fields = rest.rsplit("\" \"");
    let upstream = fields.next().and_then(|it| it.strip_suffix('"'));
    upstream.ok_or("the line does not end with a quoted backend address")?;
    let authority = fields.next().ok_or("the line has no host")?;
    if request.authority.is_none() && authority != "-" {
        request.authority = Some(authority.to_owned());
    }
    let agent = fields.nth(1);
    request.add_header("user-agent", agent);
    request.check()
}

/// Reads `GET /path HTTP/1.1`.
fn parsed(line: &str) -> Result<LoggedRequest, &'static str> {
    const EXPECTED: &str = "the request is not a method, a path and an HTTP version";
    let (method, rest) = line.split_once(' ').ok_or(EXPECTED)?;
    let (target, version) = rest.rsplit_once(' ').ok_or(EXPECTED)?;
    if !version.starts_with("HTTP/") {
        return Err(EXPECTED);
    }
    let mut request = LoggedRequest {
        method: method.to_owned(),
        ..LoggedRequest::default()
    };
    // A proxy's client may send the complete URL, whose host replaces the header's.
    let (scheme, rest) = match target.split_once("://") {
        Some(("http", rest)) => (Some(UrlScheme::Http), rest),
        Some(("https", rest)) => (Some(UrlScheme::Https), rest),
        _ => (None, target),
    };
    if scheme.is_some() {
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        request.authority = Some(authority.to_owned());
        let slash = if path.starts_with('/') { "" } else { "/" };
        request.target = format!("{slash}{path}");
    } else {
        target.clone_into(&mut request.target);
    }
    Ok(request)
}

/// Returns the text up to the closing quote without its escapes, and the rest of the line.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        let at = rest.find(['"', '\\'])?;
        let (before, from) = rest.split_at(at);
        bytes.extend_from_slice(before.as_bytes());
        let Some(escaped) = from.strip_prefix('\\') else {
            let text = String::from_utf8(bytes).ok()?;
            return Some((text, from.get(1..)?));
        };
        let hex = escaped.strip_prefix('x').and_then(|it| it.get(..2));
        let hex = hex.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let hex = hex.and_then(|it| u8::from_str_radix(it, 16).ok());
        rest = if let Some(byte) = hex {
            bytes.push(byte);
            escaped.get(3..)?
        } else {
            let escape = escaped.chars().next()?;
            let mut buffer = [0; 4];
            bytes.extend_from_slice(escape.encode_utf8(&mut buffer).as_bytes());
            escaped.get(escape.len_utf8()..)?
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = r#"200 5 "https://a.test/?token=1" "curl \x22x\x22""#;

    fn parts(request: &LoggedRequest) -> (Option<&str>, &str, &str) {
        let LoggedRequest {
            method,
            authority,
            target,
            ..
        } = request;
        (authority.as_deref(), method, target)
    }

    #[test]
    fn combined_line_is_read_with_and_without_vhost() {
        let time = "[10/Oct/2026:13:55:36 +0000]";
        for (start, host) in [
            ("192.0.2.1 - -", None),
            ("2001:db8::1 - a [b c", None),
            ("unix: - -", None),
            ("a.test 192.0.2.1 - -", Some("a.test")),
            ("a.test:443 192.0.2.1 - -", Some("a.test:443")),
        ] {
            let line = format!("{start} {time} \"GET /x?y=1 HTTP/1.1\" {REST}");
            let request = combined(&line).expect(&line);
            assert_eq!(parts(&request), (host, "GET", "/x?y=1"), "{line}");
            let agent = request.headers.last().map(|it| it.value.as_str());
            assert_eq!(agent, Some("curl \"x\""));
        }
        let common = format!("192.0.2.1 - - {time} \"GET http://b.test?z HTTP/1.1\" 200 5");
        let request = combined(&common).unwrap();
        assert_eq!(parts(&request), (Some("b.test"), "GET", "/?z"));
        assert!(request.headers.is_empty());
    }

    #[test]
    fn fields_after_combined_are_ignored() {
        for end in [
            "430 0.003 [default-shop-80] [] 10.0.0.1:80 612 0.002 200 5b8c",
            r#"12 "shop@kubernetes" "http://10.0.0.1:80" 2ms"#,
        ] {
            let line = format!("192.0.2.1 - - [x] \"GET /x?y=1 HTTP/2.0\" {REST} {end}");
            let request = combined(&line).expect(&line);
            assert_eq!(parts(&request), (None, "GET", "/x?y=1"));
            let agent = request.headers.last().map(|it| it.value.as_str());
            assert_eq!(agent, Some("curl \"x\""));
        }
    }

    #[test]
    fn hostile_combined_lines_are_unreadable() {
        for line in [
            "",
            "x",
            "] \"GET / HTTP/1.1\"",
            "192.0.2.1 - - [x] \"GET / HTTP/1.1",
            "192.0.2.1 - - [x] \"GET / HTTP/1.1\\\" 200",
            "192.0.2.1 - - [x] \"-\" 400 0",
            "192.0.2.1 - - [x] \"\" 400 0",
            "192.0.2.1 - - [x] \"\\x16\\x03\\x01\" 400 0",
            "192.0.2.1 - - [x] \"GET /a b HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"GET /\\x0a HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"GET /\\xff HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"GET /\\xC3\\xA9 HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"GET /\" 200 0",
            "192.0.2.1 - - [x] \"OPTIONS * HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"CONNECT a:443 HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"GET / HTTP/1.1\" 200 0 \"unclosed",
            "a b - - [x] \"GET / HTTP/1.1\" 200 0",
            "\"a.test\" 192.0.2.1 - - [x] \"GET / HTTP/1.1\" 200 0",
            "192.0.2.1 - - [x] \"GET / HTTP/1.1\\é",
        ] {
            assert!(combined(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn envoy_line_ignores_quotes_of_the_client() {
        let line = |path: &str, agent: &str, host: &str| {
            format!(
                "[2026-01-02T03:04:05.678Z] \"POST {path} HTTP/2\" 200 - 0 5 1 0 \"192.0.2.1\" \
                 \"{agent}\" \"5b8c\" \"{host}\" \"10.0.0.1:80\""
            )
        };
        let request = envoy(&line("/a?b=1", "curl", "a.test:8443")).unwrap();
        assert_eq!(parts(&request), (Some("a.test:8443"), "POST", "/a?b=1"));
        assert_eq!(request.headers[0].value, "curl");
        let forged = envoy(&line("/a\"b", "x\" \"id\" \"evil.test\" \"y", "a.test")).unwrap();
        assert_eq!(parts(&forged), (Some("a.test"), "POST", "/a\"b"));
        assert_eq!(envoy(&line("/", "x", "-")).unwrap().authority, None);
        for bad in [
            line("/a b", "x", "a.test"),
            line("a", "x", "a.test"),
            line("/", "x", "a test"),
            line("/", "x", "a.test") + " more",
            "[x] \"GET / HTTP/1.1\" 200".to_owned(),
            "[x".to_owned(),
            "[x] \"- - HTTP/1.1\" 400 - \"-\" \"-\" \"-\" \"-\" \"-\"".to_owned(),
        ] {
            assert!(envoy(&bad).is_err(), "{bad}");
        }
    }
}
