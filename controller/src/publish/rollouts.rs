//! Applies the decisions of rollouts to the publications. The record in the published manifest is
//! the only state, so that the next leader continues exactly there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sesame_proto::digest::short;
use sesame_proto::rollout::{HostReport, Step, step};
use sesame_proto::schema::rollout_record::Verdict;
use sesame_proto::schema::{Rollout, RolloutRecord};

use super::desired::{DesiredPublication, DesiredPublications};
use super::observed::{PublishedObject, PublishedObjects};
use super::publication::{Publication, StagedRevision};
use super::signing::Seal;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{Part, is_pod};

/// Hosts of Gateways with stages, by published Gateway. `None` until all reports are known.
pub(crate) type RolloutHosts = Option<Arc<BTreeMap<NamespacedName, Vec<ReportedHost>>>>;
/// State of each Gateway's rollout, by published Gateway.
pub(crate) type RolloutNotes = BTreeMap<NamespacedName, RolloutNote>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RolloutNote {
    pub(crate) digest: String,
    pub(crate) is_done: bool,
    /// For the Gateway's status.
    pub(crate) text: String,
}

/// A host's report, before it is compared with the published revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedHost {
    pub(crate) report: HostReport,
    /// Both revisions as in the report.
    pub(crate) wanted: String,
    pub(crate) applied: String,
    /// Why the host cannot apply the wanted revision.
    pub(crate) refusal: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct StagedPublications {
    /// Publications with the state of their rollouts.
    pub(super) desired: DesiredPublications,
    pub(super) notes: RolloutNotes,
    /// Time of the next decision.
    pub(super) wake: Option<Timestamp>,
    /// Gateways whose rollout cannot be stored.
    pub(super) failed: BTreeSet<NamespacedName>,
}

pub(super) fn stage(
    desired: &DesiredPublications,
    published: &PublishedObjects,
    hosts: &RolloutHosts,
    now: Timestamp,
) -> StagedPublications {
    let mut staged = StagedPublications {
        desired: desired.clone(),
        ..StagedPublications::default()
    };
    for (name, wanted) in &mut staged.desired {
        let DesiredPublication::Publish(publication) = wanted else {
            continue;
        };
        let Some(StagedRevision { rollout, digest }) = publication.staged.as_deref() else {
            continue;
        };
        let known = published.get(Part::Manifest, &publication.manifest.name);
        let heard = hosts.as_ref().and_then(|all| all.get(name));
        if known.is_none() && heard.is_none() {
            // Only reports show whether this Gateway is new, or its manifest was deleted.
            let note = unknown(digest, hosts);
            staged.notes.insert(name.clone(), note);
            *wanted = DesiredPublication::Retain;
            continue;
        }
        let unheard = Vec::new();
        let reported = hosts.as_ref().map(|_| heard.unwrap_or(&unheard));
        let before = before(known, heard.unwrap_or(&unheard));
        let before = before.map(|before| without_ended_pods(before, heard));
        let before = before.as_deref();
        let reports: Option<Vec<HostReport>> = reported.map(|all| {
            let reports = all.iter().map(|host| host.compared(publication));
            reports.collect()
        });
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let Step { record, wake } = step(before, rollout, digest, reports.as_deref(), seconds);
        log(name, before, &record);
        let note = RolloutNote {
            digest: digest.clone(),
            is_done: record.verdict() == Verdict::Done,
            text: describe(&record, rollout, reports.as_deref().unwrap_or_default()),
        };
        staged.notes.insert(name.clone(), note);
        let wake = wake.and_then(|wake| Timestamp::from_second(i64::try_from(wake).ok()?).ok());
        staged.wake = staged.wake.into_iter().chain(wake).min();
        if let Some(with_record) = publication.with_record(record) {
            *publication = Arc::new(with_record);
        } else {
            staged.failed.insert(name.clone());
        }
    }
    for name in &staged.failed {
        // Without its record, the revision would reach all hosts.
        staged
            .desired
            .insert(name.clone(), DesiredPublication::Retain);
    }
    staged
}

/// If the manifest was deleted or cannot be read, or its signature is invalid, returns a record
/// without a revision, so that the rollout begins at the first stage.
fn before(known: Option<&PublishedObject>, hosts: &[ReportedHost]) -> Option<Arc<RolloutRecord>> {
    let Some(known) = known else {
        let is_deleted = hosts.iter().any(|host| !host.applied.is_empty());
        return is_deleted.then(Arc::default);
    };
    let is_unreadable = known.seal == Seal::Bad || known.shards.is_empty();
    let unreadable = || is_unreadable.then(Arc::default);
    let signed = known.rollout.clone().filter(|_| known.seal != Seal::Bad);
    signed.or_else(unreadable)
}

fn unknown(digest: &str, hosts: &RolloutHosts) -> RolloutNote {
    let missing = match hosts {
        Some(_) => "hosts to report",
        None => "the list of GatewayAgents, which the controller must be allowed to read",
    };
    RolloutNote {
        digest: digest.to_owned(),
        is_done: false,
        text: format!("rollout of {digest}: waiting for {missing}"),
    }
}

/// Removes Pods that no longer report. Their names never return, so the rollout would not end.
fn without_ended_pods(
    before: Arc<RolloutRecord>,
    heard: Option<&Vec<ReportedHost>>,
) -> Arc<RolloutRecord> {
    let Some(heard) = heard else {
        return before;
    };
    let reporting: BTreeSet<&str> = heard.iter().map(|host| host.report.name.as_str()).collect();
    let has_ended = |host: &String| is_pod(host) && !reporting.contains(host.as_str());
    if !before.hosts.iter().any(has_ended) {
        return before;
    }
    let mut record = Arc::unwrap_or_clone(before);
    record.hosts.retain(|host| !has_ended(host));
    Arc::new(record)
}

