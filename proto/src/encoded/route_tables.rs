//! Route tables with encoded virtual hosts.

use super::entry::{Entry, entries, list_len, write_list};
use crate::refusal;
use crate::schema::route::Action;
use crate::schema::{DirectResponse, RouteTable, VirtualHost};
use crate::wire::numbers::route_table::{NAME, VIRTUAL_HOSTS};
use crate::wire::numbers::snapshot::ROUTE_TABLES;
use crate::wire::{append, append_head, appended_len};

/// A route table with encoded virtual hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTable {
    /// Table name.
    pub name: String,
    /// Virtual hosts, in order.
    pub hosts: Vec<EncodedHost>,
}

/// An encoded virtual host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedHost {
    pub(super) entry: Entry,
    /// False if the virtual host only responds with 421.
    pub(super) is_served: bool,
}

impl EncodedHost {
    pub(super) fn new(host: &VirtualHost) -> Self {
        Self {
            entry: Entry::new(host),
            is_served: is_served(host),
        }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        self.entry.name()
    }

    /// Decodes the virtual host.
    pub fn decoded(&self) -> VirtualHost {
        self.entry.decoded()
    }
}

impl EncodedTable {
    pub(super) fn new(table: &RouteTable) -> Self {
        let RouteTable {
            name,
            virtual_hosts,
        } = table;
        let entries = entries(virtual_hosts).into_iter().zip(virtual_hosts);
        Self {
            name: name.clone(),
            hosts: entries
                .map(|(entry, host)| EncodedHost {
                    entry,
                    is_served: is_served(host),
                })
                .collect(),
        }
    }

    pub(super) fn decoded(&self) -> RouteTable {
        let Self { name, hosts } = self;
        RouteTable {
            name: name.clone(),
            virtual_hosts: hosts.iter().map(EncodedHost::decoded).collect(),
        }
    }

    /// Returns the domains in order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(EncodedHost::domain)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.hosts.iter().map(|host| &host.entry)
    }

    fn content_len(&self) -> usize {
        let name = match self.name.len() {
            0 => 0,
            length => appended_len(NAME, length),
        };
        name + list_len(VIRTUAL_HOSTS, self.entries())
    }

    /// Returns the size in bytes in the encoded snapshot.
    pub(super) fn encoded_len(&self) -> usize {
        appended_len(ROUTE_TABLES, self.content_len())
    }

    pub(super) fn write(&self, write: &mut impl FnMut(&[u8])) {
        let mut head = Vec::new();
        append_head(ROUTE_TABLES, self.content_len(), &mut head);
        if !self.name.is_empty() {
            append(NAME, self.name.as_bytes(), &mut head);
        }
        write(&head);
        write_list(VIRTUAL_HOSTS, self.entries(), write);
    }
}

fn is_served(host: &VirtualHost) -> bool {
    let [route] = host.routes.as_slice() else {
        return true;
    };
    let misdirected = DirectResponse::new(refusal::MISDIRECTED);
    route.action != Some(Action::DirectResponse(misdirected))
}
