//! Timeouts, retries, load balancing and header changes for forwarded requests.

use sesame_proto::field_names::is_cookie_path;
use sesame_proto::schema::header_part::{Fact, Kind as PartKind};
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::retry::Condition;
use sesame_proto::schema::{
    BackendConnections, Forward, HashPolicy, Header, HeaderModifier, HeaderPart, LoadBalancer,
    Retry, SessionPersistence, UrlRewrite, hash_policy, session_persistence,
};

use super::Annotations;
use super::values::{number, seconds};
use crate::backends::{BackendSettings, Connection, UpstreamProtocol};
use crate::syntax::{hostnames, names};

/// Default in ingress-nginx.
const COOKIE: &str = "INGRESSCOOKIE";
/// Default in ingress-nginx, in milliseconds.
const IDLE_MS: u64 = 60_000;
/// Default number of attempts, including the first.
const DEFAULT_TRIES: u32 = 3;

#[derive(Default)]
pub(super) struct Forwarding {
    /// The larger of `proxy-read-timeout` and `proxy-send-timeout`, in milliseconds.
    pub(super) idle_ms: Option<u64>,
    pub(super) retry: Option<Retry>,
    pub(super) session: Option<SessionPersistence>,
    pub(super) host: Option<String>,
    pub(super) forwarded_prefix: Option<String>,
    pub(super) protocol: Option<UpstreamProtocol>,
    pub(super) settings: BackendSettings,
}

impl Forwarding {
    pub(super) fn read(from: &mut Annotations<'_>) -> Self {
        let timeouts = ["proxy-read-timeout", "proxy-send-timeout"];
        let timeouts = timeouts.map(|name| from.read(name, seconds));
        let idle_ms = match timeouts {
            [None, None] => None,
            both => both.into_iter().map(|it| it.unwrap_or(IDLE_MS)).max(),
        };
        let connect = from.read("proxy-connect-timeout", seconds);
        Self {
            idle_ms,
            retry: retry(from),
            session: session(from),
            host: from.require("upstream-vhost", |host| {
                hostnames::check_precise(host).map_err(|why| format!("{host:?} {why}"))?;
                Ok(host.to_owned())
            }),
            forwarded_prefix: from.read("x-forwarded-prefix", |prefix| {
                names::check_path("path", prefix).map(|()| prefix.to_owned())
            }),
            protocol: from.require("backend-protocol", protocol).flatten(),
            settings: BackendSettings {
                load_balancer: load_balancer(from),
                connections: connect.map(|connect_timeout_ms| BackendConnections {
                    connect_timeout_ms,
                    ..BackendConnections::default()
                }),
                ..BackendSettings::default()
            },
        }
    }

    pub(super) fn connection(&self) -> Connection {
        Connection {
            protocol: self.protocol,
            own_tls: None,
            settings: self.settings.clone(),
            ..Connection::default()
        }
    }

    pub(super) fn apply(&self, forward: &mut Forward) {
        forward.stream_idle_timeout_ms = self.idle_ms.or(forward.stream_idle_timeout_ms);
        if self.retry.is_some() {
            forward.retry = self.retry.clone().map(Box::new);
        }
        if self.session.is_some() {
            forward.session = self.session.clone().map(Box::new);
        }
        if let Some(host) = &self.host {
            let rewrite = forward.rewrite.take().unwrap_or_default();
            forward.rewrite = Some(Box::new(UrlRewrite {
                host: host.clone(),
                ..*rewrite
            }));
        }
    }

    /// As ingress-nginx does, replaces a client's `X-Real-IP`, which backends trust.
    pub(super) fn request_headers(&self) -> HeaderModifier {
        let address = Fact::DownstreamRemoteAddressWithoutPort;
        let address = Header {
            name: "X-Real-IP".to_owned(),
            value: String::new(),
            parts: vec![HeaderPart {
                kind: Some(PartKind::Fact(address.into())),
            }],
        };
        let prefix = self.forwarded_prefix.as_ref().map(|prefix| Header {
            name: "X-Forwarded-Prefix".to_owned(),
            value: prefix.clone(),
            parts: Vec::new(),
        });
        HeaderModifier {
            set: std::iter::once(address).chain(prefix).collect(),
            ..HeaderModifier::default()
        }
    }
}

