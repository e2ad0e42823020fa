//! Contour's annotations on Ingresses.

use sesame_proto::schema::retry::Condition;
use sesame_proto::schema::{Forward, Retry};

use crate::listeners::{MAX_VERSION, MIN_VERSION};
use crate::syntax::durations;
use sesame_kinds::api::{CONTOUR_PREFIX, Metadata};

const RESPONSE_TIMEOUT: &str = "response-timeout";
/// Older name of `RESPONSE_TIMEOUT`.
const REQUEST_TIMEOUT: &str = "request-timeout";
const RETRY_ON: &str = "retry-on";
const NUM_RETRIES: &str = "num-retries";
const PER_TRY_TIMEOUT: &str = "per-try-timeout";
const MIN_TLS: &str = "tls-minimum-protocol-version";
const MAX_TLS: &str = "tls-maximum-protocol-version";
const CERTIFICATE_NAMESPACE: &str = "tls-cert-namespace";
/// Ignored, because all routes support WebSockets.
const WEBSOCKETS: &str = "websocket-routes";

const KNOWN: [&str; 9] = [
    RESPONSE_TIMEOUT,
    REQUEST_TIMEOUT,
    RETRY_ON,
    NUM_RETRIES,
    PER_TRY_TIMEOUT,
    MIN_TLS,
    MAX_TLS,
    CERTIFICATE_NAMESPACE,
    WEBSOCKETS,
];

pub(super) fn is_known(name: &str) -> bool {
    let name = name.strip_prefix(CONTOUR_PREFIX);
    name.is_some_and(|name| KNOWN.contains(&name))
}

fn get<'m>(metadata: &'m Metadata, name: &str) -> Option<&'m str> {
    metadata.annotations.get(&format!("{CONTOUR_PREFIX}{name}"))
}

pub(super) fn certificate_namespace(metadata: &Metadata) -> Option<&str> {
    get(metadata, CERTIFICATE_NAMESPACE).filter(|namespace| !namespace.is_empty())
}

pub(super) fn tls_options(metadata: &Metadata) -> impl Iterator<Item = (&'static str, &str)> {
    let options = [(MIN_TLS, MIN_VERSION), (MAX_TLS, MAX_VERSION)];
    let read = move |(name, option)| Some((option, get(metadata, name)?));
    options.into_iter().filter_map(read)
}

/// Returns the reason if the Ingress must not be served.
pub(super) fn tls_fault(metadata: &Metadata) -> Option<String> {
    [MIN_TLS, MAX_TLS].into_iter().find_map(|name| {
        let value = get(metadata, name)?;
        (!["1.2", "1.3"].contains(&value)).then(|| {
            let expected = "expected \"1.2\" or \"1.3\"";
            format!(
                "metadata.annotations {CONTOUR_PREFIX}{name}: {value:?} is not supported; {expected}"
            )
        })
    })
}

#[derive(Debug, Default)]
pub(super) struct Forwarding {
    /// In milliseconds; 0 means no timeout.
    response_timeout: Option<u64>,
    retry: Option<Retry>,
    /// In milliseconds; 0 means no timeout.
    per_try_timeout: u64,
    pub(super) faults: Vec<String>,
}

impl Forwarding {
    pub(super) fn read(metadata: &Metadata) -> Self {
        let mut read = Self::default();
        let response = [RESPONSE_TIMEOUT, REQUEST_TIMEOUT];
        let named = response
            .into_iter()
            .find(|name| get(metadata, name).is_some());
        read.response_timeout = named.and_then(|name| read.duration(metadata, name));
        let Some(conditions) = get(metadata, RETRY_ON) else {
            return read;
        };
        let mut retry = Retry {
            attempts: 1,
            unprocessed_only: true,
            ..Retry::default()
        };
        for condition in conditions.split(',').map(str::trim) {
            if let Err(why) = add_condition(&mut retry, condition) {
                read.fault(RETRY_ON, condition, &why);
            }
        }
        if let Some(number) = get(metadata, NUM_RETRIES) {
            match number.parse::<i32>() {
                Ok(number @ -1..) => retry.attempts = attempts(number),
                _ => read.fault(
                    NUM_RETRIES,
                    number,
                    "expected -1 for none, or a number of retries",
                ),
            }
        }
        read.per_try_timeout = read.duration(metadata, PER_TRY_TIMEOUT).unwrap_or_default();
        read.retry = Some(retry);
        read
    }

    pub(super) fn apply(&self, forward: &mut Forward) {
        if let Some(timeout) = self.response_timeout {
            forward.request_timeout_ms = timeout;
            forward.request_timeout_disabled = timeout == 0;
        }
        forward.backend_timeout_ms = self.per_try_timeout;
        forward.retry = self.retry.clone().map(Box::new);
    }

