//! Measures how long Envoy takes to apply the agent's files while no agent is running.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sesame_envoy::Admin;
use sesame_render::layout::XdsLayout;

use super::cluster_list;
use super::objects;
use super::stage::{Stage, TIMEOUT};
use super::times::{Times, pause_after};

const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Floors {
    pub(crate) route: Times,
    pub(crate) clusters: Times,
}

struct Variants {
    file: PathBuf,
    contents: [Vec<u8>; 2],
}

impl Variants {
    /// `aside` must be on the same file system as the configuration file.
    fn rename(&self, change: usize, aside: &Path) -> anyhow::Result<Instant> {
        std::fs::write(aside, &self.contents[change % 2])?;
        let started = Instant::now();
        std::fs::rename(aside, &self.file)?;
        Ok(started)
    }
}

impl Stage {
    /// Captures two versions of each file, then kills the agent.
    pub(crate) async fn floors(
        &mut self,
        changes: usize,
        errors: &mut usize,
    ) -> anyhow::Result<Floors> {
        let gateway = self.gateway_directory()?;
        let layout = XdsLayout::new(gateway.join("xds"));
        let clusters = self.cluster_lists(layout.cds(), errors).await?;
        let tables = self.tables(layout.rds("http/80"), errors).await?;
        self.kill_agent();
        let aside = gateway.join("bench");
        let route = self.floor_of_table(&tables, &aside, changes, errors)?;
        let admin = Admin::new(gateway.join("admin.sock"));
        let clusters = floor_of_list(&clusters, &aside, changes, &admin).await?;
        self.restart_agent();
        Ok(Floors { route, clusters })
    }

    async fn tables(&self, file: PathBuf, errors: &mut usize) -> anyhow::Result<Variants> {
        let mut client = self.client();
        let mut contents = [Vec::new(), Vec::new()];
        for (revision, content) in ["floor-0", "floor-1"].into_iter().zip(&mut contents) {
            let service = objects::other_service(0);
            self.route_change(&mut client, 0, &service, revision, errors)
                .await?;
            self.pause().await;
            *content = std::fs::read(&file)?;
        }
        ensure!(contents[0] != contents[1], "the route table did not change");
        Ok(Variants { file, contents })
    }

    /// Leaves route 0 switched to another Service.
    async fn cluster_lists(&self, file: PathBuf, errors: &mut usize) -> anyhow::Result<Variants> {
        let without = std::fs::read(&file)?;
        let service = objects::other_service(0);
        self.route_change(&mut self.client(), 0, &service, "switched", errors)
            .await?;
        let unused = objects::endpoint_set(&objects::service(0));
        let with =
            tokio::task::block_in_place(|| cluster_list::read_without(&file, &unused, TIMEOUT))?;
        let contents = [without, with];
        Ok(Variants { file, contents })
    }

    fn floor_of_table(
        &self,
        tables: &Variants,
        aside: &Path,
        changes: usize,
        errors: &mut usize,
    ) -> anyhow::Result<Times> {
        let mut client = self.client();
        let mut samples = Vec::new();
        for change in 0..changes {
            let revision = format!("floor-{}", change % 2);
            let started = tables.rename(change, aside)?;
            *errors += tokio::task::block_in_place(|| {
                client.wait_for(&objects::hostname(0), TIMEOUT, |answer| {
                    answer.revision == revision
                })
            })?;
            samples.push(started.elapsed());
            tokio::task::block_in_place(|| pause_after(started));
        }
        Ok(Times::of(samples))
    }

    fn gateway_directory(&self) -> anyhow::Result<PathBuf> {
        let gateways = std::fs::read_dir(self.agent_runtime().join("gateways"))?;
        let gateway = gateways.flatten().next().context("no Gateway")?;
        Ok(gateway.path())
    }
}

async fn floor_of_list(
    lists: &Variants,
    aside: &Path,
    changes: usize,
    admin: &Admin,
) -> anyhow::Result<Times> {
    let cluster = objects::endpoint_set(&objects::other_service(0));
    let filter = format!("^{cluster}$");
    let mut samples = Vec::new();
    for change in 0..changes {
        let is_there = change % 2 == 1;
        let started = lists.rename(change, aside)?;
        while admin.endpoints(&filter).await?.is_empty() == is_there {
            ensure!(
                started.elapsed() < TIMEOUT,
                "{cluster} did not reach the expected state"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        samples.push(started.elapsed());
        tokio::task::block_in_place(|| pause_after(started));
    }
    Ok(Times::of(samples))
}
