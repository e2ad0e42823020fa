//! A process with many light agents. Each uses the real agent's code to receive revisions and to
//! report, but has no Envoy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::AgentState;
use sesame_published::GatewayAgentStatus;
use sesame_published::names::DEFAULT_FLEET;
use sesame_sources::cluster::{self, ClusterSettings};
use sesame_sources::reporter::{HostReports, ReportWriter};
use sesame_sources::update::SourceUpdate;
use sesame_tests::controller::NAMESPACE;
use tokio::sync::{mpsc, watch};

use super::told::{Observation, print_observations};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LightHost {
    pub(crate) name: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) address: String,
}

pub(crate) async fn run(hosts: Vec<LightHost>, period: Duration) -> anyhow::Result<()> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let count = hosts.len();
    for (index, host) in hosts.into_iter().enumerate() {
        start(index, &host, period, sender.clone());
    }
    drop(sender);
    print_observations(count, receiver)
        .await
        .context("tell the parent")
}

fn start(
    index: usize,
    host: &LightHost,
    period: Duration,
    observations: mpsc::UnboundedSender<Observation>,
) {
    let LightHost {
        name,
        kubeconfig,
        address,
    } = host;
    let settings = ClusterSettings::of_fleet(kubeconfig.clone(), NAMESPACE, DEFAULT_FLEET, name);
    let (updates, mut newest) = watch::channel(SourceUpdate::default());
    let (client, clients) = watch::channel(None);
    let reports = AcceptedReports {
        newest: newest.clone(),
        address: address.clone(),
        period,
    };
    let reporter = ReportWriter::start(&settings, clients, reports);
    tokio::spawn(cluster::run(settings, Vec::new(), updates, client));
    tokio::spawn(async move {
        while newest.changed().await.is_ok() {
            let update = newest.borrow_and_update();
            let complete = update
                .gateways
                .values()
                .find_map(|one| one.complete.clone());
            let observation = Observation::now(
                index,
                complete.and_then(|revision| revision.manifest_revision),
                update.lists_all && update.away.is_none(),
            );
            drop(update);
            if observations.send(observation).is_err() {
                return;
            }
        }
        reporter.finish().await;
    });
}

struct AcceptedReports {
    newest: watch::Receiver<SourceUpdate>,
    address: String,
    period: Duration,
}

impl HostReports for AcceptedReports {
    fn follow(&mut self) -> Duration {
        self.period
    }

    fn statuses(
        &mut self,
        _: &BTreeMap<NamespacedName, GatewayAgentStatus>,
    ) -> BTreeMap<NamespacedName, GatewayAgentStatus> {
        let update = self.newest.borrow_and_update();
        let short = |revision: &str| revision.chars().take(12).collect::<String>();
        let all = update.gateways.iter().filter_map(|(gateway, update)| {
            let complete = update.complete.as_ref()?;
            let applied = short(complete.manifest_revision.as_deref()?);
            let newer = update.incomplete.as_ref();
            let status = GatewayAgentStatus {
                state: newer.map_or(AgentState::Serving, |_| AgentState::Applying),
                wanted_revision: newer.map_or_else(|| applied.clone(), |it| short(&it.revision)),
                applied_revision: applied,
                envoy_version: "none".to_owned(),
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                cores: 2,
                memory_mib: 4096,
                addresses: vec![self.address.clone()],
                open_ports: vec!["TCP/80".to_owned(), "TCP/443".to_owned()],
                ..GatewayAgentStatus::default()
            };
            Some((gateway.clone(), status))
        });
        all.collect()
    }

    fn taken(&mut self, _: &NamespacedName, _: &GatewayAgentStatus) {}

    async fn changed(&mut self) {
        if self.newest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn back(&mut self) {
        let away = self.newest.borrow().away.is_some();
        if !away || self.newest.wait_for(|it| it.away.is_none()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
