//! Remembers the certificates that rotations removed from trust bundles.
//!
//! A change that both adds and removes certificates is a rotation: the removed ones stay trusted
//! for the overlap time. A change that only removes certificates is a revocation, and takes effect
//! immediately. A certificate that was never declared is never trusted. A source that alternates
//! between versions must not extend the overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sesame_kinds::certificate_facts::issued_crl;
use sesame_proto::schema::TrustBundle;
use sesame_render::RetainedAuthorities;

use crate::target::RetainedCertificate;

/// Maximum number of removed certificates per bundle. Beyond it, drops the certificates whose trust
/// ends first.
const MAX_LOST: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct BundleMemory {
    bundles: BTreeMap<String, RememberedBundle>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RememberedBundle {
    /// PEM.
    declared: BTreeSet<String>,
    /// PEM.
    crls: BTreeSet<String>,
    lost: Vec<LostCertificate>,
}

/// A certificate that a rotation removed. The bundle may have declared it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LostCertificate {
    pem: String,
    #[serde(default)]
    crls: BTreeSet<String>,
    /// When trust in the certificate ends.
    until: Timestamp,
    /// Until this time, another rotation does not extend the trust.
    remembered_until: Timestamp,
}

impl BundleMemory {
    pub(super) fn follow(&mut self, now: &[TrustBundle], overlap: Duration, time: Timestamp) {
        for (name, before) in &mut self.bundles {
            if !now.iter().any(|bundle| bundle.name == *name) {
                // Declaring an unused bundle again is not a rotation.
                before.declared.clear();
                before.crls.clear();
            }
        }
        for TrustBundle { name, pem, crl, .. } in now {
            let before = self.bundles.entry(name.clone()).or_default();
            before.follow(sections(pem), sections(crl), overlap, time);
        }
        self.limit_to_overlap(overlap, time);
    }

    /// Limits the remaining trust to one overlap from now: the clock may have been set back, or the
    /// overlap shortened.
    pub(super) fn limit_to_overlap(&mut self, overlap: Duration, time: Timestamp) {
        let latest = after(time, overlap);
        let remembered = after(latest, overlap);
        for bundle in self.bundles.values_mut() {
            for lost in &mut bundle.lost {
                lost.until = lost.until.min(latest);
                lost.remembered_until = lost.remembered_until.min(remembered);
            }
            bundle.lost.retain(|lost| lost.remembered_until > time);
        }
        self.bundles
            .retain(|_, bundle| !bundle.declared.is_empty() || !bundle.lost.is_empty());
    }

    pub(super) fn retained(&self, time: Timestamp) -> BTreeMap<String, RetainedAuthorities> {
        let bundles = self.bundles.iter();
        let retained = bundles.map(|(name, bundle)| (name.clone(), bundle.retained(time)));
        retained.filter(|(_, it)| !it.pem.is_empty()).collect()
    }

    pub(super) fn ends(&self, time: Timestamp) -> Vec<RetainedCertificate> {
        let bundles = self.bundles.iter();
        let all = bundles.flat_map(|(name, bundle)| {
            let trusted = bundle.trusted(time);
            trusted.map(move |lost| RetainedCertificate {
                bundle: name.clone(),
                pem: lost.pem.clone(),
                until: lost.until,
            })
        });
        all.collect()
    }

    /// Returns the time at which a certificate next loses trust or is forgotten.
    pub(super) fn next(&self, time: Timestamp) -> Option<Timestamp> {
        let lost = self.bundles.values().flat_map(|bundle| &bundle.lost);
        let times = lost.flat_map(|lost| [lost.until, lost.remembered_until]);
        times.filter(|end| *end > time).min()
    }
}

impl RememberedBundle {
    fn follow(
        &mut self,
        declared: BTreeSet<String>,
        crls: BTreeSet<String>,
        overlap: Duration,
        time: Timestamp,
    ) {
        let rotation = declared.difference(&self.declared).next().is_some();
        let removed: Vec<String> = self.declared.difference(&declared).cloned().collect();
        for pem in removed {
            let known = self.lost.iter_mut().find(|lost| lost.pem == pem);
            let until = if rotation { after(time, overlap) } else { time };
            let remembered_until = after(until, overlap);
            match known {
                Some(lost) if rotation => lost.remembered_until = remembered_until,
                Some(lost) => lost.until = lost.until.min(time),
                None if rotation => {
                    let issued = |crl: &&String| issued_crl(&pem, crl);
                    self.lost.push(LostCertificate {
                        crls: self.crls.iter().filter(issued).cloned().collect(),
                        pem,
                        until,
                        remembered_until,
                    });
                }
                None => {}
            }
        }
        self.lost.sort_by_key(|lost| lost.until);
        let surplus = self.lost.len().saturating_sub(MAX_LOST);
        self.lost.drain(..surplus);
        self.declared = declared;
        self.crls = crls;
    }

    /// If a bundle has any revocation list, Envoy rejects certificates from each CA that has none.
    /// So a removed CA certificate stays trusted only if both it and the bundle have lists, or
    /// neither has one.
    fn trusted(&self, time: Timestamp) -> impl Iterator<Item = &LostCertificate> {
        let lost = self.lost.iter();
        lost.filter(move |lost| {
            let listed = !lost.crls.is_empty() || self.has_list_of(lost);
            let trusted = lost.until > time && !self.declared.contains(&lost.pem);
            trusted && listed != self.crls.is_empty()
        })
    }

