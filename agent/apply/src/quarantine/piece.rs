//! Splits a snapshot into pieces that can be excluded individually.

use std::collections::BTreeMap;
use std::fmt;

use prost::Message;
use sesame_proto::schema::{
    Backend, EndpointSet, KeyRef, L4Route, Listener, Port, RateLimit, Route, RouteTable,
    SharedFilter, Snapshot, TrustBundle, VirtualHost,
};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a piece's own content, without the pieces to which it refers.
pub type Digest = [u8; 32];

/// A part that can be excluded, by its name in the snapshot. The search for conflicts adds pieces
/// in the order of these variants. Listeners precede routes, because Envoy checks only routes that
/// a listener uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Piece {
    /// A key pair.
    Key(String),
    /// A trust bundle.
    TrustBundle(String),
    /// An endpoint set.
    Endpoints(String),
    /// A backend.
    Backend(String),
    /// A listener.
    Listener(String),
    /// A TLS, TCP or UDP route.
    L4Route(String),
    /// A virtual host without its routes.
    VirtualHost {
        /// Name of the route table.
        table: String,
        /// Domain.
        domain: String,
    },
    /// A route, with its copies in several virtual hosts.
    Route(String),
}

/// The text includes the source object, except for virtual hosts.
impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name)
            | Self::TrustBundle(name)
            | Self::Endpoints(name)
            | Self::Backend(name)
            | Self::Route(name)
            | Self::L4Route(name)
            | Self::Listener(name) => f.write_str(name),
            Self::VirtualHost { table, domain } => write!(f, "domain {domain} of {table}"),
        }
    }
}

impl Piece {
    /// Returns true if the piece can respond with 500 instead of being removed.
    pub(super) fn can_answer(&self) -> bool {
        matches!(self, Self::Route(_) | Self::VirtualHost { .. })
    }

    /// Returns the kind of the piece, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::TrustBundle(_) => "trust bundle",
            Self::Endpoints(_) => "endpoints",
            Self::Backend(_) => "backend",
            Self::Listener(_) => "listener",
            Self::L4Route(_) | Self::Route(_) => "route",
            Self::VirtualHost { .. } => "virtual host",
        }
    }
}

/// Judging order. Referenced pieces come first, because culprits among them must already be
/// excluded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Secrets,
    Backends,
    Rest,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Secrets, Self::Backends, Self::Rest];

    pub(super) fn of(piece: &Piece) -> Self {
        match piece {
            Piece::Key(_) | Piece::TrustBundle(_) => Self::Secrets,
            Piece::Endpoints(_) | Piece::Backend(_) => Self::Backends,
            Piece::VirtualHost { .. }
            | Piece::Route(_)
            | Piece::L4Route(_)
            | Piece::Listener(_) => Self::Rest,
        }
    }
}

/// Returns the digests of all pieces.
pub fn digests(snapshot: &Snapshot) -> BTreeMap<Piece, Digest> {
    Pieces::new(snapshot)
        .of
        .into_iter()
        .map(|(piece, content)| (piece, content.digest()))
        .collect()
}

/// Copies of a route in several virtual hosts may differ.
pub(super) enum PieceContent<'a> {
    Key(&'a KeyRef),
    TrustBundle(&'a TrustBundle),
    Endpoints(&'a EndpointSet),
    Backend(&'a Backend),
    VirtualHost(&'a VirtualHost),
    Route(Vec<&'a Route>),
    L4Route(Vec<(&'a Port, &'a Listener, &'a L4Route)>),
    Listener(&'a Port, &'a Listener),
}

impl PieceContent<'_> {
    pub(super) fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        match self {
            Self::Key(key) => hash.update(key.encode_to_vec()),
            Self::TrustBundle(bundle) => hash.update(bundle.encode_to_vec()),
            Self::Endpoints(endpoints) => hash.update(endpoints.encode_to_vec()),
            Self::Backend(backend) => hash.update(backend.encode_to_vec()),
            Self::VirtualHost(host) => {
                hash.update(&host.domain);
                for auth in &host.external_auth {
                    hash.update(auth.encode_length_delimited_to_vec());
                }
                if let Some(filters) = &host.filters {
                    hash.update(filters.encode_length_delimited_to_vec());
                }
            }
            Self::Route(copies) => {
                for route in copies {
                    hash.update(route.encode_length_delimited_to_vec());
                }
            }
            Self::L4Route(copies) => {
                for (_, _, route) in copies {
                    hash.update(route.encode_length_delimited_to_vec());
                }
            }
            Self::Listener(port, listener) => {
                hash.update([u8::from(port.transport != 0)]);
                hash.update(port.port.to_be_bytes());
                hash.update(
                    Listener {
                        l4_routes: Vec::new(),
                        ..(*listener).clone()
                    }
                    .encode_to_vec(),
                );
            }
        }
        hash.finalize().into()
    }
}

pub(super) struct Pieces<'a> {
    pub(super) of: BTreeMap<Piece, PieceContent<'a>>,
    /// If a limit is invalid, the routes that refer to it are the culprits.
    pub(super) rate_limits: &'a [RateLimit],
    /// If a filter is invalid, the virtual hosts and routes that refer to it are the culprits.
    pub(super) shared_filters: &'a [SharedFilter],
}

impl<'a> Pieces<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let Snapshot {
            gateway: _,
            addresses: _,
            ports,
            route_tables,
            backends,
            endpoints,
            keys,
            trust_bundles,
            edge: _,
            rotation: _,
            tracing: _,
            log_output: _,
            measured_routes: _,
            rate_limits,
            shared_filters,
            filters: _,
            rollout: _,
        } = snapshot;
        let mut of = BTreeMap::new();
        for key in keys {
            of.insert(Piece::Key(key.name.clone()), PieceContent::Key(key));
        }
        for bundle in trust_bundles {
            of.insert(
                Piece::TrustBundle(bundle.name.clone()),
                PieceContent::TrustBundle(bundle),
            );
        }
        for set in endpoints {
            of.insert(
                Piece::Endpoints(set.name.clone()),
                PieceContent::Endpoints(set),
            );
        }
        for backend in backends {
            of.insert(
                Piece::Backend(backend.name.clone()),
                PieceContent::Backend(backend),
            );
        }
        let mut pieces = Self {
            of,
            rate_limits,
            shared_filters,
        };
        for RouteTable {
            name,
            virtual_hosts,
        } in route_tables
        {
            for host in virtual_hosts {
                pieces.add_host(name, host);
            }
        }
        for port in ports {
            for listener in &port.listeners {
                pieces.add_listener(port, listener);
            }
        }
        pieces
    }

    fn add_host(&mut self, table: &str, host: &'a VirtualHost) {
        let piece = Piece::VirtualHost {
            table: table.to_owned(),
            domain: host.domain.clone(),
        };
        self.of.insert(piece, PieceContent::VirtualHost(host));
        for route in &host.routes {
            let piece = self.of.entry(Piece::Route(route.name.clone()));
            match piece.or_insert(PieceContent::Route(Vec::new())) {
                PieceContent::Route(copies) if !copies.contains(&route) => copies.push(route),
                _ => {}
            }
        }
    }

    fn add_listener(&mut self, port: &'a Port, listener: &'a Listener) {
        let piece = Piece::Listener(listener.name.clone());
        self.of
            .insert(piece, PieceContent::Listener(port, listener));
        for route in &listener.l4_routes {
            let piece = self.of.entry(Piece::L4Route(route.name.clone()));
            if let PieceContent::L4Route(copies) =
                piece.or_insert(PieceContent::L4Route(Vec::new()))
            {
                copies.push((port, listener, route));
            }
        }
    }
}
