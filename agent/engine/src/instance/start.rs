//! Starts an instance: adopts a running Envoy, or starts one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Instance;
use crate::target::Target;
use sesame_apply::Applier;
use sesame_envoy::access_log::AccessLogTo;
use sesame_envoy::{Supervisor, SupervisorConfig};

/// Minimum drain time, during which Envoy closes connections gradually.
const SHORTEST_DRAIN: Duration = Duration::from_secs(1);

pub(super) struct Started {
    pub(super) applier: Applier,
    pub(super) supervisor: Supervisor,
    /// True if Envoy uses the files that were already on disk.
    pub(super) from_files: bool,
    pub(super) bootstrap: Bytes,
}

impl Instance {
    pub(super) async fn start(&self, first: &Arc<Target>) -> anyhow::Result<Started> {
        // Envoy rejects listeners whose ticket keys it cannot open.
        if let Some(tickets) = &self.settings.tickets {
            tickets.clone().place(&self.directories.layout())?;
        }
        let config = self.supervisor_config(first);
        let running = Supervisor::finds_running(&config)?;
        let (applier, opened) =
            Applier::open(self.directories.layout(), config.log(), running.as_ref()).await?;
        if opened.undone > 0 {
            tracing::warn!(files = opened.undone, "rolled back an interrupted change");
        }
        if !opened.junk.is_empty() {
            tracing::warn!(files = ?opened.junk, "rewriting damaged or unexpected files for Envoy");
        }
        let instances = self.instances();
        let mut applier = applier.with_instances(instances.clone());
        let there = applier.on_disk().subscriptions();
        // The file may be damaged, or the open-file limit may have changed.
        applier.share_out(&first.rendered.shares)?;
        applier.count_hosts(first.rendered.fleet_hosts)?;
        let mut from_files = first.restored && opened.junk.is_empty() && has_files(&applier);
        if running.is_none() {
            let files = if from_files {
                there
            } else {
                first.rendered.subscriptions
            };
            from_files &= instances.budget(files) >= files;
        }
        if running.is_some() {
            instances.record_running(there, None);
            tracing::info!("an Envoy is already running; taking it over");
        } else if from_files {
            instances.set_files(there);
            // The stored state may be one change older than the files.
            tracing::info!("starting Envoy from the existing files");
        } else {
            // No Envoy reads the files yet, so they can be written in any order.
            let needed = first.rendered.subscriptions;
            let budget = instances.budget(needed);
            let fitted = (budget < needed).then(|| first.within(budget, BTreeSet::new(), None));
            let rendered = fitted.as_ref().map_or(&first.rendered, |it| &it.rendered);
            instances.set_files(rendered.subscriptions);
            let desired = sesame_apply::Desired {
                rendered,
                serials: &BTreeMap::new(),
                may_empty: true,
            };
            applier.apply(desired, None).await?;
        }
        self.observed.send_modify(|observed| {
            observed.envoy.admin = self.directories.admin_socket();
            observed.envoy.version.clone_from(&self.settings.version);
            observed.trouble = None;
        });
        Ok(Started {
            applier,
            bootstrap: config.bootstrap.clone(),
            supervisor: Supervisor::start(config)?,
            from_files,
        })
    }

    fn supervisor_config(&self, first: &Target) -> SupervisorConfig {
        let mut config = SupervisorConfig::new(
            &self.settings.binary,
            &self.directories.runtime,
            self.directories.admin_socket(),
            first.bootstrap.clone(),
        );
        let options = &self.settings.options;
        config.concurrency = options.concurrency;
        config.drain_time = options.drain.max(SHORTEST_DRAIN);
        config.takeover = options.takeover;
        config.launcher = Some(self.settings.launcher.clone());
        config.instances = self.instances();
        config.has_stdout = options.access_log.to == AccessLogTo::Stdout;
        config
    }
}

fn has_files(applier: &Applier) -> bool {
    let on_disk = applier.on_disk();
    on_disk.has_listeners && on_disk.has_clusters && !on_disk.content.listeners.is_empty()
}
