//! Reads the cluster list that the agent writes for Envoy. The list keeps unused clusters for a
//! while.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn read_without(file: &Path, unused: &str, within: Duration) -> anyhow::Result<Vec<u8>> {
    let deadline = Instant::now() + within;
    loop {
        let list = std::fs::read(file)?;
        let mut windows = list.windows(unused.len());
        if !windows.any(|window| window == unused.as_bytes()) {
            return Ok(list);
        }
        ensure!(
            Instant::now() < deadline,
            "{unused} was not removed in time"
        );
        std::thread::sleep(POLL_INTERVAL);
    }
}
