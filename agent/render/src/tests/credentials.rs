//! Filters that check passwords and API keys, or inject credentials.

use serde_json::{Value, json};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{CredentialSet, RequestFilters};

use super::everything::{EVERY_CREDENTIAL, EVERY_INJECTED, everything};
use super::parts::options;
use super::shared_filters::{every_credential_check, filtered, printed};
use crate::{dump, render};

/// Returns the filters at a place, and the problems, for a host with only these key pairs.
fn credential_filters(place: &str, is_known: impl Fn(&str) -> bool) -> (Vec<Value>, Vec<String>) {
    changed_filters(place, |keys| keys.retain(|pair| is_known(&pair.name)))
}

pub(super) fn changed_credential_filters(
    change: impl Fn(&mut Vec<KeyPair>),
) -> (Vec<Value>, Vec<String>) {
    changed_filters("credentials", change)
}

fn changed_filters(place: &str, change: impl Fn(&mut Vec<KeyPair>)) -> (Vec<Value>, Vec<String>) {
    let (snapshot, mut keys) = everything();
    change(&mut keys);
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::Nothing).unwrap();
    let filters = printed["filters"].as_array().unwrap();
    let place = filters.iter().find(|it| it["name"] == json!(place));
    let chains = &place.unwrap()["typed_config"]["named_filter_chains"];
    let chains = chains.as_object().unwrap().values();
    let problems = rendered.problems.iter();
    (
        chains
            .flat_map(|it| it["typed_config"].as_array().unwrap().clone())
            .collect(),
        problems.map(|it| it.message.clone()).collect(),
    )
}

#[test]
fn credential_chain_marks_checked_requests() {
    let (filters, _) = credential_filters("credentials", |_| true);
    let names: Vec<&Value> = filters.iter().map(|it| &it["name"]).collect();
    assert_eq!(
        names,
        [
            "envoy.filters.http.api_key_auth",
            "envoy.filters.http.match_delegate",
            "envoy.filters.http.set_metadata",
        ]
    );
    let users = &filters[1]["typed_config"]["extension_config"];
    assert_eq!(users["name"], json!("envoy.filters.http.basic_auth"));
    let keys = &filters[0]["typed_config"]["credentials"];
    assert_eq!(keys[0], json!({"key": "k-app", "client": "app"}));
    let route = RequestFilters {
        credentials: CredentialSet::name(&every_credential_check()),
        ..RequestFilters::default()
    };
    let printed = printed(None, filtered(route)).to_string();
    assert!(printed.contains("sesame.credentials"), "{printed}");
}

#[test]
fn missing_credentials_refuse_requests() {
    for (place, missing) in [
        ("credentials", EVERY_CREDENTIAL[0]),
        ("injected_credential", EVERY_INJECTED),
    ] {
        let (filters, problems) = credential_filters(place, |name| name != missing);
        let [filter] = filters.as_slice() else {
            panic!("{filters:?}");
        };
        let status = &filter["typed_config"]["abort"]["http_status"];
        assert_eq!(status, &json!(500), "{place}");
        let why = "not on this host";
        assert!(problems.iter().any(|it| it.contains(why)), "{problems:?}");
    }
}

#[test]
fn printed_credentials_are_redacted() {
    let (snapshot, keys) = everything();
    let rendered = render(&snapshot, &keys, &options());
    let printed = dump::resources(&rendered, dump::Redact::PrivateKeys).unwrap();
    let printed = printed.to_string();
    for secret in ["k-app", "k-till", "{SHA}", "hush"] {
        assert!(!printed.contains(secret), "{secret}");
    }
    assert!(!printed.contains("Secret/ns/a\"},{\"name\":\"AccessPolicy"));
}