    /// Returns milliseconds; `infinity` becomes 0.
    fn duration(&mut self, metadata: &Metadata, name: &str) -> Option<u64> {
        let value = get(metadata, name)?;
        if ["infinity", "infinite"].contains(&value) {
            return Some(0);
        }
        let read = durations::of_go(value);
        if read.is_err() {
            self.fault(
                name,
                value,
                "expected a duration such as \"10s\", or \"infinity\"",
            );
        }
        read.ok()
    }

    fn fault(&mut self, name: &str, value: &str, expected: &str) {
        let message = format!(
            "metadata.annotations {CONTOUR_PREFIX}{name}: {value:?} has no effect; {expected}"
        );
        self.faults.push(message);
    }
}

/// In Contour, -1 disables retries, and 0 means one retry.
pub(crate) fn attempts(number: i32) -> u32 {
    let number = u32::try_from(number);
    number.map_or(0, |number| number.clamp(1, Retry::MAX_ATTEMPTS))
}

pub(crate) fn add_condition(retry: &mut Retry, condition: &str) -> Result<(), String> {
    let Some(known) = Condition::named(condition) else {
        return Err("unknown; expected a value such as 5xx, gateway-error or reset".to_owned());
    };
    let needed = match known {
        Condition::RetriableStatusCodes if retry.statuses.is_empty() => "status codes",
        Condition::RetriableHeaders => "header names, which cannot be configured",
        Condition::Http3PostConnectFailure => "backends with HTTP/3",
        _ => {
            retry.conditions.push(known.into());
            retry.conditions.sort_unstable();
            retry.conditions.dedup();
            return Ok(());
        }
    };
    Err(format!("it needs {needed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(annotations: &[(&str, &str)]) -> Metadata {
        let named = annotations.iter();
        let named =
            named.map(|(name, value)| (format!("{CONTOUR_PREFIX}{name}"), (*value).to_owned()));
        Metadata {
            annotations: named.collect(),
            ..Metadata::default()
        }
    }

    fn forward(annotations: &[(&str, &str)]) -> (Forward, usize) {
        let read = Forwarding::read(&metadata(annotations));
        let mut forward = Forward::default();
        read.apply(&mut forward);
        (forward, read.faults.len())
    }

    #[test]
    fn timeouts_accept_infinity_and_report_nonsense() {
        let (forward_, faults) = forward(&[("response-timeout", "1m30s")]);
        assert_eq!((forward_.request_timeout_ms, faults), (90_000, 0));
        let (forward_, faults) = forward(&[("request-timeout", "infinity")]);
        assert_eq!((forward_.request_timeout_disabled, faults), (true, 0));
        assert_eq!(
            forward(&[("response-timeout", "soon")]),
            (Forward::default(), 1)
        );
    }

    #[test]
    fn retries_follow_conditions_of_envoy() {
        let retry = |annotations: &[(&str, &str)]| {
            let (forward, faults) = forward(annotations);
            let retry = forward
                .retry
                .map(|it| (it.conditions, it.attempts, it.unprocessed_only));
            (retry, forward.backend_timeout_ms, faults)
        };
        let of = |conditions: &[Condition]| {
            let conditions = conditions.iter();
            conditions.map(|it| i32::from(*it)).collect::<Vec<_>>()
        };
        let server_errors = of(&[Condition::ServerError, Condition::GatewayError]);
        let client_errors = of(&[Condition::GatewayError, Condition::Retriable4xx]);
        let connections = of(&[Condition::ConnectFailure]);
        assert_eq!(retry(&[("num-retries", "3")]), (None, 0, 0));
        assert_eq!(
            retry(&[
                ("retry-on", "gateway-error, retriable-4xx"),
                ("per-try-timeout", "2s")
            ]),
            (Some((client_errors, 1, true)), 2_000, 0)
        );
        assert_eq!(
            retry(&[("retry-on", "5xx,gateway-error"), ("num-retries", "1000")]),
            (Some((server_errors, Retry::MAX_ATTEMPTS, true)), 0, 0)
        );
        assert_eq!(
            retry(&[("retry-on", "connect-failure,odd"), ("num-retries", "-1")]),
            (Some((connections, 0, true)), 0, 1)
        );
    }

    #[test]
    fn versions_of_tls_are_checked() {
        let fault = |value: &str| tls_fault(&metadata(&[("tls-minimum-protocol-version", value)]));
        assert_eq!(fault("1.3"), None);
        assert!(fault("1.1").is_some());
        let read = metadata(&[("tls-maximum-protocol-version", "1.2")]);
        let options: Vec<_> = tls_options(&read).collect();
        assert_eq!(options, [(MAX_VERSION, "1.2")]);
    }
}
