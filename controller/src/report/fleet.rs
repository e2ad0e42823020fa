//! Summarizes a Gateway's hosts from their agents' reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::endpoints;
use super::nodes::Permission;
use super::revisions::Revisions;
use crate::statuses::HostEndpoint;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{AgentState, Programmed, RefusedRules};
use sesame_published::names::is_pod;
use sesame_published::{GatewayAgent, GatewayAgentStatus, MAX_REPORT_SECONDS, RefusedRule};

/// Time after which the reports from a silent host are deleted.
const DEAD_AFTER: Duration = Duration::from_secs(24 * 3600);
const MAX_ADDRESSES: usize = 16;
const MAX_FOREIGN: usize = 8;
pub(super) const FOREIGN_ADDRESS: &str =
    "they are neither addresses of the host's Node nor in the controller's --host-addresses";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FleetSummary {
    /// Listeners are grouped by the object that defines them.
    pub(super) programmed: Programmed,
    pub(super) lost: Vec<String>,
    /// Number of hosts that report a running Envoy. These share fleet limits. If there is none,
    /// counts the silent hosts, because they may still serve.
    pub(super) live: u32,
    pub(super) lost_after: Duration,
    /// Formatted as `ADDRESS of HOST`.
    pub(super) foreign_addresses: Vec<String>,
    /// Includes hosts with older revisions.
    pub(super) endpoints: BTreeMap<IpAddr, HostEndpoint>,
    /// Kubernetes maintains Pod endpoints, so they are not in `endpoints`.
    pub(super) pods: bool,
    /// Number of ready hosts that wait for a rollout.
    pub(super) waiting: u32,
    /// Hosts that cannot apply the newest revision, with reasons.
    pub(super) behind: Vec<(String, String)>,
    /// Number of ready hosts that do not serve the ListenerSet's newest generation.
    pub(super) without_set: BTreeMap<NamespacedName, u32>,
    /// Keyed by `HTTPRoute/namespace/name`.
    pub(super) refused: BTreeMap<String, RefusedRules>,
}

impl FleetSummary {
    /// `without` are the ListenerSets whose newest generation the host does not serve yet.
    fn record_ready<'s>(&mut self, without: impl Iterator<Item = &'s NamespacedName>) {
        self.programmed.hosts_ready += 1;
        for set in without {
            *self.without_set.entry(set.clone()).or_default() += 1;
        }
    }

    /// Skips Pods, whose reported addresses do not receive traffic.
    fn record_foreign(&mut self, foreign: &BTreeSet<IpAddr>, host: &str) {
        if is_pod(host) {
            return;
        }
        let room = MAX_FOREIGN.saturating_sub(self.foreign_addresses.len());
        let foreign = foreign.iter().take(room);
        self.foreign_addresses
            .extend(foreign.map(|ip| format!("{ip} of {host}")));
    }
}

/// Returns false if the host is still applying the newest revision; such a host counts as ready.
fn refuses_newest(status: &GatewayAgentStatus) -> bool {
    status.state == AgentState::Degraded
        && !status.draining
        && !status.wanted_revision.is_empty()
        && status.wanted_revision != status.applied_revision
}

