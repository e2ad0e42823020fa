//! Presets of `spec.edge`: the values that other gateways use, by the annotations' names.
//!
//! They cover what clients can notice. Timeouts that protect against slow clients during the TLS
//! handshake and, for Contour, request headers stay, although the other gateways have none.

use super::clients::unknown;
use sesame_kinds::api::EdgePreset;

type Values = &'static [(&'static str, &'static str)];

const CONTOUR: Values = &[
    ("escaped-slashes", "keep"),
    ("header-underscores", "allow"),
    ("other-upgrades", "reject"),
    ("expect-continue", "answer"),
    ("request-id", "keep"),
    ("server-header", "replace"),
    ("connection-idle-timeout", "60s"),
    ("max-response-headers-kib", "60"),
    ("max-response-headers", "100"),
    ("connection-buffer-kib", "1024"),
    // Contour leaves the number to Envoy.
    ("max-concurrent-streams", "1024"),
];

/// nginx routes decoded paths, but forwards them as they are. Forwarding decoded ones is safer.
const NGINX: Values = &[
    ("escaped-slashes", "unescape"),
    ("header-underscores", "drop"),
    ("upgrades", "SPDY/3.1,tcp"),
    ("header-case", "preserve"),
    ("expect-continue", "answer"),
    ("request-id", "keep"),
    ("server-header", "replace"),
    ("request-headers-timeout", "60s"),
    ("stream-idle-timeout", "60s"),
    ("connection-idle-timeout", "75s"),
    ("max-connection-age", "1h"),
    ("max-connection-requests", "1000"),
    ("max-concurrent-streams", "128"),
    ("max-request-headers-kib", "32"),
    ("max-request-headers", "1000"),
];

/// An error starts with the name of the field in `spec.edge`.
pub(super) fn values(preset: Option<&EdgePreset>) -> Result<Values, String> {
    match preset {
        None | Some(EdgePreset::Hardened) => Ok(&[]),
        Some(EdgePreset::Contour) => Ok(CONTOUR),
        Some(EdgePreset::Nginx) => Ok(NGINX),
        Some(EdgePreset::Other(other)) => Err(unknown("preset", other, EdgePreset::WORDS)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::edge::EdgeDefaults;
    use super::*;
    use sesame_kinds::api::{EdgeSettings, UnderscoresAction};

    #[test]
    fn explicit_fields_override_presets() {
        for preset in EdgePreset::WORDS {
            let settings = EdgeSettings {
                preset: Some((*preset).into()),
                header_underscores: Some(UnderscoresAction::Reject),
                ..EdgeSettings::default()
            };
            let mut edge = EdgeDefaults::default();
            assert_eq!(edge.set_all(&settings), Vec::<String>::new());
            let edge = edge.difference();
            assert_eq!(edge.is_none(), *preset == "Hardened");
            assert_eq!(edge.unwrap_or_default().header_underscores, 0);
        }
    }

    #[test]
    fn unknown_preset_is_reported() {
        let found = values(Some(&"Apache".into()));
        let expected = "preset: \"Apache\" is not one of Hardened, Contour, Nginx";
        assert_eq!(found, Err(expected.to_owned()));
    }
}
