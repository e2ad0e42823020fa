//! Recognizes parts of a logged request that may be secret, and must not be sent again.

use sesame_proto::canonical_path::escaped;

/// In names such as `access_token`.
const PARTS: [&str; 13] = [
    "apikey",
    "assertion",
    "authcode",
    "bearer",
    "credential",
    "passw",
    "saml",
    "secret",
    "sessid",
    "session",
    "signature",
    "ticket",
    "token",
];
/// Complete words in names such as `x-api-key`.
const WORDS: [&str; 13] = [
    "auth",
    "authorization",
    "code",
    "cookie",
    "jwt",
    "key",
    "nonce",
    "otp",
    "pass",
    "pin",
    "pwd",
    "sid",
    "sig",
];
/// Start of a header value with credentials.
const SCHEMES: [&str; 2] = ["basic", "bearer"];
/// Headers and parameters that replace a request's method.
const METHOD_OVERRIDES: [&str; 4] = [
    "_method",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];
/// Shorter values are hardly random enough to be secret.
const MIN_RANDOM: usize = 32;
/// URLs in URLs are encoded several times.
const MAX_DECODED: usize = 4;
const HIDDEN: &str = "(hidden)";

/// Returns true if a header or query parameter with this name may be secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_ascii_alphanumeric());
    PARTS.iter().any(|part| lower.contains(part)) || words.any(|word| WORDS.contains(&word))
}

/// Returns true if the value looks like a token or credentials.
fn is_token(value: &str) -> bool {
    let is_scheme = |scheme: &&str| {
        let (start, rest) = value.split_at_checked(scheme.len()).unwrap_or_default();
        start.eq_ignore_ascii_case(scheme) && rest.starts_with([' ', '+'])
    };
    if value.starts_with("eyJ") && value.contains('.') || SCHEMES.iter().any(is_scheme) {
        return true;
    }
    let has = |kind: fn(&u8) -> bool| value.as_bytes().iter().any(kind);
    value.len() >= MIN_RANDOM
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !value.contains([' ', '/', '+', ','])
}

/// Returns true if the value, or a part of it such as a parameter of a URL, may be secret.
pub(super) fn is_secret_value(value: &str) -> bool {
    decoded(value).iter().any(|value| {
        let parts = value.split(['?', '&', ';', '#', '/', ',', ' ']);
        let mut named = parts.filter_map(|part| part.split_once('='));
        is_token(value)
            // Parts of JSON have no `=`.
            || value.contains('{') && is_secret_name(value)
            || named.any(|(name, value)| is_secret_name(name) || is_token(value))
    })
}

/// Returns the text, and its decoded forms if it is percent-encoded.
fn decoded(text: &str) -> Vec<String> {
    let mut found = vec![text.to_owned()];
    while let Some(last) = found.last()
        && found.len() < MAX_DECODED
    {
        let next = decoded_once(last);
        if next == *last {
            break;
        }
        found.push(next);
    }
    found
}

fn decoded_once(text: &str) -> String {
    let text = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let escape = (*byte == b'%').then(|| escaped(text, at + 1)).flatten();
        bytes.push(escape.unwrap_or(*byte));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn is_secret_parameter(parameter: &str) -> bool {
    // An encoded `=` also separates the name.
    decoded(parameter).iter().any(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        is_secret_name(name) || is_secret_value(value)
    })
}

/// Returns true if the header or the query changes the method, possibly to an unsafe one.
pub(super) fn overrides_method<'h>(
    mut headers: impl Iterator<Item = &'h str>,
    target: &str,
) -> bool {
    let is_override = |name: &str| {
        METHOD_OVERRIDES
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name))
    };
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let mut parameters = query.split(['&', ';', '?']);
    headers.any(is_override)
        || parameters.any(|it| {
            let name = it.split('=').next().unwrap_or_default();
            decoded(name).iter().any(|it| is_override(it))
        })
}

/// Removes the parameters of the path and the query that may be secret, and returns true if there
/// is any.
pub(super) fn remove_parameters(target: &mut String) -> bool {
    let (path, query) = target
        .split_once('?')
        .map_or((target.as_str(), None), |(path, query)| (path, Some(query)));
    let mut kept = without_path_parameters(path, is_secret_parameter);
    let mut mark = "?";
    for part in query
        .into_iter()
        .flat_map(|it| it.split_inclusive(['&', ';']))
    {
        let parameter = part.trim_end_matches(['&', ';']);
        if !is_secret_parameter(parameter) {
            kept.push_str(mark);
            kept.push_str(parameter);
            mark = if part.ends_with(';') { ";" } else { "&" };
        }
    }
    if query == Some("") {
        kept.push('?');
    }
    if kept == *target {
        return false;
    }
    *target = kept;
    true
}

