//! Names of replicas in the Lease. A replica of the same host or Pod can see that the holder has
//! ended.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The process that a Lease names, as `NAME_PLACE_PID_STARTED`.
struct Holder<'a> {
    name: &'a str,
    /// A Pod's UID, or a boot and its PID namespace.
    place: &'a str,
    pid: i32,
    /// Clock ticks from boot to the process's start.
    started: u64,
}

/// Boot IDs are hexadecimal, so other places lack this prefix.
const POD: &str = "pod-";
const UNKNOWN: &str = "unknown";

/// Returns this process's name, which is unique even after a restart with the same process ID.
pub(crate) fn identity() -> String {
    let name = std::env::var("POD_NAME")
        .or_else(|_| fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_else(|_| UNKNOWN.to_owned());
    let pid = std::process::id();
    let status = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (place, started) = place().zip(started(&status)).unwrap_or_else(|| {
        let now = jiff::Timestamp::now().as_microsecond();
        (UNKNOWN.to_owned(), now.unsigned_abs())
    });
    format!("{}_{place}_{pid}_{started}", name.trim())
}

fn place() -> Option<String> {
    if let Some(uid) = std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty()) {
        return Some(format!("{POD}{uid}"));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}-{}", boot.trim(), processes.to_str()?))
}

/// Returned by [`ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Unknown,
    /// The holder had this process's Pod and process ID. A node may have lost track of its
    /// container, which then still runs.
    Probably,
    Certainly,
}

pub(super) fn ended(holder: &str, me: &str) -> Ended {
    let (Some(holder), Some(me)) = (Holder::parse(holder), Holder::parse(me)) else {
        return Ended::Unknown;
    };
    let is_near = (holder.name, holder.place) == (me.name, me.place) && me.place != UNKNOWN;
    let is_same = (holder.pid, holder.started) == (me.pid, me.started);
    if !is_near || is_same {
        Ended::Unknown
    } else if me.place.starts_with(POD) {
        // A Pod's other processes may be in other PID namespaces.
        if holder.pid == me.pid {
            Ended::Probably
        } else {
            Ended::Unknown
        }
    } else if holder.pid == me.pid || !holder.runs() {
        Ended::Certainly
    } else {
        Ended::Unknown
    }
}

impl<'a> Holder<'a> {
    /// Returns `None` if other software wrote this.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.rsplitn(4, '_');
        let started = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        Some(Self {
            place: parts.next()?,
            name: parts.next()?,
            pid,
            started,
        })
    }

    /// Assumes this process's PID namespace.
    fn runs(&self) -> bool {
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(status) => !is_zombie(&status) && started(&status) == Some(self.started),
            // `/proc` may hide other users' processes.
            Err(_) => {
                Pid::from_raw(self.pid).is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
            }
        }
    }
}

/// Returns the fields after the program's name of `/proc/PID/stat`. The name may contain anything.
fn fields(status: &str) -> impl Iterator<Item = &str> {
    let fields = status.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_ascii_whitespace()
}

fn is_zombie(status: &str) -> bool {
    matches!(fields(status).next(), Some("Z" | "X"))
}

/// Returns field 22 of `proc_pid_stat(5)`.
fn started(status: &str) -> Option<u64> {
    fields(status).nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn ended_process_of_this_host_is_known() {
        let me = identity();
        let parsed = Holder::parse(&me).unwrap();
        assert!(parsed.runs());
        assert_eq!(ended(&me, &me), Ended::Unknown);
        let of =
            |pid: u32, started: u64| format!("{}_{}_{pid}_{started}", parsed.name, parsed.place);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let status = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let holder = of(child.id(), started(&status).unwrap());
        assert_eq!(ended(&holder, &me), Ended::Unknown);
        assert_eq!(ended(&of(child.id(), 1), &me), Ended::Certainly);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ended(&holder, &me), Ended::Certainly);
        let earlier = of(std::process::id(), parsed.started + 1);
        assert_eq!(ended(&earlier, &me), Ended::Certainly);
    }

    #[test]
    fn holder_elsewhere_is_never_assumed_ended() {
        let me = "web-1_pod-a_1_500";
        assert_eq!(ended("web-1_pod-a_1_400", me), Ended::Probably);
        for holder in [
            "web-1_pod-b_1_400",
            "web-2_pod-a_1_400",
            "web-1_pod-a_2_400",
            "web-1_pod-a_1_500",
            "web-1_1_4f0",
            "other software",
            "",
        ] {
            assert_eq!(ended(holder, me), Ended::Unknown, "{holder}");
        }
        assert_eq!(ended("a_unknown_1_2", "a_unknown_1_3"), Ended::Unknown);
    }

    #[test]
    fn program_names_cannot_disguise_fields() {
        let status = "7 (a) Z (b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert!(!is_zombie(status));
        assert_eq!(started(status), Some(4242));
        assert!(is_zombie("7 (a) Z 1"));
        assert_eq!(started("nonsense"), None);
    }
}
