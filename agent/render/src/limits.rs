//! Computes the limits of one Envoy from the limits of its process.
//!
//! Envoy's TCP and UDP proxies abort the process if they cannot open a socket. Therefore, clients
//! can never make Envoy open more files than its process may open. Connections are divided by
//! namespace first, so a tenant with many listeners or backends cannot reduce the shares of others.

use std::collections::BTreeMap;

/// Buffer size per connection, in bytes. Envoy's default of 1 MiB is meant for trusted clients.
pub(crate) const CONNECTION_BUFFER: u32 = 32 * 1024;

/// Upper and lower bounds for the body size limit of retryable requests, in bytes. At 1 Gbit/s,
/// such bodies arrive in 1 to 2 ms.
const MAX_BODY: u64 = 256 << 10;
const LEAST_BODY: u64 = 128 << 10;
/// One request body may use the heap size divided by this number.
const BODIES: u64 = 8_192;

/// Upper bound for the number of open files. No host serves a million connections.
const MAX_FILES: u64 = 1 << 20;
const FEWEST_FILES: u64 = 512;
/// Minimum number of files reserved for watches, listening sockets, logs, workers, the admin socket
/// and a hot restart.
const LEAST_RESERVE: u64 = 192;
/// Heap for a connection, including its buffers in both directions.
const HEAP_PER_CONNECTION: u64 = 64 << 10;
/// Returns the heap size for this much memory on a host or in a cgroup. The rest is for the agent,
/// the kernel and Envoy's other memory.
pub fn heap_of(memory: u64) -> u64 {
    memory / 4 * 3
}

/// Heap for a request that waits for a backend connection, mainly for its headers.
const HEAP_PER_REQUEST: u64 = 64 << 10;
/// Upper bound for waiting requests, more than any healthy backend needs.
const MAX_WAITING: u32 = 100_000;
/// Lower bound for connection limits. With fewer connections, a listener or backend is practically
/// unusable.
pub(crate) const FEW: u32 = 16;

/// Resource limits for one Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections, across all TCP listeners.
    pub from_clients: u32,
    /// Connections to TCP backends.
    pub to_backends: u32,
    /// UDP client sessions, across all backends. Each holds a socket.
    pub udp_sessions: u32,
    /// Watched files.
    pub watched: usize,
    /// Heap in bytes.
    pub heap: u64,
}

/// The process may not open enough files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process and the Envoys that it starts may open {files} files each; at least {FEWEST_FILES} are needed to serve: raise the hard limit (`LimitNOFILE=` of the unit, `ulimit -Hn`)"
)]
pub struct TooFewFiles {
    files: u64,
}

impl Limits {
    /// Divides `files` file descriptors. After a reserve, clients and backends get three eighths
    /// each, because most client connections need a backend connection. UDP sessions get one
    /// eighth. The rest is for the first connection to each endpoint, which every Envoy worker may
    /// open beyond any limit.
    pub fn new(files: u64, heap: u64) -> Result<Self, TooFewFiles> {
        if files < FEWEST_FILES {
            return Err(TooFewFiles { files });
        }
        let files = files.min(MAX_FILES);
        let reserve = LEAST_RESERVE.max(files / 8);
        let eighth = count((files - reserve) / 8);
        let fit = count(heap / HEAP_PER_CONNECTION).max(FEW);
        Ok(Self {
            from_clients: (3 * eighth).min(fit),
            to_backends: 3 * eighth,
            udp_sessions: eighth,
            watched: usize::try_from(reserve / 3).unwrap_or(usize::MAX),
            heap,
        })
    }

    /// Returns the number of client connections for the Gateways' own ports: half, or their
    /// proportional share if that is larger. `own` counts these ports, and `added` the ports that
    /// only ListenerSets declare. Each added port keeps at least one connection.
    pub(crate) fn gateway_connections(&self, own: u32, added: u32) -> u32 {
        if own == 0 || added == 0 {
            return if own == 0 { 0 } else { self.from_clients };
        }
        let all = u64::from(self.from_clients);
        let (own, added) = (u64::from(own), u64::from(added));
        let part = (all * own / (own + added)).max(all / 2);
        count(part.min(all.saturating_sub(added)))
    }

    /// Returns the number of request body bytes that Envoy keeps for a retry. A longer body
    /// prevents a retry, but Envoy detects a refused connection before the buffer is full.
    pub fn body(&self) -> u64 {
        (self.heap / BODIES).clamp(LEAST_BODY, MAX_BODY)
    }

    /// Returns the number of requests that may wait for one backend. Together they may use one
    /// eighth of the heap.
    pub fn waiting(&self) -> u32 {
        count(self.heap / 8 / HEAP_PER_REQUEST).clamp(FEW, MAX_WAITING)
    }
}

/// Ample limits, for rendering without a host.
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

/// Divides connections among users, which are listeners or backends. Each namespace gets an equal
/// part, which its users share. Every user gets at least one connection, so the sum may exceed
/// `all`.
pub(crate) fn shares<'n>(all: u32, namespaces_of: &[Vec<&'n str>]) -> Vec<u32> {
    let mut users: BTreeMap<&'n str, u32> = BTreeMap::new();
    for &namespace in namespaces_of.iter().flatten() {
        *users.entry(namespace).or_default() += 1;
    }
    let counts: Vec<u32> = users.values().copied().collect();
    let parts = divide(all, &counts);
    for (users, part) in users.values_mut().zip(parts) {
        *users = part / (*users).max(1);
    }
    let share = |namespaces: &Vec<&str>| {
        let parts = namespaces.iter().filter_map(|name| users.get(name));
        parts.sum::<u32>().max(1)
    };
    namespaces_of.iter().map(share).collect()
}

