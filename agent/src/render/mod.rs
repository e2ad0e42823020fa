//! Rendering: a pure function from a snapshot to the resources that Envoy loads.
//!
//! Same snapshot, same bytes. Each resource is encoded as soon as it is built, because the unencoded form
//! of five thousand clusters is many times their encoded size.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::Snapshot;

/// What the host decides, beside the snapshot.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses to listen on, each listener on all of them.
    pub addresses: Vec<IpAddr>,
    /// Outside port → port to bind; identity where absent.
    pub port_map: BTreeMap<u32, u32>,
    /// How many file subscriptions (inotify instances) Envoy may open in all.
    pub subscription_budget: usize,
    /// The files that Envoy watches; paths as Envoy sees them.
    pub layout: crate::layout::XdsLayout,
    /// The admin socket.
    pub admin_socket: std::path::PathBuf,
    /// Whether Envoy trusts forwarding headers of this many proxies before it.
    pub trusted_hops: u32,
}

/// One encoded resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The resource's own name.
    pub name: String,
    /// The encoded message, without `Any`.
    pub bytes: Bytes,
}

/// Everything that Envoy gets, each list by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// LDS, one file.
    pub listeners: Vec<Resource>,
    /// RDS, a file each.
    pub route_tables: Vec<Resource>,
    /// CDS, one file.
    pub clusters: Vec<Resource>,
    /// EDS, a file each; only of the clusters that the subscription budget gives a file.
    pub endpoints: Vec<Resource>,
    /// SDS, a file each, 0600: key pairs and trust bundles.
    pub secrets: Vec<Resource>,
}

/// Renders a snapshot with its keys.
pub fn render(snapshot: &Snapshot, keys: &[KeyPair], options: &Options) -> Rendered {
    let _ = (snapshot, keys, options);
    Rendered::default()
}
