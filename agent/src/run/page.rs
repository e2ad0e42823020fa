//! The status page: the agent's report for a browser. Pure.
//!
//! It shows the values of `status`, `certs` and `events`, changes nothing, and holds nothing of a
//! key but the name of its Secret.

use jiff::Timestamp;
use sesame_gateway_api::status::{AgentState, conditions_of};
use sesame_http_server::page::{Cell, Page};

use super::certificates::{CertificateReport, CertificateRole};
use super::events::HostEvent;
use super::report::{GatewayReport, ObjectReport, Report, health};

/// Paths of the page.
pub(super) const PAGE_PATHS: [&str; 2] = ["/", "/status"];
/// Seconds between two refreshes by the browser.
pub(super) const REFRESH_SECONDS: u32 = 10;

/// Most events shown, the newest first.
const MOST_EVENTS: usize = 30;
/// Seconds before its expiry from which on a certificate is highlighted.
const SOON: i64 = 14 * 86_400;

/// Everything that the page shows.
pub(super) struct PageFacts<'a> {
    pub(super) report: &'a Report,
    pub(super) certificates: &'a [CertificateReport],
    pub(super) events: &'a [HostEvent],
    pub(super) now: Timestamp,
}

/// Returns the page.
pub(super) fn page(facts: &PageFacts<'_>) -> Page {
    let PageFacts {
        report,
        certificates,
        events,
        now,
    } = facts;
    let mut page = Page::new("Sesame");
    summary(&mut page, report, *now);
    page.heading("Gateways");
    page.table(
        [
            "Gateway",
            "State",
            "Addresses",
            "Wanted",
            "Applied",
            "Since",
            "Envoy",
        ],
        report.gateways.iter().map(gateway).collect(),
    );
    let refused = report.gateways.iter().flat_map(|gateway| {
        gateway.refused.iter().map(|refused| {
            [
                gateway.gateway.as_str().into(),
                Cell::Bad(refused.to_string()),
                refused.since.to_string().into(),
            ]
        })
    });
    let refused: Vec<[Cell; 3]> = refused.collect();
    if !refused.is_empty() {
        page.heading("Refused by Envoy, and left out");
        page.table(["Gateway", "Part", "Since"], refused);
    }
    page.heading("Objects");
    page.table(
        ["Object", "Part", "Condition", "Reason", "Message"],
        report.objects.iter().flat_map(conditions).collect(),
    );
    page.heading("Certificates");
    let leaves = certificates
        .iter()
        .filter(|it| it.role == CertificateRole::Leaf);
    page.table(
        ["Certificate", "Gateway", "Names", "Expires", "Used by"],
        leaves.map(|leaf| certificate(leaf, *now)).collect(),
    );
    page.heading("Events");
    page.table(
        ["Time", "Event", "Gateway", "About"],
        events.iter().rev().take(MOST_EVENTS).map(event).collect(),
    );
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

fn gateway(gateway: &GatewayReport) -> [Cell; 7] {
    let state = match gateway.message.as_str() {
        "" => gateway.state.to_string(),
        why => format!("{}: {why}", gateway.state),
    };
    let short = |digest: &str| digest.chars().take(12).collect::<String>();
    let revision = |revision: &str, digest: &str| match revision {
        "" => short(digest),
        revision => short(revision),
    };
    let applied = revision(&gateway.applied_revision, &gateway.applied);
    [
        gateway.gateway.as_str().into(),
        if gateway.state == AgentState::Serving {
            Cell::Good(state)
        } else {
            Cell::Bad(state)
        },
        gateway.addresses.join(", ").into(),
        revision(&gateway.wanted_revision, &gateway.wanted).into(),
        if gateway.wanted == gateway.applied {
            Cell::Plain(applied)
        } else {
            Cell::Bad(applied)
        },
        gateway
            .applied_at
            .map_or_else(String::new, |at| format!("{at:.0}"))
            .into(),
        format!("{} {}", gateway.envoy.version, gateway.envoy.state).into(),
    ]
}

/// Returns a row for each condition; faults are highlighted.
fn conditions(object: &ObjectReport) -> Vec<[Cell; 5]> {
    let parts = [object.kind.as_str(), &object.namespace, &object.name];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let name = parts.join("/");
    let conditions = conditions_of(&object.status).into_iter();
    let rows = conditions.map(|condition| {
        let said = format!("{}={}", condition.type_, condition.status);
        let said = if condition.is_fault() {
            Cell::Bad(said)
        } else {
            Cell::Good(said)
        };
        [
            name.as_str().into(),
            condition.section.into(),
            said,
            condition.reason.into(),
            condition.message.into(),
        ]
    });
    rows.collect()
}

fn certificate(leaf: &CertificateReport, now: Timestamp) -> [Cell; 5] {
    let expires = format!("{:.0}", leaf.not_after);
    let left = leaf.not_after.as_second() - now.as_second();
    [
        leaf.object.as_str().into(),
        leaf.gateway.as_str().into(),
        leaf.names.join(", ").into(),
        if left < SOON {
            Cell::Bad(expires)
        } else {
            Cell::Plain(expires)
        },
        leaf.used_by.join(", ").into(),
    ]
}

fn event(event: &HostEvent) -> [Cell; 4] {
    let HostEvent {
        number: _,
        time,
        event,
        gateway,
        about,
        message,
        ended,
    } = event;
    let what = if *ended {
        format!("{event} (over)")
    } else {
        event.to_string()
    };
    let more = if *ended { "" } else { message.as_str() };
    let words = [about.as_str(), more];
    let words: Vec<&str> = words.into_iter().filter(|part| !part.is_empty()).collect();
    [
        format!("{time:.0}").into(),
        what.into(),
        gateway.as_str().into(),
        words.join(": ").into(),
    ]
}
