//! Gateways served together: if the settings of a Gateway become invalid, the Gateway is still
//! served as before.

use super::gateways_of_a_class::{
    accepted, answer_of, conditions, created, http, message, name, two,
};
use super::{ConditionState, holds, world};
use crate::{Options, resolve};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ConditionType, Reason};
use sesame_kinds::world::{ServedPorts, ServedTogether, World};

/// Replaces `from` with `to` in the younger Gateway, and adds a TCP port. `before` is the result of
/// the previous resolution.
fn refused(from: &str, to: &str, before: &ServedTogether) -> World {
    let listeners = http("new.example.com") + "\n- {name: own, port: 9000, protocol: TCP}";
    let new = created("new", 2, &http("new.example.com"));
    let changed = created("new", 2, &listeners).replacen(from, to, 1);
    let mut world = world(&two("Merged").replace(&new, &changed));
    world.served_together = before.clone();
    world
}

#[test]
fn refused_merged_gateway_keeps_serving_as_before() {
    let parameters = "spec:\n  infrastructure: {parametersRef: {group: projectsesame.io, kind: SesameConfiguration, name: none}}\n";
    let before = resolve(&world(&two("Merged")), &Options::default()).served_together;
    for (from, to, reason) in [
        ("spec:\n", parameters, Reason::InvalidParameters),
        (
            "name: new,",
            "name: new, annotations: {projectsesame.io/request-timeout: 9s},",
            Reason::InvalidParameters,
        ),
        (
            "spec:\n",
            "spec:\n  addresses: [{value: 192.0.2.1}]\n",
            Reason::UnsupportedAddress,
        ),
    ] {
        let mut before = before.clone();
        // In the second round, only `served_together` still describes the state before the change.
        for _ in 0..2 {
            let resolution = resolve(&refused(from, to, &before), &Options::default());
            assert_eq!(accepted(&resolution, "new"), ConditionState::False(reason));
            let why = message(conditions(&resolution, "new"), ConditionType::Accepted);
            assert!(why.contains("until that is fixed"), "{why}");
            let programmed = holds(conditions(&resolution, "new"), ConditionType::Programmed);
            assert_eq!(programmed, ConditionState::Unknown);
            assert!(answer_of(&resolution, "old.example.com").starts_with("web/a"));
            assert!(answer_of(&resolution, "new.example.com").starts_with("web/b"));
            // A new port is not served, because the Gateway's own settings might not allow it.
            let own = &resolution.statuses.gateways[&name("new")].listeners[1].conditions;
            let unavailable = ConditionState::False(Reason::PortUnavailable);
            assert_eq!(holds(own, ConditionType::Accepted), unavailable);
            let services = &resolution.services[&NamespacedName::new("sesame-system", "sesame")];
            assert_eq!(services.ports.len(), 1);
            before = resolution.served_together;
        }
        let mended = resolve(&refused(from, from, &before), &Options::default());
        assert_eq!(accepted(&mended, "new"), ConditionState::True);
        let own = &mended.statuses.gateways[&name("new")].listeners[1].conditions;
        assert_eq!(holds(own, ConditionType::Accepted), ConditionState::True);
    }
}

#[test]
fn served_gateways_are_remembered_by_published_name() {
    let both = resolve(&world(&two("Merged")), &Options::default());
    let [published] = both.gateways.as_slice() else {
        panic!("one snapshot");
    };
    // Controllers and agents restore the ports this way after a restart.
    assert_eq!(
        ServedTogether::of([&published.snapshot]),
        both.served_together
    );
    let alone = resolve(&world(&two("Isolated")), &Options::default());
    assert_eq!(alone.served_together, ServedTogether::default());
    // Ports are also kept while the class's parameters are invalid.
    let mut wrong = world(&two("Sometimes"));
    wrong.served_together = both.served_together.clone();
    let resolution = resolve(&wrong, &Options::default());
    assert_eq!(resolution.served_together, both.served_together);
    // If a Gateway was published under a different name, its ports are not kept.
    let name = NamespacedName::new("sesame-system", "other");
    let other = [(name, ServedPorts::of(&published.snapshot))]
        .into_iter()
        .collect();
    let parameters = "annotations: {projectsesame.io/request-timeout: 9s},";
    let world = refused("name: new,", &format!("name: new, {parameters}"), &other);
    let resolution = resolve(&world, &Options::default());
    assert_eq!(answer_of(&resolution, "new.example.com"), "404");
}
