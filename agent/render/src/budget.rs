//! Limits the number of files that Envoy watches.
//!
//! Each file subscription needs an inotify instance (by default 128 per user), and Envoy aborts if
//! the kernel has none left. A resource without a subscription is inlined in its cluster or
//! listener. It is still served, but updating it costs more.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_proto::schema::{Backend, BackendTls, Listener, Port, TlsTermination};

use crate::layout::file_name;
use crate::rendered::{Resource, find};

/// Maximum number of watched endpoint files. After Envoy is killed, the kernel takes 10 ms to
/// release each watch, and the next Envoy has to wait for all of them. This limit keeps the delay
/// below 0.3 s.
pub const MAX_ENDPOINT_FILES: usize = 24;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscriptionBudget<'a> {
    pub(crate) files: usize,
    /// True if a session ticket key file exists.
    pub(crate) tickets: bool,
    pub(crate) first: &'a BTreeSet<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscriptions<'a> {
    pub(crate) route_tables: Granted<'a>,
    pub(crate) secrets: Granted<'a>,
    /// Names of backends, not endpoint sets: two clusters that read the same file need two
    /// subscriptions.
    pub(crate) endpoints: BTreeSet<&'a str>,
    /// All listeners share one subscription for session ticket keys.
    pub(crate) tickets: bool,
    pub(crate) count: usize,
}

impl Subscriptions<'_> {
    pub(crate) fn in_files(&self) -> Arc<BTreeSet<String>> {
        let names = self.endpoints.iter().map(|&name| name.to_owned());
        Arc::new(names.collect())
    }

    pub(crate) fn inline_of(&self, backends: &[&Backend]) -> usize {
        let is_inline = |backend: &&&Backend| {
            !backend.endpoints.is_empty() && !self.endpoints.contains(backend.name.as_str())
        };
        backends.iter().filter(is_inline).count()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted<'a> {
    files: BTreeSet<&'a str>,
    inline: BTreeSet<&'a str>,
}

impl<'a> Granted<'a> {
    pub(crate) fn is_inline(&self, name: &str) -> bool {
        self.inline.contains(name)
    }

    fn ask(&mut self, name: &'a str, left: &mut usize) {
        if self.files.contains(name) {
            return;
        }
        if let Some(rest) = left.checked_sub(1) {
            *left = rest;
            self.files.insert(name);
        } else {
            self.inline.insert(name);
        }
    }
}

/// Number of subscriptions that every Envoy has: LDS, CDS, RTDS and five for ECDS.
const ALWAYS: usize = 8;

pub(crate) fn plan<'a>(
    ports: &'a [Port],
    backends: &'a [Backend],
    secrets: &[Resource],
    budget: SubscriptionBudget<'_>,
) -> Subscriptions<'a> {
    let budgeted = budget.files.saturating_sub(ALWAYS);
    let mut left = budgeted;
    let mut granted = Subscriptions::default();
    let listeners = || ports.iter().flat_map(|port| &port.listeners);
    for Listener { route_table, .. } in listeners() {
        if !route_table.is_empty() {
            granted.route_tables.ask(route_table, &mut left);
        }
    }
    // Without a file, Envoy generates keys itself, and clients cannot resume sessions after a
    // restart.
    let resumes = |listener: &Listener| listener.tls.as_ref().is_some_and(resumes);
    if budget.tickets && left > 0 && listeners().any(resumes) {
        granted.tickets = true;
        left -= 1;
    }
    for name in secrets_of(ports, backends) {
        if find(secrets, name).is_some() {
            granted.secrets.ask(name, &mut left);
        }
    }
    granted.count = ALWAYS + budgeted - left;
    left = left.min(MAX_ENDPOINT_FILES);
    // A backend with session persistence has two clusters that read its endpoint file.
    let subscriptions = |backend: &Backend| if backend.session_key.is_empty() { 1 } else { 2 };
    let all = backends.iter().map(subscriptions).sum::<usize>();
    if all <= left {
        granted.count += all;
        granted.endpoints = backends.iter().map(|b| b.name.as_str()).collect();
        return granted;
    }
    // The host's preferred sets change most often. Order the others by hash: a new Service then
    // moves at most one other cluster across the limit.
    let mut in_order: Vec<_> = backends
        .iter()
        .map(|backend| {
            let hash = file_name(&backend.name);
            let is_first = if backend.endpoints == backend.name {
                budget.first.contains(&hash)
            } else {
                let file = file_name(&backend.endpoints);
                budget.first.contains(&file)
            };
            ((!is_first, hash), backend)
        })
        .collect();
    in_order.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    for (_, backend) in in_order {
        let Some(rest) = left.checked_sub(subscriptions(backend)) else {
            break;
        };
        left = rest;
        granted.count += subscriptions(backend);
        granted.endpoints.insert(backend.name.as_str());
    }
    granted
}

/// Returns true if a listener with these settings resumes sessions. Listeners that request client
/// certificates never do.
fn resumes(tls: &TlsTermination) -> bool {
    !tls.asks_for_certificate()
}

