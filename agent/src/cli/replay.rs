//! `sesame-agent diff --requests FILE`: compares how two configurations handle the requests of an
//! access log, without sending them.

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use clap::Args;
use sesame_explain::{Replay, ReplayConfiguration, parse_log_host, replay_text};
use sesame_files::open::{self, Rule};
use sesame_proto::schema::Snapshot;

use super::EXIT_FAULT;
use super::agent::AgentArgs;

/// Requests to compare.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Compare the requests of an access log; `-` is standard input. Formats: JSON of Sesame,
    /// Contour, Envoy Gateway or Traefik, nginx's `combined`, Envoy's default, HAR.
    #[arg(long, value_name = "FILE")]
    pub(super) requests: Option<PathBuf>,
    /// Host for log lines without one.
    #[arg(long = "host", value_name = "NAME", requires = "requests", value_parser = parse_log_host)]
    default_host: Option<String>,
}

impl ReplayArgs {
    /// Exits with 0 if all requests are handled and protected in the same way, and with 1 otherwise.
    pub(super) fn compare(
        &self,
        agent: &AgentArgs,
        log: &Path,
        [old, new]: [Vec<Snapshot>; 2],
    ) -> anyhow::Result<u8> {
        let (old, new) = (ReplayConfiguration::new(old), ReplayConfiguration::new(new));
        let replay = Replay {
            old: &old,
            new: &new,
            host: self.default_host.clone(),
            threads: available_parallelism()?,
        };
        let report =
            replay.run::<anyhow::Error>(|push| open::stream(log, Rule::GivenByLink, push))?;
        agent
            .output
            .write(&report, || replay_text(&report, str::to_owned))?;
        Ok(if report.is_same() { 0 } else { EXIT_FAULT })
    }
}