/// `agents` pairs each agent with the time since its last report.
pub(super) fn summarize<'a>(
    agents: impl Iterator<Item = (&'a GatewayAgent, Duration)>,
    revisions: &Revisions,
    lost_after: Duration,
    allow: impl Fn(&str, IpAddr) -> Option<Permission>,
) -> FleetSummary {
    let mut all = FleetSummary {
        lost_after,
        ..FleetSummary::default()
    };
    let mut addresses: Vec<Vec<IpAddr>> = Vec::new();
    let mut listeners: Reasons<'_, String> = Reasons::default();
    let mut unshown: Reasons<'_, String> = Reasons::default();
    let mut unusable: Reasons<'_, String> = Reasons::default();
    let mut routes: BTreeMap<&str, Refusals> = BTreeMap::new();
    let mut heard = 0_u32;
    let mut silent = 0_u32;
    for (agent, silence) in agents {
        let host = agent.spec.host.as_str();
        let is_pod = is_pod(host);
        if is_pod && has_ended(agent) {
            continue;
        }
        all.programmed.hosts += 1;
        let Some(status) = &agent.status else {
            continue;
        };
        if silence > patience(status, lost_after) {
            all.lost.push(host.to_owned());
            silent += u32::from(status.state != AgentState::Down);
            continue;
        }
        heard += 1;
        all.live += u32::from(status.state != AgentState::Down);
        if is_pod {
            all.pods |= status.state != AgentState::Down;
        } else {
            endpoints::add(status, host, &allow, &mut all.endpoints);
        }
        let revision = revisions.number(&status.applied_revision);
        // A host that holds a change may serve parts of several revisions.
        let is_behind = refuses_newest(status);
        // A host that waits for a rollout serves a revision that may be unknown after a restart.
        let waits = status.state == AgentState::Serving
            && !status.wanted_revision.is_empty()
            && status.wanted_revision != status.applied_revision;
        if status.state != AgentState::Down && (is_behind || waits || revision.is_some()) {
            match revision.filter(|_| !is_behind) {
                None if is_behind => all.behind.push((host.to_owned(), status.message.clone())),
                None => {}
                Some(revision) => {
                    all.waiting += u32::from(waits);
                    all.record_ready(revisions.sets_changed_after(revision));
                }
            }
            // The host still serves clients at its addresses.
            let (own, foreign) = addresses_of(status, |ip| allow(host, ip).is_some());
            addresses.push(own.into_iter().collect());
            all.record_foreign(&foreign, host);
        }
        for one in &status.unshown_certificates {
            unshown.record(one.listener.clone(), &one.reason, host);
        }
        record(status, host, &mut listeners, &mut unusable, &mut routes);
    }
    if all.live == 0 {
        all.live = silent;
    }
    let addresses = shared_out(&addresses).into_iter();
    all.programmed.addresses = addresses.map(|ip| ip.to_string()).collect();
    all.programmed.refused_listeners = listeners.describe(heard);
    all.programmed.unshown_certificates = unshown.describe(heard);
    unusable
        .0
        .retain(|_, reasons| reasons.values().map(BTreeSet::len).sum::<usize>() >= heard as usize);
    all.programmed.unusable_addresses = unusable.describe(heard);
    all.refused = routes
        .into_iter()
        .map(|(route, refusals)| (route.to_owned(), refusals.describe(heard)))
        .collect();
    all
}

/// Returns the time after which a silent host counts as lost, longer than its longest interval
/// between reports.
pub(super) fn patience(status: &GatewayAgentStatus, lost_after: Duration) -> Duration {
    let seconds = status.report_seconds.unwrap_or(0).min(MAX_REPORT_SECONDS);
    // Hosts delay reports by up to a quarter of the interval to spread them.
    lost_after.max(Duration::from_secs(seconds.into()) * 3 / 2)
}

/// Separates allowed from foreign addresses. Drops invalid ones, because the API server would
/// reject the whole status.
fn addresses_of(
    status: &GatewayAgentStatus,
    may_have: impl Fn(IpAddr) -> bool,
) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
    let parsed = status.addresses.iter();
    let parsed = parsed.filter_map(|text| text.parse::<IpAddr>().ok());
    parsed.partition(|ip| may_have(*ip))
}

/// Takes addresses from each host in turn, so that one host cannot use up the limit.
fn shared_out(host_addresses: &[Vec<IpAddr>]) -> BTreeSet<IpAddr> {
    let most = host_addresses.iter().map(Vec::len).max().unwrap_or(0);
    let mut taken = BTreeSet::new();
    for ip in (0..most).flat_map(|turn| host_addresses.iter().filter_map(move |all| all.get(turn)))
    {
        if taken.len() == MAX_ADDRESSES {
            break;
        }
        taken.insert(*ip);
    }
    taken
}

