//! Compares two answers to the same request.

use std::collections::BTreeSet;
use std::fmt;

use clap::ValueEnum;
use hyper::HeaderMap;
use hyper::header::{HeaderName, LOCATION, SET_COOKIE};
use serde::Serialize;

use super::client::{GatewayAnswer, ReceivedAnswer};
use super::secrets;

/// Response headers that differ for every response, or describe the connection.
const VOLATILE: [&str; 13] = [
    "age",
    "connection",
    "content-length",
    "date",
    "expires",
    "keep-alive",
    "location",
    "server",
    "transfer-encoding",
    "via",
    "x-envoy-decorator-operation",
    "x-envoy-upstream-service-time",
    "x-request-id",
];
const MAX_SHOWN: usize = 80;
const MAX_DIFFERENCES: usize = 20;

/// Kind of a difference between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum DifferenceCause {
    /// One gateway does not answer.
    Connection,
    /// The certificate, or whether it is trusted.
    Certificate,
    /// The HTTP or TLS version.
    Protocol,
    /// The response's status.
    Status,
    /// The redirect's location.
    Redirect,
    /// The header that names the backend.
    Backend,
    /// Other response headers.
    Headers,
    /// Size or content of the body.
    Body,
}

impl fmt::Display for DifferenceCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |it| it.get_name()))
    }
}

/// One difference. Requests with equal causes and texts are one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerDifference {
    pub(super) cause: DifferenceCause,
    /// Empty, or the name of a header.
    pub(super) header: String,
    pub(super) old: String,
    pub(super) new: String,
    /// Both values, if they may depend on the request.
    pub(super) values: Option<String>,
}

/// What to compare.
#[derive(Debug, Default)]
pub(super) struct AnswerComparison {
    pub(super) ignored: BTreeSet<DifferenceCause>,
    /// In lower case.
    pub(super) ignored_headers: BTreeSet<String>,
    /// Name of the header that names the backend.
    pub(super) backend_header: Option<String>,
}

impl AnswerComparison {
    pub(super) fn compare(
        &self,
        old: &GatewayAnswer,
        new: &GatewayAnswer,
    ) -> Vec<AnswerDifference> {
        let mut found = match (old, new) {
            (GatewayAnswer::Received(old), GatewayAnswer::Received(new)) => self.received(old, new),
            (GatewayAnswer::Failed { .. }, GatewayAnswer::Failed { .. }) => Vec::new(),
            (GatewayAnswer::Failed { certificate, .. }, _)
            | (_, GatewayAnswer::Failed { certificate, .. }) => {
                let cause = if *certificate {
                    DifferenceCause::Certificate
                } else {
                    DifferenceCause::Connection
                };
                vec![difference(cause, in_words(old), in_words(new))]
            }
        };
        found.retain(|it| !self.ignored.contains(&it.cause));
        found.truncate(MAX_DIFFERENCES);
        found
    }

    fn received(&self, old: &ReceivedAnswer, new: &ReceivedAnswer) -> Vec<AnswerDifference> {
        let mut found = Vec::new();
        if let (Some((a, before)), Some((b, after))) = (&old.certificate, &new.certificate)
            && a != b
        {
            found.push(difference(
                DifferenceCause::Certificate,
                before.clone(),
                after.clone(),
            ));
        }
        if old.protocol != new.protocol {
            let (before, after) = (old.protocol.clone(), new.protocol.clone());
            found.push(difference(DifferenceCause::Protocol, before, after));
        }
        if old.status != new.status {
            let (before, after) = (old.status.to_string(), new.status.to_string());
            found.push(difference(DifferenceCause::Status, before, after));
            // Everything else follows from the status.
            return found;
        }
        found.extend(redirect(old, new));
        let backend = self.backend_header.as_deref().unwrap_or_default();
        let [before, after] = [old, new].map(|it| values(&it.headers, backend).join(", "));
        if before != after {
            found.push(difference(
                DifferenceCause::Backend,
                shown(backend, &before),
                shown(backend, &after),
            ));
            // Another backend may return other headers and another body.
            return found;
        }
        found.extend(self.headers(&old.headers, &new.headers));
        if (old.body_bytes, &old.body_digest) != (new.body_bytes, &new.body_digest) {
            let sizes = format!("{} bytes, now {} bytes", old.body_bytes, new.body_bytes);
            found.push(AnswerDifference {
                values: Some(sizes),
                ..difference(
                    DifferenceCause::Body,
                    "a body".to_owned(),
                    "another body".to_owned(),
                )
            });
        }
        found
    }

