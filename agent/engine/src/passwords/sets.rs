//! The sets of users of one Gateway, by the digest of their key pair.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sesame_proto::credentials;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{CredentialPart, CredentialSet};

use super::digests;

/// How long Envoy may still use a set that neither the newest nor the accepted configuration
/// contains.
const KEPT: Duration = Duration::from_secs(60);

/// Users with the digests of their passwords.
pub(super) struct UserSet {
    users: BTreeMap<String, String>,
    /// A digest of each cost. All checks take the same time, so that it does not reveal whether a
    /// user exists.
    by_cost: BTreeMap<u32, String>,
}

impl UserSet {
    fn of(pair: &KeyPair) -> Option<Self> {
        let text = std::str::from_utf8(&pair.private_key).ok()?;
        let users = credentials::users(text).ok()?;
        if !credentials::need_agent(&users) {
            return None;
        }
        let by_cost = users.values();
        let by_cost = by_cost.map(|digest| (digests::cost(digest), (*digest).to_owned()));
        let by_cost = by_cost.collect();
        let users = users.into_iter();
        let users = users.map(|(user, digest)| (user.to_owned(), digest.to_owned()));
        Some(Self {
            users: users.collect(),
            by_cost,
        })
    }

    /// Blocks for as long as the digests' costs require.
    pub(super) fn admits(&self, user: &str, password: &[u8]) -> bool {
        let known = self.users.get(user);
        let known = known.map(|digest| (digests::cost(digest), digest));
        let mut admitted = false;
        for (cost, any) in &self.by_cost {
            let own = known.filter(|(own, _)| own == cost);
            let matches = digests::matches(own.map_or(any, |(_, digest)| digest), password);
            admitted |= matches && own.is_some();
        }
        admitted
    }
}

struct KnownSet {
    set: Arc<UserSet>,
    /// When a configuration without this set was offered. `None` if the newest one contains it.
    retired: Option<Instant>,
}

impl KnownSet {
    fn new(set: UserSet) -> Self {
        Self {
            set: Arc::new(set),
            retired: None,
        }
    }
}

/// The sets that this Gateway's Envoy may refer to.
#[derive(Default)]
pub(crate) struct PasswordSets {
    sets: Mutex<BTreeMap<String, KnownSet>>,
    pub(super) counts: Arc<PasswordCounts>,
}

impl PasswordSets {
    /// Must be called before Envoy gets a configuration with these key pairs, and contain the
    /// accepted configuration's, too.
    pub(crate) fn offer<'k>(&self, pairs: impl Iterator<Item = &'k KeyPair>) {
        let now = Instant::now();
        let is_of_users = |pair: &&KeyPair| {
            let mut checks = CredentialSet::checks(&pair.name);
            checks
                .next()
                .is_some_and(|(_, part)| part == CredentialPart::BasicAuth)
        };
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        for known in sets.values_mut().filter(|it| it.retired.is_none()) {
            known.retired = Some(now);
        }
        for pair in pairs.filter(is_of_users) {
            let digest = pair.digest();
            match sets.get_mut(&digest) {
                Some(known) => known.retired = None,
                None => sets.extend(UserSet::of(pair).map(|set| (digest, KnownSet::new(set)))),
            }
        }
        sets.retain(|_, known| {
            known
                .retired
                .is_none_or(|retired| now.duration_since(retired) < KEPT)
        });
    }

    pub(super) fn get(&self, digest: &str) -> Option<Arc<UserSet>> {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.get(digest).map(|known| Arc::clone(&known.set))
    }

    pub(crate) fn counts(&self) -> Arc<PasswordCounts> {
        Arc::clone(&self.counts)
    }
}

/// Outcome of a request's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PasswordVerdict {
    Allowed,
    Denied,
    /// Too many checks are waiting.
    Overloaded,
    /// Envoy refers to a set that this agent does not have.
    Unknown,
}

impl PasswordVerdict {
    pub(crate) const ALL: [Self; 4] =
        [Self::Allowed, Self::Denied, Self::Overloaded, Self::Unknown];

    /// Returns the name as a metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Overloaded => "overloaded",
            Self::Unknown => "unknown",
        }
    }
}

/// Number of checks since the agent started, by outcome.
#[derive(Debug, Default)]
pub(crate) struct PasswordCounts([AtomicU64; PasswordVerdict::ALL.len()]);

impl PasswordCounts {
    pub(super) fn record(&self, verdict: PasswordVerdict) {
        self.0[verdict as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, verdict: PasswordVerdict) -> u64 {
        self.0[verdict as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_costs_one_check_per_format() {
        let users = "ann:$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW\n\
                     bob:$2b$04$abcdefghijklmnopqrstuujZkTwHUiJ9XdZPwKfcfDo7dMp5DjlTu\n\
                     eve:{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=\n\
                     ida:{SHA}9SMYoF5RilWWASry7TjeaKwmpGg=\n";
        let set = UserSet::of(&KeyPair {
            private_key: users.into(),
            ..KeyPair::default()
        });
        let set = set.unwrap();
        assert_eq!(set.by_cost.len(), 3);
        for user in ["ann", "bob", "eve"] {
            assert!(set.admits(user, b"wonderland"), "{user}");
            assert!(!set.admits(user, b"builder"), "{user}");
        }
        assert!(set.admits("ida", b"builder"));
        for user in ["ida", "nobody", ""] {
            assert!(!set.admits(user, b"wonderland"), "{user}");
        }
    }
}
