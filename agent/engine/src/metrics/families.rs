//! Defines the name and the meaning of each metric.
//!
//! The number of series is bounded for any configuration. Never change the meaning of a released
//! metric.

use std::fmt;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sesame_kinds::status::AgentState;

use super::counts::{ApplyOutcome, ProcessReason};
use super::scrape::{GatewayFacts, Scrape};
use super::traffic::{EnvoyTraffic, PortTraffic};
use super::writer::{Families, SeriesLabels, count, flag, gateway_labels, number, seconds, with};
use crate::passwords::PasswordVerdict;
use crate::report::{GatewayReport, Report, health};
use sesame_apply::plan::Phase;
use sesame_sources::problem::Severity;

/// Maximum number of series per Gateway, for the certificates that expire first.
const MAX_CERTIFICATES: usize = 20;
/// Maximum number of series per Gateway.
const MAX_REFUSED: usize = 20;

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.agent(&mut families)?;
        self.budgets(&mut families)?;
        self.gateways(&mut families)?;
        self.changes(&mut families)?;
        self.certificates(&mut families)?;
        self.envoys(&mut families)?;
        self.traffic(&mut families)?;
        self.backends(&mut families)?;
        self.routes(&mut families)
    }
}

impl Scrape {
    fn agent(&self, families: &mut Families<'_>) -> fmt::Result {
        let Report { agent, source, .. } = &self.report;
        let version = vec![("version", agent.version.clone())];
        families.gauge(
            "agent_build_info",
            "Always 1, with the agent's version as a label",
            [(version, 1.0)],
        )?;
        let started = seconds(agent.started.as_second());
        let help = "Start time of the agent, in seconds since 1970";
        families.single("agent_start_time_seconds", help, started)?;
        let help = "1 if the host, its source and its Gateways have no problems, apart from problems with individual objects";
        families.single("agent_healthy", help, flag(self.report.healthy))?;
        let help = "1 if the host serves, as reported by /readyz";
        let ready = health::unready(&self.report).is_empty();
        families.single("agent_ready", help, flag(ready))?;
        let help = "1 if the last read of the source succeeded";
        families.single("agent_source_available", help, flag(source.available))?;
        let by_severity = [Severity::Error, Severity::Warning].map(|severity| {
            let matching = source.problems.iter().filter(|p| p.severity == severity);
            (
                vec![("severity", severity.to_string())],
                number(matching.count()),
            )
        });
        let help = "Problems in the content of the source, by severity";
        families.gauge("agent_source_problems", help, by_severity)?;
        let help = "Hostnames not covered by any certificate of their listener, so clients reject \
            the connection; only for manifests";
        if let Some(hostnames) = source.uncovered_hostnames {
            families.single("agent_uncovered_hostnames", help, number(hostnames))?;
        }
        let fetched = source.key_sets.iter().map(|it| {
            let fetched_at = it.fetched_at.parse::<Timestamp>();
            let fetched_at = seconds(fetched_at.map_or(0, Timestamp::as_second));
            (vec![("uri", it.uri.clone())], fetched_at)
        });
        let help = "Time of the last successful fetch of each key set, in seconds since 1970, \
                    accurate to an hour; 0 before the first fetch; only for manifests";
        families.gauge("agent_key_set_fetched_timestamp_seconds", help, fetched)?;
        let help = "Pending certificate requests of this host";
        let waiting = number(source.requested.len());
        families.single("agent_certificate_requests_waiting", help, waiting)?;
        self.orders(families)?;
        let by_state = AgentState::ALL.map(|state| {
            let matching = self.report.gateways.iter().filter(|g| g.state == state);
            (vec![("state", state.to_string())], number(matching.count()))
        });
        let help = "Gateways of this host, by state";
        families.gauge("agent_gateways", help, by_state)
    }

