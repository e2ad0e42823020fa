//! Changes to request and response headers in HTTPProxies. Values may contain the variables that
//! Contour supports.

use std::collections::BTreeSet;

use sesame_proto::schema::header_part::{Fact, Kind};
use sesame_proto::schema::{Header, HeaderModifier, HeaderPart, UrlRewrite};

use crate::syntax::header_names::check_name;
use crate::syntax::hostnames;
use crate::syntax::limits::{self, MAX_HEADER_VALUE, MAX_PROXY_HEADERS};
use sesame_kinds::api::{ProxyHeader, ProxyHeaders};

/// Name and port of a Service, or `None` if the changes apply to the whole route.
pub(super) type OfService<'s> = Option<(&'s str, i32)>;

pub(super) fn header_policy(
    spec: Option<&ProxyHeaders>,
    namespace: &str,
    service: OfService<'_>,
) -> Result<(Option<HeaderModifier>, Option<UrlRewrite>), String> {
    let Some(ProxyHeaders { set, remove }) = spec else {
        return Ok((None, None));
    };
    limits::entries("set", set.len(), 0..=MAX_PROXY_HEADERS)?;
    limits::entries("remove", remove.len(), 0..=MAX_PROXY_HEADERS)?;
    let mut host = None;
    let mut changes = HeaderModifier::default();
    let mut names = BTreeSet::new();
    for (i, ProxyHeader { name, value }) in set.iter().enumerate() {
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(format!("header {name:?} is set twice"));
        }
        limits::field_value(format_args!("set[{i}]"), value, MAX_HEADER_VALUE)?;
        let parts = Value::read(value, namespace, service).parts;
        if name.eq_ignore_ascii_case("host") {
            host = Some(rewritten_host(&parts)?);
        } else {
            check_name(format_args!("set[{i}].name"), name)?;
            changes.set.push(header(name, parts));
        }
    }
    let mut removed = BTreeSet::new();
    for (i, name) in remove.iter().enumerate() {
        if name.eq_ignore_ascii_case("host") {
            return Err("Host cannot be removed; set it to another hostname".to_owned());
        }
        check_name(format_args!("remove[{i}]"), name)?;
        let lower = name.to_ascii_lowercase();
        if !removed.insert(lower.clone()) {
            return Err(format!("header {name:?} is removed twice"));
        }
        // As in Contour, a header that is both removed and set is only set.
        if !names.contains(&lower) {
            changes.remove.push(name.clone());
        }
    }
    let is_empty = changes.set.is_empty() && changes.remove.is_empty();
    Ok(((!is_empty).then_some(changes), host))
}

pub(super) fn response_policy(
    spec: Option<&ProxyHeaders>,
    namespace: &str,
    service: OfService<'_>,
) -> Result<Option<HeaderModifier>, String> {
    match header_policy(spec, namespace, service)? {
        (_, Some(_)) => Err("Host cannot be set in a response".to_owned()),
        (read, None) => Ok(read),
    }
}

pub(super) fn variables_without_value(
    spec: Option<&ProxyHeaders>,
    service: OfService<'_>,
) -> Vec<String> {
    let set = spec.map(|it| it.set.as_slice()).unwrap_or_default();
    let header_warnings = |ProxyHeader { name, value }: &ProxyHeader| {
        let Value { parts, unknown } = Value::read(value, "", service);
        let fingerprint = |kind: &Kind| {
            let fact = match kind {
                Kind::Fact(fact) => Fact::try_from(*fact).ok()?,
                Kind::Literal(_) | Kind::RequestHeader(_) => return None,
            };
            matches!(fact, Fact::TlsJa3Fingerprint | Fact::TlsJa4Fingerprint).then(|| {
                let variable = fact.as_str_name();
                format!(
                    "header {name:?}: %{variable}% is empty, because the proxy does not compute it"
                )
            })
        };
        let unknown = unknown.into_iter().map(|variable| {
            format!(
                "header {name:?}: variable %{variable}% is not supported here and is sent literally"
            )
        });
        unknown
            .chain(parts.iter().filter_map(fingerprint))
            .collect::<Vec<_>>()
    };
    set.iter()
        .take(MAX_PROXY_HEADERS)
        .flat_map(header_warnings)
        .collect()
}

