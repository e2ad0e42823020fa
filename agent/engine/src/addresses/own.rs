//! Tracks this host's addresses, and decides whether endpoints may use them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use sesame_proto::addresses;
use tokio::time::sleep_until;

const PERIOD: Duration = Duration::from_secs(5);

/// Whether endpoints may have one of this host's non-loopback addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HostEndpoints {
    /// Reject, unless the agent runs in a Pod.
    #[default]
    Auto,
    /// Allow.
    Allow,
    /// Reject.
    Refuse,
}

impl HostEndpoints {
    /// Returns true if endpoints with this host's addresses are rejected. Pods on the host network
    /// legitimately have such addresses.
    pub fn refused(self, in_pod: bool) -> bool {
        match self {
            Self::Auto => !in_pod,
            Self::Allow => false,
            Self::Refuse => true,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OwnAddresses {
    read: fn() -> Vec<IpAddr>,
    known: BTreeSet<IpAddr>,
    due: Instant,
}

impl OwnAddresses {
    pub(crate) fn new(read: fn() -> Vec<IpAddr>) -> Self {
        Self {
            read,
            known: usual(read),
            due: Instant::now() + PERIOD,
        }
    }

    /// Omits addresses that endpoints may never have, because such addresses change whenever a Pod
    /// starts.
    pub(crate) fn known(&self) -> &BTreeSet<IpAddr> {
        &self.known
    }

    /// Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        loop {
            sleep_until(self.due.into()).await;
            self.due = Instant::now() + PERIOD;
            let now = usual(self.read);
            if now != self.known {
                self.known = now;
                return;
            }
        }
    }
}

fn usual(read: fn() -> Vec<IpAddr>) -> BTreeSet<IpAddr> {
    let usual = |ip: &IpAddr| addresses::refused(*ip).is_none();
    read().into_iter().filter(usual).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn host_endpoints_are_refused_outside_of_pods() {
        assert!(HostEndpoints::Auto.refused(false));
        assert!(!HostEndpoints::Auto.refused(true));
        assert!(HostEndpoints::Refuse.refused(true));
        assert!(!HostEndpoints::Allow.refused(false));
    }

    static MOVED: AtomicBool = AtomicBool::new(false);

    fn addresses() -> Vec<IpAddr> {
        let own = if MOVED.load(Ordering::Relaxed) { 8 } else { 7 };
        vec![[192, 0, 2, own].into(), [127, 0, 0, 1].into()]
    }

    #[tokio::test]
    async fn changed_addresses_are_noticed_although_waits_are_cancelled() {
        let mut own = OwnAddresses::new(addresses);
        assert_eq!(own.known(), &BTreeSet::from([[192, 0, 2, 7].into()]));
        MOVED.store(true, Ordering::Relaxed);
        own.due = Instant::now() + Duration::from_millis(50);
        while tokio::time::timeout(Duration::from_millis(5), own.changed())
            .await
            .is_err()
        {}
        assert_eq!(own.known(), &BTreeSet::from([[192, 0, 2, 8].into()]));
    }
}
