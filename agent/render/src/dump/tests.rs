//! Every kind of rendered resource can be printed.

use super::*;
use crate::http::route_tables::ENCODED_BY_HAND;
use crate::static_bootstrap;
use crate::tests::everything::everything;
use crate::tests::parts::options;

#[test]
fn everything_that_is_rendered_can_be_printed() {
    let (snapshot, keys) = everything();
    let rendered = crate::render(&snapshot, &keys, &options());
    let printed = resources(&rendered, Redact::PrivateKeys).unwrap();
    for (key, resources) in [
        ("listeners", &rendered.listeners),
        ("routes", &rendered.route_tables),
        ("clusters", &rendered.clusters),
        ("endpoints", &rendered.endpoints),
        ("secrets", &rendered.secrets),
    ] {
        assert_eq!(printed[key].as_array().unwrap().len(), resources.len());
    }
    let manager = &printed["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    assert!(
        manager["@type"]
            .as_str()
            .unwrap()
            .ends_with("HttpConnectionManager")
    );
    bootstrap(&crate::bootstrap(&options()), Redact::PrivateKeys).unwrap();
}

#[test]
fn dump_prints_private_keys_only_on_request() {
    let (snapshot, keys) = everything();
    let rendered = crate::render(&snapshot, &keys, &options());
    let static_bootstrap = static_bootstrap(&rendered).unwrap();
    let print = |redact| {
        let resources = resources(&rendered, redact).unwrap();
        let bootstrap = bootstrap(&static_bootstrap, redact).unwrap();
        [resources, bootstrap].map(|value| yaml(&value).unwrap())
    };
    for text in print(Redact::PrivateKeys) {
        assert!(text.contains("BEGIN CERTIFICATE") && !text.contains("PRIVATE KEY"));
    }
    for text in print(Redact::Nothing) {
        assert!(text.contains("PRIVATE KEY"));
    }
    assert!(!format!("{rendered:?}").contains("PRIVATE"));
}

#[test]
fn hand_encoded_fields_match_envoy_api_numbers() {
    let pool = descriptors::pool().unwrap();
    for (message, field, number) in ENCODED_BY_HAND {
        let name = format!("envoy.config.route.v3.{message}");
        let message = pool.get_message_by_name(&name).unwrap();
        assert_eq!(message.get_field_by_name(field).unwrap().number(), number);
    }
}
