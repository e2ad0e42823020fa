//! Starts the writers of publications and of the roles that may read them.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fleet_roles::FleetRoles;
use crate::publish::{DesiredPublications, RolloutHosts, RolloutNotes, Signing, SnapshotPublisher};
use crate::replica::Replica;
use crate::statuses::GatewayProblems;

pub(super) struct Publishing {
    pub(super) desired: watch::Receiver<Option<Arc<DesiredPublications>>>,
    pub(super) failures: watch::Sender<GatewayProblems>,
    pub(super) signing: Signing,
    pub(super) rollout_hosts: watch::Receiver<RolloutHosts>,
    pub(super) rollout_notes: watch::Sender<RolloutNotes>,
}

impl Publishing {
    pub(super) fn start(self, replica: &Replica, tasks: &mut JoinSet<()>) {
        let Self {
            desired,
            failures,
            signing,
            rollout_hosts,
            rollout_notes,
        } = self;
        let fleet_roles = FleetRoles {
            replica: replica.clone(),
            desired: desired.clone(),
        };
        tasks.spawn(fleet_roles.run());
        let publisher = SnapshotPublisher {
            replica: replica.clone(),
            desired,
            failures,
            signing,
            rollout_hosts,
            rollout_notes,
        };
        tasks.spawn(publisher.run());
    }
}
