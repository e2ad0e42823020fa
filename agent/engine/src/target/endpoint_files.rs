//! Chooses which endpoint sets get their own files if Envoy may not watch a file for each: the sets
//! that change most often.
//!
//! Each move between a file and the list of clusters recreates a cluster, which opens new
//! connections. Must never move a set back and forth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_render::Rendered;
use sesame_render::layout::file_name;

use super::{HostSettings, Target};
use sesame_sources::update::GatewayRevision;

const HALF_LIFE: Duration = Duration::from_secs(600);
/// Minimum time between moves, because each move recreates clusters.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of moves at a time. Low, because sets that lose a file may hold its inotify
/// instance a little longer.
const MAX_MOVED: usize = 8;
/// How many times as often a set must change to take another set's file.
const MIN_RATIO: f32 = 4.0;
/// Minimum lead, so that occasional changes do not move files.
const MIN_LEAD: f32 = 3.0;
/// Changes are forgotten below this weight.
const FORGOTTEN: f32 = 0.1;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EndpointFiles {
    /// File names of preferred sets; if empty, hashes of the names decide.
    first: Arc<BTreeSet<String>>,
    /// Keyed by the hash of the set's name.
    changes: BTreeMap<u64, Changes>,
    moved: Option<Instant>,
}

/// Changes to one set, as a weight that decays over time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Changes {
    weight: f32,
    at: Instant,
}

impl Changes {
    fn weight(self, now: Instant) -> f32 {
        let passed = now.saturating_duration_since(self.at);
        self.weight * (-passed.as_secs_f32() / HALF_LIFE.as_secs_f32()).exp2()
    }
}

