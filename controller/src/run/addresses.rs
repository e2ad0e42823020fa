//! Binds a replica's addresses. Restarts reopen the sockets but keep the guard, because an invalid
//! file must not disable access control.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use sesame_http_server::GuardedCallers;
use sesame_http_server::guard::{Guard, GuardFiles};
use tokio::net::TcpListener;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress {
    pub(crate) address: SocketAddr,
    pub(crate) guard: GuardFiles,
}

pub(super) struct Addresses {
    listen: SocketAddr,
    guarded: Option<(SocketAddr, Arc<Guard>)>,
}

pub(super) struct OpenAddresses {
    pub(super) probes: TcpListener,
    pub(super) guarded: Option<GuardedCallers>,
}

impl Addresses {
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