    fn has_list_of(&self, lost: &LostCertificate) -> bool {
        self.crls.iter().any(|crl| issued_crl(&lost.pem, crl))
    }

    fn retained(&self, time: Timestamp) -> RetainedAuthorities {
        if self.declared.is_empty() {
            return RetainedAuthorities::default();
        }
        let mut retained = RetainedAuthorities::default();
        let mut crls = BTreeSet::new();
        for lost in self.trusted(time) {
            retained.pem.push_str(&lost.pem);
            // If the bundle declares a CRL from this CA, the stored CRLs are outdated.
            if !self.has_list_of(lost) {
                crls.extend(&lost.crls);
            }
        }
        retained.crl = crls.into_iter().map(String::as_str).collect();
        retained
    }
}

fn sections(pem: &str) -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    let mut section = String::new();
    for line in pem.lines() {
        if line.starts_with("-----BEGIN ") {
            section.clear();
        }
        section.push_str(line);
        section.push('\n');
        if line.starts_with("-----END ") {
            sections.insert(std::mem::take(&mut section));
        }
    }
    sections
}

fn after(time: Timestamp, overlap: Duration) -> Timestamp {
    time.checked_add(overlap).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAP: Duration = Duration::from_secs(100);

    fn certificate(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
    }

    fn bundle(names: &[&str]) -> TrustBundle {
        TrustBundle {
            name: "ConfigMap/ns/ca".to_owned(),
            pem: names.iter().map(|name| certificate(name)).collect(),
            ..TrustBundle::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    /// Returns the retained certificates after each step.
    fn steps(memory: &mut BundleMemory, steps: &[(i64, &[&str])]) -> Vec<String> {
        let retained = |(seconds, names): &(i64, &[&str])| {
            memory.follow(&[bundle(names)], OVERLAP, at(*seconds));
            retained(memory, *seconds)
        };
        steps.iter().map(retained).collect()
    }

    fn retained(memory: &BundleMemory, seconds: i64) -> String {
        let all = memory.retained(at(seconds)).into_values();
        let pem: String = all.map(|it| it.pem).collect();
        pem.lines()
            .filter(|line| !line.starts_with('-'))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn rotated_out_bundle_is_trusted_for_one_overlap() {
        let mut memory = BundleMemory::default();
        let found = steps(
            &mut memory,
            &[
                (0, &["a"]),
                (10, &["b"]),
                (60, &["c"]),
                (109, &["c"]),
                (110, &["c"]),
                (160, &["c"]),
            ],
        );
        assert_eq!(found, ["", "a", "a b", "a b", "b", ""]);
        assert_eq!(memory.ends(at(160)), [], "all trust has ended");
    }

    #[test]
    fn a_change_that_only_removes_is_a_revocation() {
        let mut memory = BundleMemory::default();
        let found = steps(
            &mut memory,
            &[
                (0, &["a", "b"]),
                (1, &["a"]),
                (2, &["a", "c"]),
                (3, &["d", "c"]),
                (4, &["d"]),
            ],
        );
        assert_eq!(found, ["", "", "", "a", "a"]);
        let found = steps(&mut memory, &[(5, &["d", "a"]), (6, &["d"])]);
        assert_eq!(found, ["", ""]);
    }

    #[test]
    fn going_back_and_forth_gives_no_second_overlap() {
        let mut memory = BundleMemory::default();
        steps(&mut memory, &[(0, &["a"])]);
        for turn in 0..40 {
            let time = 10 + turn * 20;
            let found = steps(&mut memory, &[(time, &["b"]), (time + 10, &["a"])]);
            let (a, b) = match turn {
                0..5 => ("a", "b"),
                _ => ("", ""),
            };
            assert_eq!(found, [a, b], "turn {turn}");
        }
        // Another rotation retains the certificate again.
        let found = steps(&mut memory, &[(2_000, &["a"]), (2_001, &["b"])]);
        assert_eq!(found, ["", "a"]);
    }

    #[test]
    fn shorter_overlap_or_clock_jump_back_shortens_trust() {
        let mut memory = BundleMemory::default();
        steps(&mut memory, &[(0, &["a"]), (10, &["b"])]);
        let mut shorter = memory.clone();
        shorter.limit_to_overlap(Duration::from_secs(5), at(20));
        assert_eq!(retained(&shorter, 24), "a");
        assert_eq!(retained(&shorter, 25), "");
        shorter.limit_to_overlap(Duration::ZERO, at(21));
        assert_eq!(retained(&shorter, 21), "");
        memory.limit_to_overlap(OVERLAP, at(-5_000));
        assert_eq!(retained(&memory, -4_901), "a");
        assert_eq!(retained(&memory, -4_900), "");
    }

    #[test]
    fn absent_bundle_or_zero_overlap_retains_nothing() {
        let mut memory = BundleMemory::default();
        steps(&mut memory, &[(0, &["a"])]);
        memory.follow(&[], OVERLAP, at(1));
        assert_eq!(steps(&mut memory, &[(2, &["b"])]), [""]);
        memory.follow(&[bundle(&["c"])], Duration::ZERO, at(3));
        assert_eq!(retained(&memory, 3), "");
        assert_eq!(memory.next(at(3)), None);
        let again: BundleMemory =
            serde_json::from_str(&serde_json::to_string(&memory).unwrap()).unwrap();
        assert_eq!(again, memory);
    }
}
