//! Session persistence of a rule (experimental channel).

use sesame_proto::schema;
use sha2::{Digest as _, Sha256};

use crate::api::{CookieConfig, SessionPersistence};
use crate::resolve::filters::headers;
use crate::resolve::syntax::durations;
use crate::resolve::syntax::names;

/// The field of a rule, as messages name it.
const AT: &str = "sessionPersistence";

/// The part that is served, and a note on the part that cannot be.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) session: schema::SessionPersistence,
    pub(crate) note: Option<String>,
}

/// Reads the session persistence of rule `rule` of the route with this provenance; the error names the field
/// below the rule.
pub(crate) fn read(spec: &SessionPersistence, route: &str, rule: usize) -> Result<Session, String> {
    use schema::session_persistence::Kind;
    let SessionPersistence {
        session_name,
        absolute_timeout,
        type_,
        cookie_config,
    } = spec;
    // Each field decides which of the next ones may be set.
    let name = read_name(session_name.as_deref(), route, rule)?;
    let timeout = durations::read(
        "sessionPersistence.absoluteTimeout",
        absolute_timeout.as_deref(),
    )?;
    let seconds = timeout.map(|milliseconds| milliseconds.div_ceil(1000));
    let permanent = cookie_config.as_ref().map(is_permanent).transpose()?;
    let kind = match type_.as_deref() {
        None | Some("Cookie") => Kind::Cookie(name),
        Some("Header") if permanent.is_some() => {
            return Err(format!(
                "{AT}.cookieConfig must not be set with type Header"
            ));
        }
        Some("Header") => {
            headers::check_writable(format_args!("{AT}.sessionName"), &name)?;
            Kind::Header(name)
        }
        Some(other) => {
            return Err(format!(
                "{AT}.type {other:?} is unknown; expected Cookie or Header"
            ));
        }
    };
    let permanent = permanent.unwrap_or_default();
    let cookie_max_age_seconds = match (permanent, seconds) {
        (true, Some(seconds @ 1..)) => seconds,
        (true, _) => {
            return Err(format!(
                "{AT}.absoluteTimeout is required with cookieConfig.lifetimeType Permanent"
            ));
        }
        (false, _) => 0,
    };
    let note = (!permanent && seconds.is_some()).then(|| {
        format!(
            "{AT}.absoluteTimeout has no effect without cookieConfig.lifetimeType Permanent; sessions end with the \
             client's"
        )
    });
    Ok(Session {
        session: schema::SessionPersistence {
            kind: Some(kind),
            cookie_max_age_seconds,
        },
        note,
    })
}

/// Returns the name of the cookie or header: the one that the rule says, or its own.
fn read_name(name: Option<&str>, route: &str, rule: usize) -> Result<String, String> {
    match name.filter(|name| !name.is_empty()) {
        None => Ok(default_name(route, rule)),
        Some(name) if name.len() <= 128 && names::is_token(name) => Ok(name.to_owned()),
        Some(name) => Err(format!(
            "{AT}.sessionName {name:?} is not a token of at most 128 characters"
        )),
    }
}

/// Returns true if the cookie outlives the client.
fn is_permanent(CookieConfig { lifetime_type }: &CookieConfig) -> Result<bool, String> {
    match lifetime_type.as_deref() {
        None | Some("Session") => Ok(false),
        Some("Permanent") => Ok(true),
        Some(other) => Err(format!(
            "{AT}.cookieConfig.lifetimeType {other:?} is unknown; expected Session or Permanent"
        )),
    }
}

/// A name of a rule's own, so that sessions of two rules never mix; the same on every host.
fn default_name(route: &str, rule: usize) -> String {
    let digest = Sha256::digest(format!("{route}/rules/{rule}"));
    let number = digest
        .iter()
        .take(6)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("sesame-session-{number:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes() {
        let spec = |type_: Option<&str>, lifetime: Option<&str>, timeout: Option<&str>| {
            SessionPersistence {
                type_: type_.map(str::to_owned),
                absolute_timeout: timeout.map(str::to_owned),
                cookie_config: lifetime.map(|l| CookieConfig {
                    lifetime_type: Some(l.to_owned()),
                }),
                session_name: None,
            }
        };
        let read = |spec| read(&spec, "HTTPRoute/a/b", 0);
        let permanent = read(spec(None, Some("Permanent"), Some("1h"))).expect("valid");
        assert_eq!(permanent.session.cookie_max_age_seconds, 3600);
        assert!(permanent.note.is_none());
        let session = read(spec(Some("Cookie"), None, Some("1h"))).expect("valid");
        assert_eq!(session.session.cookie_max_age_seconds, 0);
        assert!(session.note.is_some());
        assert!(read(spec(None, Some("Permanent"), None)).is_err());
        assert!(read(spec(Some("Header"), Some("Session"), None)).is_err());
        assert!(read(spec(Some("Token"), None, None)).is_err());
    }
}
