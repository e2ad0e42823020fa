//! Tests how password checks by the agent are rendered.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use prost::Message as _;
use serde_json::{Value, json};
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{AddressFilter, AddressRange};

use super::credentials::changed_credential_filters;
use super::everything::EVERY_CREDENTIAL;
use super::parts::options;
use crate::http::passwords::{self, AgentUsers};
use crate::limits::Limits;

#[test]
fn agent_checks_bcrypt_after_all_other_filters() {
    let users = "ann:$2y$04$abcdefghijklmnopqrstuujZkTwHUiJ9XdZPwKfcfDo7dMp5DjlTu\n";
    let (filters, problems) = changed_credential_filters(|keys| {
        let mut pairs = keys.iter_mut();
        let pair = pairs.find(|it| it.name == EVERY_CREDENTIAL[0]).unwrap();
        pair.private_key = users.into();
    });
    let names: Vec<&Value> = filters.iter().map(|it| &it["name"]).collect();
    assert_eq!(
        names,
        [
            "envoy.filters.http.api_key_auth",
            "envoy.filters.http.set_metadata",
            "envoy.filters.http.match_delegate",
        ]
    );
    let check = &filters[2]["typed_config"]["extension_config"]["typed_config"];
    assert_eq!(check["failure_mode_allow"], Value::Null);
    let digest = KeyPair {
        private_key: users.into(),
        ..KeyPair::default()
    };
    let path = format!("/{}:x-user", digest.digest());
    assert_eq!(check["http_service"]["path_override"], json!(path));
    assert_eq!(problems, [""; 0]);
}

#[test]
fn connections_to_the_agent_fit_into_the_reserve() {
    let mut with_few_files = options();
    with_few_files.limits = Limits::new(512, 1 << 30).unwrap();
    for (host, expected) in [(options(), 128), (with_few_files, 64)] {
        let resource = passwords::cluster(&host);
        let cluster = Cluster::decode(&*resource.bytes).unwrap();
        let breakers = cluster.circuit_breakers.unwrap();
        let most = breakers.thresholds[0].max_connections.unwrap();
        assert_eq!(most.value, expected);
    }
}

#[test]
fn exempt_clients_bypass_only_their_own_checks() {
    let users = |digest: &str, exempt: Option<&str>| AgentUsers {
        digest: digest.to_owned(),
        username_header: String::new(),
        exempt: exempt.map(|network| AddressFilter {
            name: "Ingress/ns/a/source-range".to_owned(),
            allow: vec![AddressRange {
                network: network.to_owned(),
                peer: false,
            }],
            deny: Vec::new(),
        }),
    };
    let checking = |sets: &[AgentUsers]| {
        let filters = passwords::checking(sets)?;
        Ok::<_, String>(filters.into_iter().map(|it| it.name).collect::<Vec<_>>())
    };
    let plain = "envoy.filters.http.ext_authz";
    let matched = "envoy.filters.http.match_delegate";
    let network = Some("192.0.2.0/24");
    assert_eq!(checking(&[]).unwrap(), [""; 0]);
    assert_eq!(checking(&[users("a", None)]).unwrap(), [plain]);
    assert_eq!(checking(&[users("a", network)]).unwrap(), [matched]);
    let both = [users("a", network), users("b", None)];
    assert_eq!(checking(&both).unwrap(), [matched, matched]);
    for bad in [Some("a/8"), Some("198.51.100.0/24")] {
        assert!(checking(&[users("a", bad), users("b", network)]).is_err());
    }
    let mut all_clients = users("a", network);
    all_clients.exempt = Some(AddressFilter::default());
    assert!(checking(&[all_clients]).is_err());
}
