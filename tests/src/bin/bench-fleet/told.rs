//! Messages from client processes to their parent, one line of JSON each.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub(crate) struct Observation {
    client: usize,
    revision: Option<String>,
    follows: bool,
    at: f64,
}

impl Observation {
    pub(crate) fn now(client: usize, revision: Option<String>, follows: bool) -> Self {
        Self {
            client,
            revision,
            follows,
            at: now_ms(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientMessage {
    Have {
        revision: String,
        /// Sorted milliseconds since the Unix epoch.
        times: Vec<f64>,
    },
    Follow {
        /// Number of clients in the process that follow the cluster.
        clients: usize,
        /// True if all clients in the process follow the cluster.
        all: bool,
        /// Time in milliseconds since the Unix epoch.
        at: f64,
    },
}

/// All processes share the system clock.
pub(crate) fn now_ms() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64() * 1000.0
}

/// Runs until the channel is closed.
pub(crate) async fn print_observations(
    count: usize,
    mut observations: mpsc::UnboundedReceiver<Observation>,
) -> anyhow::Result<()> {
    let mut revisions: Vec<Option<String>> = vec![None; count];
    let mut following = vec![false; count];
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut follows = 0;
    while let Some(seen) = observations.recv().await {
        let Observation {
            client,
            revision,
            follows: is_following,
            at,
        } = seen;
        if std::mem::replace(&mut following[client], is_following) != is_following {
            let before = follows;
            follows = following.iter().filter(|follows| **follows).count();
            if follows == count || before == count {
                print(&ClientMessage::Follow {
                    clients: follows,
                    all: follows == count,
                    at,
                })?;
            }
        }
        if revision.is_none() || revisions[client] == revision {
            continue;
        }
        revisions[client].clone_from(&revision);
        let revision = revision.unwrap_or_default();
        let arrivals = times.entry(revision.clone()).or_default();
        arrivals.push(at);
        if arrivals.len() == count {
            let mut all = times.remove(&revision).unwrap_or_default();
            all.sort_by(f64::total_cmp);
            print(&ClientMessage::Have {
                revision,
                times: all,
            })?;
        }
    }
    Ok(())
}

fn print(line: &ClientMessage) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
