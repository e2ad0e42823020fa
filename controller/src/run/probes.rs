//! Serves the probes. A replica is ready once it has a valid configuration and has resolved the
//! cluster.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::addresses::OpenAddresses;
use crate::configuration::CurrentSettings;
use crate::publish::DesiredPublications;
use crate::replica::Replica;
use crate::serve::{self, PageAsk, StatusPages, UnreadyReason};
use crate::watch::kinds::AwaitedKinds;

/// Used unless a particular kind is missing.
const OBJECTS_NOT_READ: &str = "the cluster's objects have not all been read yet";

/// `None` until the cluster has been read.
pub(super) type PublicationsReceiver = watch::Receiver<Option<Arc<DesiredPublications>>>;

#[derive(Clone)]
pub(super) struct Progress {
    pub(super) publications: PublicationsReceiver,
    pub(super) awaited: watch::Receiver<AwaitedKinds>,
}

impl Progress {
    /// Returns `None` if the first resolution is complete.
    fn missing(&self) -> Option<String> {
        let Self {
            publications,
            awaited,
        } = self;
        if publications.borrow().is_some() {
            return None;
        }
        let awaited = awaited.borrow();
        let kinds: Vec<String> = awaited
            .iter()
            .map(|(kind, why)| format!("{kind} ({why})"))
            .collect();
        Some(if kinds.is_empty() {
            OBJECTS_NOT_READ.to_owned()
        } else {
            let kinds = kinds.join(", ");
            format!("waiting for the definitions of the Gateway API: {kinds}; install them")
        })
    }
}

pub(super) fn spawn_servers(
    OpenAddresses { probes, guarded }: OpenAddresses,
    replica: &Replica,
    current: watch::Receiver<CurrentSettings>,
    progress: watch::Receiver<Option<Progress>>,
    tasks: &mut JoinSet<()>,
) -> mpsc::Receiver<PageAsk> {
    let (asks, asked) = mpsc::channel(1);
    let readiness: UnreadyReason = Arc::new(move || {
        if let Err(why) = &*current.borrow() {
            return Err(why.clone());
        }
        match &*progress.borrow() {
            Some(progress) => progress.missing().map_or(Ok(()), Err),
            None => Err(OBJECTS_NOT_READ.to_owned()),
        }
    });
    let metrics = Arc::clone(&replica.metrics);
    let probe_metrics = guarded.is_none().then(|| Arc::clone(&metrics));
    let probe_readiness = Arc::clone(&readiness);
    tasks.spawn(serve::serve(probes, probe_metrics, probe_readiness));
    if let Some(callers) = guarded {
        let pages = StatusPages::new(asks, readiness);
        tasks.spawn(serve::serve_guarded(callers, metrics, pages));
    }
    asked
}

#[cfg(test)]
mod tests {
    use sesame_kinds::world::Kind;

    use super::*;

    #[test]
    fn missing_inputs_are_reported() {
        let (resolved, publications) = watch::channel(None);
        let (awaits, awaited) = watch::channel(AwaitedKinds::new());
        let progress = Progress {
            publications,
            awaited,
        };
        assert_eq!(progress.missing().as_deref(), Some(OBJECTS_NOT_READ));
        awaits.send_replace([(Kind::Gateway, "it is not installed")].into());
        let why = progress.missing().unwrap();
        assert!(why.contains("Gateway (it is not installed)"), "{why}");
        resolved.send_replace(Some(Arc::default()));
        assert_eq!(progress.missing(), None);
    }
}
