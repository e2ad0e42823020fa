//! Reads the ExternalAuth filters of rules and listeners.
//!
//! Rejects a filter that cannot be applied exactly as configured, because authorization must never
//! be weakened.

use sesame_proto::field_names;
use sesame_proto::schema;
use sesame_proto::schema::external_auth::Protocol;

use crate::backends::Traffic;
use crate::syntax::{limits, names};
use sesame_kinds::api::{
    BackendRef, ExternalAuth, ExternalAuthGrpc, ExternalAuthHttp, ForwardBody,
};

/// An authorization filter whose backend is not resolved yet.
#[derive(Debug)]
pub(crate) struct AuthorizeBy<'w> {
    pub(crate) index: usize,
    pub(crate) backend: &'w BackendRef,
    pub(crate) traffic: Traffic,
    pub(crate) asks: schema::ExternalAuth,
}

pub(crate) fn read(index: usize, spec: &ExternalAuth) -> Result<AuthorizeBy<'_>, String> {
    let ExternalAuth {
        protocol,
        backend_ref,
        grpc,
        http,
        forward_body,
    } = spec;
    let settings = (protocol.as_str(), grpc.as_ref(), http.as_ref());
    let (traffic, asks) = read_settings(settings, forward_body.as_ref())?;
    if !backend_ref.filters.is_empty() {
        return Err("backendRef.filters must not be set".to_owned());
    }
    Ok(AuthorizeBy {
        index,
        backend: backend_ref,
        traffic,
        asks,
    })
}

pub(crate) fn read_settings(
    (protocol, grpc, http): (&str, Option<&ExternalAuthGrpc>, Option<&ExternalAuthHttp>),
    forward_body: Option<&ForwardBody>,
) -> Result<(Traffic, schema::ExternalAuth), String> {
    let (traffic, protocol) = match (protocol, grpc, http) {
        ("GRPC", grpc, None) => (
            Traffic::Grpc,
            Protocol::Grpc(read_grpc(grpc.unwrap_or(&ANY_GRPC))?),
        ),
        ("HTTP", None, http) => (
            Traffic::Http,
            Protocol::Http(read_http(http.unwrap_or(&ANY_HTTP))?),
        ),
        ("GRPC", _, Some(_)) => return Err("http must not be set with protocol GRPC".to_owned()),
        ("HTTP", Some(_), _) => return Err("grpc must not be set with protocol HTTP".to_owned()),
        (other, ..) => {
            return Err(format!(
                "protocol {other:?} is not supported; expected HTTP or GRPC"
            ));
        }
    };
    let asks = schema::ExternalAuth {
        protocol: Some(protocol),
        max_body_bytes: read_body(forward_body)?,
        ..schema::ExternalAuth::default()
    };
    Ok((traffic, asks))
}

const ALWAYS_SENT: [&str; 2] = ["host", "content-length"];

fn read_grpc(spec: &ExternalAuthGrpc) -> Result<schema::ExternalAuthGrpc, String> {
    let ExternalAuthGrpc { allowed_headers } = spec;
    Ok(schema::ExternalAuthGrpc {
        request_headers: read_names("grpc.allowedHeaders", allowed_headers)?,
        ..schema::ExternalAuthGrpc::default()
    })
}

fn read_http(spec: &ExternalAuthHttp) -> Result<schema::ExternalAuthHttp, String> {
    let ExternalAuthHttp {
        path,
        allowed_headers,
        allowed_response_headers,
    } = spec;
    let fields = [
        "http.path",
        "http.allowedHeaders",
        "http.allowedResponseHeaders",
    ];
    read_http_fields(fields, path, allowed_headers, allowed_response_headers)
}

/// `fields` names the fields that the other three arguments come from.
pub(crate) fn read_http_fields(
    fields: [&str; 3],
    path: &str,
    allowed_headers: &[String],
    allowed_response_headers: &[String],
) -> Result<schema::ExternalAuthHttp, String> {
    let [path_field, request_field, response_field] = fields;
    let mut request_headers = read_names(request_field, allowed_headers)?;
    request_headers.retain(|name| !ALWAYS_SENT.contains(&name.as_str()));
    check_writable(request_field, &request_headers)?;
    Ok(schema::ExternalAuthHttp {
        path_prefix: read_prefix(path_field, path)?,
        request_headers,
        response_headers: read_copied(response_field, allowed_response_headers)?,
        ..schema::ExternalAuthHttp::default()
    })
}

/// Returns the names of the service's response headers that the backend receives.
pub(crate) fn read_copied(field: &str, list: &[String]) -> Result<Vec<String>, String> {
    let names = read_names(field, list)?;
    check_writable(field, &names)?;
    Ok(names)
}