fn rewritten_host(parts: &[Kind]) -> Result<UrlRewrite, String> {
    match parts {
        [Kind::Literal(host)] => {
            hostnames::check_precise(host).map_err(|why| format!("Host: {why}"))?;
            Ok(UrlRewrite {
                host: host.clone(),
                ..UrlRewrite::default()
            })
        }
        [Kind::RequestHeader(name)] => Ok(UrlRewrite {
            host_header: name.clone(),
            ..UrlRewrite::default()
        }),
        _ => Err("Host: expected either a hostname or only %REQ(header)%".to_owned()),
    }
}

fn header(name: &str, parts: Vec<Kind>) -> Header {
    let (value, parts) = match <[Kind; 1]>::try_from(parts) {
        Ok([Kind::Literal(value)]) => (value, Vec::new()),
        Ok([part]) => (String::new(), vec![part]),
        Err(parts) => (String::new(), parts),
    };
    let parts = parts
        .into_iter()
        .map(|kind| HeaderPart { kind: Some(kind) });
    Header {
        name: name.to_owned(),
        value,
        parts: parts.collect(),
    }
}

#[derive(Default)]
struct Value<'v> {
    /// Literals are never empty or adjacent.
    parts: Vec<Kind>,
    unknown: Vec<&'v str>,
}

impl<'v> Value<'v> {
    fn read(value: &'v str, namespace: &str, service: OfService<'_>) -> Self {
        let mut read = Self::default();
        let mut literal = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once('%') {
            literal.push_str(before);
            let named = after.split_once('%');
            let variable =
                named.and_then(|(name, tail)| Some((variable(name, namespace, service)?, tail)));
            match variable {
                Some((Kind::Literal(text), tail)) => {
                    literal.push_str(&text);
                    rest = tail;
                }
                Some((kind, tail)) => {
                    if !literal.is_empty() {
                        let literal = std::mem::take(&mut literal);
                        read.parts.push(Kind::Literal(literal));
                    }
                    read.parts.push(kind);
                    rest = tail;
                }
                None => {
                    literal.push('%');
                    let unknown = named.map(|(name, _)| name);
                    read.unknown
                        .extend(unknown.filter(|name| is_like_variable(name)));
                    rest = after;
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            read.parts.push(Kind::Literal(literal));
        }
        read
    }
}

fn variable(name: &str, namespace: &str, service: OfService<'_>) -> Option<Kind> {
    if let Some(header) = name
        .strip_prefix("REQ(")
        .and_then(|it| it.strip_suffix(')'))
    {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_name = !header.is_empty() && header.chars().all(plain);
        return is_name.then(|| Kind::RequestHeader(header.to_ascii_lowercase()));
    }
    match (name, service) {
        ("CONTOUR_NAMESPACE", _) => Some(Kind::Literal(namespace.to_owned())),
        ("CONTOUR_SERVICE_NAME", Some((name, _))) => Some(Kind::Literal(name.to_owned())),
        ("CONTOUR_SERVICE_PORT", Some((_, port))) => Some(Kind::Literal(port.to_string())),
        _ => {
            let fact = Fact::from_str_name(name).filter(|it| *it != Fact::Unknown)?;
            Some(Kind::Fact(fact.into()))
        }
    }
}

fn is_like_variable(name: &str) -> bool {
    let plain = name.split('(').next().unwrap_or_default();
    let letters = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    plain.len() > 1
        && plain.starts_with(|c: char| c.is_ascii_uppercase())
        && plain.chars().all(letters)
}
