//! `kubectl sesame hosts`: lists the hosts that serve Gateways, according to their reports.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Serialize;
use sesame_kinds::api::NamespacedName;
use sesame_published::GatewayAgentStatus;
use sesame_published::names::agent_name;

use super::reading::ClusterReader;
use super::table::{age, table};

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServingHost {
    gateway: String,
    host: String,
    fleet: String,
    status: GatewayAgentStatus,
}

pub(super) async fn read(reader: &ClusterReader, name: Option<&str>) -> Result<Vec<ServingHost>> {
    let reports = reader.reports().await?;
    let reports = reports.context(
        "cannot read host reports: the cluster has no GatewayAgents, or you are not permitted to list them in the controller's namespace (--published-in)",
    )?;
    let asked = reports.into_iter().filter(|report| {
        let (namespace, gateway) = report.spec.gateway.split_once('/').unwrap_or_default();
        reader.namespace.as_deref().is_none_or(|of| of == namespace)
            && name.is_none_or(|name| name == gateway)
    });
    let mut hosts: Vec<ServingHost> = asked
        .map(|report| ServingHost {
            gateway: report.spec.gateway,
            host: report.spec.host,
            fleet: report.spec.fleet,
            status: report.status.unwrap_or_default(),
        })
        .collect();
    hosts.sort_by(|one, other| (&one.gateway, &one.host).cmp(&(&other.gateway, &other.host)));
    Ok(hosts)
}

pub(super) fn names(hosts: &[ServingHost]) -> String {
    let names = hosts.iter().map(|host| {
        let (namespace, name) = host.gateway.split_once('/').unwrap_or_default();
        let report = agent_name(&NamespacedName::new(namespace, name), &host.host);
        format!("gatewayagent.projectsesame.io/{report}\n")
    });
    names.collect()
}

pub(super) fn text(hosts: &[ServingHost], wide: bool, with_headings: bool) -> String {
    let mut headings = vec![
        "GATEWAY",
        "HOST",
        "STATE",
        "WANTED",
        "APPLIED",
        "ADDRESSES",
        "REFUSED",
        "LAST REPORT",
    ];
    if wide {
        headings.extend([
            "FLEET",
            "ZONE",
            "AGENT",
            "ENVOY",
            "CERTIFICATE EXPIRY",
            "MESSAGE",
        ]);
    }
    let now = Timestamp::now();
    let rows = hosts.iter().map(|host| {
        let ServingHost {
            gateway,
            host,
            fleet,
            status,
        } = host;
        let mut cells = vec![
            gateway.clone(),
            host.clone(),
            status.state.to_string(),
            status.wanted_revision.clone(),
            status.applied_revision.clone(),
            status.addresses.join(","),
            status.refused.len().to_string(),
            status
                .heartbeat
                .map_or_else(String::new, |at| age(now.duration_since(at))),
        ];
        if wide {
            let expiry = status.next_certificate_expiry.map(|at| at.to_string());
            cells.extend([
                fleet.clone(),
                status.zone.clone(),
                status.agent_version.clone(),
                status.envoy_version.clone(),
                expiry.unwrap_or_default(),
                status.message.clone(),
            ]);
        }
        cells
    });
    table(&headings, with_headings, rows.collect(), "No hosts found.")
}
