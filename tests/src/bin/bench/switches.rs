//! Measures switching routes to a new backend. Envoy must receive the new cluster before the new
//! route table.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{Answer, Client};
use super::cluster_list;
use super::host::Host;
use super::lone_change;
use super::manifests::{self, WrittenManifests};
use super::times::{Times, pause_after, pick};

const SERVED: Duration = Duration::from_secs(60);
const REMOVED: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Serialize)]
pub(crate) struct Switches {
    pub(crate) switch: Times,
    /// Floor for the cluster list. The floor for the route table is the same as for a route change.
    pub(crate) clusters_floor: Times,
    /// Median switch time, divided by the sum of both floors' medians.
    pub(crate) ratio: f64,
}

/// Switches routes to another Service and back. Returns the times and the number of 5xx responses.
pub(crate) fn measure(
    host: &mut Host,
    routes: usize,
    changes: usize,
    ports: [u16; 2],
) -> anyhow::Result<(Times, usize)> {
    let mut client = Client::new(host.address());
    let (mut samples, mut errors) = (Vec::new(), 0);
    for change in 0..changes {
        let route = pick(change, routes);
        for (body, port) in [("b", ports[1]), ("a", ports[0])] {
            let write = |files: &WrittenManifests| match body {
                "b" => files.write_switched(route, port, "switch"),
                _ => files.write_app(route, port, "switch"),
            };
            let is_switched = |answer: &Answer| answer.body == body;
            let (took, failed) =
                lone_change::make(host, &mut client, route, SERVED, write, is_switched)?;
            samples.push(took);
            errors += failed;
        }
    }
    Ok((Times::of(samples), errors))
}

pub(crate) struct ClusterLists {
    file: PathBuf,
    cluster: String,
    without: Vec<u8>,
    with: Vec<u8>,
}

impl ClusterLists {
    /// Leaves route 0 switched to another Service.
    pub(crate) fn capture(host: &mut Host, port: u16) -> anyhow::Result<Self> {
        let file = host.clusters_file()?;
        let without = std::fs::read(&file)?;
        host.manifests()
            .clone()
            .write_switched(0, port, "switched")?;
        let is_switched = |answer: &Answer| answer.revision == "switched";
        Client::new(host.address()).wait_for(&manifests::hostname(0), SERVED, is_switched)?;
        host.wait_serving(SERVED)?;
        let unused = manifests::endpoint_set(0);
        let with = cluster_list::read_without(&file, &unused, REMOVED)?;
        Ok(Self {
            file,
            cluster: manifests::switched_set(0),
            without,
            with,
        })
    }

    /// Expects the cluster to be in the list, and leaves it there.
    pub(crate) fn floor(&self, host: &Host, changes: usize) -> anyhow::Result<Times> {
        let mut samples = Vec::new();
        for _ in 0..changes.div_ceil(2) {
            for (bytes, there) in [(&self.without, false), (&self.with, true)] {
                let staged = host.stage(bytes)?;
                let started = Instant::now();
                std::fs::rename(&staged, &self.file)?;
                host.wait_cluster(&self.cluster, there, SERVED)?;
                samples.push(started.elapsed());
                pause_after(started);
            }
        }
        Ok(Times::of(samples))
    }
}
