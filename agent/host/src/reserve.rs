//! Reserve of inotify instances for starting Envoy.
//!
//! Envoy needs one instance per watched file, and aborts if none is free. The agent therefore holds
//! as many placeholders as the current Envoy processes use. Borrow instances before starting an
//! Envoy or making it watch more files.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::inotify as kernel;

use super::{inotify, limits};

/// Extra instances, in case Envoy watches more files than were counted.
pub const SPARE: usize = 2;
/// Number of instances that Envoy needs to validate a configuration: one for itself, and one for the
/// file of hosts in a bootstrap.
pub const VALIDATION: usize = 2;
/// Maximum number of instances to hold. More would leave too few for the user's other processes.
pub const MAX_HELD: usize = 64;
const LEFT_FREE: usize = 8;
/// Descriptors that placeholders leave to the agent, which needs some to write Envoy's files.
const LEFT_TO_AGENT: u64 = 16;
const REFILL: Duration = Duration::from_secs(2);

/// Inotify instances for all Envoy processes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct InotifyReserve(Arc<Mutex<HeldInstances>>);

#[derive(Debug, Default)]
struct HeldInstances {
    placeholders: Vec<OwnedFd>,
    /// Instances on loan to Envoy processes that are acquiring them.
    lent: usize,
    envoys: BTreeMap<String, InstanceNeed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct InstanceNeed {
    /// Files that Envoy watches, or will watch once it is started.
    files: usize,
    /// True if Envoy is running and therefore already has its instances.
    runs: bool,
    leaving: usize,
}

impl InstanceNeed {
    /// Counts the successor's instances and, unless Envoy is running, Envoy's own.
    fn to_hold(self) -> usize {
        if self.runs {
            self.files
        } else {
            2 * self.files
        }
    }
}

/// Held and needed instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveLevel {
    /// Held instances, including those on loan.
    pub held: usize,
    /// Instances to hold for the next Envoy processes.
    pub wanted: usize,
    /// Instances that replaced Envoy processes will release.
    pub leaving: usize,
}

impl ReserveLevel {
    /// Returns a message if too few instances are held.
    pub fn shortage(self) -> Option<String> {
        let Self { held, wanted, .. } = self;
        (held + self.leaving < wanted).then(|| {
            format!(
                "{held} inotify instances are held for the next Envoys of this host, which need \
                 {wanted}: this user's other processes use the rest. Until more are free, a \
                 restarted Envoy watches fewer files, so some changes take longer; {REMEDY}"
            )
        })
    }
}

/// Remedy for messages about missing instances.
pub const REMEDY: &str = "raise fs.inotify.max_user_instances (or \
    user.max_inotify_instances in the user namespace), or stop processes that use inotify";

/// Too few inotify instances are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} inotify instances are needed, and {free} are free; {REMEDY}")]
pub struct LackingInstances {
    /// Number of instances needed.
    pub needed: usize,
    /// Number of instances available.
    pub free: usize,
}

impl InotifyReserve {
    /// Returns a handle to the reserve for the named Gateway's Envoy.
    pub fn envoy(&self, name: impl Into<String>) -> EnvoyInstances {
        EnvoyInstances {
            reserve: self.clone(),
            name: name.into(),
        }
    }

    /// Returns the held and needed instances.
    pub fn level(&self) -> ReserveLevel {
        let held = self.lock();
        ReserveLevel {
            held: held.placeholders.len() + held.lent,
            wanted: held.wanted(),
            leaving: held.envoys.values().map(|envoy| envoy.leaving).sum(),
        }
    }

