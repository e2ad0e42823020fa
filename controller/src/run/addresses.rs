//! Binds a replica's addresses: one for probes, and a guarded address for metrics and the status
//! page.
//!
//! Sockets are reopened on every restart of the tasks, but the guard is kept. If one of the guard's
//! files becomes invalid, the process must not stop, and access control must stay enabled.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use sesame_http_server::GuardedCallers;
use sesame_http_server::guard::{Guard, GuardFiles};
use tokio::net::TcpListener;

/// Address for metrics and the status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress {
    pub(crate) address: SocketAddr,
    /// Files that configure the guard.
    pub(crate) guard: GuardFiles,
}

/// A replica's addresses.
pub(super) struct Addresses {
    listen: SocketAddr,
    guarded: Option<(SocketAddr, Arc<Guard>)>,
}

/// A replica's sockets.
pub(super) struct OpenAddresses {
    pub(super) probes: TcpListener,
    pub(super) guarded: Option<GuardedCallers>,
}

impl Addresses {
    /// Reads the guard's files, if a guard is configured.
    pub(super) fn new(listen: SocketAddr, metrics: Option<&MetricsAddress>) -> Result<Self> {
        let guarded = metrics.map(|MetricsAddress { address, guard }| {
            let guard = Guard::new(guard.clone()).with_context(|| {
                format!("--metrics-address {address}: cannot set up access control")
            })?;
            Ok::<_, anyhow::Error>((*address, Arc::new(guard)))
        });
        Ok(Self {
            listen,
            guarded: guarded.transpose()?,
        })
    }

    /// Listens on all addresses.
    pub(super) async fn open(&self) -> Result<OpenAddresses> {
        let Self { listen, guarded } = self;
        let probes = TcpListener::bind(listen).await;
        let probes = probes.with_context(|| format!("--listen {listen}: cannot listen"))?;
        let guarded = match guarded {
            None => None,
            Some((address, guard)) => {
                let listener = TcpListener::bind(address)
                    .await
                    .with_context(|| format!("--metrics-address {address}: cannot listen"))?;
                let guard = Arc::clone(guard);
                Some(GuardedCallers { listener, guard })
            }
        };
        Ok(OpenAddresses { probes, guarded })
    }
}
