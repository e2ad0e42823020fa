//! Serves password checks on a Unix socket that only Envoy can reach.
//!
//! The path of a request names the sets of users that must admit the user, each as `/DIGEST` or as
//! `/DIGEST:HEADER`, where `HEADER` is set to the user's name.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::checker::{PasswordChecker, UserPassword};
use super::sets::{PasswordSets, PasswordVerdict};
use sesame_host::remove_if_exists;

/// More than two Envoy processes open.
const MAX_CONNECTIONS: usize = 512;
const MAX_HEAD_BYTES: usize = 128 << 10;
/// Longer passwords are wrong. bcrypt uses 72 bytes.
const MAX_PASSWORD: usize = 1024;
const MAX_SETS: usize = 64;
const PAUSE: Duration = Duration::from_millis(100);
const CLIENT: &str = "x-client-address";
const CHALLENGE: &str = r#"Basic realm="restricted", charset="UTF-8""#;

type Answer = Response<Empty<Bytes>>;

/// The listening socket of one Gateway.
pub(crate) struct PasswordSocket(UnixListener);

impl PasswordSocket {
    /// Replaces the socket of an agent that has ended. The directory must be private.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        remove_if_exists(path)?;
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self(listener))
    }

    /// Runs until the future is dropped, which closes all connections.
    pub(crate) async fn serve(
        self,
        checker: PasswordChecker,
        sets: Arc<PasswordSets>,
    ) -> Infallible {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await;
            let stream = match self.0.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for password checks");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            while connections.try_join_next().is_some() {}
            let (checker, sets) = (checker.clone(), Arc::clone(&sets));
            connections.spawn(async move {
                converse(stream, &checker, &sets).await;
                drop(place);
            });
        }
    }
}

async fn converse(stream: UnixStream, checker: &PasswordChecker, sets: &PasswordSets) {
    let service = service_fn(|request: Request<Incoming>| async move {
        let (verdict, answer) = answer(&request, checker, sets).await;
        sets.counts.record(verdict);
        Ok::<_, Infallible>(answer)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        // The error contains no part of the request.
        tracing::debug!(%error, "a connection for password checks ended");
    }
}

async fn answer(
    request: &Request<Incoming>,
    checker: &PasswordChecker,
    sets: &PasswordSets,
) -> (PasswordVerdict, Answer) {
    let path = request.uri().path();
    let Some(named) = named(path) else {
        tracing::debug!(path, "an invalid request for a password check");
        return (PasswordVerdict::Unknown, refusal(PasswordVerdict::Unknown));
    };
    let headers = request.headers();
    let Some(sent) = sent(headers).map(Arc::new) else {
        return (PasswordVerdict::Denied, refusal(PasswordVerdict::Denied));
    };
    let digests: Vec<&str> = named.iter().map(|(digest, _)| *digest).collect();
    let verdict = checker.check(sets, &digests, &sent, client(headers)).await;
    if verdict != PasswordVerdict::Allowed {
        return (verdict, refusal(verdict));
    }
    // Users' names in a set contain only visible ASCII characters.
    let Ok(user) = HeaderValue::from_str(&sent.user) else {
        return (PasswordVerdict::Denied, refusal(PasswordVerdict::Denied));
    };
    let mut answer = Answer::default();
    for header in named.into_iter().filter_map(|(_, header)| header) {
        answer.headers_mut().insert(header, user.clone());
    }
    (verdict, answer)
}

/// Returns `None` if the path is invalid.
fn named(path: &str) -> Option<Vec<(&str, Option<HeaderName>)>> {
    let segments = path.strip_prefix('/')?.split('/');
    let named = segments.take(MAX_SETS + 1).map(|segment| {
        let (digest, header) = match segment.split_once(':') {
            Some((digest, header)) => (digest, Some(header.parse().ok()?)),
            None => (segment, None),
        };
        Some((digest, header))
    });
    let named: Vec<_> = named.collect::<Option<_>>()?;
    (named.len() <= MAX_SETS).then_some(named)
}

/// Returns `None` unless there is exactly one header with a user and a password.
fn sent(headers: &HeaderMap) -> Option<UserPassword> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = decoded.split_at_checked(colon)?;
    let password = password.strip_prefix(b":")?;
    // To bcrypt, `a` and `a\0a` are the same password.
    let is_possible = password.len() <= MAX_PASSWORD && !password.contains(&0);
    is_possible.then_some(UserPassword {
        user: std::str::from_utf8(user).ok()?.to_owned(),
        password: password.to_vec(),
    })
}

fn client(headers: &HeaderMap) -> IpAddr {
    let value = headers.get(CLIENT).and_then(|value| value.to_str().ok());
    let address = value.and_then(|value| value.parse().ok());
    address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

fn refusal(verdict: PasswordVerdict) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = match verdict {
        PasswordVerdict::Denied => {
            let challenge = HeaderValue::from_static(CHALLENGE);
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            StatusCode::UNAUTHORIZED
        }
        // To Envoy, this is an error of the service, so it rejects the request with 503.
        PasswordVerdict::Allowed | PasswordVerdict::Overloaded | PasswordVerdict::Unknown => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Option<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        let UserPassword { user, password } = sent(&headers)?;
        Some((user, password))
    }

    #[test]
    fn only_one_basic_header_is_read() {
        let basic = |text: &[u8]| format!("Basic {}", STANDARD.encode(text));
        let read_bytes = |text: &[u8]| read(&[&basic(text)]);
        let expected = Some(("ann".to_owned(), b"a:b".to_vec()));
        assert_eq!(read_bytes(b"ann:a:b"), expected);
        assert_eq!(read(&["bASIC YW5uOmE6Yg=="]), expected);
        assert_eq!(read_bytes(b":"), Some((String::new(), Vec::new())));
        for text in [
            &b"ann"[..],
            b"",
            b"ann:a\0a",
            b"\xff:a",
            &[&b"ann:"[..], &[b'a'; MAX_PASSWORD + 1]].concat(),
        ] {
            assert_eq!(read_bytes(text), None, "{text:?}");
        }
        let good = basic(b"ann:a");
        for values in [
            &[][..],
            &[&*good, &*good],
            &["Basic"],
            &["Basic !"],
            &["Bearer YW5uOmE6Yg=="],
            &[&*format!("{good},{good}")],
        ] {
            assert_eq!(read(values), None, "{values:?}");
        }
    }

    #[test]
    fn paths_name_sets_and_headers() {
        let header = HeaderName::from_static("x-user");
        assert_eq!(
            named("/a/b:x-user"),
            Some(vec![("a", None), ("b", Some(header))])
        );
        for path in ["", "a", "/a:", "/a:x y", &"/a".repeat(MAX_SETS + 1)] {
            assert_eq!(named(path), None, "{path}");
        }
    }
}
