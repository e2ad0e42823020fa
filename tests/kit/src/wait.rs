//! Waits for conditions instead of sleeping.

use std::time::{Duration, Instant};

/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `probe` until it returns `Ok`, and returns that value.
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

/// Returns `Ok` if `good` is true, or the observed state as an error.
pub fn holds(good: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if good { Ok(()) } else { Err(seen()) }
}
