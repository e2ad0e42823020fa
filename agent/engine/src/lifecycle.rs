//! Decides which Gateways get an Envoy now, which ones wait, and which lose their Envoy.
//!
//! If two Envoy processes listened on one address, connections would be split between them. So a
//! Gateway waits while a draining Envoy uses one of its addresses, or while its own previous Envoy
//! drains.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_kinds::api::NamespacedName;

use super::addresses::overlap;

#[derive(Debug, Default)]
pub(super) struct LifecycleFacts<'a> {
    /// Gateways in the source, with their addresses.
    pub(super) wanted: BTreeMap<&'a NamespacedName, &'a [IpAddr]>,
    pub(super) running: BTreeMap<&'a NamespacedName, &'a [IpAddr]>,
    /// Gateways of the previous agent, whose Envoys may be running. Empty if the source may still
    /// list them.
    pub(super) unclaimed: BTreeMap<&'a NamespacedName, &'a [IpAddr]>,
    /// Gateways whose Envoy processes have not exited, with their addresses.
    pub(super) draining: BTreeMap<&'a NamespacedName, &'a [IpAddr]>,
}

/// Instances that are not listed remain unchanged.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LifecyclePlan {
    /// Sorted by name.
    pub(super) start: Vec<NamespacedName>,
    /// Sorted by name.
    pub(super) withdraw: Vec<NamespacedName>,
    /// Maps each waiting Gateway to a Gateway that blocks it.
    pub(super) wait: BTreeMap<NamespacedName, NamespacedName>,
}

pub(super) fn plan(facts: &LifecycleFacts<'_>) -> LifecyclePlan {
    let LifecycleFacts {
        wanted,
        running,
        unclaimed,
        draining,
    } = facts;
    let existing = running.iter().chain(unclaimed);
    let unwanted = existing.filter(|(name, _)| !wanted.contains_key(*name));
    let mut plan = LifecyclePlan {
        withdraw: unwanted.clone().map(|(name, _)| (*name).clone()).collect(),
        ..LifecyclePlan::default()
    };
    for (name, addresses) in wanted {
        if running.contains_key(name) {
            continue;
        }
        let mut leaving = draining.iter().chain(unwanted.clone());
        match leaving.find(|(other, held)| *other == name || overlap(held, addresses)) {
            Some((other, _)) => {
                plan.wait.insert((*name).clone(), (*other).clone());
            }
            None => plan.start.push((*name).clone()),
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    type Listed = [(&'static str, &'static [&'static str])];

    fn name(name: &str) -> NamespacedName {
        NamespacedName::new("default", name)
    }

    fn owned(listed: &Listed) -> BTreeMap<NamespacedName, Vec<IpAddr>> {
        let parsed = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        let entries = listed.iter().map(|(key, list)| (name(key), parsed(list)));
        entries.collect()
    }

    fn borrowed(
        owned: &BTreeMap<NamespacedName, Vec<IpAddr>>,
    ) -> BTreeMap<&NamespacedName, &[IpAddr]> {
        let entries = owned.iter().map(|(name, list)| (name, list.as_slice()));
        entries.collect()
    }

    fn planned(wanted: &Listed, running: &Listed, draining: &Listed) -> LifecyclePlan {
        let [wanted, running, draining] = [wanted, running, draining].map(owned);
        plan(&LifecycleFacts {
            wanted: borrowed(&wanted),
            running: borrowed(&running),
            unclaimed: BTreeMap::new(),
            draining: borrowed(&draining),
        })
    }

    fn names(names: &[&str]) -> Vec<NamespacedName> {
        names.iter().map(|text| name(text)).collect()
    }

    #[test]
    fn wanted_gateway_starts_and_running_one_stays() {
        let wanted: &Listed = &[("a", &["10.0.0.1"]), ("b", &["10.0.0.2"])];
        assert_eq!(planned(wanted, &[], &[]).start, names(&["a", "b"]));
        let second = planned(wanted, &[("a", &["10.0.0.1"])], &[]);
        assert_eq!(second.start, names(&["b"]));
        assert_eq!(planned(wanted, wanted, &[]), LifecyclePlan::default());
    }

    #[test]
    fn unwanted_gateway_is_withdrawn() {
        let running: &Listed = &[("a", &["10.0.0.1"]), ("b", &["10.0.0.2"])];
        let plan = planned(&[("a", &["10.0.0.1"])], running, &[]);
        assert_eq!((plan.start, plan.withdraw), (vec![], names(&["b"])));
    }

    #[test]
    fn unclaimed_gateway_is_withdrawn_unless_wanted() {
        let unclaimed = owned(&[("a", &["10.0.0.1"]), ("b", &["10.0.0.2"])]);
        let wanted = owned(&[("a", &["10.0.0.1"]), ("c", &["10.0.0.2"])]);
        let plan = plan(&LifecycleFacts {
            wanted: borrowed(&wanted),
            unclaimed: borrowed(&unclaimed),
            ..LifecycleFacts::default()
        });
        assert_eq!((plan.start, plan.withdraw), (names(&["a"]), names(&["b"])));
        assert_eq!(plan.wait, BTreeMap::from([(name("c"), name("b"))]));
    }

    #[test]
    fn gateway_waits_while_draining_envoy_holds_address() {
        let draining: &Listed = &[("old", &["10.0.0.1"])];
        let plan = planned(&[("new", &["10.0.0.1"])], &[], draining);
        assert_eq!(plan.start, []);
        assert_eq!(plan.wait, BTreeMap::from([(name("new"), name("old"))]));
        let elsewhere = planned(&[("new", &["10.0.0.2"])], &[], draining);
        assert_eq!(elsewhere.start, names(&["new"]));
        let all = planned(&[("new", &["0.0.0.0"])], &[], draining);
        assert_eq!(all.start, []);
        assert_eq!(
            planned(&[("new", &["0.0.0.0"])], &[], &[]).start,
            names(&["new"])
        );
    }

    #[test]
    fn returning_gateway_waits_for_its_own_envoy() {
        let plan = planned(&[("a", &["10.0.0.2"])], &[], &[("a", &[])]);
        assert_eq!(plan.wait, BTreeMap::from([(name("a"), name("a"))]));
    }

    #[test]
    fn running_gateway_ignores_draining_neighbour() {
        let all: &Listed = &[("a", &["0.0.0.0"])];
        let plan = planned(all, all, &[("b", &["0.0.0.0"])]);
        assert_eq!(plan, LifecyclePlan::default());
    }

    #[test]
    fn gateway_taking_over_address_waits_for_previous_owner() {
        let old: &Listed = &[("old", &["10.0.0.1"])];
        let plan = planned(&[("new", &["10.0.0.1"])], old, &[]);
        assert_eq!((plan.start, plan.withdraw), (vec![], names(&["old"])));
        assert_eq!(plan.wait, BTreeMap::from([(name("new"), name("old"))]));
        let elsewhere = planned(&[("new", &["10.0.0.2"])], old, &[]);
        assert_eq!(elsewhere.start, names(&["new"]));
    }
}
