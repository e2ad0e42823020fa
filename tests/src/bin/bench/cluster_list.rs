//! The agent's list of clusters. Unused clusters stay in it for a while after their routes are
//! gone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

/// Pause between two reads of the list.
const LOOK: Duration = Duration::from_millis(50);

/// Returns the list once it no longer contains this cluster.
pub(crate) fn read_without(file: &Path, unused: &str, within: Duration) -> anyhow::Result<Vec<u8>> {
    let deadline = Instant::now() + within;
    loop {
        let list = std::fs::read(file)?;
        let mut windows = list.windows(unused.len());
        if !windows.any(|window| window == unused.as_bytes()) {
            return Ok(list);
        }
        ensure!(Instant::now() < deadline, "{unused} is never removed");
        std::thread::sleep(LOOK);
    }
}
