//! Reads process information from `/proc`.

use std::fs;
use std::time::Duration;

/// Returns the start time in clock ticks since boot, or `None` if the process does not exist.
pub fn start_time(pid: u32) -> Option<u64> {
    // `stat` returns the line from field 3 on, because the process name before it may contain
    // spaces.
    stat(pid)?.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// Zombies are not alive.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !stat.trim_start().starts_with(['Z', 'X']))
}

/// Returns true if the process is exiting or has exited. An exiting process may still have open
/// sockets.
pub fn is_ending(pid: u32) -> bool {
    /// The kernel's `PF_EXITING` flag.
    const EXITING: u64 = 0x4;
    // Fields 3 (state) and 9 (flags).
    let flags = |stat: &str| stat.split_whitespace().nth(9 - 3)?.parse::<u64>().ok();
    !is_alive(pid)
        || stat(pid).is_none_or(|stat| flags(&stat).is_some_and(|flags| flags & EXITING != 0))
}

fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.to_owned())
}

/// Returns the main thread's CPU time, or `None` if unreadable.
pub fn main_thread_time(pid: u32) -> Option<Duration> {
    Some(thread_times(pid, &pid.to_string())?.ran)
}

/// CPU time and waiting time of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// How long threads ran on a CPU.
    pub ran: Duration,
    /// How long runnable threads waited for a CPU.
    pub waited: Duration,
}

/// Sums the times of all current threads.
pub fn processor_times(pid: u32) -> Option<ProcessorTimes> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut sum = None;
    for thread in threads {
        // A thread may have exited after the directory was read.
        if let Some(times) = thread_times(pid, &thread.file_name().to_string_lossy()) {
            let sum = sum.get_or_insert_with(ProcessorTimes::default);
            sum.ran += times.ran;
            sum.waited += times.waited;
        }
    }
    sum
}

fn thread_times(pid: u32, thread: &str) -> Option<ProcessorTimes> {
    // Fields: nanoseconds on a CPU, nanoseconds runnable, number of time slices.
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    let mut nanoseconds = text.split_whitespace().map(str::parse);
    let mut next = || Some(Duration::from_nanos(nanoseconds.next()?.ok()?));
    Some(ProcessorTimes {
        ran: next()?,
        waited: next()?,
    })
}

/// Omits the program name.
pub fn arguments(pid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let parts = text.trim_end_matches('\0').split('\0').skip(1);
    Some(parts.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_none_for_missing_process() {
        let own = std::process::id();
        assert!(start_time(own).is_some());
        assert!(is_alive(own));
        assert!(!is_ending(own));
        assert!(is_ending(u32::MAX));
        assert_eq!(start_time(u32::MAX), None);
        assert!(main_thread_time(own).is_some());
        assert_eq!(main_thread_time(u32::MAX), None);
        let all = processor_times(own).unwrap();
        assert!(all.ran >= main_thread_time(own).unwrap() / 2, "{all:?}");
        assert_eq!(processor_times(u32::MAX), None);
    }
}
