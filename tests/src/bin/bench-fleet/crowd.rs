//! The benchmark's client processes, and their messages.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sesame_tests::processes::{cpu_seconds, memory_mib};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::light::LightHost;
use super::told::ClientMessage;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Crowd {
    children: Vec<Child>,
    lines: mpsc::UnboundedReceiver<(usize, ClientMessage)>,
    revisions: Vec<Option<(String, Vec<f64>)>>,
    /// Per process, the time when its last client started to follow the cluster, or `None` while
    /// any client is disconnected.
    following: Vec<Option<f64>>,
}

impl Crowd {
    /// Starts processes with at most `each` hosts per process.
    pub(crate) fn start(
        sort: &str,
        hosts: &[LightHost],
        each: usize,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let (sender, lines) = mpsc::unbounded_channel();
        let mut children = Vec::new();
        for (index, hosts) in hosts.chunks(each).enumerate() {
            let list = directory.join(format!("{sort}-{index}.json"));
            std::fs::write(&list, serde_json::to_vec(hosts)?)?;
            let mut child = Command::new(std::env::current_exe()?)
                .arg(sort)
                .arg(&list)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .context("start a client process")?;
            let out = child.stdout.take().context("no standard output")?;
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Ok(message) = serde_json::from_str(&line) {
                        let _ = sender.send((index, message));
                    }
                }
            });
            children.push(child);
        }
        Ok(Self {
            revisions: vec![None; children.len()],
            following: vec![None; children.len()],
            children,
            lines,
        })
    }

    /// Waits until all clients have the same revision and it differs from `than`. Returns the
    /// revision and the sorted receipt times.
    pub(crate) async fn until_other(&mut self, than: &str) -> anyhow::Result<(String, Vec<f64>)> {
        let everywhere = |crowd: &Self| {
            let mut all = crowd.revisions.iter();
            let (first, _) = all.next()?.as_ref()?;
            let same = all.all(|one| one.as_ref().is_some_and(|(other, _)| other == first));
            (same && first != than).then(|| first.clone())
        };
        let revision = self
            .until("all clients have a new revision", everywhere)
            .await?;
        let times = self.revisions.iter().flatten();
        let mut times: Vec<f64> = times.flat_map(|(_, times)| times.clone()).collect();
        times.sort_by(f64::total_cmp);
        Ok((revision, times))
    }

    /// Waits until at least one client has lost its connection.
    pub(crate) async fn until_lost(&mut self) -> anyhow::Result<()> {
        let lost = |crowd: &Self| crowd.following.iter().any(Option::is_none).then_some(());
        self.until("a client has lost its connection", lost).await
    }

    /// Waits until all clients follow the cluster. Returns the time when the last client started.
    pub(crate) async fn until_following(&mut self) -> anyhow::Result<f64> {
        let follow = |crowd: &Self| {
            let all: Option<Vec<f64>> = crowd.following.iter().copied().collect();
            Some(all?.into_iter().fold(0.0, f64::max))
        };
        self.until("all clients follow the cluster", follow).await
    }

    async fn until<T>(
        &mut self,
        what: &str,
        good: impl Fn(&Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        let waiting = async {
            loop {
                if let Some(found) = good(self) {
                    return Ok(found);
                }
                let line = self.lines.recv().await;
                let (index, message) = line.context("a client process exited")?;
                match message {
                    ClientMessage::Have { revision, times } => {
                        self.revisions[index] = Some((revision, times));
                    }
                    ClientMessage::Follow { all, at, .. } => {
                        self.following[index] = all.then_some(at);
                    }
                }
            }
        };
        let found = tokio::time::timeout(TIMEOUT, waiting).await;
        found.with_context(|| format!("timed out after {TIMEOUT:?}: {what}"))?
    }

    /// Returns the CPU time in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.pids().map(cpu_seconds).sum()
    }

    /// Returns the sum of the processes' peaks.
    pub(crate) fn peak_mib(&self) -> f64 {
        self.pids().map(|pid| memory_mib(pid).1).sum()
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.children.iter().filter_map(Child::id)
    }

    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        for child in &mut self.children {
            child.kill().await?;
        }
        ensure!(!self.children.is_empty(), "no client process was started");
        Ok(())
    }
}
