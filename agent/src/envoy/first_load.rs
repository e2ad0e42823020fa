//! Whether an Envoy that has started serves.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::admin::{Admin, Readiness};
use crate::apply::{Kind, Subscription};

/// How long the first versions may take after Envoy says that it is live. Later it counts as not loaded.
const FIRST_VERSIONS: Duration = Duration::from_secs(2);
const SLOWEST_POLL: Duration = Duration::from_millis(100);

/// Waits until Envoy is live and has taken its first listeners and clusters; `false` if it is live without.
pub(super) async fn first_load(admin: &Admin) -> bool {
    let mut pause = Duration::from_millis(2);
    let mut live_since = None;
    loop {
        if live_since.is_none() && matches!(admin.ready().await, Ok(Readiness::Live)) {
            live_since = Some(Instant::now());
        }
        if let Some(since) = live_since {
            if let Ok(versions) = admin.version_texts().await {
                let taken = |kind| {
                    let subscription = Subscription::new(kind, "");
                    versions
                        .of(&subscription, "")
                        .is_some_and(|version| !version.is_empty())
                };
                if taken(Kind::Clusters) && taken(Kind::Listeners) {
                    return true;
                }
            }
            if since.elapsed() > FIRST_VERSIONS {
                return false;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(SLOWEST_POLL);
    }
}
