//! Session ticket keys and their file format.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use sesame_proto::tls_parameters::TICKET_KEY_BYTES;

/// Number of keys kept: the current one, and previous ones whose tickets are still accepted.
const KEY_COUNT: usize = 3;
const FORMAT: u8 = 1;
/// Header size: the format, and the current key's creation time.
const HEAD: usize = 1 + size_of::<i64>();

type TicketKey = [u8; TICKET_KEY_BYTES];

/// Newest first.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TicketKeys {
    made: i64,
    keys: Vec<TicketKey>,
}

// Omit the keys, because they decrypt recorded connections.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys")
            .field("made", &self.made)
            .field("keys", &self.keys.len())
            .finish()
    }
}

impl TicketKeys {
    pub(super) fn first(now: Timestamp, key: TicketKey) -> Self {
        Self {
            made: now.as_second(),
            keys: vec![key],
        }
    }

    pub(super) fn rotated(&self, now: Timestamp, key: TicketKey) -> Self {
        let before = self.keys.iter().copied().take(KEY_COUNT - 1);
        Self {
            made: now.as_second(),
            keys: std::iter::once(key).chain(before).collect(),
        }
    }

    /// Returns the time until the next rotation, or zero if the clock was set back.
    pub(super) fn rests(&self, now: Timestamp, period: Duration) -> Duration {
        let age = u64::try_from(now.as_second().saturating_sub(self.made));
        age.map_or(Duration::ZERO, |age| {
            period.saturating_sub(Duration::from_secs(age))
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &key[..])
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.made.to_be_bytes());
        bytes.extend(self.keys.iter().flatten());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, keys) = bytes.split_at_checked(HEAD)?;
        let (format, made) = head.split_first()?;
        let (keys, rest) = keys.as_chunks::<TICKET_KEY_BYTES>();
        let is_whole =
            *format == FORMAT && rest.is_empty() && (1..=KEY_COUNT).contains(&keys.len());
        is_whole.then_some(Self {
            made: i64::from_be_bytes(made.try_into().ok()?),
            keys: keys.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn rotation_keeps_newest_first_and_two_older_keys() {
        let mut keys = TicketKeys::first(at(0), [0; TICKET_KEY_BYTES]);
        for number in 1..5 {
            keys = keys.rotated(at(number.into()), [number; TICKET_KEY_BYTES]);
            assert_eq!(TicketKeys::decode(&keys.encode()), Some(keys.clone()));
        }
        let numbers: Vec<u8> = keys.keys().map(|key| key[0]).collect();
        assert_eq!(numbers, [4, 3, 2]);
        assert!(!format!("{keys:?}").contains("[4, 4"));
    }

    #[test]
    fn rotation_is_due_after_period_or_clock_setback() {
        let keys = TicketKeys::first(at(1000), [0; TICKET_KEY_BYTES]);
        let period = Duration::from_secs(60);
        for (now, left) in [(1000, 60), (1001, 59), (1060, 0), (9000, 0), (999, 0)] {
            assert_eq!(keys.rests(at(now), period).as_secs(), left, "at {now}");
        }
    }

    #[test]
    fn malformed_key_file_is_not_read() {
        let good = TicketKeys::first(at(5), [7; TICKET_KEY_BYTES]).encode();
        assert!(TicketKeys::decode(&good).is_some());
        for length in [0, 1, 8, 9, 88, good.len() - 1] {
            assert_eq!(TicketKeys::decode(&good[..length]), None, "{length}");
        }
        let other = [&[2], &good[1..]].concat();
        assert_eq!(TicketKeys::decode(&other), None);
        let more = [&good[..], &[0; 3 * TICKET_KEY_BYTES]].concat();
        assert_eq!(TicketKeys::decode(&more), None);
    }
}
