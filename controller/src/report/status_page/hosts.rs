//! Shows hosts on the status page, with the configuration that they serve and reject.

use std::time::Duration;

use sesame_http_server::page::{Cell, Page, Rows};
use sesame_kinds::status::AgentState;
use sesame_proto::digest::short;
use sesame_published::{GatewayAgentStatus, RefusedRule};

use crate::report::agents::Agents;
use crate::report::liveness::ClockReading;
use crate::statuses::ResolvedStatuses;

/// `newest` are the current revisions, which a host might not have read yet.
pub(super) fn hosts(
    page: &mut Page,
    resolved: &ResolvedStatuses,
    agents: &Agents,
    now: ClockReading,
) {
    let mut rows = Rows::default();
    for shown in agents.shown(now) {
        let none = GatewayAgentStatus::default();
        let status = shown.agent.status.as_ref().unwrap_or(&none);
        let newest = resolved.revisions.get(shown.gateway);
        let newest = newest.map_or("", |revision| short(revision));
        let is_well =
            status.state == AgentState::Serving && status.applied_revision == newest && !shown.lost;
        rows.add(!is_well, || {
            let revision = |revision: &str| Cell::plain_unless(revision != newest, revision);
            let expiry = status.next_certificate_expiry;
            [
                shown.agent.spec.host.as_str().into(),
                shown.gateway.to_string().into(),
                state(status, shown.lost),
                newest.into(),
                revision(&status.wanted_revision),
                revision(&status.applied_revision),
                status.addresses.join(", ").into(),
                expiry
                    .map_or_else(String::new, |at| format!("{at:.0}"))
                    .into(),
                age(shown.silence).into(),
            ]
        });
    }
    let headings = [
        "Host",
        "Gateway",
        "State",
        "Newest",
        "Wanted",
        "Applied",
        "Addresses",
        "First certificate expires",
        "Heard of",
    ];
    page.table("Hosts", headings, rows);
    let mut rows = Rows::default();
    for (name, why) in agents.refusals() {
        rows.add(true, || [name.as_str().into(), Cell::Bad(why.to_string())]);
    }
    let heading = "Ignored reports";
    page.table(heading, ["GatewayAgent", "Reason"], rows);
}

fn state(status: &GatewayAgentStatus, lost: bool) -> Cell {
    let mut words = status.state.to_string();
    if status.draining {
        words.push_str(", draining");
    }
    if !status.message.is_empty() {
        words.push_str(": ");
        words.push_str(&status.message);
    }
    if lost {
        Cell::Bad(format!("lost; it was {words}"))
    } else {
        Cell::good_unless(status.state != AgentState::Serving, words)
    }
}

fn age(silence: Duration) -> String {
    match silence.as_secs() {
        seconds @ 0..120 => format!("{seconds}s ago"),
        seconds @ 120..7200 => format!("{}m ago", seconds / 60),
        seconds => format!("{}h ago", seconds / 3600),
    }
}

/// Parts can be missing on the host or rejected by Envoy.
pub(super) fn refused(page: &mut Page, agents: &Agents, now: ClockReading) {
    let mut rows = Rows::default();
    for shown in agents.shown(now) {
        let Some(status) = &shown.agent.status else {
            continue;
        };
        let mut add = |part: String, why: &str| {
            rows.add(true, || {
                [
                    shown.agent.spec.host.as_str().into(),
                    shown.gateway.to_string().into(),
                    part.into(),
                    Cell::Bad(why.to_owned()),
                ]
            });
        };
        for listener in &status.refused_listeners {
            add(listener.name.clone(), &listener.reason);
        }
        for one in &status.unshown_certificates {
            add(format!("certificate of {}", one.listener), &one.reason);
        }
        for address in &status.unusable_addresses {
            add(format!("address {}", address.address), &address.reason);
        }
        for route in &status.refused_routes {
            for RefusedRule { rule, reason } in &route.rules {
                add(format!("{}/rules/{rule}", route.route), reason);
            }
            for RefusedRule { rule, reason } in &route.backends {
                let part = format!("a backend of {}/rules/{rule}", route.route);
                add(part, reason);
            }
        }
    }
    let headings = ["Host", "Gateway", "Part", "Reason"];
    page.table("Left out by hosts", headings, rows);
}
