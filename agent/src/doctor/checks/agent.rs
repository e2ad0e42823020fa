//! Checks the agent and its settings.

use crate::doctor::facts::{AgentFacts, HostFacts};
use crate::doctor::{FindingSeverity, HostFinding};

pub(super) fn settings(facts: &HostFacts) -> HostFinding {
    let finding = |weight, found: String| HostFinding::new("settings", weight, found);
    match &facts.settings {
        (None, faults) if faults.is_empty() => finding(
            FindingSeverity::Ok,
            "no settings file; defaults and environment variables apply".to_owned(),
        ),
        (Some(path), faults) if faults.is_empty() => {
            finding(FindingSeverity::Ok, format!("{} is valid", path.display()))
        }
        (_, faults) => finding(FindingSeverity::Error, faults.join("; "))
            .expected("settings that `sesame-agent run` accepts")
            .remedy("fix the file, check it with `sesame-agent validate --config FILE`, then run `sesame-agent reload`"),
    }
}

pub(super) fn agent(facts: &HostFacts) -> HostFinding {
    let AgentFacts {
        pid,
        silent,
        reasons,
        warnings,
    } = &facts.agent;
    let finding = |weight, found: String| HostFinding::new("agent", weight, found);
    match (pid, silent) {
        (Some(pid), Some(why)) => finding(
            FindingSeverity::Error,
            format!("process {pid} is not responding: {why}"),
        )
        .expected("an agent that responds on its socket")
        .remedy("systemctl restart sesame-agent.service; Envoy keeps serving during the restart"),
        (None, Some(why)) => finding(FindingSeverity::Note, format!("cannot be queried: {why}"))
            .remedy("run doctor as root, or as the agent's user"),
        (None, None) => finding(FindingSeverity::Note, "no agent runs".to_owned())
            .remedy("systemctl start sesame.target, or `sesame-agent run`"),
        (Some(pid), None) if !reasons.is_empty() => finding(
            FindingSeverity::Error,
            format!("process {pid} reports: {}", reasons.join("; ")),
        )
        .expected("an agent without problems")
        .remedy("sesame-agent status"),
        (Some(pid), None) if !warnings.is_empty() => finding(
            FindingSeverity::Warning,
            format!("process {pid} reports: {}", warnings.join("; ")),
        )
        .remedy("sesame-agent status"),
        (Some(pid), None) => finding(
            FindingSeverity::Ok,
            format!("process {pid} reports no problems"),
        ),
    }
}

/// Reports if checks were skipped because they must run as the agent's user.
pub(super) fn user(facts: &HostFacts) -> Option<HostFinding> {
    let user = facts.unprivileged_owner.as_ref()?;
    let found = format!(
        "the cluster and port-steering are not checked as root, because the agent runs as {user}"
    );
    let finding = HostFinding::note("agent-user", found);
    Some(finding.remedy(format!("sudo -u '{user}' sesame-agent doctor")))
}
