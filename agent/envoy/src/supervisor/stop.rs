//! Drains an Envoy, then terminates it.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::admin::Admin;
use crate::process::{Exit, Process};

const POLL: Duration = Duration::from_millis(100);
/// Timeout for admin requests, short because a stuck Envoy must not delay a stop.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Skips the drain if `grace` is zero. During the drain, Envoy asks clients to close connections,
/// but still accepts new ones.
pub(super) async fn stop(process: &Process, admin: &Admin, grace: Duration) -> Exit {
    if !grace.is_zero() && process.exit().is_none() {
        let deadline = Instant::now() + grace;
        // Ignore the timeout, because the process is terminated in any case.
        let _ = timeout_at(deadline, async {
            tokio::select! {
                () = drain(admin) => {}
                _ = process.wait() => {}
            }
        })
        .await;
    }
    process.end().await
}

async fn drain(admin: &Admin) {
    let admin = admin.with_timeout(ADMIN_TIMEOUT);
    // With `skip_exit`, the listeners stay open. Accepting a late connection is better than
    // refusing it.
    if let Err(error) = admin.post("/drain_listeners?graceful&skip_exit").await {
        if error.is_gone() {
            tracing::warn!(%error, "cannot drain Envoy; terminating it");
            return;
        }
        // If Envoy is only busy, it drains once it handles the request.
        tracing::warn!(%error, "Envoy might not drain");
    }
    loop {
        match admin.active_connections().await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.is_gone() => return,
            Err(error) => tracing::debug!(%error, "cannot count connections"),
        }
        sleep(POLL).await;
    }
}