fn without_path_parameters(path: &str, is_removed: fn(&str) -> bool) -> String {
    let segments = path.split('/').map(|segment| {
        let mut parts = segment.split(';');
        let first = parts.next().unwrap_or_default();
        // An encoded separator also begins a parameter.
        let encoded = decoded(first).into_iter().skip(1);
        let mut encoded = encoded.flat_map(|it| {
            let parameters = it.split([';', '?', '&']).skip(1);
            parameters.map(str::to_owned).collect::<Vec<_>>()
        });
        let first = match first.split_once('%') {
            Some((start, _)) if encoded.any(|it| is_removed(&it)) => start.to_owned(),
            _ => first.to_owned(),
        };
        parts
            .filter(|it| !is_removed(it))
            .fold(first, |segment, part| format!("{segment};{part}"))
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Returns the URL or path without its query, fragment and user, and without path parameters that
/// may be secret.
pub(super) fn sent_url(url: &str) -> String {
    without_path_parameters(&without_query_and_user(url), is_secret_parameter)
}

fn without_query_and_user(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("//") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}{path}")
}

/// Returns the URL or path for a report, without its query, fragment, user and path parameters.
pub(super) fn shown_url(url: &str) -> String {
    shown_segments(&without_path_parameters(
        &without_query_and_user(url),
        |_| true,
    ))
}

/// Hides the segments of a path that may be secret.
pub(super) fn shown_segments(path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        if is_secret_value(segment) {
            HIDDEN
        } else {
            segment
        }
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognized() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "X-Api-Key",
            "X-Auth-Request-User",
            "X-CSRF-Token",
            "access_token",
            "apiKey",
            "sig",
            "X-Amz-Signature",
            "PHPSESSID-session",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "author",
            "accept",
            "keyword",
            "page",
            "user-agent",
            "design",
            "",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secret_parameters_are_removed() {
        for (target, expected) in [
            ("/x", "/x"),
            ("/x?a=1&b", "/x?a=1&b"),
            ("/x?token=1", "/x"),
            ("/x?a=1&code=2&b=3", "/x?a=1&b=3"),
            ("/x?v=eyJhbGciOiJIUzI1NiJ9.e30.x", "/x"),
            ("/x?v=3b1f8c44d0a24e0f9f6c0d8be1a7c5aa&a", "/x?a"),
            ("/x?v=3b1f8c44", "/x?v=3b1f8c44"),
            (
                "/x?q=a-long-sentence-without-any-number-in-it",
                "/x?q=a-long-sentence-without-any-number-in-it",
            ),
            ("/x?key=1?token=2", "/x"),
            ("/x?", "/x?"),
            ("/x?a=1;token=2;b=3", "/x?a=1;b=3"),
            ("/x?a=1;b=2&c=3", "/x?a=1;b=2&c=3"),
            ("/x?%74oken=1&a", "/x?a"),
            ("/x?%2574oken=1", "/x"),
            ("/x?token%3D1", "/x"),
            ("/x?v=%65yJhbGciOiJIUzI1NiJ9.e30.x", "/x"),
            ("/x?to=https%3A%2F%2Fa.test%2F%3Ftoken%3D1&a=1", "/x?a=1"),
            (
                "/x?to=https://a.test/cb?page=1",
                "/x?to=https://a.test/cb?page=1",
            ),
            ("/x?state=%7B%22token%22%3A1%7D", "/x"),
            ("/x?v=Bearer%20abc", "/x"),
            (
                "/x?ticket=1&PHPSESSID=2&authcode=3&SAMLResponse=4&client_assertion=5",
                "/x",
            ),
            ("/x;jsessionid=1/y;v=2?a=1", "/x/y;v=2?a=1"),
            ("/x%3Bjsessionid=1/y%3Bv=2?a=1", "/x/y%3Bv=2?a=1"),
            ("/x%253Ftoken%253D1", "/x"),
            ("/x?a=1%26token%3D2&b", "/x?b"),
        ] {
            let mut found = target.to_owned();
            let removed = remove_parameters(&mut found);
            assert_eq!((found.as_str(), removed), (expected, target != expected));
        }
    }

    #[test]
    fn credentials_are_secret_values() {
        for value in [
            "Bearer abc",
            "basic YTpi",
            "https://a.test/?x=1&token=2",
            "x;sid=1",
        ] {
            assert!(is_secret_value(value), "{value}");
        }
        for value in ["text/html;q=0.9", "Basics", "gzip, br", "max-age=0", ""] {
            assert!(!is_secret_value(value), "{value}");
        }
    }

    #[test]
    fn shown_urls_have_no_secret() {
        for (url, expected) in [
            ("/a;jsessionid=1;v=2/b", "/a/b"),
            ("https://u:hidden@a.test/x?y#z", "https://a.test/x"),
            ("https://a.test#token=hidden", "https://a.test"),
            ("/reset/3b1f8c44d0a24e0f9f6c0d8be1a7c5aa", "/reset/(hidden)"),
            ("/@user/x", "/@user/x"),
            ("/x%3Btoken=hidden", "/x"),
        ] {
            assert_eq!(shown_url(url), expected);
        }
        assert_eq!(
            sent_url("https://u@a.test/x;sid=1;v=2?y"),
            "https://a.test/x;v=2"
        );
    }

    #[test]
    fn method_overrides_are_found() {
        for (header, target, expected) in [
            ("x-http-method-override", "/", true),
            ("x-http-method", "/", true),
            ("x-method-override", "/", true),
            ("accept", "/?a=1&_method=DELETE", true),
            ("accept", "/?%5Fmethod=PUT", true),
            ("accept", "/?method=x", false),
        ] {
            let found = overrides_method(std::iter::once(header), target);
            assert_eq!(found, expected, "{header} {target}");
        }
    }
}
