//! Starts the task that follows the configuration.

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ProcessSettings;
use crate::configuration::{ConfigurationFollower, ConfigurationSource, CurrentSettings, settings};
use crate::replica::Replica;

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
