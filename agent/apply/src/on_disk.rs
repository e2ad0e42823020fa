//! Reads Envoy's files from disk. The agent may have died while writing, so damaged files count as
//! absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use itertools::EitherOrBoth;
use sesame_files::open::{self, Rule};

use super::plan::merge;
use sesame_host::entries;
use sesame_render::layout::{XdsLayout, file_name};
use sesame_render::xds::response;
use sesame_render::xds::{Subscription, XdsKind};
use sesame_render::{Rendered, Resource};

/// Maximum file size in bytes. Larger files count as damaged.
pub(super) const MAX_FILE: u64 = 256 << 20;

/// Content of the intact files on disk. Each list is sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// Resources in the intact files.
    pub content: Rendered,
    /// True if the LDS file exists and is intact; Envoy does not start without it.
    pub has_listeners: bool,
    /// True if the CDS file exists and is intact; Envoy does not start without it.
    pub has_clusters: bool,
    /// Files that the running Envoy has not accepted. They are rewritten even if unchanged.
    pub unconfirmed: BTreeSet<Subscription>,
    /// Unused clusters in `content`, except those that were unused when this agent started.
    pub unused: BTreeSet<String>,
}

pub(crate) struct FoundFiles {
    pub(crate) on_disk: OnDisk,
    pub(crate) versions: BTreeMap<Subscription, String>,
    pub(crate) junk: Vec<PathBuf>,
}

impl OnDisk {
    /// Reads the files under `layout`. A missing directory counts as empty.
    pub fn load(layout: &XdsLayout) -> io::Result<Self> {
        find(layout).map(|found| found.on_disk)
    }

    /// Returns true if the disk has clusters that `rendered` lacks. All clusters in `rendered` must
    /// be on disk.
    pub fn has_more_clusters_than(&self, rendered: &Rendered) -> bool {
        self.content.clusters.len() > rendered.clusters.len()
    }

    pub(super) fn has_more_tables_than(&self, rendered: &Rendered) -> bool {
        let both = merge(
            self.resources(XdsKind::RouteTable),
            resources(rendered, XdsKind::RouteTable).iter(),
        );
        both.into_iter()
            .any(|pair| matches!(pair, EitherOrBoth::Left(_)))
    }

    /// Returns an upper bound on the number of files that Envoy watches with this configuration.
    pub fn subscriptions(&self) -> usize {
        let leaves = XdsKind::LEAVES.map(|kind| self.resources(kind).len());
        // LDS, CDS, the shares, the hosts, and the session ticket keys.
        5 + leaves.iter().sum::<usize>()
    }

    /// Returns the content without the clusters, endpoints and secrets that `rendered` lacks.
    pub fn only(&self, rendered: &Rendered) -> Rendered {
        let mut content = self.content.clone();
        for kind in [XdsKind::Clusters, XdsKind::Endpoints, XdsKind::Secret] {
            let wanted = resources(rendered, kind);
            let both = merge(self.resources(kind), wanted.iter());
            let kept = both.filter_map(|pair| match pair {
                EitherOrBoth::Both(here, _) => Some(here.clone()),
                EitherOrBoth::Left(_) | EitherOrBoth::Right(_) => None,
            });
            *resources_mut(&mut content, kind) = kept.collect();
        }
        content
    }

    /// Returns the resources of `kind` in the intact files, sorted by name.
    pub fn resources(&self, kind: XdsKind) -> &[Resource] {
        resources(&self.content, kind)
    }

    pub(super) fn is_unconfirmed(&self, kind: XdsKind, name: &str) -> bool {
        !self.unconfirmed.is_empty() && self.unconfirmed.contains(&Subscription::new(kind, name))
    }
}

pub(crate) fn resources(rendered: &Rendered, kind: XdsKind) -> &Arc<[Resource]> {
    let Rendered {
        listeners,
        route_tables,
        clusters,
        endpoints,
        secrets,
        filters,
        shares: _,
        fleet_hosts: _,
        problems: _,
        inline: _,
        in_files: _,
        subscriptions: _,
    } = rendered;
    match kind {
        XdsKind::Listeners => listeners,
        XdsKind::Clusters => clusters,
        XdsKind::RouteTable => route_tables,
        XdsKind::Endpoints => endpoints,
        XdsKind::Secret => secrets,
        XdsKind::Filter => filters,
    }
}

pub(crate) fn resources_mut(rendered: &mut Rendered, kind: XdsKind) -> &mut Arc<[Resource]> {
    match kind {
        XdsKind::Listeners => &mut rendered.listeners,
        XdsKind::Clusters => &mut rendered.clusters,
        XdsKind::RouteTable => &mut rendered.route_tables,
        XdsKind::Endpoints => &mut rendered.endpoints,
        XdsKind::Secret => &mut rendered.secrets,
        XdsKind::Filter => &mut rendered.filters,
    }
}

pub(crate) fn find(layout: &XdsLayout) -> io::Result<FoundFiles> {
    let mut found = FoundFiles {
        on_disk: OnDisk::default(),
        versions: BTreeMap::new(),
        junk: Vec::new(),
    };
    for kind in XdsKind::LISTS {
        let subscription = Subscription::new(kind, "");
        let path = subscription.path(layout);
        let Some(list) = whole(kind, &path)? else {
            if path.exists() {
                found.junk.push(path);
            }
            continue;
        };
        found.versions.insert(subscription, list.version);
        let on_disk = &mut found.on_disk;
        *resources_mut(&mut on_disk.content, kind) = sorted(list.resources);
        match kind {
            XdsKind::Listeners => on_disk.has_listeners = true,
            _ => on_disk.has_clusters = true,
        }
    }
    for kind in XdsKind::LEAVES {
        let leaves = leaves(layout, kind, &mut found)?;
        *resources_mut(&mut found.on_disk.content, kind) = leaves;
    }
    Ok(found)
}

fn leaves(
    layout: &XdsLayout,
    kind: XdsKind,
    found: &mut FoundFiles,
) -> io::Result<Arc<[Resource]>> {
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

/// Returns `None` if the file is absent, damaged, too large or not a regular file.
pub(crate) fn whole(kind: XdsKind, path: &Path) -> io::Result<Option<response::DecodedFile>> {
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
