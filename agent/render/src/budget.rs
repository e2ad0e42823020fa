//! Limits the number of files that Envoy watches.
//!
//! Each file subscription needs an inotify instance (by default 128 per user), and Envoy aborts if
//! the kernel has none left. A resource without a subscription is inlined in its cluster or
//! listener. It is still served, but updating it costs more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_proto::schema::{Backend, BackendTls, Listener, OidcLogin, Port, TlsTermination};

use crate::layout::file_name;
use crate::rendered::{Resource, find};
use crate::tls::secrets::is_of_login;

/// Maximum number of watched endpoint files. After Envoy is killed, the kernel takes 10 ms to
/// release each watch, and the next Envoy has to wait for all of them. This limit keeps the delay
/// below 0.3 s.
pub const MAX_ENDPOINT_FILES: usize = 24;

/// Maximum number of watched files with secrets for logins, two per policy. The others remain for
/// route tables and certificates.
const MAX_LOGIN_FILES: usize = 2 * OidcLogin::MAX_PER_GATEWAY;

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
            !backend.endpoints.is_empty()
                && may_have_file(backend)
                && !self.endpoints.contains(backend.name.as_str())
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

/// Number of subscriptions that every Envoy has: LDS, CDS, RTDS, the fleet's hosts and eight for ECDS.
pub const MIN_SUBSCRIPTIONS: usize = 12;

pub(crate) fn plan<'a>(
    ports: &'a [Port],
    backends: &'a [Backend],
    secrets: &'a [Resource],
    budget: SubscriptionBudget<'_>,
) -> Subscriptions<'a> {
    let budgeted = budget.files.saturating_sub(MIN_SUBSCRIPTIONS);
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
    // These secrets cannot be inlined.
    for (i, name) in in_turn(secrets.iter().map(|it| it.name.as_str())).enumerate() {
        let mut none = 0;
        let left = if i < MAX_LOGIN_FILES {
            &mut left
        } else {
            &mut none
        };
        granted.secrets.ask(name, left);
    }
    for name in secrets_of(ports, backends) {
        if find(secrets, name).is_some() {
            granted.secrets.ask(name, &mut left);
        }
    }
    granted.count = MIN_SUBSCRIPTIONS + budgeted - left;
    left = left.min(MAX_ENDPOINT_FILES);
    // A backend with session persistence has two clusters that read its endpoint file.
    let subscriptions = |backend: &Backend| if backend.session_key.is_empty() { 1 } else { 2 };
    let backends = || backends.iter().filter(|it| may_have_file(it));
    let all = backends().map(subscriptions).sum::<usize>();
    if all <= left {
        granted.count += all;
        granted.endpoints = backends().map(|b| b.name.as_str()).collect();
        return granted;
    }
    // The host's preferred sets change most often. Order the others by hash: a new Service then
    // moves at most one other cluster across the limit.
    let mut in_order: Vec<_> = backends()
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

/// Returns the secrets of logins. The namespaces take turns, so that the policies of one do not use
/// up the files of the others.
fn in_turn<'s>(secrets: impl Iterator<Item = &'s str>) -> impl Iterator<Item = &'s str> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let logins = secrets.filter(|name| is_of_login(name)).map(|name| {
        // For example, `AccessPolicy/namespace/name/oidc/client`.
        let namespace = name.split('/').nth(1).unwrap_or_default();
        let place = seen.entry(namespace).or_default();
        // Both secrets of a policy have the same turn.
        let turn = *place / 2;
        *place += 1;
        (turn, name)
    });
    let mut logins: Vec<(usize, &str)> = logins.collect();
    logins.sort_unstable();
    logins.into_iter().map(|(_, name)| name)
}

/// Returns false if the endpoints must be in the cluster, because they contain the port of its
/// health checks. Other backends may share the file.
fn may_have_file(backend: &Backend) -> bool {
    backend.health_port() == 0
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
            key_exchange_groups: _,
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
    fn logins_of_one_namespace_leave_files_for_others() {
        let of = |namespace: &str, name: &str| {
            ["client", "cookies"].map(|it| format!("AccessPolicy/{namespace}/{name}/oidc/{it}"))
        };
        let [one, two, other] = [of("a", "one"), of("a", "two"), of("b", "one")];
        let mut sorted = [one.clone(), two.clone(), other.clone()].concat();
        let expected = [one, other, two].concat();
        sorted.push("Secret/a/client".to_owned());
        let found: Vec<&str> = in_turn(sorted.iter().map(String::as_str)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn plan_gives_files_to_preferred_endpoints_first() {
        let all = backends(0..40);
        let nothing = BTreeSet::new();
        let before = plan(&[], &all, &[], files(MIN_SUBSCRIPTIONS + 7, &nothing)).endpoints;
        let outside: Vec<&str> = all
            .iter()
            .map(|backend| backend.name.as_str())
            .filter(|name| !before.contains(name))
            .take(3)
            .collect();
        let first = outside.iter().map(|name| file_name(name)).collect();
        let after = plan(&[], &all, &[], files(MIN_SUBSCRIPTIONS + 7, &first)).endpoints;
        assert!(outside.iter().all(|name| after.contains(name)));
        assert_eq!(after.len(), before.len());
        assert_eq!(before.difference(&after).count(), 3);
        let first = all.iter().map(|b| file_name(&b.name)).collect();
        assert_eq!(
            plan(&[], &all, &[], files(MIN_SUBSCRIPTIONS + 7, &first)).endpoints,
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
            let before = plan(&[], &before, &[], files(MIN_SUBSCRIPTIONS + 9, &nothing)).endpoints;
            let after = plan(&[], &after, &[], files(MIN_SUBSCRIPTIONS + 9, &nothing)).endpoints;
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
        assert_eq!(counts(0), (0, 0, 0, MIN_SUBSCRIPTIONS));
        assert_eq!(counts(MIN_SUBSCRIPTIONS), (0, 0, 0, MIN_SUBSCRIPTIONS));
        assert_eq!(
            counts(MIN_SUBSCRIPTIONS + 1),
            (1, 0, 0, MIN_SUBSCRIPTIONS + 1)
        );
        assert_eq!(
            counts(MIN_SUBSCRIPTIONS + 2),
            (1, 1, 0, MIN_SUBSCRIPTIONS + 2)
        );
        assert_eq!(
            counts(MIN_SUBSCRIPTIONS + 3),
            (1, 1, 1, MIN_SUBSCRIPTIONS + 3)
        );
        assert_eq!(counts(60), (1, 1, 1, MIN_SUBSCRIPTIONS + 3));
    }
}
