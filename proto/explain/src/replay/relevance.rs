//! The parts of a request that can affect its response from two configurations.
//!
//! Requests that differ only in other parts are explained once.

use std::collections::BTreeSet;

use sesame_proto::schema::route::Action;
use sesame_proto::schema::{AddressFilter, RequestFilters, Route, Snapshot, StringMatch};

use super::super::request::HeaderField;
use super::logged::LoggedRequest;

/// Headers that some text formats and Sesame's log contain.
const LOGGED: [&str; 3] = ["content-type", "referer", "user-agent"];
const MAX_NAMED: usize = 10;

#[derive(Debug, Default)]
pub(super) struct RequestRelevance {
    headers: BTreeSet<String>,
    params: BTreeSet<String>,
    client: bool,
    rewrites_host: bool,
}

impl RequestRelevance {
    pub(super) fn new<'s>(snapshots: impl Iterator<Item = &'s Snapshot>) -> Self {
        let mut relevance = Self::default();
        for snapshot in snapshots {
            relevance.filters(snapshot.filters.as_deref());
            for host in snapshot
                .route_tables
                .iter()
                .flat_map(|it| &it.virtual_hosts)
            {
                relevance.filters(host.filters.as_ref());
                for route in &host.routes {
                    relevance.route(route);
                }
            }
            let listeners = snapshot.ports.iter().flat_map(|port| &port.listeners);
            for route in listeners.flat_map(|it| &it.l4_routes) {
                relevance.addresses(&route.address_filters);
            }
        }
        relevance
    }

    fn route(&mut self, route: &Route) {
        for StringMatch { name, kind: _ } in &route.headers {
            self.headers.insert(name.to_ascii_lowercase());
        }
        let params = route.query_params.iter().map(|it| it.name.clone());
        self.params.extend(params);
        if route.cors.is_some() {
            self.add_headers(&["origin", "access-control-request-method"]);
        }
        if let Some(Action::Forward(forward)) = &route.action
            && let Some(rewrite) = &forward.rewrite
        {
            let has_header = !rewrite.host_header.is_empty();
            self.rewrites_host |= has_header || !rewrite.host.is_empty();
            if has_header {
                self.headers
                    .insert(rewrite.host_header.to_ascii_lowercase());
            }
        }
        self.filters(route.filters.as_deref());
    }

    fn filters(&mut self, filters: Option<&RequestFilters>) {
        let Some(filters) = filters else {
            return;
        };
        self.addresses(&filters.address_filters);
        if !filters.csrf.is_empty() {
            self.add_headers(&["origin", "referer"]);
        }
    }

    fn addresses(&mut self, filters: &[AddressFilter]) {
        self.client |= !filters.is_empty();
    }

    fn add_headers(&mut self, names: &[&str]) {
        self.headers.extend(names.iter().map(|it| (*it).to_owned()));
    }

    /// Removes everything that cannot affect the response.
    pub(super) fn reduce(&self, request: &mut LoggedRequest) {
        if !self.client {
            request.client = None;
        }
        request.headers.retain_mut(|HeaderField { name, value }| {
            if self.headers.contains(&*name) {
                return true;
            }
            if name == "content-type" {
                return value.starts_with("application/grpc");
            }
            // A Gateway may reject requests because of these names.
            value.clear();
            name.contains('_')
        });
        if let Some((path, query)) = request.target.split_once('?') {
            let is_relevant = |param: &&str| {
                let name = param.split_once('=').map_or(*param, |(name, _)| name);
                self.params.contains(name)
            };
            let params: Vec<&str> = query.split('&').filter(is_relevant).collect();
            let params = params.join("&");
            let mark = if params.is_empty() { "" } else { "?" };
            request.target = format!("{path}{mark}{params}");
        }
    }

    /// Returns notes on missing parts of the log. `without_query` and `without_client` are true if
    /// a line omits the query or the client's address.
    pub(super) fn notes(
        &self,
        without_query: bool,
        without_client: bool,
        har: bool,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let headers = self.headers.iter().map(String::as_str);
        let missing = headers.filter(|it| *it != "host" && !LOGGED.contains(it));
        let missing: Vec<&str> = missing.filter(|_| !har).collect();
        if let Some(names) = names(&missing) {
            notes.push(format!(
                "the configurations depend on headers that access logs do not contain ({names}); \
                 requests are compared without them"
            ));
        }
        let params: Vec<&str> = self.params.iter().map(String::as_str).collect();
        if let Some(names) = names(&params).filter(|_| without_query) {
            notes.push(format!(
                "the configurations depend on query parameters ({names}), which Sesame's access \
                 log does not contain; requests are compared without them"
            ));
        }
        if self.client && without_client {
            notes.push(
                "the configurations depend on client addresses, which some requests of the log \
                 lack; these requests are compared without them"
                    .to_owned(),
            );
        }
        if self.rewrites_host && !har {
            notes.push(
                "routes rewrite hosts, and Envoy logs the host after the rewrite; requests to \
                 these routes may be compared with the wrong host"
                    .to_owned(),
            );
        }
        notes
    }
}

fn names(names: &[&str]) -> Option<String> {
    let shown = names.get(..MAX_NAMED).unwrap_or(names).join(", ");
    let more = names.len().saturating_sub(MAX_NAMED);
    match (names.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(shown),
        (false, more) => Some(format!("{shown} and {more} more")),
    }
}