fn record<'a>(
    status: &'a GatewayAgentStatus,
    host: &'a str,
    listeners: &mut Reasons<'a, String>,
    unusable: &mut Reasons<'a, String>,
    routes: &mut BTreeMap<&'a str, Refusals<'a>>,
) {
    for listener in &status.refused_listeners {
        listeners.record(listener.name.clone(), &listener.reason, host);
    }
    for address in &status.unusable_addresses {
        unusable.record(address.address.clone(), &address.reason, host);
    }
    for route in &status.refused_routes {
        let refusals = routes.entry(&route.route).or_default();
        for RefusedRule { rule, reason } in &route.rules {
            refusals.rules.record(*rule, reason, host);
        }
        for RefusedRule { rule, reason } in &route.backends {
            refusals.backends.record(*rule, reason, host);
        }
        refusals.works |= route.works;
        refusals.hosts += 1;
    }
}

fn has_ended(agent: &GatewayAgent) -> bool {
    let status = agent.status.as_ref();
    status.is_some_and(|status| status.state == AgentState::Down)
}

/// Returns the names of stale reports: on foreign Gateways, from agents that were silent for a day,
/// and from Pods that ended or are lost. Pod names are never reused.
pub(super) fn stale<'a>(
    agents: impl Iterator<Item = (&'a String, &'a GatewayAgent)>,
    is_ours: impl Fn(&NamespacedName) -> bool,
    silence: impl Fn(&str) -> Duration,
    lost_after: Duration,
) -> BTreeSet<String> {
    let is_past = |name: &str, agent: &GatewayAgent| {
        let silence = silence(name);
        let pod = is_pod(&agent.spec.host);
        silence > DEAD_AFTER || pod && (has_ended(agent) || silence > lost_after)
    };
    agents
        .filter(|(name, agent)| is_past(name, agent) || !is_ours(&gateway_of(agent)))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Ignores the heartbeat.
pub(super) fn is_same_report(before: &GatewayAgent, now: &GatewayAgent) -> bool {
    let without_heartbeat = |agent: &GatewayAgent| {
        let status = agent.status.clone();
        status.map(|status| GatewayAgentStatus {
            heartbeat: None,
            ..status
        })
    };
    before.spec == now.spec && without_heartbeat(before) == without_heartbeat(now)
}

pub(super) fn gateway_of(agent: &GatewayAgent) -> NamespacedName {
    let text = agent.spec.gateway.as_str();
    // An invalid name does not match any Gateway.
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    NamespacedName::new(namespace, name)
}

#[derive(Default)]
struct Refusals<'a> {
    rules: Reasons<'a, usize>,
    backends: Reasons<'a, usize>,
    works: bool,
    hosts: u32,
}

impl Refusals<'_> {
    fn describe(self, heard: u32) -> RefusedRules {
        RefusedRules {
            rules: self.rules.describe(heard),
            backends: self.backends.describe(heard),
            works: self.works || self.hosts < heard,
        }
    }
}

/// Hosts by subject and reason.
#[derive(Default)]
struct Reasons<'a, K>(BTreeMap<K, BTreeMap<&'a str, BTreeSet<&'a str>>>);

impl<'a, K: Ord> Reasons<'a, K> {
    fn record(&mut self, about: K, reason: &'a str, host: &'a str) {
        let reasons = self.0.entry(about).or_default();
        reasons.entry(reason).or_default().insert(host);
    }

