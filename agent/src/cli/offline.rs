//! Reads and resolves manifests once, for commands that change nothing.

use std::path::Path;

use anyhow::bail;
use sesame_gateway_api::resolve::{Resolution, resolve};

use super::host::HostArgs;
use crate::run::system_ca;
use crate::source::last_good::LastGood;
use crate::source::manifests::Manifests;
use crate::source::problem::SourceProblem;
use sesame_render::layout::XdsLayout;
use sesame_render::limits::Limits;

/// Resolved manifests, and the problems found in their files.
pub(crate) struct Offline {
    pub(crate) manifests: Manifests,
    pub(crate) problems: Vec<SourceProblem>,
    pub(crate) resolution: Resolution,
}

/// Reads and resolves the manifests in `dir`.
pub(crate) fn read(dir: &Path, host: &HostArgs) -> anyhow::Result<Offline> {
    if !dir.is_dir() {
        bail!("--manifests {}: no such directory", dir.display());
    }
    let mut manifests = Manifests::with_limits(dir, LastGood::none(), host.manifest_limits());
    let scan = manifests.scan();
    let resolution = resolve(manifests.world(), &host.resolve_options());
    Ok(Offline {
        manifests,
        problems: scan.problems.to_vec(),
        resolution,
    })
}

/// Returns the render options that `run` would use, with placeholders for values that only a
/// running agent has.
pub(crate) fn render_options(host: &HostArgs) -> sesame_render::RenderOptions {
    sesame_render::RenderOptions {
        addresses: if host.addresses.is_empty() {
            vec![std::net::IpAddr::from([0, 0, 0, 0])]
        } else {
            host.addresses.clone()
        },
        port_map: host.port_map.clone(),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: Limits::default(),
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: host.trusted_hops,
        system_ca: system_ca::find(),
        endpoints: sesame_render::EndpointRules {
            local: host.allow_local_endpoints,
            ..sesame_render::EndpointRules::default()
        },
        // Only a running agent has session tickets, and knows where access logs go.
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
        retained: std::collections::BTreeMap::new(),
    }
}