    fn orders(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(acme) = &self.report.source.acme else {
            return Ok(());
        };
        let help = "Certificate orders by ACME, including failed ones; only for manifests";
        families.counter(
            "agent_acme_orders",
            help,
            [(Vec::new(), count(acme.orders))],
        )?;
        let help = "Failed certificate orders by ACME; only for manifests";
        families.counter(
            "agent_acme_failures",
            help,
            [(Vec::new(), count(acme.failures))],
        )?;
        let expiries = acme.certificates.iter().take(MAX_CERTIFICATES).map(|it| {
            let expires = it.expires.map_or(0, Timestamp::as_second);
            (vec![("secret", it.secret.clone())], seconds(expires))
        });
        let help = "When each certificate by ACME expires, in seconds since 1970; 0 before it is \
                    issued; at most twenty; only for manifests";
        families.gauge("agent_acme_expiry_timestamp_seconds", help, expiries)
    }

    fn gateways(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "1 if the Gateway's Envoy serves an accepted configuration";
        self.each(families, "gateway_serves", help, |gateway| {
            flag(gateway.envoy.serves)
        })?;
        let help = "1 if Envoy has accepted the newest configuration of the source";
        self.each(families, "gateway_newest", help, |gateway| {
            flag(!gateway.wanted.is_empty() && gateway.wanted == gateway.applied)
        })?;
        let help = "1 while the Gateway is being drained";
        self.each(families, "gateway_draining", help, |gateway| {
            flag(gateway.draining.is_some())
        })?;
        let holding = self.of_facts(|facts| Some(flag(facts.held)));
        let help = "1 while a revision is held because it removes too much";
        families.gauge("gateway_held", help, holding)?;
        let help = "When Envoy accepted the served configuration, in seconds since 1970";
        let accepted = self.report.gateways.iter().filter_map(|gateway| {
            let at = gateway.applied_at?.as_second();
            Some((gateway_labels(&gateway.gateway), seconds(at)))
        });
        families.gauge("gateway_applied_timestamp_seconds", help, accepted)?;
        let help = "Parts of the configuration that Envoy rejects, so they are left out";
        self.each(families, "gateway_refused_parts", help, |gateway| {
            number(gateway.refused.len())
        })?;
        let help = "Listeners that do not present the newest accepted certificate";
        self.each(families, "gateway_listeners_unshown", help, |gateway| {
            number(gateway.unshown.len())
        })?;
        let refused = self.report.gateways.iter().flat_map(|gateway| {
            gateway.refused.iter().take(MAX_REFUSED).map(|refused| {
                let mut labels = gateway_labels(&gateway.gateway);
                labels.extend([
                    ("kind", refused.kind.clone()),
                    ("object_namespace", refused.namespace.clone()),
                    ("name", refused.name.clone()),
                    ("section", refused.section.clone()),
                ]);
                (labels, 1.0)
            })
        });
        let help = "Always 1, for each part that is left out; at most twenty per Gateway";
        families.gauge("gateway_refused_part_info", help, refused)
    }

    fn changes(&self, families: &mut Families<'_>) -> fmt::Result {
        let tries = self.facts().flat_map(|(name, facts)| {
            ApplyOutcome::ALL.map(|outcome| {
                let labels = with(gateway_labels(name), "outcome", outcome.as_str());
                (labels, count(facts.counts.outcome_count(outcome)))
            })
        });
        let help = "Changes sent to Envoy, by outcome: accepted, reduced to the accepted parts, refused as a whole, postponed";
        families.counter("gateway_applies", help, tries)?;
        let durations = self
            .facts()
            .map(|(name, facts)| (gateway_labels(name), &facts.counts.durations));
        let help = "Time from writing the first file of a change until Envoy confirms that it serves the change";
        families.histogram("gateway_apply_duration_seconds", help, durations)?;
        self.phases(families)?;
        let processes = self.facts().flat_map(|(name, facts)| {
            ProcessReason::ALL.map(|reason| {
                let labels = with(gateway_labels(name), "reason", reason.as_str());
                (labels, count(facts.counts.processes_for(reason)))
            })
        });
        let help = "Envoy processes that entered service, by reason: first start, hot restart, handover, or replacement of a dead Envoy";
        families.counter("gateway_envoy_processes", help, processes)?;
        let checks = self.facts().flat_map(|(name, facts)| {
            PasswordVerdict::ALL.map(|verdict| {
                let labels = with(gateway_labels(name), "outcome", verdict.as_str());
                (labels, count(facts.passwords.get(verdict)))
            })
        });
        let help = "Requests whose password the agent checked, by outcome: allowed, denied, rejected because too many checks were waiting, or unknown users";
        families.counter("gateway_password_checks", help, checks)
    }

