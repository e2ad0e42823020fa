//! Plans rotation and removal of log files, and pauses logging if the disk is full.

use super::LogBounds;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogFacts {
    /// Size in bytes, and age.
    pub(super) current: (u64, Duration),
    /// Number and size in bytes of each rotated file, oldest first.
    pub(super) older: Vec<(u64, u64)>,
    pub(super) written: bool,
    /// Free and total bytes.
    pub(super) disk: (u64, u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogPlan {
    pub(super) rotate: bool,
    pub(super) remove: Vec<u64>,
    /// False if the disk is too full for logging.
    pub(super) write: bool,
}

pub(super) fn plan(facts: &LogFacts, bounds: LogBounds) -> LogPlan {
    let LogFacts {
        current: (bytes, age),
        older,
        written,
        disk: (free, all),
    } = facts;
    let LogBounds {
        file_bytes,
        files,
        period,
        free_bytes,
    } = bounds;
    let reserve = free_bytes.min(all / 10);
    // On a small disk, one Gateway's files may use at most a quarter of the disk.
    let file_bytes = file_bytes.min(all / 4 / files.max(1) as u64);
    let rotate = *bytes > 0 && (*bytes >= file_bytes || *age >= period);
    let mut kept: Vec<(Option<u64>, u64)> = older
        .iter()
        .map(|(number, bytes)| (Some(*number), *bytes))
        .collect();
    if rotate {
        // The rotated file counts towards the limits, but has no number yet, so this plan cannot
        // remove it.
        kept.push((None, *bytes));
    }
    let most = files.saturating_sub(1).max(1);
    let budget = file_bytes.saturating_mul(files as u64);
    let mut total: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
    let (mut remove, mut freed) = (Vec::new(), 0);
    let mut oldest = kept.iter();
    let mut count = kept.len();
    while count > most || total > budget || free.saturating_add(freed) < reserve {
        let Some((Some(number), bytes)) = oldest.next() else {
            break;
        };
        remove.push(*number);
        (count, total, freed) = (count - 1, total - bytes, freed + bytes);
    }
    // Resuming requires 25% more free space than continuing, which keeps logging from flapping.
    let wanted = if *written { reserve } else { reserve / 4 * 5 };
    LogPlan {
        rotate,
        remove,
        write: free.saturating_add(freed) >= wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: LogBounds = LogBounds {
        file_bytes: 10 * MIB,
        files: 3,
        period: Duration::from_secs(3600),
        free_bytes: 100 * MIB,
    };

    fn facts(current: u64, older: &[(u64, u64)], free: u64) -> LogFacts {
        LogFacts {
            current: (current * MIB, Duration::from_secs(1)),
            older: older.iter().map(|(n, mib)| (*n, mib * MIB)).collect(),
            written: true,
            disk: (free * MIB, 10_000 * MIB),
        }
    }

    fn planned(facts: &LogFacts) -> (bool, Vec<u64>, bool) {
        let LogPlan {
            rotate,
            remove,
            write,
        } = plan(facts, BOUNDS);
        (rotate, remove, write)
    }

    #[test]
    fn large_or_old_log_rotates_unless_empty() {
        assert_eq!(planned(&facts(9, &[], 1000)), (false, vec![], true));
        assert_eq!(planned(&facts(10, &[], 1000)), (true, vec![], true));
        let mut old = facts(1, &[], 1000);
        old.current.1 = BOUNDS.period;
        assert_eq!(planned(&old), (true, vec![], true));
        old.current.0 = 0;
        assert_eq!(planned(&old), (false, vec![], true));
    }

    #[test]
    fn oldest_logs_are_removed_beyond_count_or_size() {
        let two = [(7, 10), (8, 10)];
        assert_eq!(planned(&facts(3, &two, 1000)), (false, vec![], true));
        assert_eq!(planned(&facts(10, &two, 1000)), (true, vec![7], true));
        // Envoy wrote lines while no agent was running to rotate the log.
        let grown = [(7, 10), (8, 500)];
        assert_eq!(planned(&facts(3, &grown, 1000)), (false, vec![7, 8], true));
        assert_eq!(planned(&facts(500, &two, 1000)), (true, vec![7, 8], true));
    }

    #[test]
    fn full_disk_removes_old_logs_then_stops_writing() {
        let two = [(7, 10), (8, 10)];
        assert_eq!(planned(&facts(3, &two, 95)), (false, vec![7], true));
        assert_eq!(planned(&facts(3, &two, 85)), (false, vec![7, 8], true));
        assert_eq!(planned(&facts(3, &two, 50)), (false, vec![7, 8], false));
        let off = |free| LogFacts {
            written: false,
            ..facts(3, &[], free)
        };
        assert_eq!(planned(&off(110)), (false, vec![], false));
        assert_eq!(planned(&off(125)), (false, vec![], true));
    }

    #[test]
    fn small_disk_reserves_tenth_and_gives_logs_quarter() {
        let mut small = facts(1, &[], 20);
        small.disk = (20 * MIB, 100 * MIB);
        assert_eq!(planned(&small), (false, vec![], true));
        small.current.0 = 9 * MIB;
        assert_eq!(planned(&small), (true, vec![], true));
        small.current.0 = MIB;
        small.disk.0 = 9 * MIB;
        assert_eq!(planned(&small), (false, vec![], false));
    }
}