    /// Names the hosts unless all of them report the reason.
    fn describe(self, heard: u32) -> BTreeMap<K, String> {
        let describe = |reasons: BTreeMap<&str, BTreeSet<&str>>| {
            let each: Vec<String> = reasons
                .into_iter()
                .map(|(reason, hosts)| {
                    if hosts.len() == heard as usize {
                        return reason.to_owned();
                    }
                    let shown: Vec<&str> = hosts.iter().copied().take(3).collect();
                    let more = match hosts.len() - shown.len() {
                        0 => String::new(),
                        more => format!(" and {more} more"),
                    };
                    format!("on {}{more}: {reason}", shown.join(", "))
                })
                .collect();
            each.join("; ")
        };
        self.0
            .into_iter()
            .map(|(about, reasons)| (about, describe(reasons)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_published::{GatewayAgentSpec, RefusedListener, RefusedRoute};

    const LOST_AFTER: Duration = Duration::from_secs(180);

    fn agent(host: &str, revision: &str) -> GatewayAgent {
        let mut agent = GatewayAgent::new(
            host,
            GatewayAgentSpec {
                gateway: "ns/edge".to_owned(),
                host: host.to_owned(),
                fleet: "default".to_owned(),
            },
        );
        agent.status = Some(GatewayAgentStatus {
            state: AgentState::Serving,
            applied_revision: revision.to_owned(),
            addresses: vec![
                format!("192.0.2.{}", host.len()),
                "not an address".to_owned(),
            ],
            ..GatewayAgentStatus::default()
        });
        agent
    }

    fn heard<'a>(
        agents: impl IntoIterator<Item = &'a GatewayAgent>,
    ) -> impl Iterator<Item = (&'a GatewayAgent, Duration)> {
        agents.into_iter().map(|agent| (agent, Duration::ZERO))
    }

    fn revisions(all: &[(i64, &str)]) -> Revisions {
        let mut revisions = Revisions::default();
        for (generation, revision) in all {
            revisions.record(*generation, revision, []);
        }
        revisions
    }

    #[test]
    fn rarely_reporting_host_gets_bounded_extra_time() {
        let lost = |report_seconds, silence| {
            let mut agent = agent("a", "aaaaaaaaaaaa");
            agent.status.as_mut().unwrap().report_seconds = report_seconds;
            let reports = [(&agent, Duration::from_secs(silence))].into_iter();
            let all = summarize(reports, &Revisions::default(), LOST_AFTER, |_, _| None);
            !all.lost.is_empty()
        };
        assert!(!lost(None, 180) && lost(None, 181));
        // If a host reports more often than required, the configured limit still applies.
        assert!(!lost(Some(10), 180) && lost(Some(10), 181));
        assert!(!lost(Some(600), 900) && lost(Some(600), 901));
        assert!(!lost(Some(u32::MAX), 5400) && lost(Some(u32::MAX), 5401));
    }

    #[test]
    fn silent_hosts_share_limits_only_if_no_host_is_live() {
        let mut down = agent("down", "a");
        down.status.as_mut().expect("a status").state = AgentState::Down;
        let agents = [agent("a", "a"), agent("b", "a"), down];
        let live = |silence: [Duration; 3]| {
            let agents = agents.iter().zip(silence);
            summarize(agents, &Revisions::default(), LOST_AFTER, |_, _| None).live
        };
        let lost = LOST_AFTER + Duration::from_secs(1);
        assert_eq!(live([Duration::ZERO; 3]), 2);
        assert_eq!(live([Duration::ZERO, lost, lost]), 1);
        assert_eq!(live([lost; 3]), 2);
        assert_eq!(live([lost, lost, Duration::ZERO]), 2);
    }

    #[test]
    fn host_that_holds_change_is_behind() {
        let mut holding = agent("a", "cccccccccccc");
        let status = holding.status.as_mut().unwrap();
        status.state = AgentState::Degraded;
        status.wanted_revision = "aaaaaaaaaaaa".to_owned();
        status.message = "held".to_owned();
        let known = revisions(&[(1, "aaaaaaaaaaaaaa")]);
        let all = summarize(heard([&holding]), &known, LOST_AFTER, |_, _| {
            Some(Permission::Declared)
        });
        assert_eq!(all.behind, [("a".to_owned(), "held".to_owned())]);
        assert_eq!(all.programmed.addresses, ["192.0.2.1"]);
        assert_eq!(all.programmed.hosts_ready, 0);
    }

    #[test]
    fn host_is_ready_with_any_revision_of_generation() {
        let agents = [
            (agent("a", "aaaaaaaaaaaa"), 10),
            (agent("bb", "bbbbbbbbbbbb"), 10),
            (agent("ccc", "bbbbbbbbbbbb"), 200),
            (agent("dddd", "000000000000"), 10),
        ];
        let agents = agents
            .iter()
            .map(|(agent, silence)| (agent, Duration::from_secs(*silence)));
        let known = revisions(&[
            (1, "00000000000000"),
            (2, "aaaaaaaaaaaaaa"),
            (2, "bbbbbbbbbbbbbb"),
        ]);
        let summary = summarize(agents, &known, LOST_AFTER, |_, _| {
            Some(Permission::Declared)
        });
        assert_eq!(
            (summary.programmed.hosts_ready, summary.programmed.hosts),
            (2, 4)
        );
        assert_eq!(summary.programmed.addresses, ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(summary.lost, ["ccc"]);
    }

    #[test]
    fn host_that_refuses_newest_revision_is_not_ready() {
        let state = |state, wanted: &str| {
            let mut agent = agent("a", "aaaaaaaaaaaa");
            let status = agent.status.as_mut().unwrap();
            status.state = state;
            status.wanted_revision = wanted.to_owned();
            status.message = "too large once decoded".to_owned();
            let known = revisions(&[(1, "aaaaaaaaaaaaaa"), (1, "bbbbbbbbbbbbbb")]);
            summarize(heard([&agent]), &known, LOST_AFTER, |_, _| {
                Some(Permission::Declared)
            })
        };
        for (found, wanted, ready) in [
            (AgentState::Serving, "aaaaaaaaaaaa", 1),
            (AgentState::Degraded, "aaaaaaaaaaaa", 1),
            (AgentState::Applying, "bbbbbbbbbbbb", 1),
            (AgentState::Degraded, "bbbbbbbbbbbb", 0),
        ] {
            let summary = state(found, wanted);
            assert_eq!(summary.programmed.hosts_ready, ready, "{found} {wanted}");
            assert_eq!(summary.programmed.addresses, ["192.0.2.1"]);
        }
        let summary = state(AgentState::Degraded, "bbbbbbbbbbbb");
        let behind = ("a".to_owned(), "too large once decoded".to_owned());
        assert_eq!(summary.behind, [behind]);
    }

    #[test]
    fn reasons_name_hosts_unless_all_share_them() {
        let refused = |mut agent: GatewayAgent, reason: &str, works| {
            let status = agent.status.as_mut().expect("a status");
            status.refused_listeners = vec![RefusedListener {
                name: "Gateway/ns/edge/listeners/http".to_owned(),
                reason: reason.to_owned(),
            }];
            status.refused_routes = vec![RefusedRoute {
                route: "HTTPRoute/ns/app".to_owned(),
                rules: vec![RefusedRule {
                    rule: 0,
                    reason: "bad regex".to_owned(),
                }],
                works,
                ..RefusedRoute::default()
            }];
            agent
        };
        let agents = [
            refused(agent("a", "aaaaaaaaaaaa"), "port 80 is taken", false),
            refused(agent("bb", "aaaaaaaaaaaa"), "no rights", false),
        ];
        let known = revisions(&[(1, "aaaaaaaaaaaaaa")]);
        let both = summarize(heard(&agents), &known, LOST_AFTER, |_, _| {
            Some(Permission::Declared)
        });
        let listeners = &both.programmed.refused_listeners;
        let http = listeners.get("Gateway/ns/edge/listeners/http");
        assert_eq!(
            http.map(String::as_str),
            Some("on bb: no rights; on a: port 80 is taken")
        );
        let route = &both.refused["HTTPRoute/ns/app"];
        assert_eq!(route.rules[&0], "bad regex");
        assert!(!route.works);

        let well = agent("ccc", "aaaaaaaaaaaa");
        let most = summarize(
            heard(&agents).chain(heard([&well])),
            &known,
            LOST_AFTER,
            |_, _| Some(Permission::Declared),
        );
        assert!(most.refused["HTTPRoute/ns/app"].works);
        assert_eq!(
            most.refused["HTTPRoute/ns/app"].rules[&0],
            "on a, bb: bad regex"
        );
    }

    #[test]
    fn reports_differing_only_by_time_are_equal() {
        let before = agent("a", "aaaaaaaaaaaa");
        let mut later = before.clone();
        later.metadata.resource_version = Some("9".to_owned());
        later.status.as_mut().expect("a status").heartbeat = Some(jiff::Timestamp::UNIX_EPOCH);
        assert!(is_same_report(&before, &later));
        later.status.as_mut().expect("a status").draining = true;
        assert!(!is_same_report(&before, &later));
        later.status = None;
        assert!(!is_same_report(&before, &later));
    }

    #[test]
    fn foreign_address_is_omitted_and_reported() {
        let known = revisions(&[(1, "aaaaaaaaaaaaaa")]);
        let mut forger = agent("a", "aaaaaaaaaaaa");
        let status = forger.status.as_mut().expect("a status");
        status.addresses.push("203.0.113.66".to_owned());
        let allow = |host: &str, ip: IpAddr| {
            let own = ip.to_string() == format!("192.0.2.{}", host.len());
            own.then_some(Permission::OfNode)
        };
        let summary = summarize(
            heard([&forger, &agent("bb", "aaaaaaaaaaaa")]),
            &known,
            LOST_AFTER,
            allow,
        );
        assert_eq!(summary.programmed.addresses, ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(summary.foreign_addresses, ["203.0.113.66 of a"]);
    }

    #[test]
    fn host_with_many_addresses_leaves_room_for_others() {
        let many: Vec<IpAddr> = (1..=20).map(|i| IpAddr::from([192, 0, 2, i])).collect();
        let one = vec![IpAddr::from([198, 51, 100, 1])];
        let taken = shared_out(&[many, one.clone()]);
        assert_eq!(taken.len(), MAX_ADDRESSES);
        assert!(taken.contains(&one[0]));
    }

    #[test]
    fn foreign_agents_and_long_dead_ones_are_stale() {
        let mut foreign = agent("a", "a");
        foreign.spec.gateway = "ns/other".to_owned();
        let agents = BTreeMap::from([
            ("foreign".to_owned(), foreign),
            ("dead".to_owned(), agent("a", "a")),
            ("lost".to_owned(), agent("a", "a")),
            ("lost pod".to_owned(), agent("a.ns.pod", "a")),
        ]);
        let is_ours = |gateway: &NamespacedName| gateway.name == "edge";
        let silence =
            |name: &str| Duration::from_secs(if name == "dead" { 90_000 } else { 80_000 });
        let stale = stale(agents.iter(), is_ours, silence, LOST_AFTER);
        let expected = ["dead", "foreign", "lost pod"];
        assert_eq!(stale.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn pods_add_no_endpoints_and_ended_ones_leave() {
        let mut ended = agent("b.ns.pod", "a");
        ended.status.as_mut().expect("a status").state = AgentState::Down;
        let agents = [agent("a.ns.pod", "a"), ended.clone()];
        let revisions = revisions(&[(1, "a")]);
        let sum = |agents: &[GatewayAgent], permission| {
            summarize(heard(agents), &revisions, LOST_AFTER, |_, _| permission)
        };
        let summary = sum(&agents, None);
        assert_eq!(
            (summary.programmed.hosts_ready, summary.programmed.hosts),
            (1, 1)
        );
        assert!(summary.pods && summary.foreign_addresses.is_empty());
        let summary = sum(&agents, Some(Permission::Declared));
        assert!(summary.endpoints.is_empty());
        assert_eq!(summary.programmed.addresses, ["192.0.2.8"]);
        assert!(!sum(&[ended.clone()], None).pods);
        let ended_agents = [("ended".to_owned(), ended)].into_iter().collect();
        let ended_agents: &BTreeMap<_, _> = &ended_agents;
        let now = |_: &str| Duration::ZERO;
        assert_eq!(
            stale(ended_agents.iter(), |_| true, now, LOST_AFTER).len(),
            1
        );
    }
}
