//! Remembers right credentials, so that each client's requests do not repeat a costly check.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ring::hmac;

/// Time since the last use after which credentials are forgotten. They cannot become wrong, because
/// a changed set of users has another digest.
const KEPT: Duration = Duration::from_secs(300);
const MOST: usize = 4_096;

pub(super) type CredentialKey = [u8; 32];

/// Computes keys that reveal nothing about credentials, and that differ in each process.
#[derive(Clone)]
pub(super) struct CredentialKeys(hmac::Key);

impl CredentialKeys {
    pub(super) fn from_secret(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(super) fn of(&self, set: &str, user: &str, password: &[u8]) -> CredentialKey {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [set.as_bytes(), user.as_bytes(), password] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut key = CredentialKey::default();
        key.copy_from_slice(context.sign().as_ref());
        key
    }
}

/// Keys of right credentials, each with the time of its last use.
#[derive(Default)]
pub(super) struct Verified(HashMap<CredentialKey, Instant>);

impl Verified {
    pub(super) fn contains(&mut self, key: &CredentialKey, now: Instant) -> bool {
        let Some(used) = self.0.get_mut(key) else {
            return false;
        };
        let is_fresh = now.duration_since(*used) < KEPT;
        if is_fresh {
            *used = now;
        }
        is_fresh
    }

    pub(super) fn add(&mut self, key: CredentialKey, now: Instant) {
        if self.0.len() >= MOST {
            self.0.retain(|_, used| now.duration_since(*used) < KEPT);
        }
        if self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(_, used)| **used);
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| self.0.remove(&key));
        }
        self.0.insert(key, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_forgotten_unless_used() {
        let keys = CredentialKeys::from_secret(&[7; 32]);
        let (one, other) = (keys.of("set", "ann", b"a"), keys.of("set", "anna", b""));
        assert_ne!(one, other);
        assert_ne!(
            one,
            CredentialKeys::from_secret(&[8; 32]).of("set", "ann", b"a")
        );
        let (mut verified, start) = (Verified::default(), Instant::now());
        verified.add(one, start);
        assert!(!verified.contains(&other, start));
        assert!(verified.contains(&one, start + KEPT / 2));
        assert!(verified.contains(&one, start + KEPT));
        assert!(!verified.contains(&one, start + KEPT * 2));
    }

    #[test]
    fn oldest_credentials_make_room() {
        let (mut verified, start) = (Verified::default(), Instant::now());
        let key = |number: usize| {
            let mut key = CredentialKey::default();
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        let at = |number: usize| start + Duration::from_micros(number as u64);
        for number in 0..=MOST {
            verified.add(key(number), at(number));
        }
        assert_eq!(verified.0.len(), MOST);
        assert!(!verified.contains(&key(0), at(MOST)));
        assert!(verified.contains(&key(1), at(MOST)));
    }
}
