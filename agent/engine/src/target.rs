//! Computes each Gateway's target: resolved revisions, rendered for this host.

mod endpoint_files;
mod fitted;
mod holding;
mod host_settings;
mod local;
mod own_sockets;
mod retaining;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::expiry::Expiry;
use sesame_proto::digest;
use sesame_proto::schema::Transport;
use sesame_resolver::ResolvedGateway;

use self::endpoint_files::EndpointFiles;
pub(super) use self::host_settings::HostSettings;
pub(super) use self::local::apply_local;
use self::own_sockets::own_sockets;
pub(super) use self::retaining::RetainedCertificate;
use super::addresses::{AddressRequest, Assignment, assign};
use super::spans::TargetTimes;
use sesame_apply::quarantine::Reduced;
use sesame_envoy::access_log::AccessLogTo;
use sesame_proto::encoded::{EncodedSnapshot, Entry, UnchangedParts};
use sesame_render::xds::parse_listener_name;
use sesame_render::{AccessLogSink, EndpointRules, Rendered, StandInTickets};
use sesame_sources::update::{GatewayRevision, Staging};

#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) encoded: Arc<EncodedSnapshot>,
    pub(super) options: sesame_render::RenderOptions,
    pub(super) assignment: Assignment,
    pub(super) rendered: Rendered,
    pub(super) bootstrap: Bytes,
    /// True if the target was accepted before the agent started.
    pub(super) restored: bool,
    /// Recorded in the history.
    pub(super) cause: String,
    pub(super) manifest_revision: Option<String>,
    pub(super) retained: Vec<RetainedCertificate>,
    pub(super) staging: Staging,
    /// Current endpoint sets that only an older revision uses.
    others: Arc<[Entry]>,
    files: Arc<EndpointFiles>,
    revision: OnceLock<String>,
    staged_digest: OnceLock<String>,
    expiries: OnceLock<Vec<Expiry>>,
    times: OnceLock<Arc<TargetTimes>>,
}