    fn phases(&self, families: &mut Families<'_>) -> fmt::Result {
        let times = self.facts().flat_map(|(name, facts)| {
            Phase::ALL.into_iter().flat_map(move |phase| {
                let time = facts.counts.time_of(phase);
                let parts = [("rename", time.renaming), ("accept", time.accepting)];
                parts.map(|(part, took)| {
                    let labels = with(gateway_labels(name), "phase", phase.as_str());
                    (with(labels, "part", part), took.as_secs_f64())
                })
            })
        });
        let help = "Duration of accepted changes, by phase and part: until the files are renamed, then until Envoy accepts them";
        families.counter("gateway_apply_phase_seconds", help, times)
    }

    fn certificates(&self, families: &mut Families<'_>) -> fmt::Result {
        let count = self.of_facts(|facts| Some(number(facts.certificates.len())));
        families.gauge("gateway_certificates", "Served certificates", count)?;
        let first = self.facts().flat_map(|(name, facts)| {
            let first = facts.certificates.iter().take(MAX_CERTIFICATES);
            first.map(|(times, key)| (with(gateway_labels(name), "key", key), times))
        });
        let first: Vec<_> = first.collect();
        families.gauge(
            "gateway_certificate_expiry_timestamp_seconds",
            "Expiry of a served certificate, in seconds since 1970; the twenty earliest per Gateway",
            first.iter().map(|(labels, it)| (labels.clone(), seconds(it.end))),
        )?;
        families.gauge(
            "gateway_certificate_warning_timestamp_seconds",
            "Time from which a served certificate is reported as expiring soon, in seconds since 1970",
            first.iter().map(|(labels, it)| (labels.clone(), seconds(it.warning))),
        )?;
        let first = self.facts().flat_map(|(name, facts)| {
            let mut first: Vec<_> = facts.authorities.iter().collect();
            first.sort_by_key(|(bundle, times)| (**times, *bundle));
            let first = first.into_iter().take(MAX_CERTIFICATES);
            first.map(|(bundle, times)| (with(gateway_labels(name), "bundle", bundle), times))
        });
        let first: Vec<_> = first.collect();
        families.gauge(
            "gateway_trust_bundle_expiry_timestamp_seconds",
            "Earliest expiry of the CA certificates and revocation lists in a trust bundle, in seconds since 1970; the twenty earliest bundles per Gateway",
            first.iter().map(|(labels, it)| (labels.clone(), seconds(it.end))),
        )?;
        families.gauge(
            "gateway_trust_bundle_warning_timestamp_seconds",
            "Time from which a trust bundle is reported as expiring soon, in seconds since 1970",
            first
                .iter()
                .map(|(labels, it)| (labels.clone(), seconds(it.warning))),
        )
    }

    fn envoys(&self, families: &mut Families<'_>) -> fmt::Result {
        let versions = self.report.gateways.iter().map(|gateway| {
            let labels = gateway_labels(&gateway.gateway);
            (with(labels, "version", &gateway.envoy.version), 1.0)
        });
        families.gauge(
            "gateway_envoy_info",
            "Always 1, with the version of the Gateway's Envoy as a label",
            versions,
        )?;
        let answers = self.of_facts(|facts| Some(flag(facts.traffic.is_some())));
        let help = "1 if Envoy returned its statistics, so traffic metrics are available";
        families.gauge("gateway_envoy_answers", help, answers)?;
        let memory = self.of_facts(|facts| facts.traffic.as_ref()?.memory);
        families.gauge(
            "gateway_envoy_memory_bytes",
            "Memory used by the Gateway's Envoy",
            memory,
        )?;
        let refused = self.counted().flat_map(|(name, traffic)| {
            let refused = traffic.refused.iter();
            refused.map(|(reason, count)| (with(gateway_labels(name), "reason", reason), *count))
        });
        let help = "Connections that ended before they reached a route table: no listener for the \
                    server name, connection limit reached, TLS error, or rejected client \
                    certificate";
        families.counter("gateway_connections_refused", help, refused)?;
        let limited = self.counted().flat_map(|(name, traffic)| {
            traffic.rate_limited.iter().map(|(mode, counted)| {
                let mut labels = gateway_labels(name);
                labels.push(("mode", (*mode).to_owned()));
                (labels, *counted)
            })
        });
        let help = "Requests beyond a rate limit, by its mode";
        families.counter("gateway_rate_limited_requests", help, limited)?;
        self.denied(families)?;
        let handshakes = self.of_facts(|facts| Some(facts.traffic.as_ref()?.tls_handshakes));
        families.counter(
            "gateway_tls_handshakes",
            "Successful TLS handshakes",
            handshakes,
        )
    }

