//! `sesame-agent reload`: makes the running agent reload its settings.

use super::agent::{self, AgentArgs};
use sesame_engine::reload::Reloaded;

pub(crate) fn main(agent: &AgentArgs) -> anyhow::Result<u8> {
    let reloaded: Reloaded = agent::call(agent, "/reload")?;
    agent.output.write(&reloaded, || text(&reloaded))?;
    Ok(0)
}

fn text(reloaded: &Reloaded) -> String {
    let Reloaded {
        applied,
        needs_restart,
    } = reloaded;
    let mut lines = Vec::new();
    if !applied.is_empty() {
        lines.push(format!("in effect: {}", applied.join(", ")));
    }
    if !needs_restart.is_empty() {
        lines.push(format!(
            "in effect after the agent restarts (Envoy keeps serving): {}",
            needs_restart.join(", ")
        ));
    }
    if lines.is_empty() {
        lines.push("nothing has changed".to_owned());
    }
    lines.join("\n") + "\n"
}
