//! Publishing loop: brings one Envoy to a target with transactions, and consults the quarantine
//! about the parts that Envoy rejects.
//!
//! Never writes files (`apply` does), and never decides which parts to exclude (`quarantine` does).

use crate::apply::{Applier, ApplyError, ApplyReport, Desired, Outcome};
use crate::envoy::Admin;
use crate::quarantine::{Advice, Configuration, Quarantine, Reduced, let_down_by_host};
use crate::xds::XdsKind;

/// Maximum number of attempts per publication, each with fewer parts than the previous one.
const MAX_ROUNDS: usize = 12;

/// Outcome of a publication. Unless the target is accepted, the last accepted configuration remains
/// in service.
#[derive(Debug)]
pub enum Published {
    /// Envoy serves the target, possibly reduced.
    Accepted {
        /// Report of the transaction.
        report: ApplyReport,
        /// Configuration that Envoy serves instead of the target, if parts were excluded.
        reduced: Option<Box<Reduced>>,
    },
    /// Envoy rejects the target, and no part could be identified to exclude. Retry when something
    /// changes.
    Refused {
        /// Envoy's messages.
        envoy_words: Vec<String>,
    },
    /// The search for rejected parts is incomplete; the next attempt continues it.
    Searching {
        /// Envoy's messages.
        envoy_words: Vec<String>,
    },
    /// Envoy could not be queried; the target must be retried.
    NotYet {
        /// Why Envoy could not be queried.
        reason: String,
    },
}

/// Brings Envoy to the target, reduced if necessary. If `newer` returns true, there is a newer
/// target, and the search for rejected parts stops early.
pub async fn publish(
    quarantine: &mut Quarantine,
    applier: &mut Applier,
    envoy: &Admin,
    target: Configuration<'_>,
    newer: impl Fn() -> bool + Send + Sync,
) -> Result<Published, ApplyError> {
    quarantine.follow(target);
    let mut envoy_words: Vec<String> = Vec::new();
    if let Some(before) = quarantine.unfinished() {
        envoy_words.extend_from_slice(before);
        if quarantine.search(target, &newer, &envoy_words).await == Advice::Resume {
            return Ok(Published::Searching { envoy_words });
        }
    }
    for _ in 0..MAX_ROUNDS {
        let words = &mut envoy_words;
        let attempt = attempt(quarantine, applier, envoy, target, &newer, words);
        if let Some(published) = attempt.await? {
            return Ok(published);
        }
    }
    Ok(Published::Refused { envoy_words })
}

/// Runs one transaction, and consults the quarantine if Envoy rejects it. `words` contains the
/// messages of the last rejection. Returns the outcome of the publication, or `None` if the caller
/// must retry with fewer parts.
async fn attempt(
    quarantine: &mut Quarantine,
    applier: &mut Applier,
    envoy: &Admin,
    target: Configuration<'_>,
    newer: &(impl Fn() -> bool + Send + Sync),
    words: &mut Vec<String>,
) -> Result<Option<Published>, ApplyError> {
    let reduced = quarantine.reduce(target).await;
    let (encoded, rendered) = match &reduced {
        Some(reduced) => (&reduced.encoded, &reduced.rendered),
        None => (target.encoded, target.rendered),
    };
    let desired = Desired {
        rendered,
        serials: encoded.serials(),
        // The last listeners may be removed if the source intentionally wants none, or if Envoy
        // could not open any of them. A rejection alone never removes them.
        may_empty: target.encoded.counts().listeners == 0
            || quarantine.leaves_none(&applier.on_disk().content.listeners),
    };
    let report = match applier.apply(desired, Some(envoy)).await {
        Ok(report) => report,
        Err(error @ ApplyError::Empties { .. }) => {
            if words.is_empty() {
                words.push(error.to_string());
            }
            let envoy_words = std::mem::take(words);
            return Ok(Some(Published::Refused { envoy_words }));
        }
        Err(error) => return Err(error),
    };
    let reason = match &report.outcome {
        Outcome::Unchanged | Outcome::Applied => {
            let unproven = unproven_keys(&report);
            if !unproven.is_empty() && quarantine.judge_keys(target, &unproven, newer).await {
                return Ok(None);
            }
            quarantine.accept(encoded);
            return Ok(Some(Published::Accepted {
                report,
                reduced: reduced.map(Box::new),
            }));
        }
        Outcome::Refused(refusal) if let_down_by_host(&refusal.envoy_words) => {
            let words = refusal.envoy_words.join("; ");
            format!("Envoy cannot read its files: {words}")
        }
        Outcome::Refused(refusal) => {
            words.clone_from(&refusal.envoy_words);
            let advice = quarantine.learn(refusal, target, rendered, newer).await;
            return Ok(end(advice, words));
        }
        Outcome::Unseen { subscriptions, .. } => {
            format!("Envoy neither accepted nor rejected {subscriptions:?} in time")
        }
        Outcome::Gone { reason, .. } => format!("Envoy does not respond: {reason}"),
        Outcome::NotRunning => "Envoy is not running".to_owned(),
    };
    Ok(Some(Published::NotYet { reason }))
}

/// Returns the outcome of a publication that Envoy rejected, or `None` if the caller must retry.
fn end(advice: Advice, words: &mut Vec<String>) -> Option<Published> {
    let mut envoy_words = || std::mem::take(words);
    match advice {
        Advice::Retry => None,
        Advice::Keep => Some(Published::Refused {
            envoy_words: envoy_words(),
        }),
        Advice::Resume => Some(Published::Searching {
            envoy_words: envoy_words(),
        }),
    }
}

/// Returns the keys that Envoy accepted without serving their certificates. Envoy reports even bad
/// key pairs as accepted.
fn unproven_keys(report: &ApplyReport) -> Vec<String> {
    let keys = report.unverified.iter();
    keys.filter(|subscription| subscription.kind == XdsKind::Secret)
        .map(|subscription| subscription.name.clone())
        .collect()
}
