//! Results of several threads that read parts of the same log.

use std::collections::BTreeMap;

use super::ReplayError;
use super::compare::{GroupKey, GroupTally};
use super::relevance::RequestRelevance;
use super::report::ReplayReport;

/// Counts, and groups of differences.
#[derive(Debug, Default)]
pub(super) struct ReplayTotals {
    pub(super) report: ReplayReport,
    pub(super) groups: BTreeMap<GroupKey, GroupTally>,
    /// A request lacks the query, as far as the log shows.
    pub(super) without_query: bool,
    /// A request lacks the client's address.
    pub(super) without_client: bool,
}

impl ReplayTotals {
    pub(super) fn merge(&mut self, other: Self) {
        let Self {
            report,
            groups,
            without_query,
            without_client,
        } = other;
        self.report.add(report);
        for (key, group) in groups {
            match self.groups.get_mut(&key) {
                Some(known) => known.merge(group),
                None => {
                    self.groups.insert(key, group);
                }
            }
        }
        self.without_query |= without_query;
        self.without_client |= without_client;
    }

    /// Fails if the comparison says nothing. `har` is true for a HAR document.
    pub(super) fn into_report(
        self,
        relevance: &RequestRelevance,
        har: bool,
    ) -> Result<ReplayReport, ReplayError> {
        let mut report = self.report;
        if report.requests == 0 {
            let unreadable = match report.unreadable.count {
                0 => String::new(),
                _ => format!("; {}", report.unreadable),
            };
            return Err(ReplayError::NoRequest(unreadable));
        }
        // A HAR document of a page may consist mostly of embedded data.
        if !har && report.unreadable.count > report.requests + report.connections {
            let unreadable = report.unreadable.to_string();
            return Err(ReplayError::MostlyUnreadable(unreadable));
        }
        if report.unanswered == report.requests {
            return Err(ReplayError::Unanswered(report.requests));
        }
        if report.unrouted == report.requests && report.is_same() {
            return Err(ReplayError::Unrouted(report.requests));
        }
        let groups = self.groups.into_values();
        report.list(groups.map(GroupTally::into_group).collect());
        report.notes = relevance.notes(self.without_query, self.without_client, har);
        Ok(report)
    }
}
