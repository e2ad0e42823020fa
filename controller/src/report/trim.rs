//! Reduces a GatewayAgent to the data needed for statuses and the status page. A host controls the
//! size of its reports, and an old CRD might not limit it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use crate::watch::{Json, Keep};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::decode::from_value;
use sesame_published::{
    GatewayAgent, GatewayAgentSpec, GatewayAgentStatus, MAX_ENTRIES, MAX_REPORTED_ADDRESSES,
    MAX_RULES, MAX_TEXT, RefusedObject, STATUS_MANAGER,
};

/// Maximum total size of the names and reasons in one report, in bytes. A single condition message
/// may use a quarter of it.
const MAX_BYTES: usize = 16 * 1024;
const MAX_GATEWAY: usize = 317;
const MAX_HOST: usize = 253;
const MAX_WORD: usize = 64;
/// Number of rejected objects to keep, enough for the decisions of rollouts.
const MAX_REFUSED: usize = 8;

/// `None` if the report cannot be decoded.
#[derive(Clone)]
pub(super) struct TrimmedReport(pub(super) Option<GatewayAgent>);

impl Keep for TrimmedReport {
    fn keep(NamespacedName { name, .. }: &NamespacedName, json: Json) -> Self {
        let managed = json.managed.map(serde_json::from_value);
        let managed: Vec<ManagedFieldsEntry> = managed.and_then(Result::ok).unwrap_or_default();
        match from_value::<GatewayAgent>(json.value) {
            Ok(agent)
                if agent.spec.gateway.len() > MAX_GATEWAY || agent.spec.host.len() > MAX_HOST =>
            {
                tracing::warn!(
                    agent = name,
                    "skipping a GatewayAgent: its Gateway name or host name is too long"
                );
                Self(None)
            }
            Ok(agent) => Self(Some(trim(name.clone(), agent, managed))),
            Err(error) => {
                tracing::warn!(agent = name, %error, "cannot decode a GatewayAgent; skipping it");
                Self(None)
            }
        }
    }
}

