//! Reads the session persistence of a rule (experimental channel).

use sesame_proto::field_names::is_cookie_path;
use sesame_proto::schema;
use sha2::{Digest as _, Sha256};

use crate::syntax::durations;
use crate::syntax::header_names;
use crate::syntax::{limits, names};
use sesame_kinds::api::{CookieConfig, SessionCookie, SessionHeader, SessionPersistence};

const AT: &str = "sessionPersistence";

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) session: schema::SessionPersistence,
    pub(crate) note: Option<String>,
}

pub(crate) fn read(spec: &SessionPersistence, route: &str, rule: usize) -> Result<Session, String> {
    use schema::session_persistence::Kind;
    let Shape {
        header,
        name,
        name_field,
        lifetime_type,
        lifetime_field,
        path,
        absolute_timeout,
    } = Shape::of(spec)?;
    let name = match name {
        None => default_name(route, rule),
        Some(name) if name.len() <= MAX_NAME && names::is_token(name) => name.to_owned(),
        Some(name) => {
            return Err(format!(
                "{AT}.{name_field} {name:?} is not a token of at most {MAX_NAME} characters"
            ));
        }
    };
    let timeout = durations::read("sessionPersistence.absoluteTimeout", absolute_timeout)?;
    let seconds = timeout.map(|milliseconds| milliseconds.div_ceil(1000));
    let kind = if header {
        header_names::check_writable(format_args!("{AT}.{name_field}"), &name)?;
        Kind::Header(name)
    } else {
        Kind::Cookie(name)
    };
    let permanent = match lifetime_type {
        None | Some("Session") => false,
        Some("Permanent") => true,
        Some(other) => {
            return Err(format!(
                "{AT}.{lifetime_field} {other:?} is unknown; expected Session or Permanent"
            ));
        }
    };
    let cookie_max_age_seconds = match (permanent, seconds) {
        (true, Some(seconds @ 1..)) => seconds,
        (true, _) => {
            return Err(format!(
                "{AT}.absoluteTimeout is required with {lifetime_field} Permanent"
            ));
        }
        (false, _) => 0,
    };
    let note = (!permanent && seconds.is_some()).then(|| {
        format!(
            "{AT}.absoluteTimeout has no effect without {lifetime_field} Permanent; sessions end with the client's session"
        )
    });
    Ok(Session {
        session: schema::SessionPersistence {
            kind: Some(kind),
            cookie_max_age_seconds,
            cookie_path: read_path(path)?,
        },
        note,
    })
}

const MAX_NAME: usize = 256;

/// Session persistence, whose field names differ between Gateway API releases.
struct Shape<'w> {
    header: bool,
    name: Option<&'w str>,
    name_field: &'static str,
    lifetime_type: Option<&'w str>,
    lifetime_field: &'static str,
    path: Option<&'w str>,
    absolute_timeout: Option<&'w str>,
}

impl<'w> Shape<'w> {
    fn of(spec: &'w SessionPersistence) -> Result<Self, String> {
        let header = is_header(spec)?;
        let SessionPersistence {
            session_name,
            absolute_timeout,
            type_: _,
            cookie_config,
            cookie,
            header: of_header,
        } = spec;
        let config_lifetime = cookie_config.as_ref();
        let config_lifetime =
            config_lifetime.map(|CookieConfig { lifetime_type }| lifetime_type.as_deref());
        let older = Self {
            header,
            name: session_name.as_deref().filter(|name| !name.is_empty()),
            name_field: "sessionName",
            lifetime_type: config_lifetime.flatten(),
            lifetime_field: "cookieConfig.lifetimeType",
            path: None,
            absolute_timeout: absolute_timeout.as_deref(),
        };
        Ok(match (cookie, of_header) {
            (Some(cookie), _) => {
                let SessionCookie {
                    name,
                    path,
                    lifetime_type,
                } = cookie;
                Self {
                    name: name.as_deref(),
                    name_field: "cookie.name",
                    lifetime_type: lifetime_type.as_deref(),
                    lifetime_field: "cookie.lifetimeType",
                    path: path.as_deref(),
                    ..older
                }
            }
            (None, Some(SessionHeader { name })) => Self {
                name: Some(name),
                name_field: "header.name",
                ..older
            },
            (None, None) => older,
        })
    }
}

