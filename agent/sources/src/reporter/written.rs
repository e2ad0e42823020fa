//! Remembers this host's last reports, and sends the requests that update them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::AgentState;
use sesame_published::names::{FLEET_LABEL, GATEWAY_LABEL, agent_name, gateway_id};
use sesame_published::{GatewayAgent, GatewayAgentStatus, STATUS_MANAGER};

use super::HostReports;
use super::pace::is_progress;
use crate::cluster::backoff::ServerFault;
use crate::cluster::{ClusterSettings, describe_error, fault, within};

const SPEC_MANAGER: &str = "sesame-agent";
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct WrittenReports {
    namespace: String,
    fleet: String,
    host: String,
    statuses: BTreeMap<NamespacedName, GatewayAgentStatus>,
    /// Gateways whose last report the cluster did not accept.
    unheard: BTreeSet<NamespacedName>,
}

#[derive(Debug)]
pub(super) struct WriteFailure {
    pub(super) message: String,
    pub(super) fault: ServerFault,
}

/// How the current reports differ from the last written ones, least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReportChange {
    None,
    /// All Gateways are healthy, and at least one is applying another revision.
    Applying,
    /// All Gateways are healthy, and at least one is serving another revision.
    Progress,
    /// Any other difference, such as a problem or a new Gateway.
    News,
}

impl WrittenReports {
    pub(super) fn new(settings: &ClusterSettings) -> Self {
        Self {
            namespace: settings.namespace.clone(),
            fleet: settings.fleet.clone(),
            host: settings.host.clone(),
            statuses: BTreeMap::new(),
            unheard: BTreeSet::new(),
        }
    }

    pub(super) fn statuses(&self) -> &BTreeMap<NamespacedName, GatewayAgentStatus> {
        &self.statuses
    }

    pub(super) fn change_to(
        &self,
        statuses: &BTreeMap<NamespacedName, GatewayAgentStatus>,
    ) -> ReportChange {
        if !self.unheard.is_empty() || !self.statuses.keys().eq(statuses.keys()) {
            return ReportChange::News;
        }
        let pairs = self.statuses.values().zip(statuses.values());
        let changes = pairs.map(|(before, now)| match before == now {
            true => ReportChange::None,
            false if !is_progress(before, now) => ReportChange::News,
            false if now.state == AgentState::Applying => ReportChange::Applying,
            false => ReportChange::Progress,
        });
        changes.max().unwrap_or(ReportChange::None)
    }

    /// Also deletes this host's reports on Gateways that are not in `statuses`.
    pub(super) async fn write(
        &mut self,
        client: Client,
        statuses: BTreeMap<NamespacedName, GatewayAgentStatus>,
        all: bool,
        reports: &mut impl HostReports,
    ) -> Result<(), WriteFailure> {
        let api: Api<GatewayAgent> = Api::namespaced(client, &self.namespace);
        let known = self.statuses.keys().cloned();
        let gone: Vec<NamespacedName> = known.filter(|name| !statuses.contains_key(name)).collect();
        let mut outcome = Ok(());
        for (gateway, status) in statuses {
            let is_written = self.statuses.get(&gateway) == Some(&status);
            if !all && is_written && !self.unheard.contains(&gateway) {
                continue;
            }
            let written = self.write_one(&api, &gateway, &status).await;
            if written.is_ok() {
                reports.taken(&gateway, &status);
                self.unheard.remove(&gateway);
                self.statuses.insert(gateway, status);
            } else if self.statuses.contains_key(&gateway) {
                self.unheard.insert(gateway.clone());
                self.statuses.insert(gateway, status);
            }
            // Continue after an error, because the cluster may accept the remaining reports.
            outcome = outcome.and(written);
        }
        for gateway in gone {
            let forgotten = self.forget(&api, &gateway).await;
            if forgotten.is_ok() {
                self.statuses.remove(&gateway);
                self.unheard.remove(&gateway);
            }
            outcome = outcome.and(forgotten);
        }
        outcome
    }

    async fn write_one(
        &self,
        api: &Api<GatewayAgent>,
        gateway: &NamespacedName,
        status: &GatewayAgentStatus,
    ) -> Result<(), WriteFailure> {
        let name = agent_name(gateway, &self.host);
        let heartbeat = Timestamp::from_second(Timestamp::now().as_second()).ok();
        let status = serde_json::json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "GatewayAgent",
            "status": GatewayAgentStatus { heartbeat, ..status.clone() },
        });
        let known = self.statuses.contains_key(gateway);
        let written = async {
            if !known {
                self.write_spec(api, gateway, &name).await?;
            }
            match write_status(api, &name, &status).await {
                Err(kube::Error::Api(error)) if error.code == 404 && known => {
                    self.write_spec(api, gateway, &name).await?;
                    write_status(api, &name, &status).await
                }
                result => result,
            }
        };
        written.await.map_err(|error| failed(&name, &error))
    }

    async fn write_spec(
        &self,
        api: &Api<GatewayAgent>,
        gateway: &NamespacedName,
        name: &str,
    ) -> kube::Result<()> {
        let object = serde_json::json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "GatewayAgent",
            "metadata": {
                "name": name,
                "labels": {
                    GATEWAY_LABEL: gateway_id(gateway),
                    FLEET_LABEL: self.fleet,
                },
            },
            "spec": {
                "gateway": gateway.to_string(),
                "host": self.host,
                "fleet": self.fleet,
            },
        });
        let params = PatchParams::apply(SPEC_MANAGER).force();
        let patch = Patch::Apply(&object);
        let written = within(TIMEOUT, api.patch(name, &params, &patch)).await;
        written.map(|_| ())
    }

    async fn forget(
        &self,
        api: &Api<GatewayAgent>,
        gateway: &NamespacedName,
    ) -> Result<(), WriteFailure> {
        let name = agent_name(gateway, &self.host);
        match within(TIMEOUT, api.delete(&name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            // If access is forbidden, the controller deletes the stale report.
            Err(kube::Error::Api(error)) if matches!(error.code, 403 | 404) => Ok(()),
            Err(error) => Err(failed(&name, &error)),
        }
    }
}

async fn write_status(
    api: &Api<GatewayAgent>,
    name: &str,
    status: &serde_json::Value,
) -> kube::Result<()> {
    let params = PatchParams::apply(STATUS_MANAGER).force();
    let patch = Patch::Apply(status);
    let written = within(TIMEOUT, api.patch_status(name, &params, &patch)).await;
    written.map(|_| ())
}

fn failed(name: &str, error: &kube::Error) -> WriteFailure {
    WriteFailure {
        message: format!("GatewayAgent {name}: {}", describe_error(error)),
        fault: fault(error),
    }
}
