//! Starts the tasks that follow the configuration.

use std::sync::mpsc::Sender;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ProcessSettings;
use crate::configuration::{ConfigurationFollower, ConfigurationSource, CurrentSettings, settings};
use crate::replica::Replica;
use crate::watch::Input;

/// The receiver reports the first settings as a change.
pub(super) fn follow_configuration(
    replica: &Replica,
    process: &ProcessSettings,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<CurrentSettings> {
    let first = match &process.source {
        ConfigurationSource::Flags => settings(&process.flags, None, process.memory_mib),
        ConfigurationSource::File(_) | ConfigurationSource::Object(_) => {
            Err("the configuration has not been read yet".to_owned())
        }
    };
    let (sender, mut current) = watch::channel(first);
    let follower = ConfigurationFollower {
        replica: replica.clone(),
        source: process.source.clone(),
        flags: process.flags.clone(),
        memory_mib: process.memory_mib,
        current: sender,
    };
    tasks.spawn(follower.run());
    current.mark_changed();
    current
}

pub(super) async fn notify_engine(
    mut current: watch::Receiver<CurrentSettings>,
    inputs: Sender<Input>,
    implies_gateway: watch::Sender<bool>,
) {
    // The settings might have changed before this task subscribed.
    current.mark_changed();
    while current.changed().await.is_ok() {
        if let Ok(settings) = &*current.borrow_and_update() {
            implies_gateway.send_replace(settings.implies_gateway());
        }
        if inputs.send(Input::Configured).is_err() {
            return;
        }
    }
}