    fn headers(&self, old: &HeaderMap, new: &HeaderMap) -> Vec<AnswerDifference> {
        let names = old.keys().chain(new.keys()).map(HeaderName::as_str);
        let names: BTreeSet<&str> = names.collect();
        let is_compared =
            |name: &&str| !VOLATILE.contains(name) && !self.ignored_headers.contains(*name);
        let differs = |name: &str| {
            let (before, after) = (values(old, name), values(new, name));
            let (old, new, values) = match (before.is_empty(), after.is_empty()) {
                _ if before == after => return None,
                (false, true) => (name.to_owned(), format!("no {name}"), None),
                (true, false) => (format!("no {name}"), name.to_owned(), None),
                _ => {
                    let both = [before, after].map(|it| shown(name, &it.join(", ")));
                    (
                        name.to_owned(),
                        format!("another {name}"),
                        Some(both.join(", now ")),
                    )
                }
            };
            Some(AnswerDifference {
                cause: DifferenceCause::Headers,
                header: name.to_owned(),
                old,
                new,
                values,
            })
        };
        names
            .into_iter()
            .filter(is_compared)
            .filter_map(differs)
            .collect()
    }
}

fn difference(cause: DifferenceCause, old: String, new: String) -> AnswerDifference {
    AnswerDifference {
        cause,
        header: String::new(),
        old,
        new,
        values: None,
    }
}

fn redirect(old: &ReceivedAnswer, new: &ReceivedAnswer) -> Option<AnswerDifference> {
    let [before, after] = [old, new].map(|it| values(&it.headers, LOCATION.as_str()).join(", "));
    if before == after {
        return None;
    }
    let [old, new] = [&before, &after].map(|it| match it.as_str() {
        "" => "no location",
        _ => "a location",
    });
    let new = if old == new { "another location" } else { new };
    let [before, after] = [&before, &after].map(|it| shown("location", it));
    Some(AnswerDifference {
        values: Some(format!("{before}, now {after}")),
        ..difference(DifferenceCause::Redirect, old.to_owned(), new.to_owned())
    })
}

/// Returns the values that are compared, sorted. Values and expiry times of cookies are not.
fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    let mut values: Vec<String> = values
        .map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            if name == SET_COOKIE.as_str() {
                cookie(&text)
            } else {
                text.into_owned()
            }
        })
        .collect();
    values.sort();
    values
}

