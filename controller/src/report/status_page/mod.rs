//! Builds the controller's status page. It may contain Secret names, but never any part of a key.

mod hosts;
mod objects;

use jiff::Timestamp;
use sesame_http_server::page::{Cell, Page, Rows};
use sesame_kinds::expiry::{Expiry, ExpiryOf, ExpiryPhase};

use super::agents::Agents;
use super::compose::Reports;
use super::liveness::ClockReading;
use crate::statuses::{ProvisionReport, ResolvedStatuses};

pub(super) struct ReplicaFacts<'a> {
    pub(super) identity: &'a str,
    pub(super) leads: bool,
    pub(super) api_server_answers: bool,
    pub(super) unready: Option<&'a str>,
    /// `None` before the first resolution.
    pub(super) resolved: Option<&'a ResolvedStatuses>,
    pub(super) reports: Reports<'a>,
    pub(super) agents: &'a Agents,
    pub(super) now: ClockReading,
}

pub(super) fn page(facts: &ReplicaFacts<'_>) -> Page {
    let mut page = Page::new("Sesame controller");
    summary(&mut page, facts);
    let Some(resolved) = facts.resolved else {
        return page;
    };
    let (reports, now) = (&facts.reports, facts.now.wall);
    objects::gateways(&mut page, resolved, reports, now);
    problems(&mut page, resolved, reports);
    objects::listeners(&mut page, resolved, reports, now);
    hosts::hosts(&mut page, resolved, facts.agents, facts.now);
    hosts::refused(&mut page, facts.agents, facts.now);
    objects::conditions(&mut page, resolved, reports, now);
    certificates(&mut page, resolved, now);
    page
}

fn summary(page: &mut Page, facts: &ReplicaFacts<'_>) {
    page.paragraph(match facts.unready {
        None => Cell::Good("This replica is ready.".to_owned()),
        Some(why) => Cell::Bad(format!("This replica is not ready: {why}")),
    });
    page.paragraph(if facts.leads {
        "This replica is the leader: it publishes and writes statuses."
    } else {
        "This replica is not the leader and writes nothing; see the leader's page for problems with publishing."
    });
    if !facts.api_server_answers {
        page.paragraph(Cell::Bad(
            "The API server does not respond to this replica, so the information below may be outdated."
                .to_owned(),
        ));
    }
    let (identity, version) = (facts.identity, env!("CARGO_PKG_VERSION"));
    page.paragraph(format!(
        "Controller {version}, replica {identity}; page generated at {:.0}",
        facts.now.wall
    ));
}

fn problems(page: &mut Page, resolved: &ResolvedStatuses, reports: &Reports<'_>) {
    let ProvisionReport {
        without_service,
        without_upstream,
        without_fleet,
        released,
    } = reports.provisioned;
    let mut rows = Rows::default();
    for (what, all) in [
        (
            "cannot be published; the previous publication is served",
            &resolved.unpublishable,
        ),
        ("is not published yet", reports.failures),
        ("has no Service", without_service),
        ("has an incomplete second Gateway", without_upstream),
        ("has an incomplete fleet", without_fleet),
        ("has a released fleet", released),
    ] {
        for (gateway, why) in all {
            let row = || {
                [
                    gateway.to_string().into(),
                    what.into(),
                    Cell::Bad(why.clone()),
                ]
            };
            rows.add(true, row);
        }
    }
    page.table("Publishing", ["Gateway", "Problem", "Reason"], rows);
}

fn certificates(page: &mut Page, resolved: &ResolvedStatuses, now: Timestamp) {
    let mut rows = Rows::default();
    for (gateway, expiries) in &resolved.expiries {
        for expiry in expiries {
            let fresh = expiry.phase(now) == ExpiryPhase::Fresh;
            rows.add(!fresh, || {
                let Expiry {
                    name,
                    of,
                    not_before: _,
                    not_after,
                } = expiry;
                let end = Timestamp::from_second(*not_after);
                let end = end.map_or_else(|_| not_after.to_string(), |end| end.to_string());
                [
                    name.as_str().into(),
                    expiry_subject(of).into(),
                    gateway.to_string().into(),
                    Cell::plain_unless(!fresh, end),
                ]
            });
        }
    }
    let headings = ["Object", "What expires", "Gateway", "Expires"];
    page.table("Certificates", headings, rows);
}

fn expiry_subject(of: &ExpiryOf) -> String {
    match of {
        ExpiryOf::Leaf => "certificate".to_owned(),
        ExpiryOf::Authority(subject) => format!("authority {subject}"),
        ExpiryOf::RevocationList(issuer) => format!("revocation list of {issuer}"),
        ExpiryOf::Staple { demanded: _ } => "OCSP response".to_owned(),
    }
}