/// Each namespace gets at least one connection per user.
fn divide(all: u32, users: &[u32]) -> Vec<u32> {
    let mut most_first = users.to_vec();
    most_first.sort_unstable_by_key(|&users| std::cmp::Reverse(users));
    let mut rest = all;
    let mut even = 0;
    for (parties, users) in (1..=count(users.len() as u64)).rev().zip(most_first) {
        even = rest / parties;
        if users <= even {
            break;
        }
        rest = rest.saturating_sub(users);
    }
    users.iter().map(|&users| users.max(even)).collect()
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// `mix` contains the number of users in each namespace. `shared` users belong to both of the
    /// first two namespaces.
    fn users(mix: &[usize], shared: usize) -> Vec<Vec<&'static str>> {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let counts = NAMES.iter().zip(mix);
        counts
            .flat_map(|(name, count)| vec![vec![*name]; *count])
            .chain(vec![vec!["a", "b"]; shared])
            .collect()
    }

    fn sum(shares: &[u32]) -> u64 {
        shares.iter().copied().map(u64::from).sum()
    }

    proptest! {
        #[test]
        fn all_shares_together_leave_the_reserve_alone(
            files in prop_oneof![512_u64..4_096, 4_096_u64..1 << 21],
            own in vec(0_usize..40, 1..6),
            added in vec(0_usize..400, 1..6),
            shared in 0_usize..20,
        ) {
            let limits = Limits::new(files, 64 * GIB).unwrap();
            let (own, added) = (users(&own, 0), users(&added, shared));
            let size = |users: &[Vec<&str>]| u32::try_from(users.iter().flatten().count()).unwrap();
            // Each user gets one connection, even if there are more users than connections.
            let most = |all: u32, users: u32| u64::from(all.max(users));
            let gateway_connections = limits.gateway_connections(size(&own), size(&added));
            let gateways = shares(gateway_connections, &own);
            let sets = shares(limits.from_clients - gateway_connections, &added);
            let clients = sum(&gateways) + sum(&sets);
            prop_assert!(clients <= most(limits.from_clients, size(&own) + size(&added)));
            let backends = sum(&shares(limits.to_backends, &added));
            prop_assert!(backends <= most(limits.to_backends, size(&added)));
            let sessions = sum(&shares(limits.udp_sessions, &own));
            prop_assert!(sessions <= most(limits.udp_sessions, size(&own)));
            prop_assert!(gateways.iter().chain(&sets).all(|share| *share > 0));
            if size(&own) + size(&added) <= limits.udp_sessions {
                let taken = clients + backends + sessions;
                prop_assert!(taken + limits.watched as u64 + 100 < files, "{taken} of {files}");
            }
            if size(&own) > 0 && size(&added) <= limits.from_clients / 2 {
                prop_assert!(gateway_connections >= limits.from_clients / 2);
            }
        }

        #[test]
        fn namespace_share_is_independent_of_other_namespaces(
            all in 1_024_u32..400_000,
            few in 1_usize..20,
            many in 1_usize..200,
            more in 0_usize..200,
        ) {
            let share_of_b = |count: usize| *shares(all, &users(&[count, few], 0)).last().unwrap();
            prop_assert_eq!(share_of_b(many), all / 2 / u32::try_from(few).unwrap());
            prop_assert_eq!(share_of_b(many + more), share_of_b(many));
        }
    }

    #[test]
    fn gateway_ports_keep_half_beside_many_foreign_ports() {
        let limits = Limits::new(20_000, 2 * GIB).unwrap();
        assert_eq!(limits.from_clients, 6_561);
        assert_eq!(limits.gateway_connections(2, 0), 6_561);
        assert_eq!(limits.gateway_connections(0, 8), 0);
        // Each port is bound on two addresses.
        assert_eq!(limits.gateway_connections(2, 2 * 1_024), 3_280);
        assert_eq!(limits.gateway_connections(20, 2), 5_964);
        // Half would leave fewer connections than there are added ports.
        assert_eq!(limits.gateway_connections(2, 6_000), 561);
        assert_eq!(limits.gateway_connections(2, 60_000), 0);
    }

    #[test]
    fn joining_a_foreign_port_adds_a_part() {
        // Namespace `b` has its own port, and also listens on `a`'s port.
        let namespaces = [vec!["a", "b"], vec!["b"]];
        assert_eq!(shares(100, &namespaces), [75, 25]);
    }

    #[test]
    fn parties_have_one_connection_for_each_user() {
        assert_eq!(divide(100, &[1, 1]), [50, 50]);
        assert_eq!(divide(100, &[90, 1, 2]), [90, 5, 5]);
        assert_eq!(divide(10, &[90, 1]), [90, 1]);
        assert!(divide(10, &[]).is_empty());
    }

    #[test]
    fn default_limits_match_one_million_files() {
        assert_eq!(Limits::new(1 << 20, 2 * GIB).unwrap(), Limits::default());
    }

    #[test]
    fn too_few_files_error_suggests_limit_nofile() {
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
    fn retry_bodies_take_small_part_of_heap() {
        for heap in [64 << 20, GIB, 2 * GIB, 64 * GIB] {
            let body = Limits::new(1 << 20, heap).unwrap().body();
            assert!((128 << 10..=256 << 10).contains(&body), "{heap}: {body}");
            assert!(512 * body <= heap, "{heap}: {body}");
        }
    }
}
