//! `kubectl sesame diff --requests FILE`: compares how the requests of an access log would be
//! handled, without sending them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Error, Result, ensure};
use clap::Args;
use sesame_explain::{Replay, ReplayConfiguration, parse_log_host, replay_text};
use sesame_files::open::{self, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_proto::schema::Snapshot;
use sesame_proto::terminal::plain;

use super::reading::ClusterReader;

/// Requests to compare.
#[derive(Debug, Args)]
pub(super) struct ClusterReplayArgs {
    /// Compare the requests of an access log; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) requests: Option<PathBuf>,
    /// Host for log lines without one.
    #[arg(long = "host", value_name = "NAME", requires = "requests", value_parser = parse_log_host)]
    default_host: Option<String>,
    /// Compare only this Gateway.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "requests", value_parser = super::gateway)]
    gateway: Option<NamespacedName>,
}

impl ClusterReplayArgs {
    pub(super) fn check(&self, filenames: &[PathBuf]) -> Result<()> {
        let stdin = Path::new("-");
        ensure!(
            self.requests.as_deref() != Some(stdin) || !filenames.iter().any(|it| it == stdin),
            "--filename and --requests: only one of them can be standard input"
        );
        Ok(())
    }

    /// Returns true if no request would be handled or protected differently.
    pub(super) fn compare(
        &self,
        reader: &ClusterReader,
        log: &Path,
        configurations: [BTreeMap<NamespacedName, Snapshot>; 2],
    ) -> Result<bool> {
        let [old, new] = configurations.map(|snapshots| {
            let wanted = self.gateway.as_ref();
            let chosen = snapshots.into_iter();
            let chosen = chosen.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
            ReplayConfiguration::new(chosen.map(|(_, snapshot)| snapshot))
        });
        let replay = Replay {
            old: &old,
            new: &new,
            host: self.default_host.clone(),
            threads: available_parallelism()?,
        };
        let report = replay.run::<Error>(|push| open::stream(log, Rule::GivenByLink, push))?;
        reader.print(&report, |_| replay_text(&report, plain))?;
        Ok(report.is_same())
    }
}
