//! Parses and filters access log lines.
//!
//! Never trust a line: clients choose some of its fields.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};

/// Parsed line of a JSON access log. A field that the line omits is `None`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LogEntry {
    /// Start of the request or connection.
    pub time: Option<Timestamp>,
    /// Total duration of the request or connection.
    pub duration_ms: Option<u64>,
    /// Durations of consecutive stages, which add up to `duration_ms`.
    pub before_backend_ms: Option<u64>,
    /// Time that sending the last attempt's request took.
    pub upload_ms: Option<u64>,
    /// Time from the end of the upload until the response started.
    pub backend_ms: Option<u64>,
    /// Time from the start of the response until the client had received it.
    pub download_ms: Option<u64>,
    /// Included in `before_backend_ms`.
    #[serde(deserialize_with = "number_as_text")]
    pub authorization_us: Option<u64>,
    /// Response time of the listener's first `ExternalAuth` service.
    /// Included in `before_backend_ms`.
    #[serde(deserialize_with = "number_as_text")]
    pub listener_authorization_us: Option<u64>,
    /// HTTP status, or 0 if the client disconnected before the response.
    /// `None` for TCP, TLS and UDP.
    pub status: Option<u16>,
    /// The request's Host header, chosen by the client and truncated to 256 bytes.
    pub host: Option<String>,
    /// HTTP method, chosen by the client and truncated to 32 bytes.
    pub method: Option<String>,
    /// The route's rule and match, such as `HTTPRoute/shop/cart/rules/0/matches/0`.
    pub route: Option<String>,
    /// The backend, such as `Service/shop/cart/80`.
    pub backend: Option<String>,
    /// Address and port of the endpoint, such as `10.1.0.7:8080`.
    pub backend_address: Option<String>,
    /// Number of attempts to reach the backend, including the first.
    pub attempts: Option<u64>,
    /// Envoy's response flags, separated by commas, or `-` if there are none.
    pub response_flags: Option<String>,
}

impl LogEntry {
    /// Returns `None` for invalid or truncated JSON.
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Returns the time at which the request ended; `time` is its start.
    pub fn ended(&self) -> Option<Timestamp> {
        let took = i64::try_from(self.duration_ms.unwrap_or(0)).ok()?;
        self.time?
            .checked_add(SignedDuration::from_millis(took))
            .ok()
    }

    /// Returns the individual response flags, without the placeholder `-`.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        let flags = self.response_flags.as_deref().unwrap_or("-");
        flags
            .split(',')
            .filter(|flag| !flag.is_empty() && *flag != "-")
    }
}

/// Envoy writes filter state as strings, even if it is numeric.
fn number_as_text<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<String>::deserialize(input)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// A line must match every field. Empty lists match everything.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    /// Statuses and classes of statuses, of which any may match.
    pub statuses: Vec<StatusPattern>,
    /// Patterns for `LogEntry::route`, of which any may match.
    pub routes: Vec<ObjectPattern>,
    /// Patterns for `LogEntry::backend`, of which any may match.
    pub backends: Vec<ObjectPattern>,
    /// The request's Host header, with or without a port.
    pub host: Option<String>,
    /// Earliest time at which the request or connection ended.
    pub since: Option<Timestamp>,
    /// Minimum duration of the request or connection.
    pub slow: Option<SignedDuration>,
}

impl LogFilter {
    /// Returns true if no filter is set, so every line matches.
    pub fn is_everything(&self) -> bool {
        let Self {
            statuses,
            routes,
            backends,
            host,
            since,
            slow,
        } = self;
        statuses.is_empty()
            && routes.is_empty()
            && backends.is_empty()
            && host.is_none()
            && since.is_none()
            && slow.is_none()
    }

    /// Returns true if the entry matches all filters.
    /// An entry without a filtered field does not match.
    pub fn chooses(&self, entry: &LogEntry) -> bool {
        let Self {
            statuses,
            routes,
            backends,
            host,
            since,
            slow,
        } = self;
        let named = |patterns: &[ObjectPattern], name: Option<&String>| {
            patterns.is_empty()
                || name.is_some_and(|name| patterns.iter().any(|pattern| pattern.names(name)))
        };
        let has_status = statuses.is_empty()
            || entry
                .status
                .is_some_and(|status| statuses.iter().any(|pattern| pattern.is_of(status)));
        let is_slow = slow.is_none_or(|least| {
            let took = entry.duration_ms.and_then(|took| i64::try_from(took).ok());
            took.is_some_and(|took| SignedDuration::from_millis(took) >= least)
        });
        let asked = |host: &String| {
            let logged_host = entry.host.as_deref().unwrap_or_default();
            let name = logged_host
                .rsplit_once(':')
                .map_or(logged_host, |(name, _)| name);
            logged_host.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(host)
        };
        has_status
            && is_slow
            && named(routes, entry.route.as_ref())
            && named(backends, entry.backend.as_ref())
            && host.as_ref().is_none_or(asked)
            && since.is_none_or(|since| entry.ended().is_some_and(|ended| ended >= since))
    }
}

