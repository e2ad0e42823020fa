//! Orders to a running agent, given as people give them.

use std::process::{Child, Command, Output, Stdio};

use super::{AgentUnderTest, agent_binary};

impl AgentUnderTest {
    /// Runs a command that speaks to this agent to its end, while this task's other work goes on.
    pub async fn order(&self, arguments: &[&str]) -> Output {
        let runtime = self.runtime().to_string_lossy().into_owned();
        let mut command = arguments.to_vec();
        command.extend(["--runtime-dir", &runtime]);
        self.command_beside(&command).await
    }

    /// Has another Envoy take over.
    pub async fn replace_envoy(&self, strategy: &str) -> Output {
        self.order(&["restart", "--strategy", strategy]).await
    }

    /// The same; panics unless it was done `by` a hot restart or a handover. Gives back what was said.
    pub async fn envoy_is_replaced(&self, strategy: &str, by: &str) -> String {
        let output = self.replace_envoy(strategy).await;
        let text = words(&output);
        assert!(
            output.status.success() && text.contains(&format!("replaced by {by}")),
            "{text}{}",
            self.log_tail()
        );
        text
    }

    /// Gives the order and does not wait for what becomes of it.
    pub fn begin_to_replace_envoy(&self, strategy: &str) -> Child {
        Command::new(agent_binary())
            .args(["restart", "--strategy", strategy, "--runtime-dir"])
            .arg(self.runtime())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the agent's binary runs")
    }
}

/// All that a command has said.
pub fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Returns the arguments of a line, which are apart by a space each.
pub fn arguments(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}
