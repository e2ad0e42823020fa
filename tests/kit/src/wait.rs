//! Waits for conditions instead of sleeping.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);

/// Calls `probe` until it succeeds. Panics with `what` and the last error after `deadline`.
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
                panic!("{what}: timed out after {deadline:?}; last: {last}")
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Returns the observed state as an error unless `good` is true.
pub fn holds(good: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if good { Ok(()) } else { Err(seen()) }
}
