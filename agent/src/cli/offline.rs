//! Reads and resolves manifests once, for read-only commands.

use std::path::Path;

use anyhow::{Context as _, bail};
use sesame_acme::CertificateRequests;
use sesame_kinds::world::{Kind, ObjectKey};
use sesame_proto::encoded::Substitutes;
use sesame_proto::jwks;
use sesame_proto::key_sets::{KeySetCopies, KeySetCopy, KeySetRequests};
use sesame_resolver::{ImpliedGateway, Options, RemoteKeySets, Resolution, report_only, resolve};

use super::host::HostArgs;
use sesame_engine::system_ca;
use sesame_host::free_ports;
use sesame_render::layout::XdsLayout;
use sesame_render::limits::Limits;
use sesame_sources::acme::stand_ins;
use sesame_sources::last_good::LastGood;
use sesame_sources::manifests::Manifests;
use sesame_sources::problem::SourceProblem;

pub(crate) struct Offline {
    pub(crate) manifests: Manifests,
    pub(crate) problems: Vec<SourceProblem>,
    pub(crate) resolution: Resolution,
    /// Certificates that the agent orders, because the manifests lack their Secrets.
    pub(crate) ordered: CertificateRequests,
    /// The Gateway that only a SesameConfiguration declares.
    pub(crate) implied: Option<ImpliedGateway>,
}

impl Offline {
    /// Returns file and line of the object, or of the configuration that declares it.
    pub(crate) fn location(&self, object: &ObjectKey) -> Option<(&Path, usize)> {
        let implied = self.implied.as_ref().filter(|_| self.is_implied(object));
        let declared_by = implied.map(ImpliedGateway::declared_by);
        self.manifests.location(declared_by.unwrap_or(object))
    }

    /// Self-signed pairs replace the certificates that the agent orders.
    fn assume_orders(&mut self, options: &Options) -> anyhow::Result<()> {
        let requests = std::mem::take(&mut self.resolution.certificate_requests);
        let missing = requests.into_iter().filter(|(_, request)| !request.exists);
        self.ordered = missing.collect();
        if self.ordered.is_empty() {
            return Ok(());
        }
        self.manifests.set_ordered(stand_ins(&self.ordered)?);
        self.problems = self.manifests.rescan_paths(&[]).problems.to_vec();
        self.resolution = resolve(self.manifests.world(), options);
        Ok(())
    }

    /// Warns that the answer depends on certificates that do not exist yet.
    pub(crate) fn warn_of_stand_ins(&self) {
        for secret in self.ordered.keys() {
            tracing::warn!("Secret {secret} does not exist; a certificate by ACME is assumed");
        }
    }

    pub(crate) fn is_implied(&self, object: &ObjectKey) -> bool {
        let mut implied = self.implied.iter();
        implied.any(|it| object.kind == Kind::Gateway && object.name == it.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteKeys {
    /// Use a placeholder for each key set.
    Assumed,
    Fetched,
}

pub(crate) fn read(dir: &Path, host: &HostArgs, keys: RemoteKeys) -> anyhow::Result<Offline> {
    resolve_dir(dir, host, &host.resolve_options(), keys)
}

/// Like [`read`], but resolves Ingresses and HTTPProxies even if `spec.ingress.watch` is `Report`, and
/// as if all certificates were ordered.
pub(crate) fn preview(dir: &Path, host: &HostArgs) -> anyhow::Result<Offline> {
    let options = Options {
        preview: true,
        ..host.resolve_options()
    };
    let mut read = resolve_dir(dir, host, &options, RemoteKeys::Assumed)?;
    read.assume_orders(&options)?;
    if let Some(note) = report_only(read.manifests.world(), &options) {
        tracing::warn!("{note}");
    }
    Ok(read)
}

pub(crate) fn resolve_dir(
    dir: &Path,
    host: &HostArgs,
    options: &Options,
    keys: RemoteKeys,
) -> anyhow::Result<Offline> {
    if !dir.is_dir() {
        bail!("--manifests {}: no such directory", dir.display());
    }
    let mut manifests = Manifests::with_limits(dir, LastGood::none(), host.manifest_limits());
    let mut scan = manifests.scan();
    let requests = RemoteKeySets::of(manifests.world(), options).requests();
    if !requests.is_empty() {
        let copies = copies(&requests, keys)?;
        manifests.set_local(&Substitutes::default(), (&options.namespace, &copies));
        scan = manifests.rescan_paths(&[]);
    }
    let resolution = resolve(manifests.world(), options);
    Ok(Offline {
        implied: ImpliedGateway::find(manifests.world(), options),
        manifests,
        problems: scan.problems.to_vec(),
        resolution,
        ordered: CertificateRequests::new(),
    })
}

fn copies(requests: &KeySetRequests, keys: RemoteKeys) -> anyhow::Result<KeySetCopies> {
    let runtime = super::agent::runtime()?;
    let copies = requests.iter().map(|(name, request)| {
        let uri = request.uri.clone();
        let jwks = match keys {
            RemoteKeys::Assumed => jwks::placeholder(),
            RemoteKeys::Fetched => runtime
                .block_on(sesame_key_sets::fetch(request))
                .with_context(|| format!("cannot fetch the key set {uri}"))?,
        };
        let copy = KeySetCopy {
            uri,
            jwks,
            ..KeySetCopy::default()
        };
        Ok((name.clone(), copy))
    });
    copies.collect()
}

pub(crate) fn render_options(host: &HostArgs) -> sesame_render::RenderOptions {
    sesame_render::RenderOptions {
        addresses: if host.addresses.is_empty() {
            vec![std::net::IpAddr::from([0, 0, 0, 0])]
        } else {
            host.addresses.clone()
        },
        port_map: free_ports::fixed(&host.port_map),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: Limits::default(),
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: host.trusted_hops,
        fleet_hosts: host.fleet_hosts,
        system_ca: system_ca::find(),
        endpoints: sesame_render::EndpointRules {
            local: host.allow_local_endpoints,
            zone: host.zone.clone().unwrap_or_default(),
            ..sesame_render::EndpointRules::default()
        },
        // Only a running agent has session ticket keys and knows the access log destination.
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
        retained: std::collections::BTreeMap::new(),
    }
}
