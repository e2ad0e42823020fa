//! `sesame-agent events`: lists recent events on this host.

use std::thread;
use std::time::Duration;

use clap::Args;
use comfy_table::{Table, presets};
use jiff::Timestamp;

use super::agent::{self, AgentArgs};
use super::history::StateArgs;
use super::logs::sentence::plain;
use super::logs::since;
use super::output::Format;
use sesame_engine::events::{self, EVENTS_PATH, HostEvent};

const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Show only events since this time or within this duration: `10m`, `2026-11-23T10:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Keep printing new events.
    #[arg(long, short)]
    watch: bool,
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn main(agent: &AgentArgs, args: &EventsArgs) -> anyhow::Result<u8> {
    let EventsArgs {
        since,
        watch,
        state,
    } = args;
    let gateway = agent.gateway.as_ref().map(ToString::to_string);
    let mut last = 0;
    let mut newer = || -> anyhow::Result<Vec<HostEvent>> {
        let mut events: Vec<HostEvent> = state.read(
            agent,
            || agent::ask(&agent.socket(), EVENTS_PATH),
            events::list,
        )?;
        events.retain(|event| {
            event.number > last
                && since.is_none_or(|since| event.time >= since)
                && gateway
                    .as_ref()
                    .is_none_or(|gateway| event.gateway == *gateway)
        });
        last = events.last().map_or(last, |event| event.number);
        Ok(events)
    };
    let events = newer()?;
    if !watch {
        if agent.output == Format::Table {
            agent.output.write(&events, || table(&events))?;
            return Ok(0);
        }
        return print(agent, &events).map(|_| 0);
    }
    let mut events = events;
    loop {
        if !print(agent, &events)? {
            return Ok(0);
        }
        thread::sleep(EVERY);
        // After an error, poll again, because the agent may be restarting.
        events = newer().unwrap_or_default();
    }
}

/// Returns false once standard output is closed.
fn print(agent: &AgentArgs, events: &[HostEvent]) -> anyhow::Result<bool> {
    for event in events {
        let text = || cells(event).join("  ") + "\n";
        if !agent.output.write_next(event, text)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn table(events: &[HostEvent]) -> String {
    let mut table = Table::new();
    let headings = ["TIME", "EVENT", "GATEWAY", "ABOUT"];
    table.load_style(presets::NOTHING).set_header(headings);
    for event in events {
        table.add_row(cells(event));
    }
    format!("{}\n", table.trim_fmt())
}

fn cells(event: &HostEvent) -> [String; 4] {
    event.cells().map(|cell| plain(&cell.into()))
}
