//! Host reports for the decisions of rollouts.

use std::collections::{BTreeMap, BTreeSet};

use super::Agents;
use crate::publish::ReportedHost;
use crate::report::fleet::patience;
use crate::report::liveness::ClockReading;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::AgentState;
use sesame_proto::rollout::HostReport;
use sesame_published::names::is_pod;
use sesame_published::{GatewayAgent, GatewayAgentStatus};

/// Maximum number of failures per host, enough to explain a decision.
const MAX_FAILURES: usize = 8;

impl Agents {
    /// `gateways` are the published Gateways.
    pub(in crate::report) fn rollout_hosts<'g>(
        &self,
        gateways: impl Iterator<Item = &'g NamespacedName>,
        now: ClockReading,
    ) -> BTreeMap<NamespacedName, Vec<ReportedHost>> {
        let hosts = |gateway: &NamespacedName| {
            let agents = self.by_gateway.get(gateway).into_iter().flatten();
            let hosts = agents.filter_map(|(name, agent)| {
                let status = agent.status.as_ref()?;
                if is_pod(&agent.spec.host) && status.state == AgentState::Down {
                    return None;
                }
                let silence = self.liveness.silence(name, now);
                let is_lost = silence > patience(status, self.lost_after);
                Some(host(agent, status, is_lost))
            });
            (gateway.clone(), hosts.collect())
        };
        gateways.map(hosts).collect()
    }
}

fn host(agent: &GatewayAgent, status: &GatewayAgentStatus, is_lost: bool) -> ReportedHost {
    let refused = status.refused.iter();
    let refused = refused.map(|it| format!("Envoy rejects {}", it.object));
    let closed = status.refused_listeners.iter();
    let closed = closed.map(|it| format!("{} is not open", it.name));
    let unshown = status.unshown_certificates.iter();
    let unshown = unshown.map(|it| format!("{} does not present a certificate", it.listener));
    let mut failures: BTreeSet<String> = refused
        .chain(closed)
        .chain(unshown)
        .take(MAX_FAILURES)
        .collect();
    if status.state == AgentState::Down {
        failures.insert("its Envoy is down".to_owned());
    }
    let is_refusal = status.state == AgentState::Degraded
        && !status.draining
        && !status.held
        && status.wanted_revision != status.applied_revision;
    ReportedHost {
        report: HostReport {
            name: agent.spec.host.clone(),
            zone: status.zone.clone(),
            is_lost,
            has_applied: false,
            has_refused: false,
            failures,
            deaths: status.envoy_deaths,
            traffic: status.traffic.unwrap_or_default().into(),
        },
        wanted: status.wanted_revision.clone(),
        applied: status.applied_revision.clone(),
        refusal: is_refusal.then(|| status.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_published::GatewayAgentSpec;

    #[test]
    fn held_or_draining_host_refuses_nothing() {
        let refusal = |held, draining| {
            let agent = GatewayAgent::new("a", GatewayAgentSpec::default());
            let status = GatewayAgentStatus {
                state: AgentState::Degraded,
                message: "held".to_owned(),
                wanted_revision: "new".to_owned(),
                applied_revision: "old".to_owned(),
                held,
                draining,
                ..GatewayAgentStatus::default()
            };
            host(&agent, &status, false).refusal
        };
        assert_eq!(refusal(false, false), Some("held".to_owned()));
        assert_eq!(refusal(true, false), None);
        assert_eq!(refusal(false, true), None);
    }
}
