//! Forecasts the cost of a change: Envoy's work, and the connections that it drains. Counts these if
//! an agent is running.

use std::collections::BTreeMap;
use std::path::Path;

use sesame_kinds::api::NamespacedName;
use sesame_proto::digest;
use sesame_proto::keys::KeyPair;
use sesame_proto::owned;
use sesame_proto::schema::Snapshot;
use sesame_render::drains::drained_ports;

use super::agent::{self, AgentArgs};
use super::host::HostArgs;
use super::offline::render_options;
use sesame_apply::Forecast;
use sesame_engine::history::History;
use sesame_envoy::admin::Sample;
use sesame_resolver::ResolvedGateway;

const OPEN: &str = "sesame_gateway_connections_active";

/// Compares two versions of a Gateway's configuration, and warns about connections that drain.
pub(super) fn forecast(
    agent: &AgentArgs,
    host: &HostArgs,
    gateway: &NamespacedName,
    [old, new]: [(&Snapshot, &[KeyPair]); 2],
) -> anyhow::Result<Forecast> {
    let options = render_options(host);
    let [before, after] =
        [old, new].map(|(snapshot, keys)| sesame_render::render(snapshot, keys, &options));
    let forecast = Forecast::new(&before, &after)?;
    let drains = drained_ports([&before, &after], &old.0.ports, &options);
    if drains.is_empty() {
        return Ok(forecast);
    }
    let open = open_connections(agent, gateway)?;
    let rollout = new.0.rollout.as_ref();
    let digest = digest::listeners(new.0);
    let is_owners = owned::listeners(old.0) != owned::listeners(new.0);
    let held = rollout.filter(|it| it.hold_draining && it.approved != digest && is_owners);
    let held = held.map_or_else(String::new, |_| {
        format!("; hosts hold it until {digest} is approved, or a maintenance window opens")
    });
    for drained in drains {
        let number = open.as_ref().map(|open| {
            let open = open.iter();
            let same = open.filter(|((port, protocol), _)| drained.counts(*port, protocol));
            same.map(|(_, number)| number).sum::<u64>()
        });
        let here = number.map_or("", |_| " on this host");
        let drained = drained.text(number);
        tracing::warn!("the change of Gateway {gateway} drains {drained}{here}{held}");
    }
    Ok(forecast)
}

/// Compares with the configuration that this host's agent accepted last. Returns `None` if there is
/// none.
pub(super) fn forecast_of_running(
    agent: &AgentArgs,
    host: &HostArgs,
    state_dir: &Path,
    gateway: &ResolvedGateway,
) -> anyhow::Result<Option<Forecast>> {
    let history = History::open(state_dir, Some(&gateway.gateway));
    let Some(accepted) = history
        .ok()
        .and_then(|history| history.accepted_last().ok())
    else {
        return Ok(None);
    };
    // A key that changed is in a file, so it drains nothing.
    let keys = &gateway.keys[..];
    let versions = [(&accepted, keys), (&gateway.snapshot, keys)];
    forecast(agent, host, &gateway.gateway, versions).map(Some)
}

/// Returns the number by listener port and protocol, or `None` if no agent is running.
fn open_connections(
    agent: &AgentArgs,
    gateway: &NamespacedName,
) -> anyhow::Result<Option<BTreeMap<(u32, String), u64>>> {
    let Some(answer) = agent::ask(&agent.socket(), "/metrics")? else {
        return Ok(None);
    };
    let mut open = BTreeMap::new();
    for sample in String::from_utf8_lossy(&answer)
        .lines()
        .filter_map(Sample::read)
    {
        let is_ours = sample.name == OPEN
            && sample.label("gateway_namespace") == Some(&gateway.namespace)
            && sample.label("gateway") == Some(&gateway.name);
        let port = sample.label("port").and_then(|port| port.parse().ok());
        let protocol = sample.label("protocol").map(str::to_owned);
        if let Some(key) = port.zip(protocol).filter(|_| is_ours) {
            *open.entry(key).or_default() += sample.count();
        }
    }
    Ok(Some(open))
}
