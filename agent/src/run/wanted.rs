//! What each Gateway is to serve on this host: the pure step from resolved Gateways to Envoy's resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sesame_controller::api::NamespacedName;
use sesame_controller::resolve::ResolvedGateway;
use sesame_proto::digest;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{Snapshot, Transport};
use sha2::{Digest as _, Sha256};

use super::addresses::{Assignment, Need, assign};
use super::directories::Directories;
use crate::quarantine::Served;
use crate::render::{self, Rendered};

/// What the host decides for all of its Gateways.
#[derive(Clone, Debug)]
pub(super) struct HostSettings {
    /// Addresses to share out.
    pub(super) pool: Vec<IpAddr>,
    /// Outside port to bound port.
    pub(super) port_map: BTreeMap<u32, u32>,
    /// Files that all Envoys together may watch.
    pub(super) subscription_budget: usize,
    /// The same for each Envoy, when told.
    pub(super) budget_each: Option<usize>,
    /// Proxies before Envoy.
    pub(super) trusted_hops: u32,
    /// The system's certificate authorities.
    pub(super) system_ca: PathBuf,
    /// Where things are.
    pub(super) directories: Directories,
}

/// One Gateway, resolved and rendered for this host.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The Gateway, its snapshot and its keys.
    pub(super) resolved: Arc<ResolvedGateway>,
    /// How it is rendered for this host.
    pub(super) options: render::Options,
    /// Where it listens, and what it could not have.
    pub(super) assignment: Assignment,
    /// What Envoy gets.
    pub(super) rendered: Rendered,
    /// What Envoy is started with.
    pub(super) bootstrap: Bytes,
    /// Whether this is what was accepted before the agent started, rather than what its source wants.
    pub(super) restored: bool,
    /// Why it is wanted, for the history.
    pub(super) cause: String,
    revision: OnceLock<String>,
}

impl Wanted {
    /// What is left of it.
    pub(super) fn reduced_to(&self, served: Served) -> Self {
        let Served { snapshot, rendered } = served;
        let named = |key: &&KeyPair| snapshot.keys.iter().any(|named| named.name == key.name);
        Self {
            resolved: Arc::new(ResolvedGateway {
                gateway: self.resolved.gateway.clone(),
                keys: self.resolved.keys.iter().filter(named).cloned().collect(),
                snapshot,
            }),
            options: self.options.clone(),
            assignment: self.assignment.clone(),
            rendered,
            bootstrap: self.bootstrap.clone(),
            restored: false,
            cause: self.cause.clone(),
            revision: OnceLock::new(),
        }
    }

    /// Another generation of the same Gateway, for the same host.
    pub(super) fn with(&self, resolved: ResolvedGateway, cause: &str) -> Self {
        Self {
            rendered: render::render(&resolved.snapshot, &resolved.keys, &self.options),
            resolved: Arc::new(resolved),
            options: self.options.clone(),
            assignment: self.assignment.clone(),
            bootstrap: self.bootstrap.clone(),
            restored: false,
            cause: cause.to_owned(),
            revision: OnceLock::new(),
        }
    }

    /// Hex SHA-256 over the snapshot with its endpoints and the digests of its keys. Computed when first
    /// asked for: nothing on the way to Envoy needs it.
    pub(super) fn revision(&self) -> &str {
        self.revision.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(digest::revision(&self.resolved.snapshot));
            for set in &self.resolved.snapshot.endpoints {
                hash.update(prost::Message::encode_to_vec(set));
            }
            digest::sha256(&hash.finalize())
        })
    }
}

/// Where a configuration comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'a> {
    /// It was accepted before the agent started.
    Accepted,
    /// The source wants it, for this cause.
    Source(&'a str),
}

/// All Gateways by name, in the newest version.
pub(super) type WantedGateways = BTreeMap<NamespacedName, Arc<Wanted>>;

/// Renders every Gateway that differs from `before`; what does not is taken over as it is.
pub(super) fn render_all(
    gateways: Vec<ResolvedGateway>,
    host: &HostSettings,
    before: &WantedGateways,
    origin: Origin<'_>,
) -> WantedGateways {
    let needs: Vec<Need> = gateways
        .iter()
        .map(|gateway| need(&gateway.gateway, &gateway.snapshot, host))
        .collect();
    let mut assignments = assign(&needs, &host.pool);
    let budget = host
        .budget_each
        .unwrap_or(host.subscription_budget / gateways.len().max(1));
    gateways
        .into_iter()
        .map(|resolved| {
            let name = resolved.gateway.clone();
            let assignment = assignments.remove(&name).unwrap_or_default();
            let unchanged = before.get(&name).filter(|wanted| {
                *wanted.resolved == resolved && wanted.assignment == assignment && !wanted.restored
            });
            let wanted = match unchanged {
                Some(wanted) => Arc::clone(wanted),
                None => Arc::new(render_one(resolved, assignment, host, budget, origin)),
            };
            (name, wanted)
        })
        .collect()
}

fn render_one(
    resolved: ResolvedGateway,
    assignment: Assignment,
    host: &HostSettings,
    subscription_budget: usize,
    origin: Origin<'_>,
) -> Wanted {
    let directories = host.directories.gateway(&resolved.gateway);
    let options = render::Options {
        addresses: assignment.addresses.clone(),
        port_map: host.port_map.clone(),
        subscription_budget,
        layout: directories.layout(),
        admin_socket: directories.admin_socket(),
        trusted_hops: host.trusted_hops,
        system_ca: host.system_ca.clone(),
    };
    Wanted {
        rendered: render::render(&resolved.snapshot, &resolved.keys, &options),
        bootstrap: render::bootstrap(&options),
        resolved: Arc::new(resolved),
        options,
        assignment,
        restored: matches!(origin, Origin::Accepted),
        cause: match origin {
            Origin::Accepted => "what was accepted before the agent started".to_owned(),
            Origin::Source(cause) => cause.to_owned(),
        },
        revision: OnceLock::new(),
    }
}

fn need(gateway: &NamespacedName, snapshot: &Snapshot, host: &HostSettings) -> Need {
    let ports: BTreeSet<(Transport, u32)> = snapshot
        .ports
        .iter()
        .map(|port| {
            let bound = host.port_map.get(&port.port).unwrap_or(&port.port);
            (port.transport(), *bound)
        })
        .collect();
    Need {
        gateway: gateway.clone(),
        requested: snapshot
            .addresses
            .iter()
            .filter_map(|address| address.parse().ok())
            .collect(),
        ports,
    }
}
