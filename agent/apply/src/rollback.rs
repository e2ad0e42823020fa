//! Rolls files back, newest change first. In this order, a rollback drops no more requests than the
//! transaction.

use std::io;
use std::time::{Duration, Instant};

use super::journal::{Files, JournalEntry};
use super::on_disk::whole;
use super::wait::{PollBackoff, sum_by_subscription};
use sesame_envoy::admin::Admin;
use sesame_render::xds::Subscription;

/// Time limit for Envoy to reread restored files, whose content it has accepted before. After that,
/// the rollback continues anyway, because keeping the newer files would be worse.
const TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn all(files: &mut Files, envoy: Option<&Admin>) -> io::Result<usize> {
    let mut undone = 0;
    while let Some(last) = files.entries().last().cloned() {
        let before = match envoy {
            Some(envoy) => attempts(envoy).await,
            None => None,
        };
        let mut restored = Vec::new();
        while let Some(entry) = files.entries().last() {
            let together =
                entry.kind == last.kind || !(entry.kind.is_list() || last.kind.is_list());
            if !restored.is_empty() && (last.kind.is_list() || !together) {
                break;
            }
            let Some(entry) = files.undo()? else { break };
            undone += 1;
            restored.push(entry);
        }
        if let Some(envoy) = envoy {
            await_restored(envoy, &restored, before).await?;
        }
    }
    files.commit()?;
    Ok(undone)
}

type Attempts = std::collections::HashMap<String, u64>;

async fn attempts(envoy: &Admin) -> Option<Attempts> {
    envoy.counters(r"\.update_attempt$").await.ok()
}

/// Waits until Envoy has reread the restored files. Comparing versions is not enough: a rejection
/// leaves the version unchanged, but Envoy may use parts of the rejected file.
async fn await_restored(
    envoy: &Admin,
    restored: &[JournalEntry],
    before: Option<Attempts>,
) -> io::Result<()> {
    let mut expected = Vec::new();
    for entry in restored.iter().filter(|entry| entry.existed) {
        if let Some(file) = whole(entry.kind, &entry.path)? {
            let name = file.resources.first().map_or("", |r| r.name.as_str());
            expected.push((Subscription::new(entry.kind, name), file.version));
        }
    }
    if expected.is_empty() {
        return Ok(());
    }
    let subscriptions: Vec<Subscription> = expected.iter().map(|(s, _)| s.clone()).collect();
    let before = before.map(|before| sum_by_subscription(&subscriptions, &before));
    let start = Instant::now();
    let mut backoff = PollBackoff::new();
    while start.elapsed() < TIMEOUT {
        let Ok(versions) = envoy.version_texts().await else {
            break;
        };
        let versions_are_back = expected.iter().all(|(subscription, version)| {
            versions
                .of(subscription, version)
                .is_none_or(|reported| reported == version)
        });
        if versions_are_back {
            let (Some(before), Some(now)) = (&before, attempts(envoy).await) else {
                break;
            };
            let now = sum_by_subscription(&subscriptions, &now);
            let is_read = |subscription: &Subscription| {
                versions.of(subscription, "").is_none()
                    || now.get(subscription) != before.get(subscription)
                    // Zero means that Envoy does not report this counter.
                    || now.get(subscription) == Some(&0)
            };
            if subscriptions.iter().all(is_read) {
                break;
            }
        }
        backoff.pause().await;
    }
    Ok(())
}
