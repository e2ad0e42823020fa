//! Prepares the reports for display to users. Does not decide which reports to accept.

use std::time::Duration;

use super::Agents;
use crate::report::fleet::patience;
use crate::report::liveness::ClockReading;
use crate::report::report_refusal::ReportRefusal;
use sesame_kinds::api::NamespacedName;
use sesame_published::GatewayAgent;

pub(in crate::report) struct ShownReport<'a> {
    pub(in crate::report) gateway: &'a NamespacedName,
    pub(in crate::report) agent: &'a GatewayAgent,
    pub(in crate::report) silence: Duration,
    pub(in crate::report) lost: bool,
}

impl Agents {
    pub(in crate::report) fn shown(
        &self,
        now: ClockReading,
    ) -> impl Iterator<Item = ShownReport<'_>> {
        let all = self.by_gateway.iter();
        let all = all.flat_map(|(gateway, reports)| reports.iter().map(move |it| (gateway, it)));
        all.map(move |(gateway, (name, agent))| {
            let silence = self.liveness.silence(name, now);
            let status = agent.status.as_ref();
            let patience = status.map(|status| patience(status, self.lost_after));
            ShownReport {
                gateway,
                agent,
                silence,
                lost: patience.is_some_and(|patience| silence > patience),
            }
        })
    }

    pub(in crate::report) fn refusals(&self) -> impl Iterator<Item = (&String, &ReportRefusal)> {
        self.refused.iter()
    }
}
