//! Publishing loop: makes one Envoy serve a target configuration.
//!
//! Never writes Envoy's files (`apply` does), and never decides which rejected parts to exclude
//! (`quarantine` does).

use crate::quarantine::{Advice, Configuration, Quarantine, Reduced, is_file_read_failure};
use crate::{Applier, ApplyError, ApplyReport, Desired, Outcome};
use sesame_envoy::Admin;
use sesame_render::xds::XdsKind;

/// Maximum number of rounds, each of which excludes or replaces more parts.
const MAX_ROUNDS: usize = 12;

/// Result of [`publish`]. Unless this is [`Published::Accepted`], Envoy keeps serving the last
/// accepted configuration.
#[derive(Debug)]
pub enum Published {
    /// Envoy serves the target, or a reduced version of it.
    Accepted {
        /// Transaction report.
        report: ApplyReport,
        /// The served configuration, if anything was excluded.
        reduced: Option<Box<Reduced>>,
    },
    /// The cause is unknown. Retry only when something changes.
    Refused {
        /// Envoy's messages.
        envoy_messages: Vec<String>,
    },
    /// The next publication continues the search for rejected parts.
    Searching {
        /// Envoy's messages.
        envoy_messages: Vec<String>,
    },
    /// Envoy's verdict is unknown. Retry the publication.
    NotYet {
        /// Why to retry.
        reason: String,
    },
}

/// Makes Envoy serve the target, or a reduced version. Stops searching for rejected parts if
/// `newer` returns true.
pub async fn publish(
    quarantine: &mut Quarantine,
    applier: &mut Applier,
    envoy: &Admin,
    target: Configuration<'_>,
    newer: impl Fn() -> bool + Send + Sync,
) -> Result<Published, ApplyError> {
    quarantine.follow(target);
    let mut envoy_messages: Vec<String> = Vec::new();
    if let Some(before) = quarantine.unfinished() {
        envoy_messages.extend_from_slice(before);
        if quarantine.search(target, &newer, &envoy_messages).await == Advice::Resume {
            return Ok(Published::Searching { envoy_messages });
        }
    }
    for _ in 0..MAX_ROUNDS {
        let words = &mut envoy_messages;
        let attempt = attempt(quarantine, applier, envoy, target, &newer, words);
        if let Some(published) = attempt.await? {
            return Ok(published);
        }
    }
    Ok(Published::Refused { envoy_messages })
}

/// Returns `None` if the caller must retry with fewer parts.
async fn attempt(
    quarantine: &mut Quarantine,
    applier: &mut Applier,
    envoy: &Admin,
    target: Configuration<'_>,
    newer: &(impl Fn() -> bool + Send + Sync),
    messages: &mut Vec<String>,
) -> Result<Option<Published>, ApplyError> {
    let reduced = quarantine.reduce(target).await;
    let (encoded, rendered) = match &reduced {
        Some(reduced) => (&reduced.encoded, &reduced.rendered),
        None => (target.encoded, target.rendered),
    };
    let desired = Desired {
        rendered,
        serials: encoded.serials(),
        // Envoy may lose all listeners only if the target contains none, or if Envoy could not open
        // any.
        may_empty: target.encoded.counts().listeners == 0
            || quarantine.leaves_none(&applier.on_disk().content.listeners),
    };
    let report = match applier.apply(desired, Some(envoy)).await {
        Ok(report) => report,
        Err(error @ ApplyError::Empties { .. }) => {
            if messages.is_empty() {
                messages.push(error.to_string());
            }
            let envoy_messages = std::mem::take(messages);
            return Ok(Some(Published::Refused { envoy_messages }));
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
        Outcome::Refused(refusal) if is_file_read_failure(&refusal.envoy_words) => {
            let messages = refusal.envoy_words.join("; ");
            format!("Envoy cannot read its files: {messages}")
        }
        Outcome::Refused(refusal) => {
            messages.clone_from(&refusal.envoy_words);
            let advice = quarantine.learn(refusal, target, rendered, newer).await;
            return Ok(end(advice, messages));
        }
        Outcome::Unseen { subscriptions, .. } => {
            format!("Envoy neither accepted nor rejected {subscriptions:?} in time")
        }
        Outcome::Gone { reason, .. } => format!("Envoy does not respond: {reason}"),
        Outcome::NotRunning => "Envoy is not running".to_owned(),
    };
    Ok(Some(Published::NotYet { reason }))
}

/// Returns `None` if the caller must retry with fewer parts.
fn end(advice: Advice, messages: &mut Vec<String>) -> Option<Published> {
    let mut envoy_messages = || std::mem::take(messages);
    match advice {
        Advice::Retry => None,
        Advice::Keep => Some(Published::Refused {
            envoy_messages: envoy_messages(),
        }),
        Advice::Resume => Some(Published::Searching {
            envoy_messages: envoy_messages(),
        }),
    }
}

/// Returns the unverified keys, because Envoy reports key pairs as accepted even if they are
/// unusable.
fn unproven_keys(report: &ApplyReport) -> Vec<String> {
    let keys = report.unverified.iter();
    keys.filter(|subscription| subscription.kind == XdsKind::Secret)
        .map(|subscription| subscription.name.clone())
        .collect()
}