impl Target {
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.assignment.addresses
    }

    /// Returns each port with its protocol, `TCP` or `UDP`.
    pub(super) fn open_ports(&self) -> BTreeSet<(&'static str, u16)> {
        let ports = self.sockets().map(|(transport, address)| match transport {
            Transport::Tcp => ("TCP", address.port()),
            Transport::Udp => ("UDP", address.port()),
        });
        ports.collect()
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = (Transport, SocketAddr)> + '_ {
        let listeners = self.rendered.listeners.iter();
        listeners.filter_map(|listener| parse_listener_name(&listener.name))
    }

    pub(super) fn reduced_to(&self, reduced: Reduced) -> Self {
        let Reduced { encoded, rendered } = reduced;
        Self {
            encoded,
            options: self.options.clone(),
            assignment: self.assignment.clone(),
            rendered,
            bootstrap: self.bootstrap.clone(),
            restored: false,
            cause: self.cause.clone(),
            manifest_revision: self.manifest_revision.clone(),
            retained: self.retained.clone(),
            staging: self.staging.clone(),
            others: Arc::clone(&self.others),
            files: Arc::clone(&self.files),
            revision: OnceLock::new(),
            staged_digest: OnceLock::new(),
            expiries: OnceLock::new(),
            times: self.times.clone(),
        }
    }

    pub(super) fn with(&self, resolved: &ResolvedGateway, cause: &str) -> Self {
        Self {
            rendered: sesame_render::render(&resolved.snapshot, &resolved.keys, &self.options),
            encoded: Arc::new(EncodedSnapshot::new(
                &resolved.snapshot,
                resolved.keys.clone(),
            )),
            manifest_revision: Some(digest::revision(&resolved.snapshot)),
            options: self.options.clone(),
            assignment: self.assignment.clone(),
            bootstrap: self.bootstrap.clone(),
            restored: false,
            cause: cause.to_owned(),
            retained: Vec::new(),
            staging: Staging::Immediate,
            others: Arc::default(),
            files: Arc::clone(&self.files),
            revision: OnceLock::new(),
            staged_digest: OnceLock::new(),
            expiries: OnceLock::new(),
            times: OnceLock::new(),
        }
    }

    /// Returns the SHA-256 in hexadecimal, computed on first use because applying a target does not
    /// need it.
    pub(super) fn revision(&self) -> &str {
        self.revision.get_or_init(|| self.encoded.digest())
    }

    /// Returns what distinguishes revisions in a rollout, computed on first use.
    pub(super) fn staged_digest(&self) -> &str {
        self.staged_digest
            .get_or_init(|| self.encoded.staged_digest())
    }

    /// Returns the manifest's revision if there is one, or else the digest.
    pub(super) fn reported_revision(&self) -> &str {
        let from_manifest = self.manifest_revision.as_deref();
        from_manifest.unwrap_or_else(|| self.revision())
    }

    /// Has no effect if timestamps are already stored.
    pub(super) fn record_times(&self, times: TargetTimes) {
        let _ = self.times.set(Arc::new(times));
    }

    pub(super) fn times(&self) -> Option<&TargetTimes> {
        self.times.get().map(|times| &**times)
    }

    pub(super) fn to_revision(&self, gateway: &NamespacedName) -> GatewayRevision {
        GatewayRevision {
            gateway: gateway.clone(),
            encoded: Arc::clone(&self.encoded),
            manifest_revision: self.manifest_revision.clone(),
            staging: self.staging.clone(),
            others: Arc::clone(&self.others),
        }
    }

    /// Returns the expiries, which are computed on first use.
    pub(super) fn expiries(&self) -> &[Expiry] {
        let read = || {
            let bundles = &self.encoded.rest().trust_bundles;
            let bundle_expiries = bundles.iter().flat_map(Expiry::of_bundle);
            let pairs = self.encoded.keys().iter().flat_map(Expiry::of_pair);
            pairs.chain(bundle_expiries).collect()
        };
        self.expiries.get_or_init(read)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'a> {
    /// The revision was accepted before the agent started.
    Accepted,
    /// Cause of a change from the source.
    Source(&'a str),
}

pub(super) type Targets = BTreeMap<NamespacedName, Arc<Target>>;

/// Reuses unchanged targets from `before`.
pub(super) fn render_all(
    gateways: &[GatewayRevision],
    host: &HostSettings,
    before: &Targets,
    origin: Origin<'_>,
    now: Instant,
) -> Targets {
    let gateways = &local::with_local(gateways, host)[..];
    let needs: Vec<AddressRequest> = gateways
        .iter()
        .map(|offer| {
            let held = match before.get(&offer.gateway) {
                Some(wanted) => &wanted.assignment.addresses[..],
                None => host.held.get(&offer.gateway).map_or(&[][..], Vec::as_slice),
            };
            need(offer, held, host)
        })
        .collect();
    let mut assignments = assign(&needs, &host.pool);
    let rules = EndpointRules {
        local: host.allow_local_endpoints,
        own: own_sockets(&needs, &assignments, host),
        host: host.refused_addresses(),
        zone: host.zone.clone(),
    };
    let budget = host
        .budget_each
        .unwrap_or(host.subscription_budget / gateways.len().max(1))
        .min(host.limits.watched);
    gateways
        .iter()
        .map(|offer| {
            let name = offer.gateway.clone();
            let assignment = assignments.remove(&name).unwrap_or_default();
            let last = before.get(&name);
            let unchanged = last.filter(|wanted| {
                wanted.manifest_revision == offer.manifest_revision
                    && wanted.encoded == offer.encoded
                    && wanted.assignment == assignment
                    && wanted.options.endpoints == rules
                    && wanted.options.stand_in_tickets == stand_in_tickets(&offer.encoded, host)
                    && !wanted.restored
            });
            let wanted = unchanged.map_or_else(
                || {
                    let last = last.map(|last| &**last);
                    let files = EndpointFiles::of(offer, host, last, now);
                    let for_one = (assignment, rules.clone(), Arc::new(files));
                    let wanted = render_one(offer, for_one, host, budget, origin, last);
                    Arc::new(wanted)
                },
                |same| staged_as(same, offer),
            );
            (name, wanted)
        })
        .collect()
}

/// A rollout may change whether the host may serve the same revision.
fn staged_as(target: &Arc<Target>, offer: &GatewayRevision) -> Arc<Target> {
    if target.staging == offer.staging && target.others == offer.others {
        return Arc::clone(target);
    }
    Arc::new(Target {
        staging: offer.staging.clone(),
        others: Arc::clone(&offer.others),
        ..Target::clone(target)
    })
}

/// Keeps the previous targets of `gateways`, so that they do not count as changed.
pub(super) fn keep(gateways: &BTreeSet<NamespacedName>, before: &Targets, targets: &mut Targets) {
    for name in gateways {
        if let (Some(old), Some(new)) = (before.get(name), targets.get_mut(name))
            && old.assignment == new.assignment
        {
            *new = Arc::clone(old);
        }
    }
}

fn render_one(
    offer: &GatewayRevision,
    (assignment, endpoints, files): (Assignment, EndpointRules, Arc<EndpointFiles>),
    host: &HostSettings,
    subscription_budget: usize,
    origin: Origin<'_>,
    before: Option<&Target>,
) -> Target {
    let GatewayRevision {
        gateway,
        encoded,
        manifest_revision,
        staging,
        others,
    } = offer;
    let directories = host.directories.gateway(gateway);
    let options = sesame_render::RenderOptions {
        addresses: assignment.addresses.clone(),
        port_map: host.port_map.clone(),
        subscription_budget,
        first_in_files: Arc::clone(files.first()),
        limits: host.limits,
        layout: directories.layout(),
        admin_socket: directories.admin_socket(),
        trusted_hops: host.trusted_hops,
        fleet_hosts: host.fleet_hosts,
        system_ca: host.system_ca.clone(),
        endpoints,
        session_tickets: host.session_tickets,
        stand_in_tickets: stand_in_tickets(encoded, host),
        access_log: match host.access_log {
            AccessLogTo::File => Some(AccessLogSink::File(directories.access_log())),
            AccessLogTo::Stdout => Some(AccessLogSink::Stdout),
            AccessLogTo::Off => None,
        },
        retained: BTreeMap::new(),
    };
    let rendered = before
        .filter(|before| before.options == options)
        .and_then(|before| render_difference(before, encoded, &options))
        .unwrap_or_else(|| sesame_render::render_encoded(encoded, &options));
    Target {
        rendered,
        bootstrap: sesame_render::bootstrap(&options),
        encoded: Arc::clone(encoded),
        options,
        assignment,
        restored: matches!(origin, Origin::Accepted),
        cause: match origin {
            Origin::Accepted => "the configuration accepted before the agent started".to_owned(),
            Origin::Source(cause) => cause.to_owned(),
        },
        manifest_revision: manifest_revision.clone(),
        retained: Vec::new(),
        staging: staging.clone(),
        others: Arc::clone(others),
        files,
        revision: OnceLock::new(),
        staged_digest: OnceLock::new(),
        expiries: OnceLock::new(),
        times: OnceLock::new(),
    }
}

fn stand_in_tickets(encoded: &EncodedSnapshot, host: &HostSettings) -> Option<StandInTickets> {
    encoded.lacks_ticket_keys().then(|| host.tickets.stand_in())
}

/// Returns `None` if a full rendering is needed.
fn render_difference(
    before: &Target,
    encoded: &EncodedSnapshot,
    options: &sesame_render::RenderOptions,
) -> Option<Rendered> {
    let routes = |rendered: &Rendered| {
        sesame_render::routes_after(rendered, &before.encoded, encoded, options)
    };
    let endpoints = |rendered: &Rendered| {
        let (sets, backends) = encoded.replaced_endpoints(&before.encoded)?;
        sesame_render::endpoints_after(rendered, &sets, &backends, options)
    };
    let UnchangedParts {
        route_tables,
        backends,
        endpoints: same_endpoints,
        rest,
    } = encoded.unchanged_since(&before.encoded);
    match (route_tables, same_endpoints) {
        _ if !rest => None,
        _ if !backends => {
            let rendered = &before.rendered;
            sesame_render::backends_after(rendered, &before.encoded, encoded, options)
        }
        (true, true) => None,
        (true, false) => endpoints(&before.rendered),
        (false, true) => routes(&before.rendered),
        (false, false) => routes(&endpoints(&before.rendered)?),
    }
}

fn need(offer: &GatewayRevision, held: &[IpAddr], host: &HostSettings) -> AddressRequest {
    let bound = |((transport, port), opened): (&(Transport, u32), &u32)| {
        (*transport, *host.port_map.get(port).unwrap_or(opened))
    };
    let GatewayRevision {
        gateway, encoded, ..
    } = offer;
    AddressRequest {
        gateway: gateway.clone(),
        ports: encoded.ports().iter().map(bound).collect(),
        requested: encoded
            .rest()
            .addresses
            .iter()
            .filter_map(|address| address.parse().ok())
            .collect(),
        held: held.to_vec(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::addresses::OwnAddresses;
    use crate::directories::Directories;
    use sesame_sources::local::LocalFiles;
    use std::path::PathBuf;

    pub(crate) fn host(directories: Directories) -> HostSettings {
        HostSettings {
            pool: Vec::new(),
            port_map: BTreeMap::new(),
            subscription_budget: 10,
            budget_each: None,
            limits: sesame_render::limits::Limits::default(),
            trusted_hops: 0,
            zone: String::new(),
            fleet_hosts: 1,
            system_ca: PathBuf::new(),
            session_tickets: false,
            tickets: sesame_apply::tickets::Tickets::once().unwrap(),
            access_log: AccessLogTo::Off,
            allow_local_endpoints: false,
            own_addresses: vec!["[::]:8000".parse().unwrap()],
            addresses: OwnAddresses::new(|| {
                let all = ["127.0.0.1", "192.0.2.7", "fe80::1", "2001:db8::7"];
                all.map(|ip| ip.parse().unwrap()).to_vec()
            }),
            refuse_host_endpoints: true,
            held: BTreeMap::new(),
            endpoint_files: BTreeMap::new(),
            directories,
            local: LocalFiles::default(),
        }
    }

    #[test]
    fn host_knows_own_sockets_under_all_addresses() {
        let root = tempfile::tempdir().unwrap();
        let (state, runtime) = (root.path().join("s"), root.path().join("r"));
        let mut host = host(Directories::create(&state, &runtime).unwrap());
        let [wide, narrow] = ["wide", "narrow"].map(|name| NamespacedName::new("default", name));
        let need = |gateway: &NamespacedName, port| AddressRequest {
            gateway: gateway.clone(),
            requested: Vec::new(),
            held: Vec::new(),
            ports: BTreeSet::from([(Transport::Tcp, port)]),
        };
        let at = |address: &str| Assignment {
            addresses: vec![address.parse().unwrap()],
            ..Assignment::default()
        };
        let needs = [need(&wide, 80), need(&narrow, 443)];
        let assignments = BTreeMap::from([(wide, at("0.0.0.0")), (narrow, at("198.51.100.9"))]);
        let own = own_sockets(&needs, &assignments, &host);
        let own: Vec<String> = own.iter().map(ToString::to_string).collect();
        assert_eq!(
            own,
            ["192.0.2.7:80", "198.51.100.9:443", "[2001:db8::7]:8000"]
        );
        let refused = ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap());
        assert_eq!(host.refused_addresses(), BTreeSet::from(refused));
        host.refuse_host_endpoints = false;
        assert!(host.refused_addresses().is_empty());
        host.allow_local_endpoints = true;
        assert!(own_sockets(&needs, &assignments, &host).is_empty());
    }
}
