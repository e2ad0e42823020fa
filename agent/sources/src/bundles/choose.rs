//! Chooses which of a Gateway's valid bundles to serve.

use std::collections::BTreeSet;

use super::state::TakenBundle;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) sequence: u64,
    pub(super) digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Chosen,
    /// Another bundle has a higher sequence number or was allowed by an operator.
    Superseded,
    Older(String),
}

/// Chooses at most one bundle. If it exists in several files, each is `Chosen`.
pub(super) fn choose(
    taken: Option<&TakenBundle>,
    candidates: &[Candidate],
    allowed: &BTreeSet<String>,
) -> Vec<Standing> {
    let outdated = |one: &Candidate| taken.and_then(|taken| why_outdated(one, taken));
    let rank = |one: &Candidate| {
        let current = taken.is_some_and(|taken| taken.digest == one.digest);
        let permitted = allowed.contains(&one.digest) && !current;
        let eligible = permitted || outdated(one).is_none();
        // If sequence numbers are equal, compare digests, so that file order does not matter.
        eligible.then(|| (permitted, one.sequence, one.digest.clone()))
    };
    let best = candidates.iter().filter_map(rank).max();
    let standing = |one: &Candidate| {
        let rank = rank(one);
        if rank.is_some() && rank == best {
            return Standing::Chosen;
        }
        match outdated(one) {
            Some(why) => Standing::Older(why),
            None => Standing::Superseded,
        }
    };
    candidates.iter().map(standing).collect()
}

fn why_outdated(one: &Candidate, taken: &TakenBundle) -> Option<String> {
    let TakenBundle {
        gateway: _,
        highest,
        sequence,
        digest,
    } = taken;
    if one.digest == *digest || one.sequence > *highest {
        return None;
    }
    let found = one.sequence;
    let advice = "`sesame-agent apply --allow-older` applies it anyway";
    Some(if found == *highest && sequence == highest {
        format!(
            "has the same sequence number ({found}) as a bundle that was already applied; give each \
             bundle a higher number"
        )
    } else if sequence < highest {
        format!(
            "has sequence number {found}; because {sequence} was applied with --allow-older, only a number above {highest} is applied automatically; {advice}"
        )
    } else {
        format!(
            "is older than the last applied bundle (sequence number {found}, last {highest}); {advice}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(sequence: u64, digest: &str) -> Candidate {
        Candidate {
            sequence,
            digest: digest.to_owned(),
        }
    }

    fn taken(highest: u64, sequence: u64, digest: &str) -> TakenBundle {
        TakenBundle {
            gateway: String::new(),
            highest,
            sequence,
            digest: digest.to_owned(),
        }
    }

    fn chosen(taken: Option<&TakenBundle>, all: &[Candidate], allowed: &[&str]) -> Option<String> {
        let allowed = allowed.iter().map(ToString::to_string).collect();
        let standings = choose(taken, all, &allowed);
        let of = |standing: &Standing| *standing == Standing::Chosen;
        let at = standings.iter().position(of)?;
        Some(all[at].digest.clone())
    }

    #[test]
    fn highest_bundle_is_chosen_and_older_ones_ignored() {
        let all = [candidate(1, "a"), candidate(3, "c"), candidate(2, "b")];
        assert_eq!(chosen(None, &all, &[]).as_deref(), Some("c"));
        let now = taken(3, 3, "c");
        assert_eq!(chosen(Some(&now), &all, &[]).as_deref(), Some("c"));
        // After the served bundle's file is removed, no older bundle may replace it.
        assert_eq!(chosen(Some(&now), &all[..1], &[]), None);
        let later = [candidate(4, "d"), candidate(3, "c")];
        assert_eq!(chosen(Some(&now), &later, &[]).as_deref(), Some("d"));
    }

    #[test]
    fn another_bundle_with_the_same_number_is_refused() {
        let now = taken(3, 3, "c");
        let standings = choose(Some(&now), &[candidate(3, "x")], &BTreeSet::new());
        let [Standing::Older(why)] = &standings[..] else {
            panic!("{standings:?}");
        };
        assert!(why.contains("has the same sequence number"), "{why}");
    }

    #[test]
    fn allowed_older_bundle_stays_until_newer_arrives() {
        let all = [candidate(1, "a"), candidate(3, "c")];
        let now = taken(3, 3, "c");
        assert_eq!(chosen(Some(&now), &all, &["a"]).as_deref(), Some("a"));
        let back = taken(3, 1, "a");
        assert_eq!(chosen(Some(&back), &all, &[]).as_deref(), Some("a"));
        assert_eq!(chosen(Some(&back), &all, &["a"]).as_deref(), Some("a"));
        let newer = [all[0].clone(), all[1].clone(), candidate(4, "d")];
        assert_eq!(chosen(Some(&back), &newer, &[]).as_deref(), Some("d"));
        let both = [candidate(2, "b"), candidate(2, "b")];
        let standings = choose(None, &both, &BTreeSet::new());
        assert_eq!(standings, [Standing::Chosen, Standing::Chosen]);
    }
}