impl EndpointFiles {
    /// A starting agent must not move existing files.
    pub(super) fn of(
        offer: &GatewayRevision,
        host: &HostSettings,
        last: Option<&Target>,
        now: Instant,
    ) -> Self {
        if let Some(last) = last {
            let changed = offer.encoded.changed_endpoints(&last.encoded);
            return last.files.after(&last.rendered, &changed, now);
        }
        let found = host.endpoint_files.get(&offer.gateway);
        Self {
            first: found.cloned().map(Arc::new).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(super) fn first(&self) -> &Arc<BTreeSet<String>> {
        &self.first
    }

    /// A set gets a file only when its endpoints change, because that recreates its cluster anyway.
    pub(super) fn after(&self, rendered: &Rendered, changed: &[&str], now: Instant) -> Self {
        if rendered.inline == 0 {
            return Self::default();
        }
        if changed.is_empty() {
            return self.clone();
        }
        let mut next = self.clone();
        next.record_changes(changed, now);
        let is_due = |moved| now.saturating_duration_since(moved) >= PAUSE;
        if next.moved.is_none_or(is_due) {
            next.choose(rendered, changed, now);
        }
        next
    }

    fn record_changes(&mut self, changed: &[&str], now: Instant) {
        self.changes
            .retain(|_, changes| changes.weight(now) >= FORGOTTEN);
        for name in changed {
            let weight = self.weight(name, now) + 1.0;
            self.changes.insert(key(name), Changes { weight, at: now });
        }
    }

    fn weight(&self, name: &str, now: Instant) -> f32 {
        let changes = self.changes.get(&key(name));
        changes.map_or(0.0, |changes| changes.weight(now))
    }

    fn choose(&mut self, rendered: &Rendered, changed: &[&str], now: Instant) {
        let has_file = |name: &str| {
            let by_name = &rendered.endpoints;
            by_name
                .binary_search_by(|file| file.name.as_str().cmp(name))
                .is_ok()
        };
        let weighed = |name| (self.weight(name, now), name);
        let outside = changed.iter().copied().filter(|name| !has_file(name));
        let mut outside: Vec<(f32, &str)> = outside
            .map(weighed)
            .filter(|(weight, _)| *weight >= MIN_LEAD)
            .collect();
        if outside.is_empty() {
            return;
        }
        let names = rendered.endpoints.iter().map(|file| file.name.as_str());
        let mut inside: Vec<(f32, &str)> = names
            .filter(|name| !changed.contains(name))
            .map(weighed)
            .collect();
        outside.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
        inside.sort_by(|(a, one), (b, other)| a.total_cmp(b).then_with(|| one.cmp(other)));
        let moves: Vec<(&str, &str)> = outside
            .into_iter()
            .zip(inside)
            .take(MAX_MOVED)
            .filter(|((more, _), (less, _))| *more >= MIN_RATIO * less + MIN_LEAD)
            .map(|((_, gets), (_, loses))| (gets, loses))
            .collect();
        if moves.is_empty() {
            return;
        }
        let mut first: BTreeSet<String> = rendered
            .endpoints
            .iter()
            .map(|file| file_name(&file.name))
            .collect();
        for (gets, loses) in moves {
            first.remove(&file_name(loses));
            first.insert(file_name(gets));
        }
        self.first = Arc::new(first);
        self.moved = Some(now);
    }
}

/// Hashes save memory, because each target keeps thousands of names.
fn key(name: &str) -> u64 {
    let mut digits = file_name(name);
    digits.truncate(16);
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_render::Resource;

    fn rendered(files: &BTreeSet<String>) -> Rendered {
        let file = |name: &String| Resource {
            name: name.clone(),
            bytes: bytes::Bytes::new(),
        };
        Rendered {
            endpoints: files.iter().map(file).collect(),
            inline: 1,
            ..Rendered::default()
        }
    }

    struct Host {
        files: BTreeSet<String>,
        choice: EndpointFiles,
        now: Instant,
        moves: usize,
    }

    impl Host {
        fn new() -> Self {
            Self {
                files: ["a", "b"].map(str::to_owned).into(),
                choice: EndpointFiles::default(),
                now: Instant::now(),
                moves: 0,
            }
        }

        fn change(&mut self, names: &[&str], later: u64) {
            self.now += Duration::from_secs(later);
            self.choice = self.choice.after(&rendered(&self.files), names, self.now);
            let first = self.choice.first();
            if first.is_empty() {
                return;
            }
            let all = ["a", "b", "c", "d"].map(str::to_owned);
            let files = all
                .into_iter()
                .filter(|name| first.contains(&file_name(name)));
            let files = files.collect();
            if files != self.files {
                self.moves += 1;
                self.files = files;
            }
        }

        fn has_file(&self, name: &str) -> bool {
            self.files.contains(name)
        }
    }

    #[test]
    fn busy_set_takes_file_of_quiet_set() {
        let mut host = Host::new();
        host.change(&["a"], 1);
        host.change(&["c"], 1);
        host.change(&["c"], 1);
        assert_eq!(host.moves, 0, "occasional changes must not move files");
        for _ in 0..2 {
            host.change(&["c"], 1);
        }
        assert!(host.has_file("a") && host.has_file("c"), "{:?}", host.files);
        for _ in 0..4 {
            host.change(&["d"], 1);
        }
        assert_eq!(host.moves, 1);
        for _ in 0..10 {
            host.change(&["d"], 2);
        }
        assert!(host.has_file("c") && host.has_file("d"), "{:?}", host.files);
    }

    #[test]
    fn equally_busy_sets_do_not_swap_files() {
        let mut host = Host::new();
        for round in 0..500 {
            let names = ["a", "b", "c", "d"];
            host.change(&[names[round * 7 % 4]], 1);
            host.change(&[names[round * 5 % 4]], 1);
        }
        assert_eq!(host.moves, 0);
    }

    #[test]
    fn old_changes_no_longer_count() {
        let mut host = Host::new();
        for _ in 0..50 {
            host.change(&["a", "b"], 1);
        }
        for _ in 0..50 {
            host.change(&["c"], 1);
        }
        assert_eq!(host.moves, 0);
        for _ in 0..50 {
            host.change(&["c"], 120);
        }
        assert!(host.has_file("c"));
        assert_eq!(host.moves, 1);
        assert!(host.choice.changes.len() <= 2, "{:?}", host.choice.changes);
    }

    #[test]
    fn nothing_is_remembered_when_every_set_has_file() {
        let host = Host::new();
        let all = Rendered {
            inline: 0,
            ..rendered(&host.files)
        };
        let before = EndpointFiles {
            first: Arc::new(["0".to_owned()].into()),
            ..EndpointFiles::default()
        };
        let after = before.after(&all, &["a"], host.now);
        assert_eq!(after, EndpointFiles::default());
    }
}