/// Returns false for type Cookie.
fn is_header(spec: &SessionPersistence) -> Result<bool, String> {
    let refuse = |field: &str, why: &str| Err(format!("{AT}.{field} must not be set {why}"));
    let is_header = match spec.type_.as_deref() {
        None | Some("Cookie") => false,
        Some("Header") => true,
        Some(other) => {
            return Err(format!(
                "{AT}.type {other:?} is unknown; expected Cookie or Header"
            ));
        }
    };
    if spec.cookie.is_some() || spec.header.is_some() {
        for (field, is_set) in [
            ("sessionName", spec.session_name.is_some()),
            ("cookieConfig", spec.cookie_config.is_some()),
        ] {
            if is_set {
                return refuse(field, "with cookie or header, which replace it");
            }
        }
    }
    match (is_header, &spec.cookie, &spec.header, &spec.cookie_config) {
        (true, Some(_), ..) => refuse("cookie", "with type Header"),
        (true, .., Some(_)) => refuse("cookieConfig", "with type Header"),
        (false, _, Some(_), _) => refuse("header", "with type Cookie"),
        _ => Ok(is_header),
    }
}

/// Returns an empty string for the default path `/`.
fn read_path(path: Option<&str>) -> Result<String, String> {
    let Some(path) = path.filter(|path| !path.is_empty() && *path != "/") else {
        return Ok(String::new());
    };
    limits::max_bytes("sessionPersistence.cookie.path", path, limits::MAX_PATH)?;
    if !is_cookie_path(path) {
        return Err(format!(
            "{AT}.cookie.path {path:?} is not supported; expected \"/\" and then letters, digits and -/._~!$&*+,=:@"
        ));
    }
    Ok(path.to_owned())
}

/// The name is the same on every host, and unique to the rule, because rules must not share
/// sessions.
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
                type_: type_.map(Into::into),
                absolute_timeout: timeout.map(Into::into),
                cookie_config: lifetime.map(|l| CookieConfig {
                    lifetime_type: Some(l.into()),
                }),
                ..SessionPersistence::default()
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
    #[test]
    fn the_newer_shape() {
        let read = |type_: &str, cookie: Option<[Option<&str>; 3]>, header: Option<&str>| {
            let owned = |text: Option<&str>| text.map(Box::from);
            let spec = SessionPersistence {
                type_: Some(type_.into()),
                absolute_timeout: Some("1m".into()),
                cookie: cookie.map(|[name, path, lifetime_type]| SessionCookie {
                    name: owned(name),
                    path: owned(path),
                    lifetime_type: owned(lifetime_type),
                }),
                header: header.map(|name| SessionHeader {
                    name: name.to_owned(),
                }),
                ..SessionPersistence::default()
            };
            super::read(&spec, "HTTPRoute/a/b", 0).map(|session| session.session)
        };
        let kept = read(
            "Cookie",
            Some([Some("sid"), Some("/shop"), Some("Permanent")]),
            None,
        );
        let kept = kept.expect("valid");
        assert_eq!(
            kept,
            schema::SessionPersistence {
                kind: Some(schema::session_persistence::Kind::Cookie("sid".to_owned())),
                cookie_max_age_seconds: 60,
                cookie_path: "/shop".to_owned(),
            }
        );
        assert!(read("Cookie", Some([None; 3]), None).is_ok());
        assert!(read("Header", None, Some("x-sid")).is_ok());
        for (type_, cookie, header) in [
            ("Cookie", None, Some("x-sid")),
            ("Header", Some([None; 3]), Some("x-sid")),
            ("Header", None, Some("")),
            ("Header", None, Some("Content-Length")),
            ("Cookie", Some([Some("a b"), None, None]), None),
            ("Cookie", Some([None, Some("shop"), None]), None),
            ("Cookie", Some([None, Some("/a; Domain=b"), None]), None),
            ("Cookie", Some([None, Some("/a\")%"), None]), None),
        ] {
            assert!(read(type_, cookie, header).is_err(), "{type_} {cookie:?}");
        }
        let both = SessionPersistence {
            session_name: Some("sid".into()),
            cookie: Some(SessionCookie::default()),
            ..SessionPersistence::default()
        };
        assert!(super::read(&both, "HTTPRoute/a/b", 0).is_err());
    }
}
