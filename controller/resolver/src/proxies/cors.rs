//! The CORS policy of a root HTTPProxy, which applies to all routes in the root's include tree.

use sesame_proto::expressions::{self, MAX_INSTRUCTIONS, MAX_PER_ORIGINS, is_of_origins};
use sesame_proto::schema::cors_origin::Kind;
use sesame_proto::schema::{Cors, CorsOrigin};

use super::details::Details;
use super::roots::Root;
use crate::filters::cors;
use crate::syntax::limits::{self, MAX_CORS_ENTRIES};
use crate::syntax::regexes::Regexes;
use crate::syntax::{durations, names};
use sesame_kinds::api::ProxyCors;

pub(super) fn of_root(
    root: &Root<'_>,
    regexes: &mut Regexes,
    details: &mut Details,
) -> Option<Cors> {
    let read = read(root.virtualhost.cors_policy.as_ref()?, regexes);
    let report = |why| {
        let why = format!("corsPolicy: {why}; responses have no CORS headers");
        details.error(&root.name, ("CORSError", "PolicyDidNotParse"), why);
    };
    read.map_err(report).ok()
}

fn read(spec: &ProxyCors, regexes: &mut Regexes) -> Result<Cors, String> {
    let ProxyCors {
        allow_credentials,
        allow_origin,
        allow_methods,
        allow_headers,
        expose_headers,
        max_age,
        allow_private_network,
    } = spec;
    for (field, list, least) in [
        ("allowOrigin", allow_origin, 1),
        ("allowMethods", allow_methods, 1),
        ("allowHeaders", allow_headers, 0),
        ("exposeHeaders", expose_headers, 0),
    ] {
        limits::entries(field, list.len(), least..=MAX_CORS_ENTRIES)?;
        let is_valid = |value: &&String| field == "allowOrigin" || names::is_token(value);
        if let Some(value) = list.iter().find(|value| !is_valid(value)) {
            return Err(format!("{field} {value:?} is not a valid name"));
        }
    }
    let max_age_seconds = match max_age.as_str() {
        "" => None,
        text => {
            let milliseconds = durations::of_go(text).map_err(|why| format!("maxAge: {why}"))?;
            Some(u32::try_from(milliseconds / 1000).unwrap_or(u32::MAX))
        }
    };
    Ok(Cors {
        allow_origins: origins(allow_origin, regexes)?,
        allow_credentials: *allow_credentials,
        allow_methods: allow_methods.clone(),
        allow_headers: allow_headers.clone(),
        expose_headers: expose_headers.clone(),
        max_age_seconds,
        allow_private_network: *allow_private_network,
        ignores_matched_headers: true,
    })
}

fn origins(list: &[String], regexes: &mut Regexes) -> Result<Vec<CorsOrigin>, String> {
    let (mut origins, mut instructions) = (Vec::with_capacity(list.len()), 0_u64);
    for text in list {
        let invalid = |why: String| format!("allowOrigin {text:?} {why}");
        let kind = match text.as_str() {
            "*" => Kind::Regex(".*".to_owned()),
            text if is_url(text) => match cors::origin(text) {
                Ok(Kind::Exact(origin)) => Kind::Exact(origin),
                // This text looks like a URL but is not a valid origin. Match it literally;
                // browsers never send it.
                Ok(Kind::Regex(_)) | Err(_) => Kind::Exact(text.to_owned()),
            },
            pattern => {
                let size = regexes.check(pattern).map_err(invalid)?;
                if !is_of_origins(pattern) {
                    instructions = instructions.saturating_add(size);
                }
                Kind::Regex(pattern.to_owned())
            }
        };
        origins.push(CorsOrigin { kind: Some(kind) });
    }
    let all = expressions::of_origins(&origins);
    if instructions > MAX_INSTRUCTIONS || all > MAX_PER_ORIGINS {
        return Err(format!(
            "allowOrigin: the regular expressions have {all} instructions once compiled, of which \
             {instructions} with groups or several repetitions; at most {MAX_PER_ORIGINS} and \
             {MAX_INSTRUCTIONS} are allowed: use fewer or simpler ones"
        ));
    }
    Ok(origins)
}

/// Returns true if Contour treats the text as an exact origin: a scheme, and a host of characters
/// that Go allows in URLs.
fn is_url(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let is_scheme_char =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    let is_host_char = |c: char| c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"".contains(c);
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.chars().all(is_scheme_char)
        && !host.is_empty()
        && name.chars().all(is_host_char)
        && (port.chars().all(|c| c.is_ascii_digit()) || host.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_exact_or_expressions_as_in_contour() {
        let exact = |text: &str| Some(Kind::Exact(text.to_owned()));
        let regex = |text: &str| Some(Kind::Regex(text.to_owned()));
        for (text, expected) in [
            ("*", regex(".*")),
            ("https://a.test", exact("https://a.test")),
            ("http://a.test:8080", exact("http://a.test:8080")),
            // As a regular expression, this text would also allow https://xa.test.
            ("https://*.a.test", exact("https://*.a.test")),
            ("https://.*.a.test", exact("https://.*.a.test")),
            (r"https://.*\.a\.test", regex(r"https://.*\.a\.test")),
            ("https?://a.test", regex("https?://a.test")),
            ("http://a.test:[0-9]+", regex("http://a.test:[0-9]+")),
            ("^https://(a|b)[.]test$", regex("^https://(a|b)[.]test$")),
            ("https://a.test/", regex("https://a.test/")),
        ] {
            let read = origins(&[text.to_owned()], &mut Regexes::default()).expect("valid");
            assert_eq!(read[0].kind, expected, "{text}");
        }
        for bad in ["", "(", &format!("a{{{}}}", 999).repeat(3)] {
            let read = origins(&[bad.to_owned()], &mut Regexes::default());
            assert!(read.is_err(), "{bad}");
        }
    }
}
