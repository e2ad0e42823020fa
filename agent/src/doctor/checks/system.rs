//! Checks the clock, certificates, the cluster, units and access control.

use crate::doctor::facts::{ClockFacts, ClusterFacts, HostFacts, UnitFacts};
use crate::doctor::{FindingSeverity, HostFinding};

/// Maximum number of seconds that the clock may be behind the last accepted configuration.
const SLACK: i64 = 60;

pub(super) fn clock(facts: &HostFacts) -> HostFinding {
    let ClockFacts {
        now,
        synchronized,
        last_accepted,
    } = facts.clock;
    let remedy = "timedatectl set-ntp true, or start this host's NTP client";
    if let Some(last) = last_accepted
        && now.as_second() + SLACK < last.as_second()
    {
        return HostFinding::error(
            "clock",
            format!("the clock shows {now}, but a configuration was accepted at {last}"),
        )
        .expected(
            "a clock that never goes backwards, because it decides which certificates are valid",
        )
        .remedy(remedy);
    }
    match synchronized {
        Some(true) => HostFinding::ok("clock", "synchronised"),
        Some(false) => {
            HostFinding::warning("clock", format!("not synchronised; the clock shows {now}"))
                .expected("a synchronised clock, because it decides which certificates are valid")
                .remedy(remedy)
        }
        None => HostFinding::note(
            "clock",
            format!("unknown whether it is synchronised; the clock shows {now}"),
        )
        .remedy("compare the clock with another host's"),
    }
}

pub(super) fn certificates(facts: &HostFacts) -> Vec<HostFinding> {
    if facts.certificates.is_empty() {
        let found = format!("none of {} expires soon", facts.certificate_count);
        return vec![HostFinding::ok("certificates", found)];
    }
    let findings = facts.certificates.iter().map(|(refused, message)| {
        let severity = if *refused {
            FindingSeverity::Error
        } else {
            FindingSeverity::Warning
        };
        HostFinding::new("certificates", severity, message.clone())
            .expected("a certificate that does not expire soon")
            .remedy("replace the certificate in the listener's Secret")
    });
    findings.collect()
}

pub(super) fn cluster(facts: &HostFacts) -> Vec<HostFinding> {
    let Some(ClusterFacts {
        unreachable,
        version,
        denied,
        unknown,
    }) = &facts.cluster
    else {
        return Vec::new();
    };
    let finding = |weight, found: String| HostFinding::new("cluster", weight, found);
    if let Some(why) = unreachable {
        // Only a warning, because the agent serves the accepted configuration even without the
        // cluster.
        return vec![
            finding(
                FindingSeverity::Warning,
                format!("the API server cannot be reached: {why}"),
            )
            .expected(
                "a reachable API server; until then the last accepted configuration is served",
            )
            .remedy(
                "check `kubeconfig:` in the settings, the route to the server and its certificate",
            ),
        ];
    }
    let mut findings = vec![finding(
        FindingSeverity::Ok,
        format!("the API server responds ({version})"),
    )];
    if let Some(why) = unknown {
        findings.push(HostFinding::note(
            "cluster-rights",
            format!("unknown permissions: {why}"),
        ));
    } else if denied.is_empty() {
        findings.push(HostFinding::ok(
            "cluster-rights",
            "all permissions are granted",
        ));
    } else {
        findings.push(
            HostFinding::error(
                "cluster-rights",
                format!("not permitted to: {}", denied.join("; ")),
            )
            .expected("the permissions in controller/deploy/agent/rbac.yaml")
            .remedy("grant them in the cluster"),
        );
    }
    findings
}

pub(super) fn units(facts: &HostFacts) -> Vec<HostFinding> {
    let units = facts.units.iter().flatten();
    units
        .filter_map(|unit| {
            let UnitFacts {
                name,
                file_state,
                active_state,
            } = unit;
            let finding = |weight, found: String| HostFinding::new("units", weight, found);
            Some(match (file_state.as_str(), active_state.as_str()) {
                ("", _) => return None,
                (_, "failed") => finding(FindingSeverity::Error, format!("{name} has failed"))
                    .expected("an active unit")
                    .remedy(format!("journalctl -u {name}; systemctl reset-failed {name}; systemctl start {name}")),
                ("enabled" | "static" | "indirect", state) => {
                    finding(FindingSeverity::Ok, format!("{name} is {state}, and starts at boot"))
                }
                (file_state, "active") => finding(
                    FindingSeverity::Warning,
                    format!("{name} is active but {file_state}: it would not start at boot"),
                )
                .expected("an enabled unit")
                .remedy("systemctl enable sesame.target"),
                (file_state, state) => finding(FindingSeverity::Note, format!("{name} is {file_state} and {state}"))
                    .remedy("systemctl enable --now sesame.target"),
            })
        })
        .collect()
}

/// Reports SELinux or AppArmor, which may deny access that owners and modes allow.
pub(super) fn confinement(facts: &HostFacts) -> Option<HostFinding> {
    let words = facts.confinement.as_ref()?;
    Some(HostFinding::note("confinement", words.clone()))
}
