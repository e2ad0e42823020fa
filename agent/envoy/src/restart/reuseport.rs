//! Builds BPF programs that choose a socket for each new connection.
//!
//! Sockets in an SO_REUSEPORT group are ordered by when they started listening. A classic BPF
//! program returns an index; if it is invalid, the kernel chooses by hash. When a socket closes,
//! the last one takes its index. The second process's first socket therefore keeps its index,
//! unless more sockets close than the second process has.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nix::libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE,
    BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MOD, BPF_RET, BPF_W, SKF_AD_OFF,
    SKF_AD_RANDOM, sock_filter,
};
use sesame_render::connection_ids::{ID_BYTES, IdMark, LENGTH_BITS, LENGTH_MASK};

use sesame_host::listening::Listening;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketGroup {
    pub(super) address: SocketAddr,
    pub(super) before: u32,
    pub(super) after: u32,
    /// Sockets that neither process holds, or that both hold. Their indexes are unknown.
    pub(super) others: u32,
}

impl SocketGroup {
    /// Returns the number of additional sockets needed to keep the second process's first socket at
    /// its index.
    pub(super) fn missing(&self) -> u32 {
        if self.after >= self.before {
            0
        } else {
            self.before - self.after + 1
        }
    }
}

/// `before` and `after` map inodes to descriptors.
pub(super) fn groups(
    all: &[Listening],
    before: &BTreeMap<u64, i32>,
    after: &BTreeMap<u64, i32>,
) -> Vec<SocketGroup> {
    let mut by_address: BTreeMap<SocketAddr, SocketGroup> = BTreeMap::new();
    for socket in all {
        let group = by_address.entry(socket.address).or_insert(SocketGroup {
            address: socket.address,
            before: 0,
            after: 0,
            others: 0,
        });
        let of = |process: &BTreeMap<u64, i32>| process.contains_key(&socket.inode);
        match (of(before), of(after)) {
            (true, false) => group.before += 1,
            (false, true) => group.after += 1,
            (true, true) | (false, false) => group.others += 1,
        }
    }
    let both = |group: &SocketGroup| group.before > 0 && group.after > 0;
    by_address.into_values().filter(both).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Chooses at random among consecutive indexes.
    Among {
        first: u32,
        count: u32,
    },
    Only(u32),
    /// The kernel chooses by hash.
    Any,
    /// Chooses the socket of the worker that issued a datagram's connection ID, among `workers`
    /// consecutive indexes. They begin at 0 for IDs with the mark `before`, and at `first` for
    /// other IDs. Datagrams with an ID of the client get one of the latter, always the same.
    Worker {
        before: Option<IdMark>,
        first: u32,
        workers: u32,
    },
}

impl Choice {
    pub(super) fn program(self) -> Vec<sock_filter> {
        match self {
            Self::Among { first, count } => vec![
                // Negative offsets load ancillary data: here, a random number.
                instruction(
                    BPF_LD | BPF_W | BPF_ABS,
                    SKF_AD_OFF.wrapping_add(SKF_AD_RANDOM).cast_unsigned(),
                ),
                instruction(BPF_ALU | BPF_MOD | BPF_K, count.max(1)),
                instruction(BPF_ALU | BPF_ADD | BPF_K, first),
                instruction(BPF_RET | BPF_A, 0),
            ],
            Self::Only(place) => vec![instruction(BPF_RET | BPF_K, place)],
            Self::Any => vec![instruction(BPF_RET | BPF_K, u32::MAX)],
            Self::Worker {
                before,
                first,
                workers,
            } => worker(before, first, workers.max(1)),
        }
    }
}

/// Headers as in RFC 9000, sections 17.2 and 17.3: in short headers, the ID follows the first byte,
/// and in long headers, its length is byte 5.
fn worker(before: Option<IdMark>, first: u32, workers: u32) -> Vec<sock_filter> {
    // The shortest datagram with a long header and an ID of this length.
    const SHORTEST: u32 = 6 + ID_BYTES as u32;
    const LONG: u32 = 0x80;
    let load = |size| BPF_LD | size | BPF_ABS;
    let last = u32::from(ID_BYTES) - 1;
    // No byte has this value.
    let before = before.map_or(0x100, |mark| u32::from(mark.first_byte()));
    vec![
        instruction(BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JGE, SHORTEST, 1, 0),
        instruction(BPF_RET | BPF_K, first),
        instruction(load(BPF_B), 0),
        jump(BPF_JSET, LONG, 2, 0),
        instruction(BPF_LDX | BPF_W | BPF_IMM, 1),
        jump(BPF_JA, 3, 0, 0),
        // A long header.
        instruction(load(BPF_B), 5),
        jump(BPF_JEQ, u32::from(ID_BYTES), 0, 10),
        instruction(BPF_LDX | BPF_W | BPF_IMM, 6),
        // X is the offset of the ID.
        instruction(BPF_LD | BPF_B | BPF_IND, 0),
        jump(BPF_JEQ, before, 4, 0),
        instruction(BPF_ALU | BPF_AND | BPF_K, u32::from(LENGTH_MASK)),
        jump(BPF_JEQ, u32::from(LENGTH_BITS), 0, 5),
        instruction(BPF_LD | BPF_B | BPF_IND, last),
        jump(BPF_JA, 4, 0, 0),
        // An ID with the mark.
        instruction(BPF_LD | BPF_B | BPF_IND, last),
        instruction(BPF_ALU | BPF_MOD | BPF_K, workers),
        instruction(BPF_RET | BPF_A, 0),
        // Another ID. These are bytes of the client's ID in the long header of a new connection.
        instruction(load(BPF_W), 6),
        // A is the worker, or a number that decides it.
        instruction(BPF_ALU | BPF_MOD | BPF_K, workers),
        instruction(BPF_ALU | BPF_ADD | BPF_K, first),
        instruction(BPF_RET | BPF_A, 0),
    ]
}

