//! Content of the files on disk: the `old` of the next plan.
//!
//! A process may have died at any moment, so any file may be junk. A file counts only if it is whole:
//! its version is the digest of its content, its type is that of its directory and its name hashes to its
//! path. Everything else is treated as absent and removed or overwritten by the next plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sesame_files::open::{self, Rule};

use crate::host::entries;
use crate::xds::response;
use crate::xds::{Kind, Subscription};
use sesame_render::layout::{XdsLayout, file_name};
use sesame_render::{Rendered, Resource};

/// Size beyond which a file was not written by this agent, in bytes.
pub(super) const MAX_FILE: u64 = 256 << 20;

/// Accepted content of the files, each list by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// Resources that the whole files hold.
    pub content: Rendered,
    /// True if the LDS file exists and is whole; Envoy does not start without it.
    pub has_listeners: bool,
    /// True if the CDS file exists and is whole; Envoy does not start without it.
    pub has_clusters: bool,
    /// Files that the running Envoy has not taken: written again even if their bytes do not change.
    pub unconfirmed: BTreeSet<Subscription>,
}

/// Prints counts alone, because the content has private keys.
impl fmt::Debug for OnDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rendered {
            listeners,
            route_tables,
            clusters,
            endpoints,
            secrets,
            shares: _,
            problems: _,
        } = &self.content;
        f.debug_struct("OnDisk")
            .field("listeners", &listeners.len())
            .field("route_tables", &route_tables.len())
            .field("clusters", &clusters.len())
            .field("endpoints", &endpoints.len())
            .field("secrets", &secrets.len())
            .field("has_listeners", &self.has_listeners)
            .field("has_clusters", &self.has_clusters)
            .field("unconfirmed", &self.unconfirmed)
            .finish()
    }
}

/// Result of reading the files.
pub(crate) struct Found {
    pub(crate) on_disk: OnDisk,
    /// Version of every whole file, to be compared with what Envoy reports.
    pub(crate) versions: BTreeMap<Subscription, String>,
    /// Files that are not ours or not whole.
    pub(crate) junk: Vec<PathBuf>,
}

impl OnDisk {
    /// Reads the files below `layout`; a missing directory is an empty one.
    pub fn load(layout: &XdsLayout) -> io::Result<Self> {
        find(layout).map(|found| found.on_disk)
    }

    /// Returns the resources of a kind.
    pub(crate) fn of(&self, kind: Kind) -> &[Resource] {
        resources(&self.content, kind)
    }

    /// Tells whether the running Envoy has not taken a file.
    pub(super) fn is_unconfirmed(&self, kind: Kind, name: &str) -> bool {
        !self.unconfirmed.is_empty() && self.unconfirmed.contains(&Subscription::new(kind, name))
    }
}

/// Returns the resources of a kind.
pub(crate) fn resources(rendered: &Rendered, kind: Kind) -> &Arc<[Resource]> {
    let Rendered {
        listeners,
        route_tables,
        clusters,
        endpoints,
        secrets,
        shares: _,
        problems: _,
    } = rendered;
    match kind {
        Kind::Listeners => listeners,
        Kind::Clusters => clusters,
        Kind::RouteTable => route_tables,
        Kind::Endpoints => endpoints,
        Kind::Secret => secrets,
    }
}

/// Reads all files below `layout`.
pub(crate) fn find(layout: &XdsLayout) -> io::Result<Found> {
    let mut found = Found {
        on_disk: OnDisk::default(),
        versions: BTreeMap::new(),
        junk: Vec::new(),
    };
    for kind in [Kind::Listeners, Kind::Clusters] {
        let path = Subscription::new(kind, "").path(layout);
        let Some(list) = whole(kind, &path)? else {
            if path.exists() {
                found.junk.push(path);
            }
            continue;
        };
        found
            .versions
            .insert(Subscription::new(kind, ""), list.version);
        let OnDisk {
            content,
            has_listeners,
            has_clusters,
            ..
        } = &mut found.on_disk;
        if kind == Kind::Listeners {
            (content.listeners, *has_listeners) = (sorted(list.resources), true);
        } else {
            (content.clusters, *has_clusters) = (sorted(list.resources), true);
        }
    }
    for kind in Kind::LEAVES {
        let leaves = leaves(layout, kind, &mut found)?;
        let content = &mut found.on_disk.content;
        match kind {
            Kind::Secret => content.secrets = leaves,
            Kind::Endpoints => content.endpoints = leaves,
            _ => content.route_tables = leaves,
        }
    }
    Ok(found)
}

fn leaves(layout: &XdsLayout, kind: Kind, found: &mut Found) -> io::Result<Arc<[Resource]>> {
    let mut leaves = Vec::new();
    let file = format!("{}.pb", kind.directory());
    for directory in entries(&layout.root().join(kind.directory()))? {
        if !directory.is_dir() {
            found.junk.push(directory);
            continue;
        }
        for path in entries(&directory)? {
            let hash = directory.file_name().unwrap_or_default();
            let leaf = if path.file_name().is_some_and(|name| name == file.as_str()) {
                whole(kind, &path)?
            } else {
                None
            };
            let leaf = leaf.and_then(|leaf| {
                let [resource] = <[Resource; 1]>::try_from(leaf.resources).ok()?;
                (hash == file_name(&resource.name).as_str()).then_some((leaf.version, resource))
            });
            let Some((version, resource)) = leaf else {
                found.junk.push(path);
                continue;
            };
            found
                .versions
                .insert(Subscription::new(kind, &resource.name), version);
            leaves.push(resource);
        }
    }
    Ok(sorted(leaves))
}

fn sorted(mut resources: Vec<Resource>) -> Arc<[Resource]> {
    resources.sort_by(|a, b| a.name.cmp(&b.name));
    resources.into()
}

/// Reads a whole file; `None` for one that is absent, not a file or damaged.
pub(crate) fn whole(kind: Kind, path: &Path) -> io::Result<Option<response::Decoded>> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !meta.is_file() || meta.len() > MAX_FILE {
        return Ok(None);
    }
    let bytes = open::read(path, Rule::Own, MAX_FILE)?;
    Ok(response::decode(kind, &Bytes::from(bytes)))
}
