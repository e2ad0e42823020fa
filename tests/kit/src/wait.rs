//! Waits for conditions instead of sleeping.

use std::time::{Duration, Instant};

/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `probe` until it returns `Ok`, and returns the value.
///
/// Panics if `probe` still fails after `deadline`. The message contains `what` and the last error.
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

/// Returns `Ok` if `good` is true, and otherwise the observed state as the error.
pub fn holds(good: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if good { Ok(()) } else { Err(seen()) }
}
