//! Envoy's subscriptions: the file that each one watches, and the names of its statistics.

use std::fmt;
use std::path::PathBuf;

use crate::layout::XdsLayout;

/// A kind of file that Envoy watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XdsKind {
    /// LDS: all listeners in one file.
    Listeners,
    /// CDS: all clusters in one file.
    Clusters,
    /// RDS: one file per route table.
    RouteTable,
    /// EDS: one file per cluster, with its endpoints.
    Endpoints,
    /// SDS: one file per key pair or trust bundle.
    Secret,
    /// ECDS: one file per filter that routes refer to.
    Filter,
}

impl XdsKind {
    /// Kinds with one file for all resources.
    pub const LISTS: [Self; 2] = [Self::Listeners, Self::Clusters];

    /// Kinds with one file per resource.
    pub const LEAVES: [Self; 4] = [
        Self::Secret,
        Self::Endpoints,
        Self::RouteTable,
        Self::Filter,
    ];

    /// Returns the type URL of this kind's resources.
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Listeners => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::RouteTable => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Filter => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        }
    }

    /// Returns the name of the directory, as in [`XdsLayout`].
    pub fn directory(self) -> &'static str {
        match self {
            Self::Listeners => "lds",
            Self::Clusters => "cds",
            Self::RouteTable => "rds",
            Self::Endpoints => "eds",
            Self::Secret => "sds",
            Self::Filter => "ecds",
        }
    }

    /// Returns the kind for a directory such as `lds`, or `None` if unknown.
    pub fn from_directory(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.directory() == name)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::LISTS.into_iter().chain(Self::LEAVES)
    }

    /// Returns true if one file contains all resources of this kind.
    pub fn is_list(self) -> bool {
        Self::LISTS.contains(&self)
    }
}

/// A subscription to a file that Envoy watches.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subscription {
    /// Kind of the resources in the file.
    pub kind: XdsKind,
    /// Name of the resource; empty if the kind is LDS or CDS.
    pub name: String,
}

impl Subscription {
    /// Creates a subscription. Ignores `name` if one file contains all resources of the kind.
    pub fn new(kind: XdsKind, name: &str) -> Self {
        let name = if kind.is_list() { "" } else { name };
        Self {
            kind,
            name: name.to_owned(),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self, layout: &XdsLayout) -> PathBuf {
        match self.kind {
            XdsKind::Listeners => layout.lds(),
            XdsKind::Clusters => layout.cds(),
            XdsKind::RouteTable => layout.rds(&self.name),
            XdsKind::Endpoints => layout.eds(&self.name),
            XdsKind::Secret => layout.sds(&self.name),
            XdsKind::Filter => layout.ecds(&self.name),
        }
    }

    /// Returns the prefix of the subscription's statistics, which end in `.version_text` or
    /// `.update_rejected`. Returns `None` for a route table, because its prefix also contains a
    /// listener's stat prefix.
    pub fn stat_scope(&self) -> Option<String> {
        match self.kind {
            XdsKind::Listeners => Some("listener_manager.lds".to_owned()),
            XdsKind::Clusters => Some("cluster_manager.cds".to_owned()),
            XdsKind::Endpoints => Some(format!("cluster.{}", stat_name(&self.name))),
            XdsKind::Secret => Some(format!("sds.{}", stat_name(&self.name))),
            XdsKind::Filter => Some(format!(
                "extension_config_discovery.http_filter.{}",
                stat_name(&self.name)
            )),
            XdsKind::RouteTable => None,
        }
    }

    /// Returns true if a statistic belongs to this subscription. `scope` is its name without the
    /// last segment.
    pub fn owns_stat(&self, scope: &str) -> bool {
        if let Some(own) = self.stat_scope() {
            return own == scope;
        }
        scope
            .strip_prefix("http.")
            .and_then(|rest| rest.strip_suffix(stat_name(&self.name).as_str()))
            .is_some_and(|rest| rest.ends_with(".rds."))
    }
}

impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.directory())?;
        if self.name.is_empty() {
            Ok(())
        } else {
            write!(f, " {}", self.name)
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Converts a name to its form in Envoy's statistics (`Stats::Utility::sanitizeStatsName`).
pub(crate) fn stat_name(name: &str) -> String {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.replace("://", "_")
        .replace(":/", "_")
        .replace([':', '\0'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscription_matches_statistics_names_of_envoy_1_40() {
        let owns = |kind, name: &str, scope: &str| Subscription::new(kind, name).owns_stat(scope);
        assert!(owns(XdsKind::Clusters, "", "cluster_manager.cds"));
        assert!(owns(XdsKind::Listeners, "", "listener_manager.lds"));
        assert!(owns(
            XdsKind::Endpoints,
            "Service/ns/name:80/abc.def",
            "cluster.Service/ns/name_80/abc.def"
        ));
        assert!(owns(
            XdsKind::Secret,
            "Secret/ns/na.me:x@é",
            "sds.Secret/ns/na.me_x@é"
        ));
        let table = "https/443/Gateway/ns/na.me/listeners/https";
        assert!(owns(
            XdsKind::RouteTable,
            table,
            &format!("http.http_80/x.y.rds.{table}")
        ));
        assert!(!owns(
            XdsKind::RouteTable,
            "https",
            &format!("http.http_80/x.y.rds.{table}")
        ));
        assert!(!owns(XdsKind::Endpoints, "a", "cluster.b"));
    }
}
