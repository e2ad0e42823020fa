//! Keeping a client on the endpoint that it first got.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
};
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::Cookie;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::{SessionPersistence, session_persistence::Kind};

use super::{headers, wrappers};

/// The filter's name in the connection manager, and the key of a route's configuration.
pub(super) const FILTER: &str = "envoy.filters.http.stateful_session";

/// The route's configuration of the filter.
pub(super) fn render(session: &SessionPersistence) -> Result<Any, String> {
    let SessionPersistence {
        kind,
        cookie_max_age_seconds,
    } = session;
    let refused = |name: &str, reason: &str| format!("session `{name}`: {reason}");
    let state = match kind {
        Some(Kind::Cookie(name)) => {
            headers::check_name(name).map_err(|reason| refused(name, reason))?;
            TypedExtensionConfig {
                name: "envoy.http.stateful_session.cookie".to_owned(),
                typed_config: Some(pack_any(CookieBasedSessionState {
                    cookie: Some(Cookie {
                        name: name.clone(),
                        // Zero is a session cookie, for Envoy as for us.
                        ttl: (*cookie_max_age_seconds > 0)
                            .then(|| {
                                wrappers::milliseconds(cookie_max_age_seconds.saturating_mul(1000))
                            })
                            .flatten(),
                        path: "/".to_owned(),
                        ..Default::default()
                    }),
                })),
            }
        }
        Some(Kind::Header(name)) => {
            headers::check_writable(name).map_err(|reason| refused(name, &reason))?;
            TypedExtensionConfig {
                name: "envoy.http.stateful_session.header".to_owned(),
                typed_config: Some(pack_any(HeaderBasedSessionState { name: name.clone() })),
            }
        }
        None => return Err("session persistence names neither cookie nor header".to_owned()),
    };
    Ok(pack_any(StatefulSessionPerRoute {
        r#override: Some(Override::StatefulSession(StatefulSession {
            session_state: Some(state),
            ..Default::default()
        })),
    }))
}