/// Skips the given numbers of instructions. `BPF_JA` skips `k` instructions.
fn jump(condition: u32, k: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter {
        jt: if_true,
        jf: if_false,
        ..instruction(BPF_JMP | condition | BPF_K, k)
    }
}

pub(super) fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter {
        // Operation codes fit into 8 bits.
        code: u16::try_from(code).unwrap_or(0),
        jt: 0,
        jf: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: &str, inode: u64) -> Listening {
        Listening {
            address: address.parse().unwrap(),
            user: 0,
            inode,
            waiting: 0,
        }
    }

    fn having(inodes: &[u64]) -> BTreeMap<u64, i32> {
        inodes.iter().map(|inode| (*inode, 3)).collect()
    }

    #[test]
    fn groups_are_the_addresses_that_both_have() {
        let all = [
            listening("127.0.0.1:80", 1),
            listening("127.0.0.1:80", 2),
            listening("127.0.0.1:80", 11),
            listening("[::]:80", 3),
            listening("[::]:80", 12),
            listening("127.0.0.1:81", 4),
            listening("127.0.0.1:82", 13),
            listening("127.0.0.1:83", 5),
            listening("127.0.0.1:83", 14),
            listening("127.0.0.1:83", 99),
            listening("127.0.0.1:84", 6),
        ];
        // Both processes hold the socket if it was handed over.
        let (before, after) = (
            having(&[1, 2, 3, 4, 5, 6, 1000]),
            having(&[6, 11, 12, 13, 14]),
        );
        let group = |address: &str, before, after, others| SocketGroup {
            address: address.parse().unwrap(),
            before,
            after,
            others,
        };
        assert_eq!(
            groups(&all, &before, &after),
            [
                group("127.0.0.1:80", 2, 1, 0),
                group("127.0.0.1:83", 1, 1, 1),
                group("[::]:80", 1, 1, 0)
            ]
        );
    }

    /// Simulates the kernel: the last socket takes the index of a closed socket.
    #[test]
    fn first_new_socket_stays_until_old_ones_close() {
        for (before, after) in [(1, 1), (2, 2), (4, 4), (2, 3), (1, 4), (4, 1), (3, 2)] {
            let group = SocketGroup {
                address: "127.0.0.1:80".parse().unwrap(),
                before,
                after,
                others: 0,
            };
            let place = before as usize;
            let mut sockets: Vec<u32> = (0..before + after + group.missing()).collect();
            for from_front in [true, false] {
                let mut sockets = sockets.clone();
                while let Some(gone) = {
                    let mut old = (0..sockets.len()).filter(|at| sockets[*at] < before);
                    if from_front {
                        old.next()
                    } else {
                        old.next_back()
                    }
                } {
                    assert_eq!(sockets[place], before, "{before} and {after}: {sockets:?}");
                    sockets.swap_remove(gone);
                }
            }
            sockets.retain(|socket| *socket >= before);
            assert!(!sockets.is_empty());
        }
    }

    #[test]
    fn programs_are_what_the_kernel_is_to_run() {
        let words = |choice: Choice| -> Vec<(u16, u32)> {
            let program = choice.program();
            assert!(program.iter().all(|i| i.jt == 0 && i.jf == 0));
            program.iter().map(|i| (i.code, i.k)).collect()
        };
        assert_eq!(
            words(Choice::Among { first: 2, count: 3 }),
            [(0x20, 0xffff_f038), (0x94, 3), (0x04, 2), (0x16, 0)]
        );
        assert_eq!(words(Choice::Only(2)), [(0x06, 2)]);
        assert_eq!(words(Choice::Any), [(0x06, 0xffff_ffff)]);
        assert_eq!(words(Choice::Among { first: 0, count: 0 })[1], (0x94, 1));
    }
}