fn cookie(text: &str) -> String {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let name = name.split('=').next().unwrap_or_default().to_owned();
    let is_kept = |part: &&str| !part.to_ascii_lowercase().starts_with("expires=");
    let mut attributes: Vec<String> = parts.filter(is_kept).map(str::to_ascii_lowercase).collect();
    attributes.sort();
    std::iter::once(name)
        .chain(attributes)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Returns a header's value for the report, without secrets, queries and control characters.
fn shown(name: &str, value: &str) -> String {
    let is_cookie = name == SET_COOKIE.as_str();
    let is_location = name == LOCATION.as_str();
    let end = value.find(['?', '#']).unwrap_or(value.len());
    let (start, rest) = value.split_at(end);
    let is_secret = secrets::is_secret_name(name)
        || secrets::is_secret_value(if is_location { "" } else { value });
    if !is_cookie && is_secret {
        return "(hidden)".to_owned();
    }
    if value.is_empty() {
        return "none".to_owned();
    }
    let query = match rest.get(..1) {
        None => "",
        Some("#") => "#…",
        Some(_) => "?…",
    };
    let value = match name {
        _ if is_location => secrets::shown_url(start),
        _ if is_cookie => start.to_owned(),
        _ => secrets::shown_segments(start),
    };
    let printable = value.chars().filter(|it| !it.is_control());
    let mut text: String = printable.clone().take(MAX_SHOWN).collect();
    if printable.count() > MAX_SHOWN {
        text.push('…');
    }
    text + query
}

fn in_words(answer: &GatewayAnswer) -> String {
    match answer {
        GatewayAnswer::Received(received) => received.status.to_string(),
        GatewayAnswer::Failed { reason, .. } => format!("no response: {}", shown("", reason)),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> GatewayAnswer {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        GatewayAnswer::Received(Box::new(ReceivedAnswer {
            protocol: "HTTP/1.1".to_owned(),
            certificate: None,
            status,
            headers: headers.collect(),
            body_bytes: body.len(),
            body_digest: body.to_owned(),
        }))
    }

    fn compared(old: &GatewayAnswer, new: &GatewayAnswer) -> Vec<String> {
        let comparison = AnswerComparison {
            backend_header: Some("x-backend".to_owned()),
            ignored_headers: BTreeSet::from(["x-ignored".to_owned()]),
            ..AnswerComparison::default()
        };
        let found = comparison.compare(old, new).into_iter();
        let texts = found.map(|it| {
            let values = it.values.unwrap_or_default();
            format!("{}: {} -> {} ({values})", it.cause, it.old, it.new)
        });
        texts.collect()
    }

    #[test]
    fn differences_are_listed_by_cause() {
        let ok = || answer(200, &[], "x");
        let failed = |certificate| GatewayAnswer::Failed {
            certificate,
            reason: "refused".to_owned(),
        };
        for (old, new, expected) in [
            (ok(), ok(), &[][..]),
            (failed(true), failed(false), &[]),
            (
                ok(),
                failed(false),
                &["connection: 200 -> no response: refused ()"],
            ),
            (
                failed(true),
                ok(),
                &["certificate: no response: refused -> 200 ()"],
            ),
            (
                ok(),
                answer(404, &[("x-other", "1")], ""),
                &["status: 200 -> 404 ()"],
            ),
            (
                ok(),
                answer(200, &[], "longer"),
                &["body: a body -> another body (1 bytes, now 6 bytes)"],
            ),
            (
                answer(302, &[("location", "http://a.test/?hidden")], ""),
                answer(302, &[("location", "https://a.test/")], ""),
                &[
                    "redirect: a location -> another location (http://a.test/?…, now https://a.test/)",
                ],
            ),
            (
                answer(200, &[("x-backend", "a"), ("x-other", "1")], "a"),
                answer(200, &[("x-backend", "b")], "b"),
                &["backend: a -> b ()"],
            ),
            (
                answer(
                    200,
                    &[
                        ("x-ignored", "1"),
                        ("x-gone", "1"),
                        ("x-auth-token", "hidden1"),
                    ],
                    "x",
                ),
                answer(200, &[("date", "now"), ("x-auth-token", "hidden2")], "x"),
                &[
                    "headers: x-auth-token -> another x-auth-token ((hidden), now (hidden))",
                    "headers: x-gone -> no x-gone ()",
                ],
            ),
        ] {
            assert_eq!(compared(&old, &new), expected);
        }
    }

    #[test]
    fn redirects_are_shown_without_secrets() {
        let to = |location| answer(302, &[("location", location)], "");
        let old = to("https://a.test/#token=hidden");
        let new = to("https://hidden@a.test/eyJhbGciOiJIUzI1NiJ9.e30.x/b;sid=hidden");
        let found = compared(&old, &new).concat();
        let shown = "(https://a.test/#…, now https://a.test/(hidden)/b)";
        assert!(found.ends_with(shown), "{found}");
    }

    #[test]
    fn cookies_are_compared_without_values() {
        let with = |cookie: &'static str| answer(200, &[("set-cookie", cookie)], "");
        let old = with("id=hidden1; Path=/; HttpOnly; Expires=Mon, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(
            compared(&old, &with("id=hidden2; httponly; path=/")),
            [""; 0]
        );
        let found = compared(&old, &with("id=hidden2; path=/"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("(id; httponly; path=/, now id; path=/)"),
            "{found:?}"
        );
    }
}
