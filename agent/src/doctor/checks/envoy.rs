//! Checks the Envoy binary.

use crate::doctor::facts::{EnvoyFacts, HostFacts};
use crate::doctor::{FindingSeverity, HostFinding};

pub(super) fn envoy(facts: &HostFacts) -> HostFinding {
    match &facts.envoy {
        Ok(EnvoyFacts { path, version, .. }) => HostFinding::ok(
            "envoy", format!("{} is Envoy {version}", path.display()),
        ),
        Err(why) => HostFinding::error("envoy", why.clone())
            .expected("an Envoy binary that runs on this host")
            .remedy(
                "install the sesame-envoy package, or set `envoy:` in the settings to an Envoy binary",
            ),
    }
}

pub(super) fn hot_restart(facts: &HostFacts) -> HostFinding {
    let finding = |weight, found: String| HostFinding::new("hot-restart", weight, found);
    let Ok(EnvoyFacts {
        hot_restart,
        shared_memory,
        ..
    }) = &facts.envoy
    else {
        return finding(FindingSeverity::Note, "unknown without an Envoy".to_owned());
    };
    match (hot_restart, shared_memory) {
        (Ok(protocol), Ok(())) => finding(FindingSeverity::Ok, format!("possible, protocol {protocol}")),
        (Err(why), _) | (_, Err(why)) => finding(FindingSeverity::Warning, why.clone())
            .expected("hot restarts; without them Envoy is replaced by handover, which resets its statistics")
            .remedy("let the agent's user write to /dev/shm, and free some space there; ls -ld /dev/shm; df /dev/shm"),
    }
}
