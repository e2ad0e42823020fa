//! Stops an Envoy: drains its connections first, then ends the process.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::envoy::admin::Admin;
use crate::envoy::process::{Exit, Process};

const POLL: Duration = Duration::from_millis(100);
/// Time limit for requests to the admin interface, which must not delay a stop.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Drains for at most `grace`, then stops the process. Clients are asked to close their connections
/// while new ones are still accepted. The drain ends early once no connections are left. A `grace`
/// of zero skips the drain.
pub(super) async fn stop(process: &Process, admin: &Admin, grace: Duration) -> Exit {
    if !grace.is_zero() && process.exit().is_none() {
        let deadline = Instant::now() + grace;
        // After the deadline, or once Envoy is gone, there is nothing left to drain.
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
    // `skip_exit` keeps the listeners open to the end, because it is better to accept a late
    // connection than to refuse it.
    if let Err(error) = admin.post("/drain_listeners?graceful&skip_exit").await {
        if error.is_gone() {
            tracing::warn!(%error, "cannot drain Envoy; terminating it");
            return;
        }
        // A busy Envoy has nevertheless received the request.
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
