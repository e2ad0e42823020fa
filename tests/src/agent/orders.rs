//! CLI commands that control a running agent.

use std::process::{Child, Command, Output, Stdio};

use super::{AgentUnderTest, agent_binary};

impl AgentUnderTest {
    /// Runs a command against this agent, without blocking the current task.
    pub async fn order(&self, arguments: &[&str]) -> Output {
        let runtime = self.runtime().to_string_lossy().into_owned();
        let mut command = arguments.to_vec();
        command.extend(["--runtime-dir", &runtime]);
        self.command_beside(&command).await
    }

    /// Runs `restart`, which replaces the Envoy.
    pub async fn replace_envoy(&self, strategy: &str) -> Output {
        self.order(&["restart", "--strategy", strategy]).await
    }

    /// Runs `restart`. Panics unless Envoy was replaced by the method `by`: `hot restart` or
    /// `handover`.
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

    /// Starts `restart` without waiting for it to exit.
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

/// Returns a command's standard output, followed by its standard error.
pub fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Splits a command line at single spaces.
pub fn arguments(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}
