//! Lists all hosts that have joined, have been invited, or send reports.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::ListParams;
use kube::core::ObjectMeta;
use serde::Serialize;
use sesame_kinds::status::AgentState;
use sesame_published::GatewayAgent;
use sesame_published::host_access::{
    ACCESS_HOST, ACCESS_INVITATION, ACCESS_LABEL, EXPIRES_ANNOTATION, FLEET_ANNOTATION,
    GATEWAYS_ANNOTATION, HOST_ANNOTATION,
};

use super::HostsError;
use super::cluster::Cluster;

const PAGE: u32 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HostAccess {
    Joined,
    Invited,
    InvitationExpired,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostRow {
    pub(crate) host: String,
    pub(crate) access: HostAccess,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fleet: Option<String>,
    pub(crate) gateways: BTreeSet<String>,
    /// Worst state of the host's Gateways, or `None` without a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<AgentState>,
    pub(crate) addresses: BTreeSet<String>,
    pub(crate) zone: String,
    pub(crate) agent_version: String,
    pub(crate) envoy_version: String,
    pub(crate) cores: u32,
    #[serde(rename = "memoryMiB")]
    pub(crate) memory_mib: u64,
    /// According to the host's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_report: Option<Timestamp>,
}

pub(crate) async fn list(cluster: &Cluster) -> Result<Vec<HostRow>, HostsError> {
    let namespace = &cluster.namespace;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
    let of = async |access: &str| {
        let params = ListParams::default().labels(&format!("{ACCESS_LABEL}={access}"));
        let found = accounts.list_metadata(&params).await;
        let found = found.map_err(|error| HostsError::from_kube("list ServiceAccounts", &error))?;
        Ok(found
            .items
            .into_iter()
            .map(|found| found.metadata)
            .collect())
    };
    let hosts: Vec<ObjectMeta> = of(ACCESS_HOST).await?;
    let invitations: Vec<ObjectMeta> = of(ACCESS_INVITATION).await?;
    let api: Api<GatewayAgent> = Api::namespaced(cluster.client.clone(), namespace);
    let mut reports = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await;
        let page = page.map_err(|error| HostsError::from_kube("list GatewayAgents", &error))?;
        reports.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    Ok(rows(&hosts, &invitations, &reports, Timestamp::now()))
}

fn rows(
    hosts: &[ObjectMeta],
    invitations: &[ObjectMeta],
    reports: &[GatewayAgent],
    now: Timestamp,
) -> Vec<HostRow> {
    let mut rows: BTreeMap<String, HostRow> = BTreeMap::new();
    for account in hosts {
        let Some(host) = annotation(account, HOST_ANNOTATION) else {
            continue;
        };
        let mut row = row(host, HostAccess::Joined);
        row.fleet = annotation(account, FLEET_ANNOTATION).map(str::to_owned);
        let gateways = annotation(account, GATEWAYS_ANNOTATION).unwrap_or_default();
        row.gateways = gateways
            .split(',')
            .filter(|gateway| !gateway.is_empty())
            .map(str::to_owned)
            .collect();
        rows.insert(host.to_owned(), row);
    }
    for account in invitations {
        let row = annotation(account, HOST_ANNOTATION).and_then(|host| rows.get_mut(host));
        let Some(row) = row else { continue };
        let expires = annotation(account, EXPIRES_ANNOTATION);
        let is_over = expires
            .and_then(|expires| expires.parse::<Timestamp>().ok())
            .is_some_and(|expires| expires <= now);
        row.access = if is_over {
            HostAccess::InvitationExpired
        } else {
            HostAccess::Invited
        };
        row.expires = expires.map(str::to_owned);
    }
    for report in reports {
        let host = &report.spec.host;
        let row = rows
            .entry(host.clone())
            .or_insert_with(|| row(host, HostAccess::Other));
        add_report(row, report);
    }
    rows.into_values().collect()
}

fn add_report(row: &mut HostRow, report: &GatewayAgent) {
    row.gateways.insert(report.spec.gateway.clone());
    if row.fleet.is_none() && !report.spec.fleet.is_empty() {
        row.fleet = Some(report.spec.fleet.clone());
    }
    let Some(status) = &report.status else { return };
    row.state = row.state.max(Some(status.state));
    row.addresses.extend(status.addresses.iter().cloned());
    // Take host-level fields from the newest report.
    if status.heartbeat >= row.last_report {
        row.last_report = status.heartbeat;
        row.zone.clone_from(&status.zone);
        row.agent_version.clone_from(&status.agent_version);
        row.cores = status.cores;
        row.memory_mib = status.memory_mib;
        if !status.envoy_version.is_empty() {
            row.envoy_version.clone_from(&status.envoy_version);
        }
    }
}

fn row(host: &str, access: HostAccess) -> HostRow {
    HostRow {
        host: host.to_owned(),
        access,
        expires: None,
        fleet: None,
        gateways: BTreeSet::new(),
        state: None,
        addresses: BTreeSet::new(),
        zone: String::new(),
        agent_version: String::new(),
        envoy_version: String::new(),
        cores: 0,
        memory_mib: 0,
        last_report: None,
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let all = metadata.annotations.as_ref()?;
    all.get(name).map(String::as_str)
}
