//! Waiting for a condition instead of sleeping.

use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks `probe` until it says `Ok`, and gives back what it said.
///
/// Panics after `deadline` with `what` and the last error.
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(last) if start.elapsed() > deadline => {
                panic!("{what}: not within {deadline:?}; last: {last}")
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Returns success if something holds, and otherwise whatever is seen in its place.
pub fn holds(good: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if good { Ok(()) } else { Err(seen()) }
}