fn secrets_of<'a>(ports: &'a [Port], backends: &'a [Backend]) -> impl Iterator<Item = &'a String> {
    let listeners = ports.iter().flat_map(|port| &port.listeners);
    let listener_tls = listeners.filter_map(|listener| listener.tls.as_ref());
    let listener_secrets = listener_tls.flat_map(|tls| {
        let TlsTermination {
            keys,
            client_trust_bundle,
            client_mode: _,
            min_version: _,
            max_version: _,
            cipher_suites: _,
            alpn: _,
            session_ticket_keys,
            client_dns_names: _,
            client_uris: _,
            client_dns_suffixes: _,
            client_uri_prefixes: _,
            forward_client_certificate: _,
        } = tls;
        let tickets = Some(session_ticket_keys).filter(|_| resumes(tls));
        keys.iter().chain(tickets).chain([client_trust_bundle])
    });
    let backend_tls = backends.iter().filter_map(|backend| backend.tls.as_deref());
    let backend_secrets = backend_tls.flat_map(|tls| {
        let BackendTls {
            trust_bundle,
            client_key,
            ..
        } = tls;
        [trust_bundle, client_key]
    });
    listener_secrets.chain(backend_secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(names: std::ops::Range<u32>) -> Vec<Backend> {
        names
            .map(|n| Backend {
                name: format!("Service/ns/s{n}/80"),
                endpoints: format!("Service/ns/s{n}/80"),
                ..Default::default()
            })
            .collect()
    }

    fn files(files: usize, first: &BTreeSet<String>) -> SubscriptionBudget<'_> {
        SubscriptionBudget {
            files,
            tickets: false,
            first,
        }
    }

    #[test]
    fn plan_gives_files_to_preferred_endpoints_first() {
        let all = backends(0..40);
        let nothing = BTreeSet::new();
        let before = plan(&[], &all, &[], files(ALWAYS + 7, &nothing)).endpoints;
        let outside: Vec<&str> = all
            .iter()
            .map(|backend| backend.name.as_str())
            .filter(|name| !before.contains(name))
            .take(3)
            .collect();
        let first = outside.iter().map(|name| file_name(name)).collect();
        let after = plan(&[], &all, &[], files(ALWAYS + 7, &first)).endpoints;
        assert!(outside.iter().all(|name| after.contains(name)));
        assert_eq!(after.len(), before.len());
        assert_eq!(before.difference(&after).count(), 3);
        let first = all.iter().map(|b| file_name(&b.name)).collect();
        assert_eq!(
            plan(&[], &all, &[], files(ALWAYS + 7, &first)).endpoints,
            before
        );
    }

    #[test]
    fn endpoint_files_are_capped_for_many_backends() {
        let all = backends(0..300);
        let nothing = BTreeSet::new();
        let many = plan(&[], &all, &[], files(40_000, &nothing)).endpoints;
        assert_eq!(many.len(), MAX_ENDPOINT_FILES);
        let all = &all[..MAX_ENDPOINT_FILES];
        let few = plan(&[], all, &[], files(40_000, &nothing)).endpoints;
        assert_eq!(few.len(), MAX_ENDPOINT_FILES);
    }

    #[test]
    fn added_backend_moves_at_most_one_endpoint_file() {
        for count in 10..40 {
            let (before, after) = (backends(0..count), backends(0..count + 1));
            let nothing = BTreeSet::new();
            let before = plan(&[], &before, &[], files(ALWAYS + 9, &nothing)).endpoints;
            let after = plan(&[], &after, &[], files(ALWAYS + 9, &nothing)).endpoints;
            assert!(before.difference(&after).count() <= 1, "at {count}");
            assert_eq!(after.len(), 9);
        }
    }

    #[test]
    fn files_go_to_route_tables_secrets_then_endpoints() {
        let ports = [Port {
            listeners: vec![Listener {
                route_table: "https/443/l".into(),
                tls: Some(TlsTermination {
                    keys: vec!["Secret/ns/a".into()],
                    ..Default::default()
                }),
                ..Default::default()
            }],
            ..Default::default()
        }];
        let backends = backends(0..1);
        let secrets = [Resource {
            name: "Secret/ns/a".to_owned(),
            bytes: bytes::Bytes::new(),
        }];
        let counts = |budget| {
            let nothing = BTreeSet::new();
            let plan = plan(&ports, &backends, &secrets, files(budget, &nothing));
            (
                plan.route_tables.files.len(),
                plan.secrets.files.len(),
                plan.endpoints.len(),
                plan.count,
            )
        };
        assert_eq!(counts(0), (0, 0, 0, ALWAYS));
        assert_eq!(counts(ALWAYS), (0, 0, 0, ALWAYS));
        assert_eq!(counts(ALWAYS + 1), (1, 0, 0, ALWAYS + 1));
        assert_eq!(counts(ALWAYS + 2), (1, 1, 0, ALWAYS + 2));
        assert_eq!(counts(ALWAYS + 3), (1, 1, 1, ALWAYS + 3));
        assert_eq!(counts(60), (1, 1, 1, ALWAYS + 3));
    }
}
