//! Changes of headers by HTTPProxies.

use sesame_proto::schema::HeaderModifier;

use crate::api::{Header, HeaderModifier as HeaderSpec, ProxyHeaders};
use crate::resolve::filters::headers;
use crate::resolve::syntax::hostnames;
use crate::resolve::syntax::limits::{self, MAX_FILTER_HEADERS};

/// Returns the changes of headers, and the new Host. `service` is the Service with its port, if
/// they are for its requests.
pub(super) fn header_policy(
    spec: Option<&ProxyHeaders>,
    namespace: &str,
    service: Option<(&str, i32)>,
) -> Result<(Option<HeaderModifier>, Option<String>), String> {
    let Some(ProxyHeaders { set, remove }) = spec else {
        return Ok((None, None));
    };
    limits::entries("set", set.len(), 0..=MAX_FILTER_HEADERS)?;
    let mut host = None;
    let mut plain = HeaderSpec {
        remove: remove.clone(),
        ..HeaderSpec::default()
    };
    for header in set {
        let value = literal(&header.value, namespace, service)
            .map_err(|why| format!("value of header {:?}: {why}", header.name))?;
        let twice = |name: &str| name.eq_ignore_ascii_case(&header.name);
        if plain.set.iter().any(|it| twice(&it.name)) {
            return Err(format!("header {:?} is set twice", header.name));
        }
        if header.name.eq_ignore_ascii_case("host") {
            hostnames::check_precise(&value).map_err(|why| format!("Host: {why}"))?;
            host = Some(value);
        } else {
            plain.set.push(Header {
                name: header.name.clone(),
                value,
            });
        }
    }
    let read = headers::read(&plain)?;
    let changes = !(read.set.is_empty() && read.remove.is_empty());
    Ok((changes.then_some(read), host))
}

/// Returns the changes of headers of a response, which has no Host.
pub(super) fn response_policy(
    spec: Option<&ProxyHeaders>,
    namespace: &str,
    service: Option<(&str, i32)>,
) -> Result<Option<HeaderModifier>, String> {
    match header_policy(spec, namespace, service)? {
        (_, Some(_)) => Err("Host cannot be set in a response".to_owned()),
        (read, None) => Ok(read),
    }
}

/// Returns a value with its names filled in. Values from the request are not supported.
fn literal(value: &str, namespace: &str, service: Option<(&str, i32)>) -> Result<String, String> {
    let mut filled = value.replace("%CONTOUR_NAMESPACE%", namespace);
    if let Some((name, port)) = service {
        filled = filled
            .replace("%CONTOUR_SERVICE_NAME%", name)
            .replace("%CONTOUR_SERVICE_PORT%", &port.to_string());
    }
    let mut parts = filled.split('%').skip(1);
    let is_variable = |part: &str| {
        let name = part.split('(').next().unwrap_or_default();
        let letters = |c: char| c.is_ascii_uppercase() || c == '_';
        name.len() > 1 && name.chars().all(letters)
    };
    match parts.find(|part| is_variable(part)) {
        Some(name) => Err(format!("variable %{name}% is not supported")),
        None => Ok(filled.replace("%%", "%")),
    }
}
