//! Explains how requests are balanced across a backend's endpoints.

use sesame_proto::schema::hash_policy::Kind;
use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::{Backend, HashPolicy, LoadBalancer, ZonePreference};

use super::describe::duration;

/// Returns `None` if the backend has no own settings.
pub(super) fn explained(backend: &Backend) -> Option<String> {
    let balancer = backend.load_balancer.as_deref().map(strategy);
    let preference = backend.zone_preference.map(preferred);
    let parts: Vec<String> = balancer.into_iter().chain(preference).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn strategy(balancer: &LoadBalancer) -> String {
    let LoadBalancer {
        strategy: _,
        slow_start,
        hash_policies,
    } = balancer;
    let hashed = || {
        let values: Vec<String> = hash_policies.iter().filter_map(hashed).collect();
        values.join(", ")
    };
    let text = match balancer.strategy() {
        Strategy::RoundRobin => "round robin".to_owned(),
        Strategy::LeastRequest => "least requests".to_owned(),
        Strategy::Random => "random".to_owned(),
        Strategy::RingHash => format!("ring hash of {}", hashed()),
        Strategy::Maglev => format!("Maglev hash of {}", hashed()),
    };
    match slow_start {
        Some(it) => format!("{text}, with a slow start of {}", duration(it.window_ms)),
        None => text,
    }
}

fn hashed(policy: &HashPolicy) -> Option<String> {
    Some(match policy.kind.as_ref()? {
        Kind::Header(name) => format!("header {name}"),
        Kind::QueryParameter(name) => format!("query parameter {name}"),
        Kind::Cookie(name) => format!("cookie {name}"),
        Kind::SourceAddress(_) => "the client's address".to_owned(),
    })
}

fn preferred(preference: ZonePreference) -> String {
    let ZonePreference { min_endpoints } = preference;
    let condition = match min_endpoints {
        0 | 1 => String::new(),
        least => format!(", if there are at least {least}"),
    };
    format!("endpoints in the host's zone first{condition}")
}

#[cfg(test)]
mod tests {
    use sesame_proto::schema::SlowStart;

    use super::*;

    #[test]
    fn zone_preference_and_strategy_are_explained() {
        let zone = |min_endpoints| Some(ZonePreference { min_endpoints });
        let balancer = |strategy: Strategy| LoadBalancer {
            strategy: strategy.into(),
            ..LoadBalancer::default()
        };
        let hash = |kind| HashPolicy {
            kind: Some(kind),
            ..HashPolicy::default()
        };
        let slow = LoadBalancer {
            slow_start: Some(SlowStart {
                window_ms: 30_000,
                ..SlowStart::default()
            }),
            ..balancer(Strategy::LeastRequest)
        };
        let hashing = LoadBalancer {
            hash_policies: vec![
                hash(Kind::Cookie("shop".to_owned())),
                hash(Kind::SourceAddress(true)),
            ],
            ..balancer(Strategy::Maglev)
        };
        for (load_balancer, zone_preference, expected) in [
            (None, None, None),
            (None, zone(0), Some("endpoints in the host's zone first")),
            (
                Some(slow),
                zone(3),
                Some(
                    "least requests, with a slow start of 30 s; endpoints in the host's zone \
                     first, if there are at least 3",
                ),
            ),
            (
                Some(hashing),
                None,
                Some("Maglev hash of cookie shop, the client's address"),
            ),
        ] {
            let backend = Backend {
                load_balancer: load_balancer.map(Box::new),
                zone_preference,
                ..Backend::default()
            };
            assert_eq!(explained(&backend).as_deref(), expected);
        }
    }
}
