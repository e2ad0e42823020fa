//! Computes a digest of a report's inputs. Clients request the objects only if the digest has
//! changed.

use std::fmt::Write as _;

use serde::Serialize;
use sesame_proto::digest;

use super::compose::ReportFacts;

pub(super) fn digest(parts: &impl Serialize, facts: &ReportFacts<'_>) -> String {
    let ReportFacts {
        agent: _,
        source: _,
        known,
        resolve: _,
        observed,
        host_addresses,
        hints,
        warnings: _,
        moves_connections,
        now: _,
    } = facts;
    // Serializing plain data cannot fail.
    let mut text = serde_json::to_string(parts).unwrap_or_default();
    let worlds = known.worlds;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{worlds} {host_addresses:?} {hints:?} {moves_connections}"
    );
    for (gateway, observed) in *observed {
        let _ = write!(
            text,
            "{gateway} {:?} {:?} {:?} {:?} {}",
            observed.affected,
            observed.unusable_addresses,
            observed.addresses,
            observed.applied_at,
            observed.live && observed.applied.is_some(),
        );
    }
    digest::sha256(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use sesame_kinds::api::NamespacedName;

    use crate::engine::SourceState;
    use crate::observed::Observed;
    use crate::report::compose::{ReportFacts, report};
    use crate::report::{AgentReport, SourceReport};

    fn inputs(
        known: &SourceState,
        observed: &BTreeMap<NamespacedName, Observed>,
        second: i64,
        with_objects: bool,
    ) -> String {
        let now = Timestamp::from_second(second).unwrap();
        let facts = ReportFacts {
            agent: AgentReport {
                version: "1".to_owned(),
                pid: 7,
                started: Timestamp::UNIX_EPOCH,
                stopping: false,
                keys_at_rest: String::new(),
            },
            source: SourceReport::default(),
            known,
            resolve: &sesame_resolver::Options::default(),
            observed,
            host_addresses: &[],
            hints: Vec::new(),
            warnings: Vec::new(),
            moves_connections: true,
            now,
        };
        report(&facts, with_objects).inputs
    }

    #[test]
    fn input_digest_changes_only_with_worlds_or_observations() {
        let mut known = SourceState::default();
        let mut observed =
            BTreeMap::from([(NamespacedName::new("default", "edge"), Observed::default())]);
        let first = inputs(&known, &observed, 1, true);
        assert_eq!(inputs(&known, &observed, 99, false), first);

        known.worlds += 1;
        let second = inputs(&known, &observed, 1, false);
        assert_ne!(second, first);
        for one in observed.values_mut() {
            let why = "this host does not have this address".to_owned();
            one.unusable_addresses.insert("192.0.2.1".to_owned(), why);
        }
        assert_ne!(inputs(&known, &observed, 1, false), second);
    }
}