fn trim(name: String, agent: GatewayAgent, managed: Vec<ManagedFieldsEntry>) -> GatewayAgent {
    let GatewayAgent {
        metadata: _,
        spec:
            GatewayAgentSpec {
                gateway,
                host,
                fleet: _,
            },
        status,
    } = agent;
    let written = managed.into_iter();
    let written = written.filter(|entry| entry.manager.as_deref() == Some(STATUS_MANAGER));
    let written = written.max_by(|a, b| {
        let time = |entry: &ManagedFieldsEntry| entry.time.as_ref().map(|time| time.0);
        time(a).cmp(&time(b))
    });
    GatewayAgent {
        metadata: ObjectMeta {
            name: Some(name),
            managed_fields: written.map(|entry| {
                vec![ManagedFieldsEntry {
                    manager: entry.manager,
                    time: entry.time,
                    ..ManagedFieldsEntry::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        spec: GatewayAgentSpec {
            gateway,
            host,
            fleet: String::new(),
        },
        status: status.map(trim_status),
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "it destructures every field, so that none is forgotten"
)]
fn trim_status(status: GatewayAgentStatus) -> GatewayAgentStatus {
    let GatewayAgentStatus {
        state,
        message,
        wanted_revision,
        applied_revision,
        applied_at: _,
        envoy_version: _,
        agent_version: _,
        zone,
        cores: _,
        memory_mib: _,
        addresses,
        open_ports: _,
        draining,
        unusable_addresses,
        refused_listeners,
        unshown_certificates,
        refused_routes,
        refused,
        next_certificate_expiry,
        report_seconds,
        traffic,
        envoy_deaths,
        held,
        heartbeat,
    } = status;
    let mut left = MAX_BYTES;
    let mut fits = |bytes: usize| {
        let fits = bytes <= left;
        left = if fits { left - bytes } else { 0 };
        fits
    };
    GatewayAgentStatus {
        state,
        wanted_revision: short(&wanted_revision, MAX_WORD),
        applied_revision: short(&applied_revision, MAX_WORD),
        addresses: few(addresses, MAX_REPORTED_ADDRESSES)
            .filter(|address| address.len() <= MAX_WORD)
            .collect(),
        zone: short(&zone, MAX_HOST),
        draining,
        report_seconds,
        traffic,
        envoy_deaths,
        held,
        unusable_addresses: few(unusable_addresses, MAX_ENTRIES)
            .map(|mut unusable| {
                unusable.reason = short(&unusable.reason, MAX_TEXT);
                unusable
            })
            .take_while(|unusable| fits(unusable.address.len() + unusable.reason.len()))
            .collect(),
        refused_listeners: few(refused_listeners, MAX_ENTRIES)
            .map(|mut refused| {
                refused.reason = short(&refused.reason, MAX_TEXT);
                refused
            })
            .take_while(|refused| fits(refused.name.len() + refused.reason.len()))
            .collect(),
        unshown_certificates: few(unshown_certificates, MAX_ENTRIES)
            .map(|mut unshown| {
                unshown.reason = short(&unshown.reason, MAX_TEXT);
                unshown
            })
            .take_while(|unshown| fits(unshown.listener.len() + unshown.reason.len()))
            .collect(),
        refused_routes: few(refused_routes, MAX_ENTRIES)
            .map(|mut refused| {
                for rules in [&mut refused.rules, &mut refused.backends] {
                    *rules = few(std::mem::take(rules), MAX_RULES).collect();
                    for rule in rules {
                        rule.reason = short(&rule.reason, MAX_TEXT);
                    }
                }
                refused
            })
            .take_while(|refused| {
                let rules = refused.rules.iter().chain(&refused.backends);
                // A rule takes memory even without a reason.
                fits(refused.route.len() + rules.map(|rule| rule.reason.len() + 32).sum::<usize>())
            })
            .collect(),
        // Rollouts compare only the names.
        refused: few(refused, MAX_REFUSED)
            .map(|refused| RefusedObject {
                object: short(&refused.object, MAX_TEXT),
                ..RefusedObject::default()
            })
            .take_while(|refused| fits(refused.object.len()))
            .collect(),
        // Count the message last: it is the first to be dropped, because it is only shown to users.
        message: Some(short(&message, MAX_TEXT))
            .filter(|message| fits(message.len()))
            .unwrap_or_default(),
        next_certificate_expiry,
        heartbeat,
        ..GatewayAgentStatus::default()
    }
}

fn few<T>(all: Vec<T>, most: usize) -> impl Iterator<Item = T> {
    all.into_iter().take(most)
}

/// Copies, because a slice would keep the whole string in memory.
fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::watch::Received;

    fn trimmed(object: serde_json::Value) -> Option<GatewayAgent> {
        let received: Received<TrimmedReport> = serde_json::from_value(object).expect("an object");
        received.kept.0
    }

    fn keep(status: &serde_json::Value) -> Option<GatewayAgent> {
        let object = json!({
            "metadata": {"name": "default.edge.a", "annotations": {"note": "x".repeat(100_000)},
                "managedFields": [
                    {"manager": "kubectl", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:x": {}}},
                    {"manager": STATUS_MANAGER, "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:x": {}}},
                ]},
            "spec": {"gateway": "default/edge", "host": "a", "fleet": "f".repeat(1000)},
            "status": status,
        });
        trimmed(object)
    }

    #[test]
    fn large_report_is_trimmed_to_little() {
        let rules: Vec<_> = (0..1000)
            .map(|rule| json!({"rule": rule, "reason": "r".repeat(100_000)}))
            .collect();
        let all = |entry: serde_json::Value| vec![entry; 1000];
        let agent = keep(&json!({
            "state": "Serving", "message": "m".repeat(100_000),
            "appliedRevision": "1".repeat(1000),
            "addresses": vec!["192.0.2.1"; 1000],
            "unusableAddresses": all(json!({"address": "a".repeat(100), "reason": "r".repeat(5000)})),
            "refusedListeners": all(json!({"name": "n".repeat(100), "reason": "r".repeat(5000)})),
            "refusedRoutes": [{"route": "HTTPRoute/a/b", "rules": rules, "works": true}],
            "refused": all(json!({"object": "o", "effect": "e", "envoyWords": "w".repeat(1000)})),
        }))
        .expect("the report can be decoded");
        let kept = serde_json::to_string(&agent).expect("JSON").len();
        assert!(kept < 2 * MAX_BYTES, "{kept}");
        let status = agent.status.expect("a status");
        assert_eq!(status.unusable_addresses.len(), 14);
        assert_eq!(status.addresses.len(), MAX_REPORTED_ADDRESSES);
    }

    #[test]
    fn ordinary_report_keeps_all_that_statuses_need() {
        let status = json!({
            "state": "Degraded", "message": "it refused a part",
            "wantedRevision": "ba9876543210", "appliedRevision": "0123456789ab",
            "nextCertificateExpiry": "2026-02-01T00:00:00Z", "addresses": ["192.0.2.1"],
            "unusableAddresses": [{"address": "192.0.2.9", "reason": "not here"}],
            "refusedListeners": [{"name": "Gateway/default/edge/listeners/http", "reason": "taken"}],
            "refusedRoutes": [{"route": "HTTPRoute/default/app", "rules": [{"rule": 0, "reason": "bad"}],
                "backends": [{"rule": 1, "reason": "worse"}], "works": true}],
            "heartbeat": "2026-01-01T00:00:00Z",
        });
        let agent = keep(&status).expect("the report can be decoded");
        let kept = serde_json::to_value(agent.status).expect("JSON");
        for (field, value) in status.as_object().expect("an object") {
            assert_eq!(kept[field], *value, "{field}");
        }
        let managed = agent.metadata.managed_fields.expect("managed fields");
        assert_eq!(managed.len(), 1);
        assert!(managed[0].time.is_some() && managed[0].fields_v1.is_none());
    }

    fn anything() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|value| json!(value)),
            any::<i64>().prop_map(|value| json!(value)),
            ".{0,40}".prop_map(|value| json!(value)),
        ];
        let names = prop::sample::select(vec![
            "metadata",
            "name",
            "managedFields",
            "manager",
            "time",
            "spec",
            "gateway",
            "host",
            "fleet",
            "status",
            "state",
            "addresses",
            "refusedListeners",
            "refusedRoutes",
            "route",
            "rules",
            "rule",
            "backends",
            "reason",
            "works",
            "unusableAddresses",
            "address",
            "heartbeat",
        ]);
        leaf.prop_recursive(5, 64, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(|all| json!(all)),
                prop::collection::btree_map(names.clone(), inner, 0..8).prop_map(|all| json!(all)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_object_is_read_or_skipped_within_bounds(object in anything(), status in anything()) {
            let _ = trimmed(object);
            if let Some(agent) = keep(&status) {
                let kept = serde_json::to_string(&agent).expect("JSON").len();
                prop_assert!(kept < 4 * MAX_BYTES, "{kept}");
            }
        }
    }

    #[test]
    fn invalid_report_is_skipped() {
        assert!(keep(&json!({"state": "Sleeping"})).is_none());
        let long = json!({"spec": {"gateway": "a/b", "host": "h".repeat(254), "fleet": ""}});
        assert!(trimmed(long).is_none());
    }
}
