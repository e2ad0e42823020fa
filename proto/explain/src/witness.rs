//! Constructs a request that satisfies a match.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use sesame_proto::schema::{
    Listener, Port, Protocol, Route, StringMatch, path_match, string_match,
};

use super::matching;
use super::request::{ExplainRequest, HeaderField, UrlScheme};

/// Replaces a wildcard's `*`. Exact hostnames are unlikely to contain this label.
const ANY_LABEL: &str = "any-other-host";

/// Returns `None` if no example is found for one of the match's regular expressions.
pub(super) fn witness(
    port: &Port,
    listener: &Listener,
    domain: &str,
    route: &Route,
) -> Option<ExplainRequest> {
    let host = match domain.strip_prefix('*') {
        Some("") => format!("{ANY_LABEL}.test"),
        Some(suffix) => format!("{ANY_LABEL}{suffix}"),
        None => domain.to_owned(),
    };
    let (scheme, sni) = if listener.protocol() == Protocol::Https {
        (UrlScheme::Https, Some(host.clone()))
    } else {
        (UrlScheme::Http, None)
    };
    let mut authority = host;
    let mut headers = Vec::new();
    for header in &route.headers {
        if matches!(header.kind, Some(string_match::Kind::Present(false))) {
            continue;
        }
        let value = value(header)?;
        if header.name.eq_ignore_ascii_case("host") {
            authority = value;
        } else {
            let name = header.name.to_ascii_lowercase();
            headers.push(HeaderField { name, value });
        }
    }
    if route.grpc {
        headers.push(HeaderField {
            name: "content-type".to_owned(),
            value: "application/grpc".to_owned(),
        });
    }
    let mut path = path(route)?;
    let absent = |it: &&StringMatch| matches!(it.kind, Some(string_match::Kind::Present(false)));
    let given = route.query_params.iter().filter(|it| !absent(it));
    for (at, param) in given.enumerate() {
        let mark = if at == 0 { "?" } else { "&" };
        path.extend([mark, &param.name, "=", &value(param)?]);
    }
    Some(ExplainRequest {
        method: match route.method.as_str() {
            "" if route.grpc => "POST".to_owned(),
            "" => "GET".to_owned(),
            method => method.to_owned(),
        },
        scheme,
        authority,
        port: u16::try_from(port.port).ok()?,
        path,
        headers,
        sni,
        client_certificate: true,
        client: None,
    })
}

fn path(route: &Route) -> Option<String> {
    match route.path.as_ref().and_then(|it| it.kind.as_ref()) {
        None => Some("/".to_owned()),
        Some(path_match::Kind::Exact(path)) => Some(path.clone()),
        Some(path_match::Kind::Prefix(prefix)) => Some(match prefix.trim_end_matches('/') {
            "" => "/".to_owned(),
            prefix => prefix.to_owned(),
        }),
        Some(path_match::Kind::TextPrefix(prefix)) => Some(prefix.clone()),
        Some(path_match::Kind::Regex(pattern)) => {
            example(pattern).filter(|path| path.starts_with('/') && !path.contains('?'))
        }
    }
}

fn value(of: &StringMatch) -> Option<String> {
    match of.kind.as_ref()? {
        string_match::Kind::Exact(value) => Some(value.clone()),
        string_match::Kind::Regex(pattern) => example(pattern),
        string_match::Kind::Present(_) => Some("a".to_owned()),
        string_match::Kind::Text(text) if text.negate => {
            let other = |value: &&str| matching::fulfils(text, value);
            ["a", "b", "0"]
                .iter()
                .find(|it| other(it))
                .map(|it| (*it).to_owned())
        }
        string_match::Kind::Text(text) => Some(text.value.clone()),
    }
}

/// Returns matching text that consists of characters allowed in requests.
fn example(pattern: &str) -> Option<String> {
    let parser = ParserBuilder::new().build().parse(pattern).ok()?;
    let mut text = String::new();
    write(&parser, &mut text)?;
    let sendable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    sendable.then_some(text)
}

fn write(hir: &Hir, text: &mut String) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(()),
        HirKind::Literal(literal) => {
            text.push_str(str::from_utf8(&literal.0).ok()?);
            Some(())
        }
        HirKind::Class(class) => {
            text.push(member(class)?);
            Some(())
        }
        HirKind::Repetition(it) => {
            // Repeat at least once: Envoy would merge two adjacent slashes.
            let times = it.min.max(1).min(it.max.unwrap_or(u32::MAX));
            (0..times).try_for_each(|_| write(&it.sub, text))
        }
        HirKind::Capture(it) => write(&it.sub, text),
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write(part, text)),
        HirKind::Alternation(parts) => write(parts.first()?, text),
    }
}

/// Prefers letters and digits.
fn member(class: &Class) -> Option<char> {
    let usual = "a0A1bcxyz-_".chars().chain(' '..='~');
    let contains = |wanted: &char| match class {
        Class::Unicode(class) => class
            .iter()
            .any(|range| (range.start()..=range.end()).contains(wanted)),
        Class::Bytes(class) => class.iter().any(|range| {
            (range.start()..=range.end()).contains(&u8::try_from(*wanted).unwrap_or(0))
        }),
    };
    usual.into_iter().find(contains)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expressions::Expressions;

    #[test]
    fn an_example_matches_its_expression() {
        let mut expressions = Expressions::default();
        for pattern in [
            "/a/[0-9]+",
            "/(a|b)/.*\\.png",
            "(?i)/abc",
            "v[^a-z]{2,}",
            "/a/?",
            "^/x$",
        ] {
            let example = example(pattern).expect(pattern);
            assert!(
                expressions.matches(pattern, &example),
                "{pattern}: {example}"
            );
        }
        assert_eq!(example("("), None);
        assert_eq!(example("\\x00"), None);
    }
}