    /// Acquires missing placeholders and logs shortages. Never returns.
    pub async fn keep(self) {
        let mut reported = None;
        loop {
            tokio::time::sleep(REFILL).await;
            self.lock().settle();
            let shortage = self.level().shortage();
            if shortage != reported {
                if let Some(shortage) = &shortage {
                    tracing::warn!("{shortage}");
                } else {
                    tracing::info!(
                        "enough inotify instances are again reserved for the next Envoys"
                    );
                }
                reported = shortage;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldInstances> {
        // Ignore poisoning, because a panic cannot leave inconsistent counts here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One Envoy's access to the reserve. The default has its own reserve.
#[derive(Clone, Default)]
pub struct EnvoyInstances {
    reserve: InotifyReserve,
    name: String,
}

impl fmt::Debug for EnvoyInstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EnvoyInstances").field(&self.name).finish()
    }
}

impl EnvoyInstances {
    /// Records how many files Envoy watches or will watch.
    pub fn set_files(&self, files: usize) {
        self.change(|need| need.files = files);
    }

    /// Records that Envoy runs and watches this many files (zero if unknown). Ends the loan.
    pub fn record_running(&self, watched: usize, loan: Option<InstanceLoan>) {
        let mut held = self.reserve.lock();
        if let Some(mut loan) = loan {
            held.lent -= std::mem::take(&mut loan.count);
        }
        let need = held.envoys.entry(self.name.clone()).or_default();
        need.runs = true;
        if watched > 0 {
            need.files = watched;
        }
        held.settle();
    }

    /// Records that Envoy has exited, and acquires the instances that it released.
    pub fn record_ended(&self) {
        self.change(|need| need.runs = false);
    }

    /// Records how many files the previous Envoy still watches.
    pub fn record_leaving(&self, watched: usize) {
        self.change(|need| need.leaving = watched);
    }

    /// Returns how many files Envoy watches or will watch.
    pub fn files(&self) -> usize {
        let held = self.reserve.lock();
        held.envoys.get(&self.name).map_or(0, |need| need.files)
    }

    /// Forgets this Envoy, whose Gateway is no longer served.
    pub fn forget(&self) {
        let mut held = self.reserve.lock();
        held.envoys.remove(&self.name);
        held.settle();
    }

    /// Returns how many of the `needed` files Envoy may watch so that its successor can watch as
    /// many.
    pub fn budget(&self, needed: usize) -> usize {
        let mut held = self.reserve.lock();
        let need = held.envoys.get(&self.name).copied().unwrap_or_default();
        let running = if need.runs { need.files } else { 0 };
        if needed <= running {
            return needed;
        }
        let others: usize = held.envoys.values().map(|envoy| envoy.to_hold()).sum();
        let others = others - need.to_hold() + SPARE;
        let all = others + (needed - running) + needed;
        if all > MAX_HELD {
            drop(held);
            return afforded(running + inotify::room(), running, needed);
        }
        held.extend(all, LEFT_FREE);
        let own = held.placeholders.len().saturating_sub(others);
        afforded(own, running, needed)
    }

    /// Acquires up to `needed` placeholders, and returns how many can be borrowed.
    pub fn free(&self, needed: usize) -> usize {
        let mut held = self.reserve.lock();
        held.extend(needed, 0);
        let free = held.placeholders.len().min(needed);
        held.leave_descriptors();
        free
    }

    /// Releases `count` placeholders for an Envoy.
    pub fn borrow(&self, count: usize) -> Result<InstanceLoan, LackingInstances> {
        let mut held = self.reserve.lock();
        held.extend(count, 0);
        let free = held.placeholders.len();
        if free < count {
            let needed = count;
            held.leave_descriptors();
            return Err(LackingInstances { needed, free });
        }
        held.placeholders.truncate(free - count);
        held.lent += count;
        Ok(InstanceLoan {
            reserve: self.reserve.clone(),
            count,
        })
    }

    /// Releases as many placeholders as Envoy needs to start.
    pub fn borrow_for_start(&self) -> Result<InstanceLoan, LackingInstances> {
        self.borrow(self.files())
    }

    fn change(&self, change: impl FnOnce(&mut InstanceNeed)) {
        let mut held = self.reserve.lock();
        change(held.envoys.entry(self.name.clone()).or_default());
        held.settle();
    }
}

/// Instances on loan to an Envoy, reacquired on drop if still free.
#[derive(Debug)]
pub struct InstanceLoan {
    reserve: InotifyReserve,
    count: usize,
}

impl Drop for InstanceLoan {
    fn drop(&mut self) {
        if self.count > 0 {
            let mut held = self.reserve.lock();
            held.lent -= self.count;
            held.settle();
        }
    }
}

impl HeldInstances {
    fn wanted(&self) -> usize {
        match self.envoys.values().map(|envoy| envoy.to_hold()).sum() {
            0 => 0,
            all => MAX_HELD.min(all + SPARE),
        }
    }

    fn settle(&mut self) {
        let wanted = self.wanted().saturating_sub(self.lent);
        if self.lent == 0 {
            self.extend(wanted, LEFT_FREE);
        }
        self.placeholders.truncate(wanted);
        self.leave_descriptors();
    }

    /// Releases placeholders if the process has few descriptors left.
    fn leave_descriptors(&mut self) {
        let usage = limits::files_of("self").or_else(|| {
            // Reading `/proc` needs descriptors, too.
            let fewer = self.placeholders.len().saturating_sub(2);
            self.placeholders.truncate(fewer);
            limits::files_of("self")
        });
        let Some((limit, open)) = usage else {
            return;
        };
        let excess = (open + LEFT_TO_AGENT).saturating_sub(limit);
        let excess = usize::try_from(excess).unwrap_or(usize::MAX);
        let left = self.placeholders.len().saturating_sub(excess);
        self.placeholders.truncate(left);
    }

    /// Acquires placeholders until there are `wanted`. If possible, leaves `leave` instances free.
    fn extend(&mut self, wanted: usize, leave: usize) {
        let missing = wanted.saturating_sub(self.placeholders.len());
        if missing == 0 {
            return;
        }
        let mut opened: Vec<OwnedFd> = (0..missing + leave + self.lent)
            .map_while(|_| kernel::init(kernel::CreateFlags::CLOEXEC).ok())
            .collect();
        let free = opened.len().saturating_sub(self.lent);
        opened.truncate(to_take(free, missing, leave));
        self.placeholders.append(&mut opened);
    }
}

fn to_take(free: usize, missing: usize, leave: usize) -> usize {
    let left = if free >= missing + leave {
        leave
    } else {
        leave.min(free / 8)
    };
    missing.min(free - left)
}

/// Envoy and its successor share the `held` instances, so each additional file requires two.
fn afforded(held: usize, running: usize, needed: usize) -> usize {
    let more = held.saturating_sub(running) / 2;
    (running + more).min(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_and_successor_share_placeholders() {
        assert_eq!(afforded(40, 0, 20), 20);
        assert_eq!(afforded(40, 0, 30), 20);
        assert_eq!(afforded(8, 0, 20), 4);
        assert_eq!(afforded(0, 0, 20), 0);
        // A running Envoy may keep watching its files.
        assert_eq!(afforded(0, 10, 20), 10);
        assert_eq!(afforded(10, 10, 20), 10);
        assert_eq!(afforded(14, 10, 20), 12);
        assert_eq!(afforded(99, 10, 20), 20);
    }

    #[test]
    fn last_instances_are_left_to_others() {
        assert_eq!(to_take(100, 20, 8), 20);
        assert_eq!(to_take(24, 20, 8), 20);
        assert_eq!(to_take(20, 20, 8), 18);
        assert_eq!(to_take(8, 20, 8), 7);
        assert_eq!(to_take(0, 20, 8), 0);
        // If instances are needed immediately, take all free ones.
        assert_eq!(to_take(4, 20, 0), 4);
    }

    #[test]
    fn shortage_names_remedy_unless_predecessor_releases_it() {
        let level = ReserveLevel {
            held: 3,
            wanted: 9,
            leaving: 0,
        };
        let shortage = level.shortage().unwrap();
        assert!(shortage.contains("fs.inotify.max_user_instances") && shortage.contains('9'));
        assert_eq!(
            ReserveLevel {
                leaving: 6,
                ..level
            }
            .shortage(),
            None
        );
        assert_eq!(ReserveLevel { held: 9, ..level }.shortage(), None);
    }

    #[test]
    fn placeholders_are_lent_and_held_again() {
        let reserve = InotifyReserve::default();
        let envoy = reserve.envoy("ns/edge");
        assert_eq!(reserve.level(), ReserveLevel::default());
        envoy.set_files(3);
        let held = |held, wanted| {
            let level = reserve.level();
            assert_eq!((level.held, level.wanted), (held, wanted));
        };
        held(8, 8);
        let loan = envoy.borrow_for_start().unwrap();
        assert_eq!(reserve.lock().placeholders.len(), 5);
        held(8, 8);
        envoy.record_running(4, Some(loan));
        held(6, 6);
        let loan = envoy.borrow(1).unwrap();
        envoy.set_files(5);
        drop(loan);
        held(7, 7);
        envoy.record_ended();
        held(12, 12);
        envoy.forget();
        held(0, 0);
    }
}