/// HTTP status, or class of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPattern {
    /// Envoy logs 0 if the client disconnected before the response.
    Exactly(u16),
    /// First digit of the status, such as 5 for 5xx.
    Class(u16),
}

impl StatusPattern {
    /// Parses a status (0 or 100 to 599) or a class (`1xx` to `5xx`).
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected a status such as 404, or a class such as 5xx".to_owned();
        let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
        let number = class.unwrap_or(text).parse().map_err(|_| expected())?;
        match (class.is_some(), number) {
            (true, 1..=5) => Ok(Self::Class(number)),
            (false, 0 | 100..=599) => Ok(Self::Exactly(number)),
            _ => Err(expected()),
        }
    }

    fn is_of(self, status: u16) -> bool {
        match self {
            Self::Exactly(exactly) => status == exactly,
            Self::Class(class) => status / 100 == class,
        }
    }
}

/// Prefix of a logged object's name; the kind is optional: `shop/cart`,
/// `HTTPRoute/shop/cart/rules/0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPattern(Vec<String>);

impl ObjectPattern {
    /// Parses `NAMESPACE/NAME` or `KIND/NAMESPACE/NAME`, optionally with more parts.
    /// Fails for empty parts, and for characters that no name contains.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = text.split('/').map(str::to_owned).collect();
        if parts.len() < 2 || parts.iter().any(String::is_empty) {
            return Err("expected NAMESPACE/NAME, or KIND/NAMESPACE/NAME".to_owned());
        }
        let is_name_character = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '/' | '.' | '-' | ':')
        };
        if let Some(other) = text.chars().find(|it| !is_name_character(*it)) {
            return Err(format!("{other:?} is not allowed in an object's name"));
        }
        Ok(Self(parts))
    }

    /// Returns true if `object` begins with the pattern's parts. Ignores the kind's case.
    pub fn names(&self, object: &str) -> bool {
        let parts: Vec<&str> = object.split('/').collect();
        let begins = |parts: &[&str], is_kind: bool| {
            self.0.len() <= parts.len()
                && self
                    .0
                    .iter()
                    .zip(parts)
                    .enumerate()
                    .all(|(index, (one, other))| {
                        one == other || (is_kind && index == 0 && one.eq_ignore_ascii_case(other))
                    })
        };
        begins(&parts, true) || parts.get(1..).is_some_and(|named| begins(named, false))
    }
}

impl fmt::Display for ObjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> LogEntry {
        LogEntry::read(
            r#"{"time":"2026-01-02T03:04:05.500Z","duration_ms":1500,"status":503,"host":"A.test:8080","method":"GET",
                "route":"HTTPRoute/shop/cart/rules/0/matches/1","backend":"Service/shop/cart/80","response_flags":"UF,URX","more":[1]}"#,
        )
        .unwrap()
    }

    #[test]
    fn every_condition_has_to_hold() {
        let of = |text: &str| vec![ObjectPattern::parse(text).unwrap()];
        let status = |text: &str| vec![StatusPattern::parse(text).unwrap()];
        let slow = |text: &str| Some(text.parse().unwrap());
        let since = |text: &str| Some(text.parse().unwrap());
        let all = LogFilter::default;
        let chosen = [
            LogFilter {
                statuses: status("5xx"),
                routes: of("shop/cart"),
                ..all()
            },
            LogFilter {
                statuses: status("503"),
                backends: of("service/shop/cart/80"),
                ..all()
            },
            LogFilter {
                routes: of("HTTPRoute/shop/cart/rules/0"),
                slow: slow("1.5s"),
                ..all()
            },
            LogFilter {
                host: Some("a.test".to_owned()),
                since: since("2026-01-02T03:04:07Z"),
                ..all()
            },
            all(),
        ];
        let others = [
            LogFilter {
                statuses: status("4xx"),
                ..all()
            },
            LogFilter {
                statuses: status("5xx"),
                routes: of("shop/car"),
                ..all()
            },
            LogFilter {
                routes: of("shop/cart/rules/1"),
                ..all()
            },
            LogFilter {
                backends: of("cart/80"),
                ..all()
            },
            LogFilter {
                slow: slow("2s"),
                ..all()
            },
            LogFilter {
                since: since("2026-01-02T03:04:08Z"),
                ..all()
            },
            LogFilter {
                host: Some("b.test".to_owned()),
                ..all()
            },
        ];
        assert!(chosen.iter().all(|filter| filter.chooses(&entry())));
        for filter in others {
            assert!(!filter.chooses(&entry()), "{filter:?}");
            assert!(!filter.chooses(&LogEntry::default()), "{filter:?}");
        }
        assert_eq!(entry().flags().collect::<Vec<_>>(), ["UF", "URX"]);
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        for text in ["6xx", "0xx", "99", "600", "x", "", "xx"] {
            assert!(StatusPattern::parse(text).is_err(), "{text}");
        }
        for text in ["cart", "/cart", "shop/", ""] {
            assert!(ObjectPattern::parse(text).is_err(), "{text}");
        }
    }
}
