//! Reads the credentials that RouteFilters add to requests. Errors never contain a credential.

use std::sync::Arc;

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{InjectedCredential, SharedFilter, shared_filter};

use super::route_filter::FilterScope;
use crate::syntax::header_names::check_name;
use crate::syntax::names;
use sesame_kinds::api::{CredentialInjection, InjectedSecret};
use sesame_kinds::world::Kind;

const DEFAULT_HEADER: &str = "authorization";
const DEFAULT_KEY: &str = "credential";
/// Headers that access logs and spans contain by default, in lower case.
const LOGGED: [&str; 3] = ["traceparent", "user-agent", "x-request-id"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Injected {
    /// Lower-case name of the header.
    pub(crate) header: String,
    pub(crate) pair: Arc<KeyPair>,
}

impl Injected {
    pub(crate) fn to_shared_filter(&self) -> SharedFilter {
        let injected = InjectedCredential {
            header: self.header.clone(),
        };
        SharedFilter {
            name: self.pair.name.clone(),
            kind: Some(shared_filter::Kind::Injected(injected)),
        }
    }
}

/// `name` is the RouteFilter's.
pub(super) fn read(
    spec: &CredentialInjection,
    name: &str,
    scope: &FilterScope<'_, '_>,
) -> Result<Injected, String> {
    let FilterScope {
        world,
        options,
        namespace,
        regexes: _,
        filters: _,
        grpc: _,
    } = *scope;
    let CredentialInjection {
        header,
        credential: InjectedSecret { name: secret, key },
    } = spec;
    let header = header.as_deref().unwrap_or(DEFAULT_HEADER);
    check_name(format_args!("header"), header)?;
    if LOGGED.iter().any(|it| header.eq_ignore_ascii_case(it)) {
        return Err(format!(
            "header {header:?} is logged, so it must not contain a credential; use another header"
        ));
    }
    let at = format!("credential: Secret {namespace}/{secret}");
    let found = world.secrets.get(namespace, secret);
    let found = found.ok_or_else(|| format!("{at} does not exist"))?;
    if !found.is_opaque() {
        let type_ = &found.type_;
        return Err(format!("{at} has type {type_:?}; expected \"Opaque\""));
    }
    let key = key.as_deref().unwrap_or(DEFAULT_KEY);
    let value = found.get(key);
    let value = value.ok_or_else(|| format!("{at} has no {key:?}"))?;
    let value = std::str::from_utf8(value).map_err(|_| format!("{at}: {key:?} is not UTF-8"))?;
    // Files often end with a line break.
    let value = value.trim_end_matches(['\r', '\n']);
    let most = InjectedCredential::MAX_BYTES;
    if !(1..=most).contains(&value.len()) || !names::is_field_value(value) {
        return Err(format!(
            "{at}: {key:?} is not a header value; expected one line of 1 to {most} bytes without \
             control characters"
        ));
    }
    let filter = format!("{}/{namespace}/{name}", Kind::RouteFilter.as_str());
    Ok(Injected {
        header: header.to_ascii_lowercase(),
        pair: options.credential_pair(InjectedCredential::name(&filter), value),
    })
}
