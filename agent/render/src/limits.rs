//! Limits of one Envoy: pure sums over the limits of its process.
//!
//! An Envoy that runs out of descriptors is gone: a TCP or UDP proxy without a socket for its backend ends the whole
//! process. So all that clients can make it open is limited, and the limits together stay below the limit of the
//! process, whatever the clients do. Each listener has an equal share of the clients' connections, and each backend of
//! the connections to backends, so that nobody takes another's.

/// Bytes that Envoy buffers of one connection. Its default of 1 MiB is for trusted clients.
pub(crate) const CONNECTION_BUFFER: u32 = 32 * 1024;

/// Bytes of a request's body that Envoy keeps for a retry, at most and at least. At 1 Gbit/s they take 2 ms and 1 ms.
const MOST_BODY: u64 = 256 << 10;
const LEAST_BODY: u64 = 128 << 10;
/// Part of the heap that one body may take.
const BODIES: u64 = 8_192;

/// More descriptors than this are not shared out: a host does not serve a million connections.
const MOST_FILES: u64 = 1 << 20;
/// With fewer an Envoy cannot serve.
const FEWEST_FILES: u64 = 512;
/// For the files that are watched, listening sockets, logs, workers, the admin socket, a hot restart.
const LEAST_RESERVE: u64 = 192;
/// Bytes of heap for one connection, with its buffers both ways.
const HEAP_OF_A_CONNECTION: u64 = 64 << 10;
/// The heap of an Envoy on a host, or in a control group, of so much memory: the rest is for the agent, for the kernel's
/// buffers, and for what an Envoy needs beside its heap.
pub fn heap_of(memory: u64) -> u64 {
    memory / 4 * 3
}

/// Bytes of heap for a request that waits for a connection to its backend: its headers, above all.
const HEAP_OF_A_REQUEST: u64 = 64 << 10;
/// More than enough for every backend that is alive.
const MOST_WAITING: u32 = 100_000;
/// With fewer connections a backend does not get far.
const FEW: u32 = 16;

/// Limits of one Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients, of all TCP listeners together.
    pub from_clients: u32,
    /// Connections to TCP backends, of all together.
    pub to_backends: u32,
    /// Sessions of UDP clients, of all backends together; each is a socket.
    pub udp_sessions: u32,
    /// Files that may be watched.
    pub watched: usize,
    /// Bytes of heap.
    pub heap: u64,
}

/// The process may open too few files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may open {files} files, and an Envoy started by it no more; at least {FEWEST_FILES} are needed to serve: raise the hard limit (`LimitNOFILE=` of the unit, `ulimit -Hn`)"
)]
pub struct TooFewFiles {
    files: u64,
}

impl Limits {
    /// Shares out so many descriptors. Of what the reserve leaves, three eighths are connections of clients and as many
    /// connections to backends, because most of the one need one of the other; an eighth is sessions of UDP clients; and an
    /// eighth is for first connections to an endpoint, which each of Envoy's workers may have beyond any limit.
    pub fn new(files: u64, heap: u64) -> Result<Self, TooFewFiles> {
        if files < FEWEST_FILES {
            return Err(TooFewFiles { files });
        }
        let files = files.min(MOST_FILES);
        let reserve = LEAST_RESERVE.max(files / 8);
        let eighth = count((files - reserve) / 8);
        let fit = count(heap / HEAP_OF_A_CONNECTION).max(FEW);
        Ok(Self {
            from_clients: (3 * eighth).min(fit),
            to_backends: 3 * eighth,
            udp_sessions: eighth,
            watched: usize::try_from(reserve / 3).unwrap_or(usize::MAX),
            heap,
        })
    }

    /// The share of one of so many listeners.
    pub fn of_listener(&self, listeners: usize) -> u32 {
        share(self.from_clients, listeners)
    }

    /// The share of one of so many TCP backends.
    pub fn of_backend(&self, backends: usize) -> u32 {
        share(self.to_backends, backends)
    }

    /// The share of one of so many UDP backends.
    pub fn of_udp_backend(&self, backends: usize) -> u32 {
        share(self.udp_sessions, backends)
    }

    /// Returns the bytes of a request's body that Envoy keeps for a retry. It gives up retries of a longer body, but not before as much of
    /// it has arrived: until then, the refusal of a connection is known.
    pub fn body(&self) -> u64 {
        (self.heap / BODIES).clamp(LEAST_BODY, MOST_BODY)
    }

    /// Returns the number of requests that may wait for a connection to one backend: an eighth of the heap.
    pub fn waiting(&self) -> u32 {
        count(self.heap / 8 / HEAP_OF_A_REQUEST).clamp(FEW, MOST_WAITING)
    }

    /// Returns a warning if a backend's share is too small for ordinary traffic.
    pub fn scarcity(&self, backends: usize) -> Option<String> {
        let share = self.of_backend(backends);
        (share < FEW).then(|| {
            format!(
                "each of {backends} backends may have {share} connections, because this process may open few files; requests beyond them wait: raise the hard limit (`LimitNOFILE=` of the unit, `ulimit -Hn`)"
            )
        })
    }
}

/// Of a host that lacks nothing: for rendering without one.
impl Default for Limits {
    fn default() -> Self {
        Self {
            from_clients: 32_768,
            to_backends: 344_064,
            udp_sessions: 114_688,
            watched: 43_690,
            heap: 2 << 30,
        }
    }
}

/// An equal share, and never nothing.
fn share(all: u32, users: usize) -> u32 {
    let users = u32::try_from(users).unwrap_or(u32::MAX).max(1);
    (all / users).max(1)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn all_shares_together_leave_the_reserve_alone() {
        for files in [512, 513, 1_024, 4_096, 20_000, 65_536, 1 << 20, u64::MAX] {
            for users in [1, 2, 3, 7, 50] {
                let limits = Limits::new(files, 64 * GIB).unwrap();
                let users_u64 = users as u64;
                let taken = users_u64
                    * u64::from(limits.of_listener(users) + limits.of_backend(users))
                    + users_u64 * u64::from(limits.of_udp_backend(users));
                assert!(
                    taken + limits.watched as u64 + 100 < files,
                    "{files} files, {users} users: {taken} taken"
                );
            }
        }
    }

    #[test]
    fn the_usual_limits_are_those_of_a_million_files() {
        assert_eq!(Limits::new(1 << 20, 2 * GIB).unwrap(), Limits::default());
    }

    #[test]
    fn too_few_files_are_an_error_that_says_what_to_do() {
        let error = Limits::new(511, GIB).unwrap_err().to_string();
        assert!(error.contains("511") && error.contains("LimitNOFILE="));
        assert!(Limits::new(512, GIB).is_ok());
    }

    #[test]
    fn connections_fit_into_the_heap() {
        let limits = Limits::new(1 << 20, 64 << 20).unwrap();
        assert_eq!(limits.from_clients, 1_024);
        assert_eq!(limits.waiting(), 128);
    }

    #[test]
    fn bodies_kept_for_retries_are_a_small_part_of_the_heap() {
        for heap in [64 << 20, GIB, 2 * GIB, 64 * GIB] {
            let body = Limits::new(1 << 20, heap).unwrap().body();
            assert!((128 << 10..=256 << 10).contains(&body), "{heap}: {body}");
            assert!(512 * body <= heap, "{heap}: {body}");
        }
    }

    #[test]
    fn scarcity_is_told() {
        let limits = Limits::new(20_000, GIB).unwrap();
        assert_eq!(limits.scarcity(10), None);
        let words = limits.scarcity(1_000).unwrap();
        assert!(words.contains("1000 backends") && words.contains("LimitNOFILE="));
    }
}