fn check_writable(field: &str, names: &[String]) -> Result<(), String> {
    let reserved = |name: &String| Some((name.clone(), field_names::reserved(name)?));
    match names.iter().find_map(reserved) {
        None => Ok(()),
        Some((name, why)) => Err(format!(
            "{field} {name:?} cannot be copied into a request: it {why}; leave it out"
        )),
    }
}

fn read_names(field: &str, list: &[String]) -> Result<Vec<String>, String> {
    limits::entries(field, list.len(), 0..=limits::MAX_AUTH_HEADERS)?;
    let mut found = Vec::with_capacity(list.len());
    for (i, name) in list.iter().enumerate() {
        names::check_token(format_args!("{field}[{i}]"), name)?;
        found.push(name.to_ascii_lowercase());
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Rejects any prefix from which a request path could escape.
fn read_prefix(field: &str, path: &str) -> Result<String, String> {
    limits::max_bytes(field, path, limits::MAX_PATH)?;
    let refused = |why: &str| Err(format!("{field} {path:?} {why}"));
    if path.is_empty() {
        return Ok(String::new());
    }
    if !path.starts_with('/') {
        return refused("must start with \"/\"");
    }
    if !names::is_path(path) {
        return refused("contains characters that are invalid in a path");
    }
    let lower = path.to_ascii_lowercase();
    if ["//", "/./", "/../", "%2f", "%5c", "%2e"]
        .iter()
        .any(|part| lower.contains(part))
        || lower.ends_with("/.")
        || lower.ends_with("/..")
    {
        return refused(
            "must not contain empty, \".\" or \"..\" elements, or escaped dots, slashes or backslashes",
        );
    }
    // Envoy appends the request path, which starts with a slash.
    Ok(path.trim_end_matches('/').to_owned())
}

fn read_body(spec: Option<&ForwardBody>) -> Result<u32, String> {
    let Some(ForwardBody { max_size }) = spec else {
        return Ok(0);
    };
    u32::try_from(*max_size)
        .ok()
        .filter(|size| *size <= limits::MAX_AUTH_BODY)
        .ok_or_else(|| {
            format!(
                "forwardBody.maxSize {max_size} is out of range; expected 0 to {}",
                limits::MAX_AUTH_BODY
            )
        })
}

static ANY_GRPC: ExternalAuthGrpc = ExternalAuthGrpc {
    allowed_headers: Vec::new(),
};
static ANY_HTTP: ExternalAuthHttp = ExternalAuthHttp {
    path: String::new(),
    allowed_headers: Vec::new(),
    allowed_response_headers: Vec::new(),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (path, expected) in [
            ("", ""),
            ("/", ""),
            ("/check", "/check"),
            ("/check/", "/check"),
            ("/a/b.c", "/a/b.c"),
        ] {
            assert_eq!(read_prefix("http.path", path).as_deref(), Ok(expected));
        }
        for bad in [
            "check",
            "//evil",
            "/a/../b",
            "/a/..",
            "/a/%2e%2e/b",
            "/a%2Fb",
            "/a b",
            "/a?b",
        ] {
            assert!(read_prefix("http.path", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unsupported_external_auth_is_refused() {
        let http = |headers: &[&str]| ExternalAuth {
            protocol: "HTTP".to_owned(),
            http: Some(ExternalAuthHttp {
                allowed_response_headers: headers.iter().map(|it| (*it).to_owned()).collect(),
                ..ExternalAuthHttp::default()
            }),
            ..ExternalAuth::default()
        };
        assert!(read(0, &http(&["x-user", "X-User"])).is_ok());
        for reserved in ["Host", "content-length", "Transfer_Encoding", "x y"] {
            assert!(read(0, &http(&[reserved])).is_err(), "{reserved}");
        }
        let asked_with = |name: &str| ExternalAuth {
            protocol: "HTTP".to_owned(),
            http: Some(ExternalAuthHttp {
                allowed_headers: vec![name.to_owned()],
                ..ExternalAuthHttp::default()
            }),
            ..ExternalAuth::default()
        };
        assert!(read(0, &asked_with("Content-Length")).is_ok());
        for framing in ["Transfer-Encoding", "content_length", "TE"] {
            assert!(read(0, &asked_with(framing)).is_err(), "{framing}");
        }
        for (protocol, max_size) in [("TCP", 0), ("", 0), ("HTTP", -1), ("HTTP", i32::MAX)] {
            let spec = ExternalAuth {
                protocol: protocol.to_owned(),
                forward_body: Some(ForwardBody { max_size }),
                ..ExternalAuth::default()
            };
            assert!(read(0, &spec).is_err(), "{protocol} {max_size}");
        }
        let both = ExternalAuth {
            grpc: Some(ExternalAuthGrpc::default()),
            ..http(&[])
        };
        assert!(read(0, &both).is_err());
    }
}
