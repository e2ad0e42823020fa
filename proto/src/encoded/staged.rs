//! Identifies the staged part of a revision: a snapshot without the parts that reach all hosts at once.

use sha2::{Digest as _, Sha256};

use super::EncodedSnapshot;
use super::entry::write_list;
use crate::keys::hex;
use crate::rollout::DIGITS;
use crate::schema::Snapshot;
use crate::schema::shared_filter::Kind;
use crate::wire::numbers::snapshot::BACKENDS;
use prost::Message as _;

impl EncodedSnapshot {
    /// Returns hex digits that identify the snapshot, except what
    /// [`with_material_of`](Self::with_material_of) replaces, and the settings of the rollout.
    pub fn staged_digest(&self) -> String {
        let mut rest = Snapshot {
            keys: Vec::new(),
            trust_bundles: Vec::new(),
            rollout: None,
            ..self.rest().clone()
        };
        for filter in &mut rest.shared_filters {
            if let Some(Kind::Tokens(policy)) = &mut filter.kind {
                for provider in &mut policy.providers {
                    provider.jwks.clear();
                }
            }
        }
        let mut hash = Sha256::new();
        hash.update(rest.encode_to_vec());
        let mut write = |bytes: &[u8]| hash.update(bytes);
        for table in &*self.route_tables {
            table.write(&mut write);
        }
        write_list(BACKENDS, &*self.backends, &mut write);
        let mut digest = hex(&hash.finalize());
        digest.truncate(DIGITS);
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{
        Endpoint, EndpointSet, KeyRef, Rollout, RouteTable, SharedFilter, TokenPolicy,
        TokenProvider, TrustBundle,
    };

    fn digest(change: impl Fn(&mut Snapshot)) -> String {
        let mut snapshot = Snapshot {
            gateway: "Gateway/ns/edge".to_owned(),
            endpoints: vec![EndpointSet::default()],
            keys: vec![KeyRef::default()],
            trust_bundles: vec![TrustBundle::default()],
            shared_filters: vec![SharedFilter {
                name: "policy".to_owned(),
                kind: Some(Kind::Tokens(TokenPolicy {
                    providers: vec![TokenProvider::default()],
                    ..TokenPolicy::default()
                })),
            }],
            ..Snapshot::default()
        };
        change(&mut snapshot);
        EncodedSnapshot::new(&snapshot, Vec::new()).staged_digest()
    }

    #[test]
    fn material_and_rollout_settings_start_no_rollout() {
        let before = digest(|_| {});
        let tokens = |snapshot: &mut Snapshot, change: fn(&mut TokenPolicy)| {
            if let Some(Kind::Tokens(policy)) = &mut snapshot.shared_filters[0].kind {
                change(policy);
            }
        };
        for change in [
            (|it| it.endpoints[0].endpoints.push(Endpoint::default())) as fn(&mut Snapshot),
            |it| it.keys[0].digest = "new".to_owned(),
            |it| it.trust_bundles[0].pem = "new".to_owned(),
            |it| it.rollout = Some(Rollout::default()),
        ] {
            assert_eq!(digest(change), before);
        }
        assert_eq!(
            digest(|it| tokens(it, |policy| policy.providers[0].jwks = "new".to_owned())),
            before
        );
        assert_ne!(
            digest(|it| tokens(it, |policy| policy.report_only = true)),
            before
        );
        assert_ne!(
            digest(|it| it.route_tables.push(RouteTable::default())),
            before
        );
        assert_ne!(digest(|it| it.addresses.push("::1".to_owned())), before);
    }
}