    fn traffic(&self, families: &mut Families<'_>) -> fmt::Result {
        let requests = self.ports().flat_map(|(labels, port)| {
            let requests = port.requests.iter();
            requests.map(move |(class, count)| (with(labels.clone(), "code", class), *count))
        });
        families.counter(
            "gateway_requests",
            "Answered requests, by status class",
            requests,
        )?;
        let active = self.of_ports(|port| port.requests_active);
        families.gauge("gateway_requests_active", "Requests in progress", active)?;
        let http_ports = self
            .ports()
            .filter(|(_, port)| !port.durations.buckets.is_empty());
        let durations = http_ports.map(|(labels, port)| (labels, &port.durations));
        let help = "Time from the first byte of a request to the last byte of its response";
        families.histogram("gateway_request_duration_seconds", help, durations)?;
        let help = "Client connections or UDP sessions";
        let total = self.of_ports(|port| Some(port.connections));
        families.counter("gateway_connections", help, total)?;
        let help = "Open client connections or UDP sessions";
        let active = self.of_ports(|port| Some(port.connections_active));
        families.gauge("gateway_connections_active", help, active)?;
        let help = "Bytes received from clients";
        let received = self.of_ports(|port| Some(port.received));
        families.counter("gateway_received_bytes", help, received)?;
        let sent = self.of_ports(|port| Some(port.sent));
        families.counter("gateway_sent_bytes", "Bytes sent to clients", sent)
    }

    fn each(
        &self,
        families: &mut Families<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&GatewayReport) -> f64,
    ) -> fmt::Result {
        let gateways = self.report.gateways.iter();
        families.gauge(
            name,
            help,
            gateways.map(|gateway| (gateway_labels(&gateway.gateway), value(gateway))),
        )
    }

    fn facts(&self) -> impl Iterator<Item = (&String, &GatewayFacts)> {
        self.gateways.iter()
    }

    fn of_facts<'s>(
        &'s self,
        value: impl Fn(&'s GatewayFacts) -> Option<f64>,
    ) -> impl Iterator<Item = (SeriesLabels, f64)> {
        self.facts()
            .filter_map(move |(name, facts)| Some((gateway_labels(name), value(facts)?)))
    }

    fn of_ports<'s>(
        &'s self,
        value: impl Fn(&'s PortTraffic) -> Option<f64>,
    ) -> impl Iterator<Item = (SeriesLabels, f64)> {
        self.ports()
            .filter_map(move |(labels, port)| Some((labels, value(port)?)))
    }

    pub(super) fn counted(&self) -> impl Iterator<Item = (&String, &EnvoyTraffic)> {
        self.facts()
            .filter_map(|(name, facts)| Some((name, facts.traffic.as_ref()?)))
    }

    fn ports(&self) -> impl Iterator<Item = (SeriesLabels, &PortTraffic)> {
        self.counted().flat_map(|(name, traffic)| {
            let ports = traffic.ports.iter();
            ports.map(move |((port, protocol), counted)| {
                let labels = with(gateway_labels(name), "port", &port.to_string());
                (with(labels, "protocol", protocol), counted)
            })
        })
    }
}
