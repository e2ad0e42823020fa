//! Authorization services: `auth-url`, and the annotations that modify it.

use sesame_proto::schema::external_auth::Protocol;
use sesame_proto::schema::{ExternalAuth, ExternalAuthHttp};

use super::Annotations;
use super::references::service;
use super::values::list;
use crate::filters::external_auth::read_copied;
use crate::routes::rules::RuleContext;
use crate::syntax::limits::{self, MAX_PATH};
use crate::syntax::names;
use sesame_kinds::api::{NGINX_PREFIX, ServiceUrl};

/// Returns `None` if `auth-url` is unset or invalid. An invalid annotation rejects all requests.
pub(super) fn external_auth(
    from: &mut Annotations<'_>,
    cx: &mut RuleContext<'_, '_, '_>,
) -> Option<ExternalAuth> {
    read_others(from);
    if from.get("auth-url").is_none() {
        let modifiers = [
            "auth-method",
            "auth-response-headers",
            "auth-signin",
            "auth-signin-redirect-param",
        ];
        from.ignore(&modifiers, "there is no auth-url");
        return None;
    }
    // Envoy sends the client's method, and a service may skip the check for some methods.
    from.refuse(
        "auth-method",
        "the method cannot be changed; remove the annotation if the service checks requests with \
         any method",
    );
    let copied = from.require("auth-response-headers", copied_headers);
    let (backend, path) = from.require("auth-url", |url| asked(url, cx))?;
    from.notes.push(format!(
        "metadata.annotations {NGINX_PREFIX}auth-url: unlike in ingress-nginx, the service gets the \
         client's method and host, and only its status 200 allows a request"
    ));
    Some(ExternalAuth {
        backend,
        protocol: Some(Protocol::Http(ExternalAuthHttp {
            response_headers: copied.unwrap_or_default(),
            path,
            subrequest: true,
            ..ExternalAuthHttp::default()
        })),
        no_response_headers: true,
        ..ExternalAuth::default()
    })
}

/// Reads the names of response headers that the backend gets.
pub fn copied_headers(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = list(text).map(ToOwned::to_owned).collect();
    let names = read_copied("header", &names)?;
    // The service receives the client's values, so they cannot be removed before the check.
    let kept = |name: &&String| matches!(name.as_str(), "authorization" | "cookie");
    match names.iter().find(kept) {
        None => Ok(names),
        Some(name) => Err(format!(
            "{name:?} is not supported, because the backend would get the client's value if \
             the service sets none"
        )),
    }
}

/// Reads annotations that do not modify requests to the service.
fn read_others(from: &mut Annotations<'_>) {
    from.ignore(
        &["auth-cache-key", "auth-cache-duration"],
        "the authorization service checks every request",
    );
    from.ignore(
        &[
            "auth-keepalive",
            "auth-keepalive-requests",
            "auth-keepalive-share-vars",
            "auth-keepalive-timeout",
        ],
        "connections to the service always use keep-alive",
    );
}

/// Returns the backend and the path.
fn asked(url: &str, cx: &mut RuleContext<'_, '_, '_>) -> Result<(String, String), String> {
    let parsed = ServiceUrl::parse(url)?;
    if parsed.path.contains('$') {
        return Err(format!("{url:?}: variables are not supported"));
    }
    let path = if parsed.path.starts_with('/') {
        parsed.path.to_owned()
    } else {
        format!("/{}", parsed.path)
    };
    limits::max_bytes("path", &path, MAX_PATH)?;
    let (plain, query) = path.split_once('?').unwrap_or((&path, ""));
    names::check_path("path", plain)?;
    names::check_path("query", query)?;
    let backend = service(&parsed, cx)?;
    Ok((backend, path))
}
