//! Fetches the key sets (JWKS) of token issuers and the configuration of OpenID providers, and keeps
//! the last good copy of each.
//!
//! A controller or an agent fetches the key sets, never Envoy. If an issuer cannot be reached, its
//! last good copy remains in use for at most [`MAX_AGE`].
//!
//! ```
//! use jiff::Timestamp;
//! use sesame_key_sets::next_copy;
//! use sesame_proto::key_sets::KeySetCopy;
//!
//! let uri = "https://issuer.test/keys";
//! let start = Timestamp::UNIX_EPOCH;
//! let good = next_copy(&KeySetCopy::default(), uri, Ok("{}".to_owned()), start);
//! let later = next_copy(&good, uri, Err("no route to host".to_owned()), start);
//! assert_eq!((later.jwks.as_str(), later.error.as_str()), ("{}", "no route to host"));
//! ```

mod fetch;
mod keeper;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sesame_proto::key_sets::KeySetCopy;

pub use self::fetch::{FetchError, fetch};
pub use self::keeper::{KeySetKeeper, KeySetStore};

/// Maximum age of a usable copy. Keys that an issuer has withdrawn must not stay valid forever.
pub const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum length of a stored error, in characters.
const MAX_ERROR: usize = 300;

const HEARTBEAT: Duration = Duration::from_secs(60 * 60);

/// Returns the updated copy after a fetch at `now`. On success, `fetched` contains the canonical
/// keys.
pub fn next_copy(
    before: &KeySetCopy,
    uri: &str,
    fetched: Result<String, String>,
    now: Timestamp,
) -> KeySetCopy {
    let uri = uri.to_owned();
    let error = match fetched {
        Ok(jwks) => {
            return KeySetCopy {
                uri,
                jwks,
                fetched_at: now.to_string(),
                error: String::new(),
            };
        }
        Err(error) => printable(&error),
    };
    let is_usable = before.uri == uri && !is_too_old(before, now);
    let before = if is_usable {
        before.clone()
    } else {
        KeySetCopy::default()
    };
    KeySetCopy {
        uri,
        error,
        ..before
    }
}

fn expired(copy: &KeySetCopy, now: Timestamp) -> Option<KeySetCopy> {
    let is_expired = !copy.jwks.is_empty() && is_too_old(copy, now);
    let error = match copy.error.as_str() {
        "" => "the key set was not fetched in time",
        error => error,
    };
    is_expired.then(|| next_copy(copy, &copy.uri, Err(error.to_owned()), now))
}

/// Removes control characters, because an error may quote the server's response.
fn printable(error: &str) -> String {
    let characters = error.chars().filter(|it| !it.is_control());
    characters.take(MAX_ERROR).collect()
}

fn is_too_old(copy: &KeySetCopy, now: Timestamp) -> bool {
    age(copy, now).is_none_or(|age| age > MAX_AGE)
}

fn age(copy: &KeySetCopy, now: Timestamp) -> Option<Duration> {
    let fetched_at: Timestamp = copy.fetched_at.parse().ok()?;
    // If the clock was set back, treat the copy as new.
    let age = now.duration_since(fetched_at).max(SignedDuration::ZERO);
    Duration::try_from(age).ok()
}

/// Ignores changes that affect only the error message.
fn must_store(stored: &KeySetCopy, copy: &KeySetCopy, now: Timestamp) -> bool {
    let differs = stored.uri != copy.uri
        || stored.jwks != copy.jwks
        || stored.error.is_empty() != copy.error.is_empty();
    let is_due = copy.error.is_empty() && age(stored, now).is_none_or(|age| age >= HEARTBEAT);
    differs || is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    const URI: &str = "https://issuer.test/keys";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn fetched(jwks: &str, now: Timestamp) -> KeySetCopy {
        next_copy(&KeySetCopy::default(), URI, Ok(jwks.to_owned()), now)
    }

    fn failed(before: &KeySetCopy, now: Timestamp) -> KeySetCopy {
        next_copy(before, URI, Err("refused".to_owned()), now)
    }

    #[test]
    fn good_copy_survives_failures_until_too_old() {
        let good = fetched("keys", at(0));
        let day = 24 * 60 * 60;
        let kept = failed(&failed(&good, at(day)), at(7 * day));
        assert_eq!(
            (kept.jwks.as_str(), kept.error.as_str()),
            ("keys", "refused")
        );
        assert_eq!(kept.fetched_at, good.fetched_at);
        let old = failed(&kept, at(7 * day + 1));
        assert_eq!((old.jwks.as_str(), old.fetched_at.as_str()), ("", ""));
    }

    #[test]
    fn keys_expire_without_a_fetch() {
        let good = fetched("keys", at(0));
        let week = 7 * 24 * 60 * 60;
        assert_eq!(expired(&good, at(week)), None);
        let old = expired(&good, at(week + 1)).unwrap();
        assert_eq!((old.uri.as_str(), old.jwks.as_str()), (URI, ""));
        assert_eq!(old.error, "the key set was not fetched in time");
        assert_eq!(expired(&old, at(week + 2)), None);
    }

    #[test]
    fn error_is_short_and_printable() {
        let error = format!("bad\n{}", "x".repeat(1000));
        let copy = next_copy(&KeySetCopy::default(), URI, Err(error), at(0));
        assert_eq!(copy.error.len(), MAX_ERROR);
        assert!(copy.error.starts_with("badx"));
    }

    #[test]
    fn copy_of_another_uri_is_not_used() {
        let other = next_copy(
            &KeySetCopy::default(),
            "https://other.test",
            Ok("keys".to_owned()),
            at(0),
        );
        assert_eq!(failed(&other, at(1)).jwks, "");
    }

    #[test]
    fn copies_are_stored_when_they_matter() {
        let good = fetched("keys", at(0));
        for (copy, now, expected) in [
            (fetched("keys", at(60)), at(60), false),
            (fetched("keys", at(3600)), at(3600), true),
            (fetched("other", at(60)), at(60), true),
            (failed(&good, at(60)), at(60), true),
        ] {
            assert_eq!(must_store(&good, &copy, now), expected, "{copy:?}");
        }
        let broken = failed(&good, at(60));
        let other = next_copy(&broken, URI, Err("timeout".to_owned()), at(120));
        assert!(!must_store(&broken, &other, at(120)));
        assert!(!must_store(&broken, &other, at(86_400)));
    }
}
