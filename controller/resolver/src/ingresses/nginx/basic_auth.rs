//! Passwords: `auth-type` and `auth-secret`.

use super::Annotations;
use crate::context::ResolveContext;
use crate::policies::traffic::credentials::{Credentials, Users, read_users};
use sesame_kinds::api::{NGINX_AUTH_SECRET, nginx_reference};

/// Key of the htpasswd file in a Secret.
const FILE: &str = "auth";

/// Returns `None` if requests need no password or an annotation is invalid. An invalid annotation
/// rejects all requests. `ingress` is `Ingress/namespace/name`.
pub(super) fn check(
    from: &mut Annotations<'_>,
    ingress: &str,
    cx: &ResolveContext<'_, '_>,
) -> Option<Credentials> {
    from.ignore(&["auth-realm"], "browsers show the URL");
    let format = from.require("auth-secret-type", |value| match value {
        "auth-file" => Ok(Users::File(FILE)),
        "auth-map" => Ok(Users::Entries),
        other => Err(format!(
            "{other:?} is unknown; expected auth-file or auth-map"
        )),
    });
    if from.get("auth-type").is_none() {
        from.ignore(
            &[NGINX_AUTH_SECRET, "auth-secret-type"],
            "there is no auth-type",
        );
        return None;
    }
    from.require("auth-type", |value| match value {
        "basic" => Ok(()),
        other => Err(format!("{other:?} is not supported; expected basic")),
    })?;
    let metadata = from.metadata;
    if from.get(NGINX_AUTH_SECRET).is_none() {
        from.refuse("auth-type", "there is no auth-secret");
        return None;
    }
    from.require(NGINX_AUTH_SECRET, |value| {
        let (namespace, name) = nginx_reference(metadata, value);
        if namespace != metadata.namespace {
            return Err(format!(
                "{value:?}: expected a Secret in the Ingress's own namespace"
            ));
        }
        let at = format!("Secret {namespace}/{name}");
        let format = format.unwrap_or(Users::File(FILE));
        let users = read_users(&at, (namespace, name), format, cx)?;
        let options = cx.options;
        Ok(Credentials::of_users(ingress, None, false, &users, options))
    })
}