impl ReportedHost {
    fn compared(&self, publication: &Publication) -> HostReport {
        let Self {
            report,
            wanted,
            applied,
            refusal,
        } = self;
        let revision = short(&publication.revision);
        let mut report = report.clone();
        report.has_applied = applied == revision;
        // Other refusals are about another revision.
        let refusal = refusal.clone().filter(|_| wanted == revision);
        report.has_refused = refusal.is_some();
        report.failures.extend(refusal);
        report
    }
}

fn log(gateway: &NamespacedName, before: Option<&RolloutRecord>, now: &RolloutRecord) {
    let verdict = now.verdict();
    let is_same = before.is_some_and(|before| {
        (&before.digest, before.stage, before.verdict()) == (&now.digest, now.stage, verdict)
    });
    let (digest, stage) = (&now.digest, now.number());
    match verdict {
        _ if is_same => {}
        Verdict::Held | Verdict::Undone => {
            tracing::warn!(%gateway, digest, stage, "the rollout is stopped: {}", now.reason);
        }
        _ => tracing::info!(%gateway, digest, stage, ?verdict, "a revision is rolled out"),
    }
}

/// Returns the state for the Gateway's status, without anything that changes by the second.
fn describe(record: &RolloutRecord, rollout: &Rollout, hosts: &[HostReport]) -> String {
    let RolloutRecord { digest, reason, .. } = record;
    let all = hosts.len();
    let released = hosts.iter().filter(|host| record.releases(&host.name));
    let applied = released.filter(|host| host.has_applied).count();
    let stages = rollout.stages.len();
    let at = format!(
        "rollout of {digest}: stage {} of {stages}, on {applied} of {all} hosts",
        // A resume after the last stage can find new failures.
        usize::try_from(record.number()).map_or(stages, |number| number.min(stages)),
    );
    match record.verdict() {
        Verdict::Done => format!("rollout of {digest}: released to all hosts"),
        Verdict::Paused => format!("{at}, paused: {reason}"),
        Verdict::Held => format!("{at}, held: {reason}"),
        Verdict::Undone => format!("rollout of {digest}: undone: {reason}"),
        Verdict::Baking | Verdict::Unknown => {
            let end = record.since.saturating_add(bake(record, rollout).into());
            let end = i64::try_from(end).ok();
            let end = end.and_then(|end| Timestamp::from_second(end).ok());
            match end.filter(|_| record.since > 0) {
                Some(end) => format!("{at}, bakes until {end}"),
                None => format!("{at}, waiting for {}", waiting(record, hosts)),
            }
        }
    }
}

fn bake(record: &RolloutRecord, rollout: &Rollout) -> u32 {
    let stage = usize::try_from(record.stage).unwrap_or(usize::MAX);
    let stage = rollout.stages.get(stage);
    stage.map_or(0, |stage| stage.bake_seconds)
}

fn waiting(record: &RolloutRecord, hosts: &[HostReport]) -> String {
    let mut late: Vec<&str> = hosts
        .iter()
        .filter(|host| record.releases(&host.name) && !host.has_applied)
        .map(|host| host.name.as_str())
        .collect();
    late.sort_unstable();
    match late.as_slice() {
        [] => "hosts to report".to_owned(),
        [only] => format!("host {only}"),
        [first, more @ ..] => format!("host {first} and {} more", more.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_pods_leave_rollout() {
        let host = |name: &str| ReportedHost {
            report: HostReport {
                name: name.to_owned(),
                ..HostReport::default()
            },
            ..ReportedHost::default()
        };
        let (ended, there) = ("a.pod", "b.pod");
        let record = Arc::new(RolloutRecord {
            hosts: ["node", ended, there].map(str::to_owned).into(),
            ..RolloutRecord::default()
        });
        let heard = vec![host(there)];
        let kept = without_ended_pods(Arc::clone(&record), Some(&heard));
        assert_eq!(kept.hosts, ["node", there]);
        assert_eq!(without_ended_pods(Arc::clone(&record), None), record);
    }

    #[test]
    fn unreadable_or_deleted_manifest_begins_at_first_stage() {
        let known = |seal, shards: &[&str]| PublishedObject {
            part: Part::Manifest,
            gateway: String::new(),
            digest: [0; 32],
            seal,
            version: 1,
            bytes: bytes::Bytes::new(),
            shards: shards.iter().map(|name| (*name).to_owned()).collect(),
            rollout: None,
        };
        assert_eq!(before(Some(&known(Seal::None, &["config-1"])), &[]), None);
        let stages = vec![sesame_proto::schema::RolloutStage::default()];
        let rollout = Rollout {
            stages,
            ..Rollout::default()
        };
        let digest = "0123456789abcdef";
        let forged = PublishedObject {
            rollout: Some(Arc::new(RolloutRecord {
                digest: digest.to_owned(),
                all: true,
                verdict: Verdict::Done.into(),
                ..RolloutRecord::default()
            })),
            ..known(Seal::Bad, &["config-1"])
        };
        let new = ReportedHost::default();
        assert_eq!(before(None, std::slice::from_ref(&new)), None);
        let serving = ReportedHost {
            applied: "0123456789ab".to_owned(),
            ..new
        };
        for unreadable in [
            Some(known(Seal::None, &[])),
            Some(known(Seal::Bad, &["config-1"])),
            Some(forged),
            None,
        ] {
            let record = before(unreadable.as_ref(), std::slice::from_ref(&serving));
            let record = step(record.as_deref(), &rollout, digest, None, 1).record;
            assert_eq!((record.verdict(), record.all), (Verdict::Baking, false));
            assert_eq!(record.digest, digest);
        }
    }
}
