//! `kubectl sesame status`: shows Gateways, their hosts, and their problems.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::{Value, json};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{AgentState, ShownCondition, conditions_of};
use sesame_kinds::world::Kind;
use sesame_proto::terminal::plain;
use sesame_published::GatewayAgent;

use super::reading::{ClusterReader, Listed};
use super::table::table;

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GatewayRow {
    pub(super) namespace: String,
    pub(super) name: String,
    class: String,
    addresses: Vec<String>,
    programmed: String,
    /// `None` if the caller may not read reports.
    hosts: Option<ServingHosts>,
    generation: i64,
    attached_routes: u64,
    pub(super) problems: Vec<String>,
}

/// Number of hosts that serve without errors, and of all hosts.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct ServingHosts {
    serving: usize,
    all: usize,
}

pub(super) async fn read(reader: &ClusterReader, name: Option<&str>) -> Result<Vec<GatewayRow>> {
    let gateways = match reader
        .list(Kind::Gateway, reader.namespace.as_deref())
        .await?
    {
        Listed::Objects(_, objects) => objects,
        // The configuration may declare Gateways.
        Listed::Missing => Vec::new(),
        Listed::Refused(why) => bail!("{why}"),
    };
    let classes = ours(reader).await?;
    let reports = reader.reports().await?;
    let mut rows = Vec::new();
    for gateway in &gateways {
        let class = word(&gateway["spec"]["gatewayClassName"]);
        let is_ours = classes
            .as_ref()
            .is_none_or(|classes| classes.contains(class));
        let is_asked = name.is_none_or(|name| word(&gateway["metadata"]["name"]) == name);
        if is_ours && is_asked {
            rows.push(row(gateway, reports.as_deref()));
        }
    }
    for gateway in without_object(reader, &gateways, reports.as_deref()) {
        if name.is_none_or(|name| gateway.name == name) {
            let NamespacedName { namespace, name } = &gateway;
            let gateway = json!({"metadata": {"namespace": namespace, "name": name}});
            rows.push(row(&gateway, reports.as_deref()));
        }
    }
    if rows.is_empty()
        && let Some(name) = name
    {
        bail!(
            "Sesame serves no Gateway {name} in this namespace; use -n for another namespace, -A \
            for all"
        );
    }
    rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    Ok(rows)
}

/// Returns Gateways that hosts serve although no object declares them. Merged Gateways are excluded.
fn without_object(
    reader: &ClusterReader,
    gateways: &[Value],
    reports: Option<&[GatewayAgent]>,
) -> BTreeSet<NamespacedName> {
    let is_shown = |gateway: &NamespacedName| {
        let namespace = reader.namespace.as_ref();
        let metadata = gateways.iter().map(|it| &it["metadata"]);
        let mut names = metadata.map(|it| (word(&it["namespace"]), word(&it["name"])));
        namespace.is_none_or(|it| *it == gateway.namespace)
            && gateway.namespace != reader.published_in
            && !names.any(|it| it == (gateway.namespace.as_str(), gateway.name.as_str()))
    };
    let served = reports.into_iter().flatten().filter_map(|report| {
        let (namespace, name) = report.spec.gateway.split_once('/')?;
        Some(NamespacedName::new(namespace, name))
    });
    served.filter(is_shown).collect()
}

/// Returns the names of Sesame's GatewayClasses, or `None` if the caller may not read them.
async fn ours(reader: &ClusterReader) -> Result<Option<BTreeSet<String>>> {
    let Listed::Objects(_, classes) = reader.list(Kind::GatewayClass, None).await? else {
        return Ok(None);
    };
    let ours = classes
        .iter()
        .filter(|class| word(&class["spec"]["controllerName"]) == reader.controller_name);
    Ok(Some(
        ours.map(|class| word(&class["metadata"]["name"]).to_owned())
            .collect(),
    ))
}

fn row(gateway: &Value, reports: Option<&[GatewayAgent]>) -> GatewayRow {
    let namespace = word(&gateway["metadata"]["namespace"]);
    let name = word(&gateway["metadata"]["name"]);
    let full = format!("{namespace}/{name}");
    let status = &gateway["status"];
    let conditions = conditions_of(status);
    let programmed = conditions
        .iter()
        .find(|condition| condition.section.is_empty() && condition.type_ == "Programmed");
    let faults = conditions.iter().filter(|condition| condition.is_fault());
    let mut problems: Vec<String> = faults.map(sentence).collect();
    let is_own = |report: &&GatewayAgent| report.spec.gateway == full;
    let hosts = reports.map(|reports| {
        let mut hosts = ServingHosts::default();
        for report in reports.iter().filter(is_own) {
            let status = report.status.clone().unwrap_or_default();
            hosts.all += 1;
            hosts.serving += usize::from(status.state == AgentState::Serving);
            if status.state != AgentState::Serving {
                let host = &report.spec.host;
                problems.push(format!(
                    "host {host} is {}: {}",
                    status.state, status.message
                ));
            }
            for refused in status.refused {
                let (host, object, effect) = (&report.spec.host, refused.object, refused.effect);
                problems.push(format!("host {host}: Envoy rejects {object}; {effect}"));
            }
        }
        hosts
    });
    let addresses = list(&status["addresses"]);
    let listeners = list(&status["listeners"]);
    GatewayRow {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        class: word(&gateway["spec"]["gatewayClassName"]).to_owned(),
        addresses: addresses
            .map(|address| word(&address["value"]).to_owned())
            .collect(),
        programmed: programmed
            .map_or("Unknown", |it| it.status.as_str())
            .to_owned(),
        hosts,
        generation: gateway["metadata"]["generation"].as_i64().unwrap_or(0),
        attached_routes: listeners
            .filter_map(|listener| listener["attachedRoutes"].as_u64())
            .sum(),
        problems,
    }
}

fn sentence(condition: &ShownCondition) -> String {
    let of = if condition.section.is_empty() {
        ""
    } else {
        "listener "
    };
    format!("{of}{condition}")
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn names(rows: &[GatewayRow]) -> String {
    let names = rows.iter().map(|row| {
        let name = plain(&row.name);
        format!("gateway.gateway.networking.k8s.io/{name}\n")
    });
    names.collect()
}

pub(super) fn text(rows: &[GatewayRow], wide: bool, with_headings: bool) -> String {
    let mut headings = vec![
        "NAMESPACE",
        "NAME",
        "CLASS",
        "ADDRESS",
        "PROGRAMMED",
        "HOSTS",
        "PROBLEMS",
    ];
    if wide {
        headings.extend(["ROUTES", "GENERATION"]);
    }
    let cells = rows.iter().map(|row| {
        let GatewayRow {
            namespace,
            name,
            class,
            addresses,
            programmed,
            hosts,
            generation,
            attached_routes,
            problems,
        } = row;
        let hosts = hosts.as_ref().map_or_else(
            || "?".to_owned(),
            |ServingHosts { serving, all }| format!("{serving}/{all}"),
        );
        let mut cells = vec![
            namespace.clone(),
            name.clone(),
            class.clone(),
            addresses.join(","),
            programmed.clone(),
            hosts,
            problems.len().to_string(),
        ];
        if wide {
            cells.extend([attached_routes.to_string(), generation.to_string()]);
        }
        cells
    });
    let none = "No Sesame Gateways found.";
    let mut text = table(&headings, with_headings, cells.collect(), none);
    for row in rows {
        if !row.problems.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n{}/{}:", row.namespace, row.name);
        }
        for problem in &row.problems {
            let _ = writeln!(text, "  {}", plain(problem));
        }
    }
    text
}
