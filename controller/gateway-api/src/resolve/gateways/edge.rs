//! Edge settings: annotations on a Gateway that replace the defaults for its treatment of unknown clients.
//!
//! A value that is not understood changes nothing: the default protects, and the Gateway's Accepted names the annotation.

use sesame_proto::schema::Edge;
use sesame_proto::schema::edge::{EscapedSlashes, Underscores};

use crate::api::Labels;
use crate::resolve::syntax::durations;

const PREFIX: &str = "projectsesame.io/";
/// Most characters of an annotation that is not understood that a message quotes.
const MOST_TOLD: usize = 100;
/// Limits of Envoy.
const MOST_HEADER_KIB: u32 = 8192;
const MOST_HEADERS: u32 = 10_000;

/// Reads the annotations of a Gateway that begin with our prefix. Returns the settings, if any differs from the defaults, and
/// a message for each annotation that is not understood.
pub(crate) fn read(annotations: &Labels) -> (Option<Edge>, Vec<String>) {
    let mut edge = Edge::default();
    let mut wrong = Vec::new();
    for (key, value) in annotations.iter() {
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        if let Err(why) = set(&mut edge, name, value) {
            wrong.push(format!(
                "metadata.annotations[{PREFIX}{}]: {why}",
                told(name)
            ));
        }
    }
    ((edge != Edge::default()).then_some(edge), wrong)
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
            Some(0) => return Err("sessions must end; expected for instance \"30s\"".to_owned()),
            time => edge.udp_session_timeout_ms = time,
        },
        "max-request-headers-kib" => {
            edge.max_request_headers_kib = Some(number(value, MOST_HEADER_KIB)?);
        }
        "max-request-headers" => edge.max_request_headers = Some(number(value, MOST_HEADERS)?),
        _ => {
            return Err(
                "is unknown and has no effect; see the table of edge defaults in docs/security.md"
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
        format!("{:?} is not one of {}", told(value), words.join(", "))
    })
}

fn number(value: &str, most: u32) -> Result<u32, String> {
    match value.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "{:?} is not a number from 1 to {most}",
            told(value)
        )),
    }
}

fn told(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(MOST_TOLD)
        .map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> (Option<Edge>, Vec<String>) {
        let annotations = pairs
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), *value));
        read(&annotations.collect())
    }

    #[test]
    fn each_takes_the_place_of_one_default() {
        let (edge, wrong) = of(&[
            ("escaped-slashes", "keep"),
            ("repeated-slashes", "keep"),
            ("header-underscores", "drop"),
            ("stream-idle-timeout", "0s"),
            ("max-request-headers", "500"),
        ]);
        assert_eq!(wrong, Vec::<String>::new());
        let edge = edge.unwrap();
        assert_eq!(edge.escaped_slashes(), EscapedSlashes::Keep);
        assert_eq!(edge.header_underscores(), Underscores::DropHeader);
        assert!(edge.keep_repeated_slashes);
        assert_eq!(edge.stream_idle_timeout_ms, Some(0));
        assert_eq!(edge.max_request_headers, Some(500));
        assert_eq!(edge.request_timeout_ms, None);
    }

    #[test]
    fn the_defaults_said_aloud_are_the_defaults() {
        let said = [
            ("escaped-slashes", "redirect"),
            ("repeated-slashes", "merge"),
            ("header-underscores", "reject"),
        ];
        assert_eq!(of(&said), (None, Vec::new()));
        assert_eq!(of(&[]), (None, Vec::new()));
    }

    #[test]
    fn what_is_not_understood_changes_nothing_and_is_told() {
        for (name, value, words) in [
            (
                "escaped-slashes",
                "Keep",
                "redirect, reject, unescape, keep",
            ),
            ("request-timeout", "1d", "is not a duration"),
            ("udp-session-timeout", "0s", "must end"),
            ("max-request-headers-kib", "0", "from 1 to 8192"),
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
}