/// Response statuses cause retries only if `non_idempotent` is listed, because Envoy also retries
/// POST requests.
fn retry(from: &mut Annotations<'_>) -> Option<Retry> {
    let tries = from.read("proxy-next-upstream-tries", |text| {
        number(text, 1..=Retry::MAX_ATTEMPTS + 1)
    });
    let causes = from.read("proxy-next-upstream", |causes| Ok(causes.to_owned()));
    let causes = match causes {
        Some(causes) => causes,
        None if tries.is_some() => "error timeout".to_owned(),
        None => return None,
    };
    let mut retry = Retry {
        attempts: tries.unwrap_or(DEFAULT_TRIES) - 1,
        unprocessed_only: true,
        conditions: vec![
            Condition::ConnectFailure.into(),
            Condition::RefusedStream.into(),
        ],
        ..Retry::default()
    };
    let repeats_all = causes.split_whitespace().any(|it| it == "non_idempotent");
    for cause in causes.split_whitespace() {
        let status = cause.strip_prefix("http_").and_then(|it| it.parse().ok());
        match (cause, status) {
            ("off", _) => {
                retry.attempts = 0;
                return Some(retry);
            }
            ("error" | "timeout" | "non_idempotent", _) => {}
            (_, Some(status @ (403 | 404 | 429 | 500 | 502..=504))) if repeats_all => {
                retry.statuses.push(status);
            }
            (cause, status) => {
                let why = match status {
                    Some(_) => "it requires non_idempotent, because POST requests are also retried",
                    None => "it is unknown",
                };
                from.notes.push(format!(
                    "value {cause:?} of annotation proxy-next-upstream has no effect: {why}"
                ));
            }
        }
    }
    retry.statuses.sort_unstable();
    retry.statuses.dedup();
    if !retry.statuses.is_empty() {
        let statuses = Condition::RetriableStatusCodes;
        retry.conditions.push(statuses.into());
    }
    retry.conditions.sort_unstable();
    Some(retry)
}

fn session(from: &mut Annotations<'_>) -> Option<SessionPersistence> {
    from.read("affinity", |kind| match kind {
        "cookie" => Ok(()),
        other => Err(format!("{other:?} is unknown; expected cookie")),
    })?;
    let name = from.read("session-cookie-name", |name| {
        names::check_token(format_args!("cookie"), name).map(|()| name.to_owned())
    });
    let path = from.read("session-cookie-path", |path| {
        let is_valid = is_cookie_path(path);
        let path = Some(path.to_owned()).filter(|_| is_valid);
        path.ok_or_else(|| "expected a path without special characters".to_owned())
    });
    let ages = ["session-cookie-max-age", "session-cookie-expires"];
    let mut ages = ages
        .into_iter()
        .map(|name| from.read(name, |text| number(text, 0..=i32::MAX.unsigned_abs())));
    let age = ages.find_map(|age| age);
    Some(SessionPersistence {
        kind: Some(session_persistence::Kind::Cookie(
            name.unwrap_or_else(|| COOKIE.to_owned()),
        )),
        cookie_max_age_seconds: age.unwrap_or_default().into(),
        cookie_path: path.filter(|path| path != "/").unwrap_or_default(),
    })
}

/// `None` means HTTP/1.1.
fn protocol(name: &str) -> Result<Option<UpstreamProtocol>, String> {
    match name {
        "HTTP" | "AUTO_HTTP" => Ok(None),
        "GRPC" => Ok(Some(UpstreamProtocol::H2c)),
        "HTTPS" => Ok(Some(UpstreamProtocol::Tls)),
        "GRPCS" => Ok(Some(UpstreamProtocol::H2)),
        other => Err(format!(
            "{other:?} is not supported; expected HTTP, HTTPS, GRPC or GRPCS"
        )),
    }
}

fn load_balancer(from: &mut Annotations<'_>) -> Option<LoadBalancer> {
    let hash = from.read("upstream-hash-by", |text| {
        Ok(LoadBalancer {
            strategy: Strategy::RingHash.into(),
            hash_policies: vec![HashPolicy {
                kind: Some(hashed(text)?),
                terminal: false,
            }],
            ..LoadBalancer::default()
        })
    });
    let strategy = from.read("load-balance", |name| match name {
        "round_robin" => Ok(Strategy::RoundRobin),
        "ewma" => Ok(Strategy::LeastRequest),
        other => Err(format!(
            "{other:?} is unknown; expected round_robin or ewma"
        )),
    });
    hash.or_else(|| {
        strategy.map(|strategy| LoadBalancer {
            strategy: strategy.into(),
            ..LoadBalancer::default()
        })
    })
}

fn hashed(variable: &str) -> Result<hash_policy::Kind, String> {
    use hash_policy::Kind;
    let named = |name: &str| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_valid = !name.is_empty() && name.len() <= 256 && name.chars().all(is_name);
        is_valid.then(|| name.to_owned())
    };
    let name = variable.strip_prefix('$').unwrap_or_default();
    let name = name
        .strip_prefix('{')
        .and_then(|it| it.strip_suffix('}'))
        .unwrap_or(name);
    let kind = match name {
        "request_uri" => Some(Kind::Header(":path".to_owned())),
        "host" | "http_host" => Some(Kind::Header(":authority".to_owned())),
        "remote_addr" | "binary_remote_addr" => Some(Kind::SourceAddress(true)),
        name => {
            let header = |name: String| Kind::Header(name.replace('_', "-").to_lowercase());
            let of = |prefix| name.strip_prefix(prefix).and_then(named);
            of("http_")
                .map(header)
                .or_else(|| of("arg_").map(Kind::QueryParameter))
                .or_else(|| of("cookie_").map(Kind::Cookie))
        }
    };
    kind.ok_or_else(|| {
        format!(
            "{variable:?} is not supported; expected one variable: $request_uri, $remote_addr, \
             $host, or one that starts with $http_, $arg_ or $cookie_"
        )
    })
}
