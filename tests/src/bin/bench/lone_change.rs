//! Makes an isolated change: writes the change, waits until it is served, and then pauses.

use std::time::{Duration, Instant};

use super::client::{Answer, Client};
use super::host::Host;
use super::manifests::{self, WrittenManifests};
use super::times::pause_after;

/// Returns the time until the expected response, and the number of earlier 5xx responses.
pub(crate) fn make(
    host: &mut Host,
    client: &mut Client,
    route: usize,
    within: Duration,
    write: impl FnOnce(&WrittenManifests) -> anyhow::Result<()>,
    wanted: impl Fn(&Answer) -> bool,
) -> anyhow::Result<(Duration, usize)> {
    let started = Instant::now();
    write(host.manifests())?;
    let errors = client.wait_for(&manifests::hostname(route), within, wanted)?;
    let took = started.elapsed();
    host.wait_serving(within)?;
    pause_after(started);
    Ok((took, errors))
}
