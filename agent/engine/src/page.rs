//! Renders the status page. It reveals nothing about a key except the name of its Secret.

use jiff::Timestamp;
use sesame_http_server::page::{Cell, Page, Rows};
use sesame_kinds::status::{AgentState, conditions_of};
use sesame_proto::digest::short;

use super::certificates::{CertificateReport, CertificateRole};
use super::events::HostEvent;
use super::report::{GatewayReport, ObjectReport, Report, health};

/// Maximum number of events on the page, newest first.
const MAX_EVENTS: usize = 30;
/// Remaining lifetime below which a certificate is highlighted.
const EXPIRES_SOON_SECONDS: i64 = 14 * 86_400;

pub(super) struct PageFacts<'a> {
    pub(super) report: &'a Report,
    pub(super) certificates: &'a [CertificateReport],
    pub(super) events: &'a [HostEvent],
    pub(super) now: Timestamp,
}

pub(super) fn page(facts: &PageFacts<'_>) -> Page {
    let PageFacts {
        report,
        certificates,
        events,
        now,
    } = facts;
    let mut page = Page::new("Sesame");
    summary(&mut page, report, *now);
    let mut rows = Rows::default();
    for one in &report.gateways {
        rows.add(one.state != AgentState::Serving, || gateway(one));
    }
    let headings = [
        "Gateway",
        "State",
        "Addresses",
        "Wanted",
        "Applied",
        "Since",
        "Envoy",
    ];
    page.table("Gateways", headings, rows);
    let mut rows = Rows::default();
    for gateway in &report.gateways {
        for refused in &gateway.refused {
            rows.add(true, || {
                [
                    gateway.gateway.as_str().into(),
                    Cell::Bad(refused.to_string()),
                    refused.since.to_string().into(),
                ]
            });
        }
    }
    let headings = ["Gateway", "Part", "Since"];
    page.table("Rejected by Envoy, and left out", headings, rows);
    let mut rows = Rows::default();
    for object in &report.objects {
        conditions(&mut rows, object);
    }
    let headings = ["Object", "Part", "Condition", "Reason", "Message"];
    page.table("Objects", headings, rows);
    let mut rows = Rows::default();
    for leaf in certificates
        .iter()
        .filter(|it| it.role == CertificateRole::Leaf)
    {
        let is_due = leaf.not_after.as_second() - now.as_second() < EXPIRES_SOON_SECONDS;
        rows.add(is_due, || certificate(leaf, is_due));
    }
    let headings = ["Certificate", "Gateway", "Names", "Expires", "Used by"];
    page.table("Certificates", headings, rows);
    let mut rows = Rows::default();
    for one in events.iter().rev().take(MAX_EVENTS) {
        rows.add(false, || one.cells().map(Cell::from));
    }
    page.table("Events", ["Time", "Event", "Gateway", "About"], rows);
    page
}

fn summary(page: &mut Page, report: &Report, now: Timestamp) {
    let unready = health::unready(report);
    if unready.is_empty() {
        page.paragraph(Cell::Good("This host serves.".to_owned()));
    } else {
        page.paragraph(Cell::Bad("This host is not ready.".to_owned()));
        page.list(&unready);
    }
    if report.healthy {
        page.paragraph(Cell::Good("No problems.".to_owned()));
    } else {
        page.paragraph(Cell::Bad("Problems:".to_owned()));
        page.list(&report.reasons);
    }
    if !report.warnings.is_empty() {
        page.paragraph("Warnings:");
        page.list(&report.warnings);
    }
    let source = &report.source;
    let title = source.title();
    page.paragraph(match (source.available, source.reason.as_str()) {
        (true, _) => Cell::Plain(format!("Source: {title}")),
        (false, "") => Cell::Bad(format!("Source: {title}, which cannot be read")),
        (false, why) => Cell::Bad(format!("Source: {title}: {why}")),
    });
    let problems: Vec<String> = source.problems.iter().map(ToString::to_string).collect();
    page.list(&problems);
    let agent = &report.agent;
    page.paragraph(format!(
        "Agent {}, process {}, since {:.0}; page generated at {now:.0}",
        agent.version, agent.pid, agent.started
    ));
}

fn revision<'a>(revision: &'a str, digest: &'a str) -> &'a str {
    short(if revision.is_empty() {
        digest
    } else {
        revision
    })
}

fn gateway(gateway: &GatewayReport) -> [Cell; 7] {
    let state = match gateway.message.as_str() {
        "" => gateway.state.to_string(),
        why => format!("{}: {why}", gateway.state),
    };
    let applied = revision(&gateway.applied_revision, &gateway.applied);
    [
        gateway.gateway.as_str().into(),
        Cell::good_unless(gateway.state != AgentState::Serving, state),
        gateway.addresses.join(", ").into(),
        revision(&gateway.wanted_revision, &gateway.wanted).into(),
        Cell::plain_unless(gateway.wanted != gateway.applied, applied),
        gateway
            .applied_at
            .map_or_else(String::new, |at| format!("{at:.0}"))
            .into(),
        format!("{} {}", gateway.envoy.version, gateway.envoy.state).into(),
    ]
}

fn conditions(rows: &mut Rows<5>, object: &ObjectReport) {
    let parts = [object.kind.as_str(), &object.namespace, &object.name];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let name = parts.join("/");
    for condition in conditions_of(&object.status) {
        let is_fault = condition.is_fault();
        let value = format!("{}={}", condition.type_, condition.status);
        rows.add(is_fault, || {
            [
                name.as_str().into(),
                condition.section.into(),
                Cell::good_unless(is_fault, value),
                condition.reason.into(),
                condition.message.into(),
            ]
        });
    }
}

fn certificate(leaf: &CertificateReport, is_due: bool) -> [Cell; 5] {
    [
        leaf.object.as_str().into(),
        leaf.gateway.as_str().into(),
        leaf.names.join(", ").into(),
        Cell::plain_unless(is_due, format!("{:.0}", leaf.not_after)),
        leaf.used_by.join(", ").into(),
    ]
}
