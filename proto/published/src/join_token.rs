//! Encodes and parses join tokens. A token contains a bearer credential, so it must never be
//! logged; its `Debug` output omits the credential.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sesame_kinds::api::NamespacedName;
use sesame_proto::dns_name::is_label_value;

use crate::host_access::HostScope;
use crate::names::is_host_name;

const PREFIX: &str = "sesame-join-2.";
/// Maximum size of a join token in bytes.
pub const MAX_JOIN_TOKEN_BYTES: usize = 256 << 10;
const MAX_GATEWAYS: usize = 256;

/// A cluster's location, and a credential for one host to join the cluster once.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// URL of the API server.
    pub server: String,
    /// CA certificates of the API server, as PEM. If empty, the host uses its own trust store.
    pub authority: String,
    /// Name in the API server's certificate, if it differs from the host in the URL.
    pub server_name: Option<String>,
    /// Namespace of all published objects.
    pub namespace: String,
    /// Name of the host.
    pub host: String,
    /// UID of the host's ServiceAccount, which owns the Secret that the host creates.
    pub account_uid: String,
    /// Gateways that the host may serve.
    pub scope: HostScope,
    /// Requested lifetime of the host's credentials, in seconds.
    pub lifetime_seconds: i64,
    /// Bearer token of the invitation.
    pub bearer: String,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken")
            .field("server", &self.server)
            .field("host", &self.host)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Error for an invalid join token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinTokenError {
    /// The prefix is missing.
    #[error(
        "this is not a join token: it does not begin with {PREFIX:?}; create one with \
        `sesame-controller hosts token`"
    )]
    Prefix,
    /// A part of the token is missing or damaged.
    #[error("the join token is damaged or truncated ({0}); copy the whole token again")]
    Damaged(&'static str),
    /// A field has an invalid value.
    #[error(
        "the join token has a missing or invalid {0}; create another one with `sesame-controller hosts token`"
    )]
    Field(&'static str),
}

/// Unknown fields are rejected, because they could be restrictions.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Content {
    server: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    authority: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
    namespace: String,
    host: String,
    account_uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gateways: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fleet: Option<String>,
    lifetime_seconds: i64,
    bearer: String,
}

impl JoinToken {
    /// Encodes the token as a single line, without a trailing line break.
    pub fn encode(&self) -> String {
        let Self {
            server,
            authority,
            server_name,
            namespace,
            host,
            account_uid,
            scope,
            lifetime_seconds,
            bearer,
        } = self.clone();
        let (gateways, fleet) = match scope {
            HostScope::Gateways(all) => (all.iter().map(ToString::to_string).collect(), None),
            HostScope::Fleet(fleet) => (Vec::new(), Some(fleet)),
        };
        let content = serde_json::json!(Content {
            server,
            authority,
            server_name,
            namespace,
            host,
            account_uid,
            gateways,
            fleet,
            lifetime_seconds,
            bearer,
        });
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(content.to_string()))
    }

    /// Parses a token, ignoring surrounding whitespace.
    pub fn parse(text: &str) -> Result<Self, JoinTokenError> {
        let encoded = text.trim().strip_prefix(PREFIX);
        let encoded = encoded.ok_or(JoinTokenError::Prefix)?;
        if encoded.len() > MAX_JOIN_TOKEN_BYTES {
            return Err(JoinTokenError::Damaged("too long"));
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(encoded)
            .map_err(|_| JoinTokenError::Damaged("no base64"))?;
        let content: Content =
            serde_json::from_slice(&bytes).map_err(|_| JoinTokenError::Damaged("no JSON"))?;
        let Content {
            server,
            authority,
            server_name,
            namespace,
            host,
            account_uid,
            gateways,
            fleet,
            lifetime_seconds,
            bearer,
        } = content;
        let check = |good: bool, field| good.then_some(()).ok_or(JoinTokenError::Field(field));
        // Over plain HTTP, anyone who impersonates the server could steal the credentials.
        check(server.starts_with("https://"), "server")?;
        check(
            sesame_proto::dns_name::is_dns_label(&namespace),
            "namespace",
        )?;
        check(is_host_name(&host), "host")?;
        check(is_word(&account_uid), "account")?;
        check(gateways.len() <= MAX_GATEWAYS, "list of gateways")?;
        check(lifetime_seconds > 0, "lifetime")?;
        check(is_word(&bearer), "bearer")?;
        let scope = match (gateways.as_slice(), fleet) {
            ([], Some(fleet)) if is_label_value(&fleet) => HostScope::Fleet(fleet),
            ([_, ..], None) => {
                let all: Option<Vec<_>> = gateways.iter().map(|text| gateway(text)).collect();
                HostScope::Gateways(all.ok_or(JoinTokenError::Field("list of gateways"))?)
            }
            _ => return Err(JoinTokenError::Field("gateways or fleet")),
        };
        Ok(Self {
            server,
            authority,
            server_name,
            namespace,
            host,
            account_uid,
            scope,
            lifetime_seconds,
            bearer,
        })
    }
}

/// Accepts only non-empty, visible ASCII, because other characters could end or split a header.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn gateway(text: &str) -> Option<NamespacedName> {
    let (namespace, name) = text.split_once('/')?;
    let legal = sesame_proto::dns_name::is_dns_label(namespace)
        && sesame_proto::dns_name::is_dns_subdomain(name);
    legal.then(|| NamespacedName::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(scope: HostScope) -> JoinToken {
        JoinToken {
            server: "https://192.0.2.1:6443".to_owned(),
            authority: "-----BEGIN CERTIFICATE-----\n".to_owned(),
            server_name: None,
            namespace: "sesame-system".to_owned(),
            host: "edge-1.example.com".to_owned(),
            account_uid: "780a1312-0000-4000-8000-000000000000".to_owned(),
            scope,
            lifetime_seconds: 3600,
            bearer: "abc.def.ghi".to_owned(),
        }
    }

    #[test]
    fn join_token_reads_back_and_hides_secret() {
        let gateway = NamespacedName::new("default", "edge");
        for scope in [
            HostScope::Gateways(vec![gateway]),
            HostScope::Fleet("Fleet_1".to_owned()),
        ] {
            let token = token(scope);
            let text = token.encode();
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(JoinToken::parse(&format!(" {text}\n")), Ok(token.clone()));
            assert!(!format!("{token:?}").contains("abc.def"));
        }
    }

    #[test]
    fn truncated_or_invalid_join_token_is_refused() {
        let fleet = || HostScope::Fleet("f".to_owned());
        let whole = token(fleet()).encode();
        for length in 0..whole.len() {
            assert!(JoinToken::parse(&whole[..length]).is_err(), "{length}");
        }
        let wrong: [fn(&mut JoinToken); 7] = [
            |token| token.server = "http://192.0.2.1".to_owned(),
            |token| token.namespace = "../x".to_owned(),
            |token| token.host = "a b".to_owned(),
            |token| token.account_uid = String::new(),
            |token| token.scope = HostScope::Gateways(Vec::new()),
            |token| token.scope = HostScope::Fleet("a=b".to_owned()),
            |token| token.bearer = "a\nb".to_owned(),
        ];
        for change in wrong {
            let mut token = token(fleet());
            change(&mut token);
            let refused = JoinToken::parse(&token.encode());
            assert!(
                matches!(refused, Err(JoinTokenError::Field(_))),
                "{token:?}"
            );
        }
    }
}
