//! Settings that protect against untrusted clients. An unknown annotation has no effect, because
//! the default is safe.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use sesame_acme::ACME_KEY;
use sesame_proto::schema::edge::{EscapedSlashes, RequestId, ServerHeader, Underscores};
use sesame_proto::schema::{AccessLog, Edge};

use super::{client_addresses, clients, http3, presets, rollout};
use crate::syntax::durations;
use sesame_kinds::api::{AccessLogRules, EdgePreset, EdgeSettings, Labels, OpenEnum};

const PREFIX: &str = "projectsesame.io/";
const MAX_REPORTED: usize = 100;
/// Envoy's upper bounds for the size and number of headers.
const MAX_HEADER_KIB: u32 = 8192;
const MAX_HEADERS: u32 = 10_000;
const MAX_CONNECTION_REQUESTS: u32 = 1_000_000_000;
const MAX_STREAMS: u32 = 10_000;
const BUFFER_KIB: RangeInclusive<u32> = 4..=1_024;
const MIN_KEEPALIVE_MS: u64 = 1_000;

#[derive(Clone, Copy)]
enum Upgrade {
    Spdy,
    Tcp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct EdgeDefaults(Edge);

impl EdgeDefaults {
    pub(super) fn into_inner(self) -> Edge {
        self.0
    }

    /// Returns `None` if all values are defaults.
    #[cfg(test)]
    pub(super) fn difference(self) -> Option<Edge> {
        (self.0 != Edge::default()).then_some(self.0)
    }

    /// The rules must be valid.
    pub(super) fn log(&mut self, rules: &AccessLogRules) {
        let AccessLogRules {
            enabled,
            min_status,
            min_duration,
            percent,
            // Not edge settings.
            format: _,
            on_host: _,
            sinks: _,
        } = rules;
        let number = |value: &Option<i32>| value.and_then(|value| u32::try_from(value).ok());
        let log = AccessLog {
            off: *enabled == Some(false),
            min_status: number(min_status),
            min_duration_ms: min_duration
                .as_deref()
                .and_then(|text| durations::milliseconds(text).ok()),
            percent: number(percent),
        };
        self.0.access_log = (log != AccessLog::default()).then_some(log);
    }

    /// Returns a message for each invalid field, starting with its name.
    pub(super) fn set_all(&mut self, settings: &EdgeSettings) -> Vec<String> {
        let EdgeSettings {
            preset,
            request_timeout,
            request_headers_timeout,
            stream_idle_timeout,
            connection_idle_timeout,
            tls_handshake_timeout,
            udp_session_timeout,
            max_request_headers_kib,
            max_request_headers,
            upgrades,
            max_response_headers_kib,
            max_response_headers,
            max_connection_age,
            max_connection_requests,
            keepalive_interval,
            max_concurrent_streams,
            connection_buffer_kib,
            client_address,
            proxy_protocol,
            http3: of_http3,
            forward_client_certificate,
            // Read by `set_words`.
            escaped_slashes: _,
            repeated_slashes: _,
            header_underscores: _,
            other_upgrades: _,
            http10: _,
            header_case: _,
            expect_continue: _,
            trailing_dots: _,
            request_id: _,
            server_header: _,
            via_header: _,
        } = settings;
        let mut wrong = self.set_preset(preset.as_ref());
        wrong.extend(self.set_words(settings));
        let number = |number: &Option<i32>| number.map(|number| number.to_string());
        for (name, value) in [
            ("request-timeout", request_timeout.clone()),
            ("request-headers-timeout", request_headers_timeout.clone()),
            ("stream-idle-timeout", stream_idle_timeout.clone()),
            ("connection-idle-timeout", connection_idle_timeout.clone()),
            ("tls-handshake-timeout", tls_handshake_timeout.clone()),
            ("udp-session-timeout", udp_session_timeout.clone()),
            ("max-connection-age", max_connection_age.clone()),
            ("keepalive-interval", keepalive_interval.clone()),
            ("upgrades", upgrades.as_ref().map(|it| it.join(","))),
            ("max-request-headers-kib", number(max_request_headers_kib)),
            ("max-request-headers", number(max_request_headers)),
            ("max-response-headers-kib", number(max_response_headers_kib)),
            ("max-response-headers", number(max_response_headers)),
            ("max-connection-requests", number(max_connection_requests)),
            ("max-concurrent-streams", number(max_concurrent_streams)),
            ("connection-buffer-kib", number(connection_buffer_kib)),
        ] {
            wrong.extend(value.and_then(|value| self.set_field(name, &value).err()));
        }
        // Only validated here, because a snapshot stores these settings in its ports.
        let client_address = client_address.as_ref().map(client_addresses::read);
        wrong.extend(client_address.and_then(Result::err));
        let proxy_protocol = proxy_protocol.as_ref().map(clients::proxy_protocol);
        wrong.extend(proxy_protocol.and_then(Result::err));
        let of_http3 = of_http3.as_ref().map(http3::is_enabled);
        wrong.extend(of_http3.and_then(Result::err));
        if let Some(settings) = forward_client_certificate {
            wrong.extend(clients::forward_certificates(&mut self.0, settings).err());
        }
        wrong
    }

    fn set_preset(&mut self, preset: Option<&EdgePreset>) -> Vec<String> {
        match presets::values(preset) {
            Ok(values) => values
                .iter()
                .filter_map(|(name, value)| self.set_field(name, value).err())
                .collect(),
            Err(why) => vec![why],
        }
    }

    fn set_words(&mut self, of: &EdgeSettings) -> Vec<String> {
        let wrong = [
            self.set_word("escaped-slashes", of.escaped_slashes.as_ref()),
            self.set_word("repeated-slashes", of.repeated_slashes.as_ref()),
            self.set_word("header-underscores", of.header_underscores.as_ref()),
            self.set_word("other-upgrades", of.other_upgrades.as_ref()),
            self.set_word("http10", of.http10.as_ref()),
            self.set_word("header-case", of.header_case.as_ref()),
            self.set_word("expect-continue", of.expect_continue.as_ref()),
            self.set_word("trailing-dots", of.trailing_dots.as_ref()),
            self.set_word("request-id", of.request_id.as_ref()),
            self.set_word("server-header", of.server_header.as_ref()),
            self.set_word("via-header", of.via_header.as_ref()),
        ];
        wrong.into_iter().flatten().collect()
    }

    fn set_word<T: OpenEnum + Display>(&mut self, name: &str, value: Option<&T>) -> Option<String> {
        let value = value?;
        if let Some((other, words)) = value.unknown() {
            return Some(clients::unknown(&camel_case(name), other, words));
        }
        // Values are capitalized in configurations, but not in annotations.
        self.set_field(name, &value.to_string().to_lowercase())
            .err()
    }

    /// `name` is the setting's name in annotations.
    fn set_field(&mut self, name: &str, value: &str) -> Result<(), String> {
        set(&mut self.0, name, value).map_err(|why| format!("{}: {why}", camel_case(name)))
    }

    /// Applies annotations and records them as sources. Returns a message for each invalid
    /// annotation.
    pub(super) fn annotate(
        &mut self,
        annotations: &Labels,
        sources: &mut BTreeMap<String, String>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, value) in annotations.iter() {
            let Some(name) = key.strip_prefix(PREFIX) else {
                continue;
            };
            // Other settings read these.
            if [rollout::APPROVAL, rollout::COMMAND, ACME_KEY].contains(&key) {
                continue;
            }
            match set(&mut self.0, name, value) {
                Ok(()) => {
                    let source = format!("metadata.annotations[{PREFIX}{name}]");
                    sources.insert(format!("spec.edge.{}", camel_case(name)), source);
                }
                Err(why) => wrong.push(format!(
                    "metadata.annotations[{PREFIX}{}]: {why}",
                    excerpt(name)
                )),
            }
        }
        wrong
    }
}

/// Returns the configuration field that an annotation overrides.
fn camel_case(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut all, word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        all.push_str(&first.to_uppercase());
        all.push_str(rest);
        all
    })
}

fn set(edge: &mut Edge, name: &str, value: &str) -> Result<(), String> {
    let time = || durations::milliseconds(value).map(Some);
    match name {
        "escaped-slashes" => edge.set_escaped_slashes(one_of(
            value,
            &[
                ("redirect", EscapedSlashes::Redirect),
                ("reject", EscapedSlashes::Reject),
                ("unescape", EscapedSlashes::Unescape),
                ("keep", EscapedSlashes::Keep),
            ],
        )?),
        "repeated-slashes" => {
            edge.keep_repeated_slashes = one_of(value, &[("merge", false), ("keep", true)])?;
        }
        "header-underscores" => edge.set_header_underscores(one_of(
            value,
            &[
                ("reject", Underscores::RejectRequest),
                ("drop", Underscores::DropHeader),
                ("allow", Underscores::Allow),
            ],
        )?),
        "request-timeout" => edge.request_timeout_ms = time()?,
        "request-headers-timeout" => edge.request_headers_timeout_ms = time()?,
        "stream-idle-timeout" => edge.stream_idle_timeout_ms = time()?,
        "connection-idle-timeout" => edge.connection_idle_timeout_ms = time()?,
        "tls-handshake-timeout" => edge.tls_handshake_timeout_ms = time()?,
        "udp-session-timeout" => match time()? {
            Some(0) => return Err("sessions must end; expected a value such as \"30s\"".to_owned()),
            time => edge.udp_session_timeout_ms = time,
        },
        "max-request-headers-kib" => {
            edge.max_request_headers_kib = Some(number(value, 1..=MAX_HEADER_KIB)?);
        }
        "max-request-headers" => edge.max_request_headers = Some(number(value, 1..=MAX_HEADERS)?),
        "upgrades" => {
            let (mut spdy, mut tcp) = (false, false);
            for protocol in value.split(',').map(str::trim).filter(|it| !it.is_empty()) {
                match one_of(
                    protocol,
                    &[("SPDY/3.1", Upgrade::Spdy), ("tcp", Upgrade::Tcp)],
                )? {
                    Upgrade::Spdy => spdy = true,
                    Upgrade::Tcp => tcp = true,
                }
            }
            (edge.upgrades_to_spdy, edge.upgrades_to_tcp) = (spdy, tcp);
        }
        _ => return set_connections(edge, name, value),
    }
    Ok(())
}

/// Settings of connections, protocol details and headers.
fn set_connections(edge: &mut Edge, name: &str, value: &str) -> Result<(), String> {
    match name {
        "other-upgrades" => {
            edge.reject_other_upgrades = one_of(value, &[("ignore", false), ("reject", true)])?;
        }
        "http10" => edge.reject_http10 = one_of(value, &[("accept", false), ("reject", true)])?,
        "header-case" => {
            edge.preserve_header_case = one_of(value, &[("lowercase", false), ("preserve", true)])?;
        }
        "expect-continue" => {
            edge.answer_expect = one_of(value, &[("forward", false), ("answer", true)])?;
        }
        "trailing-dots" => {
            edge.reject_trailing_dot = one_of(value, &[("remove", false), ("reject", true)])?;
        }
        "request-id" => edge.set_request_id(one_of(
            value,
            &[
                ("generate", RequestId::Generate),
                ("keep", RequestId::KeepOrGenerate),
                ("off", RequestId::Leave),
            ],
        )?),
        "server-header" => edge.set_server_header(one_of(
            value,
            &[
                ("keep", ServerHeader::FromBackend),
                ("add", ServerHeader::AddIfMissing),
                ("replace", ServerHeader::Overwrite),
            ],
        )?),
        "via-header" => {
            edge.append_via = one_of(value, &[("omit", false), ("append", true)])?;
        }
        "max-response-headers-kib" => {
            edge.max_response_headers_kib = Some(number(value, 1..=MAX_HEADER_KIB)?);
        }
        "max-response-headers" => edge.max_response_headers = Some(number(value, 1..=MAX_HEADERS)?),
        "max-connection-age" => edge.max_connection_age_ms = durations::milliseconds(value)?,
        "max-connection-requests" => {
            edge.max_connection_requests = number(value, 1..=MAX_CONNECTION_REQUESTS)?;
        }
        "keepalive-interval" => match durations::milliseconds(value)? {
            1..MIN_KEEPALIVE_MS => {
                return Err(format!("{:?}: expected 0s, or at least 1s", excerpt(value)));
            }
            time => edge.keepalive_interval_ms = time,
        },
        "max-concurrent-streams" => {
            edge.max_concurrent_streams = Some(number(value, 1..=MAX_STREAMS)?);
        }
        "connection-buffer-kib" => edge.connection_buffer_kib = Some(number(value, BUFFER_KIB)?),
        _ => {
            return Err(
                "is unknown and has no effect; see the table of edge defaults in docs/hardening.md"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

fn one_of<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let known = words.iter().find(|(word, _)| *word == value);
    known.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{:?} is not one of {}", excerpt(value), words.join(", "))
    })
}

fn number(value: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    match value.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!(
            "{:?} is not a number from {} to {}",
            excerpt(value),
            range.start(),
            range.end()
        )),
    }
}

pub(super) fn excerpt(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(MAX_REPORTED)
        .map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::api::EscapedSlashesAction;

    fn of(pairs: &[(&str, &str)]) -> (Option<Edge>, Vec<String>) {
        let annotations = pairs
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), *value));
        let mut edge = EdgeDefaults::default();
        let wrong = edge.annotate(&annotations.collect(), &mut BTreeMap::new());
        (edge.difference(), wrong)
    }

    #[test]
    fn each_takes_the_place_of_one_default() {
        let (edge, wrong) = of(&[
            ("escaped-slashes", "keep"),
            ("repeated-slashes", "keep"),
            ("header-underscores", "drop"),
            ("stream-idle-timeout", "0s"),
            ("max-request-headers", "500"),
            ("upgrades", "tcp, SPDY/3.1"),
        ]);
        assert_eq!(wrong, Vec::<String>::new());
        let edge = edge.unwrap();
        assert_eq!(edge.escaped_slashes(), EscapedSlashes::Keep);
        assert_eq!(edge.header_underscores(), Underscores::DropHeader);
        assert!(edge.keep_repeated_slashes);
        assert_eq!(edge.stream_idle_timeout_ms, Some(0));
        assert_eq!(edge.max_request_headers, Some(500));
        assert_eq!(edge.request_timeout_ms, None);
        assert!(edge.upgrades_to_spdy && edge.upgrades_to_tcp);
    }

    #[test]
    fn explicit_defaults_equal_implicit_ones() {
        let defaults = [
            ("escaped-slashes", "redirect"),
            ("repeated-slashes", "merge"),
            ("header-underscores", "reject"),
        ];
        assert_eq!(of(&defaults), (None, Vec::new()));
        assert_eq!(of(&[]), (None, Vec::new()));
    }

    #[test]
    fn invalid_annotations_change_nothing_and_are_reported() {
        for (name, value, words) in [
            (
                "escaped-slashes",
                "Keep",
                "redirect, reject, unescape, keep",
            ),
            ("request-timeout", "1d", "is not a duration"),
            ("udp-session-timeout", "0s", "must end"),
            ("max-request-headers-kib", "0", "from 1 to 8192"),
            ("http10", "serve", "accept, reject"),
            ("header-case", "Proper", "lowercase, preserve"),
            ("expect-continue", "off", "forward, answer"),
            ("other-upgrades", "pass", "ignore, reject"),
            ("trailing-dots", "keep", "remove, reject"),
            ("request-id", "on", "generate, keep, off"),
            ("server-header", "nginx", "keep, add, replace"),
            ("via-header", "1.1 proxy", "omit, append"),
            ("max-response-headers-kib", "8193", "from 1 to 8192"),
            ("max-response-headers", "-1", "from 1 to 10000"),
            ("max-connection-age", "-1s", "is not a duration"),
            ("max-connection-requests", "0", "from 1 to 1000000000"),
            ("keepalive-interval", "999ms", "at least 1s"),
            ("max-concurrent-streams", "10001", "from 1 to 10000"),
            ("connection-buffer-kib", "3", "from 4 to 1024"),
            ("preset", "contour", "is unknown"),
            ("upgrades", "SPDY/3.1,h2c", "SPDY/3.1, tcp"),
            ("merge-slashes", "false", "is unknown"),
        ] {
            let (edge, wrong) = of(&[(name, value)]);
            assert_eq!(edge, None, "{name}");
            let [wrong] = wrong.as_slice() else {
                panic!("{name}: {wrong:?}");
            };
            assert!(wrong.contains(name) && wrong.contains(words), "{wrong}");
        }
    }

    #[test]
    fn annotations_override_equivalent_fields() {
        let settings = EdgeSettings {
            escaped_slashes: Some(EscapedSlashesAction::Keep),
            request_timeout: Some("5m".to_owned()),
            max_request_headers: Some(7),
            upgrades: Some(vec!["SPDY/3.1".to_owned()]),
            ..EdgeSettings::default()
        };
        let mut edge = EdgeDefaults::default();
        assert_eq!(edge.set_all(&settings), Vec::<String>::new());
        let annotations = [(format!("{PREFIX}escaped-slashes"), "redirect")];
        let mut sources = BTreeMap::new();
        let wrong = edge.annotate(&annotations.into_iter().collect(), &mut sources);
        assert_eq!(wrong, Vec::<String>::new());
        let edge = edge.difference().unwrap();
        assert_eq!(edge.escaped_slashes(), EscapedSlashes::Redirect);
        assert_eq!(edge.request_timeout_ms, Some(300_000));
        assert_eq!(edge.max_request_headers, Some(7));
        assert!(edge.upgrades_to_spdy && !edge.upgrades_to_tcp);
        assert_eq!(
            sources["spec.edge.escapedSlashes"],
            "metadata.annotations[projectsesame.io/escaped-slashes]"
        );
    }
}
