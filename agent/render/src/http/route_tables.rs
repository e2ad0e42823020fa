//! Renders route tables, and encodes them piece by piece.
//!
//! A table may have ten thousand routes, so an unencoded table is never in memory. Protobuf allows
//! appending to a repeated field of an encoded message.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use envoy_types::pb::envoy::config::route::v3::{
    Route as EnvoyRoute, RouteConfiguration, RouteMatch, VirtualHost as EnvoyVirtualHost,
    route_match::PathSpecifier,
};
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use sesame_proto::encoded::EncodedTable;
use sesame_proto::expressions::{self, MAX_PER_VIRTUAL_HOST};
use sesame_proto::refusal;
use sesame_proto::schema::{ExternalAuth, RequestFilters, Route, RouteTable, VirtualHost};
use sesame_proto::sizes::{self, MAX_PER_GATEWAY, in_words};
use sesame_proto::wire::append;

use super::answers::answer;
use super::auth_context::HostContexts;
use super::routes::{self, HostOfRoutes, RenderedRoute};
use super::{
    auth_headers, cors, external_auth, headers, rate_limit_keys, rate_limits, refusing,
    request_filters, retries, service_limits, sessions,
};
use crate::context::RenderContext;
use crate::rendered::{RenderProblems, Resource};
use crate::wrappers;

const MAX_VIRTUAL_HOST_BYTES: u64 = sizes::MAX_PER_VIRTUAL_HOST;
/// The resolver's estimate exceeds the actual size, which leaves room for responses to misdirected
/// requests.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a few hundred MiB, which fit into 32 bits"
)]
pub(crate) const MAX_TABLE_BYTES: usize = 2 * MAX_PER_GATEWAY as usize;

pub(crate) const VIRTUAL_HOSTS: u32 = 2;
const ROUTES: u32 = 3;
const HTTPS_TABLES: &str = "https/";
const MEASURED_HOSTS: usize = 64;
/// Maximum number of bytes to reserve, because later virtual hosts may be shorter than the measured
/// ones.
const MAX_RESERVED: usize = 16 * 1024 * 1024;
#[cfg(test)]
pub(crate) const ENCODED_BY_HAND: [(&str, &str, u32); 2] = [
    ("RouteConfiguration", "virtual_hosts", VIRTUAL_HOSTS),
    ("VirtualHost", "routes", ROUTES),
];

pub(crate) fn render(
    table: &RouteTable,
    context: &RenderContext<'_>,
    room: &mut TableRoom,
    problems: &mut RenderProblems,
) -> Resource {
    let RouteTable {
        name,
        virtual_hosts,
    } = table;
    let mut rendering = TableRendering::new(name, context);
    for host in virtual_hosts {
        rendering.add(&host.domain, host, context, room, problems);
    }
    rendering.finish()
}

pub(crate) fn render_encoded(
    table: &EncodedTable,
    context: &RenderContext<'_>,
    room: &mut TableRoom,
    problems: &mut RenderProblems,
) -> Resource {
    let mut rendering = TableRendering::new(&table.name, context);
    for (done, host) in table.hosts.iter().enumerate() {
        if done == MEASURED_HOSTS {
            rendering.reserve(table.hosts.len() - done);
        }
        rendering.add(host.domain(), &host.decoded(), context, room, problems);
    }
    rendering.finish()
}

pub(crate) struct TableRoom(usize);

impl TableRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(bytes)
    }
}

struct TableRendering<'t> {
    name: &'t str,
    bytes: Vec<u8>,
    seen: BTreeSet<&'t str>,
    host: Vec<u8>,
}

impl<'t> TableRendering<'t> {
    fn new(name: &'t str, context: &RenderContext<'_>) -> Self {
        Self {
            name,
            bytes: head(name, context),
            seen: BTreeSet::new(),
            host: Vec::new(),
        }
    }

    fn add(
        &mut self,
        domain: &'t str,
        virtual_host: &VirtualHost,
        context: &RenderContext<'_>,
        room: &mut TableRoom,
        problems: &mut RenderProblems,
    ) {
        let checked = check_domain(domain, &mut self.seen)
            .map_err(|reason| format!("virtual host `{domain}`: {reason}"));
        // Without this check, Envoy might reject the whole table.
        if problems
            .value(self.name, checked, "it is left out")
            .is_none()
        {
            return;
        }
        self.host.clear();
        let mut host_problems = RenderProblems::default();
        render_host(
            virtual_host,
            self.name,
            context,
            &mut host_problems,
            &mut self.host,
        );
        if let Some(left) = room.0.checked_sub(self.host.len()) {
            room.0 = left;
            problems.append(host_problems);
        } else {
            let object = virtual_host.routes.first().map_or(domain, |it| &it.name);
            problems.add(
                object,
                format!(
                    "virtual host `{domain}` takes {} bytes, and earlier virtual hosts leave {} of the {MAX_TABLE_BYTES} allowed for the Gateway; all of its requests get {}",
                    self.host.len(),
                    room.0,
                    refusal::HTTP
                ),
            );
            self.host.clear();
            render_refusing_host(domain, context, &mut self.host);
        }
        append(VIRTUAL_HOSTS, &self.host, &mut self.bytes);
    }

    /// Avoids repeated reallocation of a large table's buffer.
    fn reserve(&mut self, more: usize) {
        let likely = (self.bytes.len() / MEASURED_HOSTS).saturating_mul(more);
        let likely = likely.min(MAX_RESERVED);
        self.bytes.reserve_exact(likely + likely / 16);
    }

    fn finish(mut self) -> Resource {
        self.bytes.shrink_to_fit();
        Resource {
            name: self.name.to_owned(),
            bytes: self.bytes.into(),
        }
    }
}

pub(crate) fn head(name: &str, context: &RenderContext<'_>) -> Vec<u8> {
    let mut bytes = RouteConfiguration {
        name: name.to_owned(),
        // A table must be valid even if a cluster, which is in another file, does not exist yet.
        validate_clusters: wrappers::boolean(false),
        ignore_port_in_host_matching: true,
        ..Default::default()
    }
    .encode_to_vec();
    for (place, config) in context.filters.rendered.iter().flatten() {
        // Encode entries one by one, because prost writes map entries in random order.
        let one = RouteConfiguration {
            typed_per_filter_config: HashMap::from([((*place).to_owned(), config.clone())]),
            ..Default::default()
        };
        encode_into(&one, &mut bytes);
    }
    bytes
}

/// The domain must have been checked.
pub(crate) fn render_host(
    virtual_host: &VirtualHost,
    table: &str,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
    host: &mut Vec<u8>,
) {
    let VirtualHost {
        domain,
        routes,
        external_auth,
        filters,
    } = virtual_host;
    encode_into(&without_routes(domain, context), host);
    let mut route = Vec::new();
    let object = routes.first().map_or(domain, |route| &route.name);
    let contexts = HostContexts::of_routes(routes);
    let rendered = filters_of_host(external_auth, filters.as_ref(), context).map(|mut rendered| {
        let own = contexts.filters();
        rendered.extend(own.map(|(place, config)| (place.to_owned(), config)));
        rendered
    });
    let filters = filters.as_ref().or(context.filters.default);
    let consequence = "all requests for its virtual host get 500";
    let Some(rendered) = problems.value(object, rendered, consequence) else {
        encode_into(&answering(domain, refusal::HTTP), &mut route);
        append(ROUTES, &route, host);
        return;
    };
    for (filter, config) in rendered {
        // Encode entries one by one, because prost writes map entries in random order.
        encode_into(
            &EnvoyVirtualHost {
                typed_per_filter_config: HashMap::from([(filter, config)]),
                ..Default::default()
            },
            host,
        );
    }
    let (mut cost, mut size) = (0_u64, 0_u64);
    let route_host = HostOfRoutes {
        domain,
        https: table.starts_with(HTTPS_TABLES),
        filters,
        contexts: &contexts,
        listener_authorizes: !external_auth.is_empty(),
    };
    for it in routes {
        // Check the size before rendering, because the snapshot is not trusted to limit it.
        let with_this = sizes::of_route(it).saturating_add(size);
        if with_this > MAX_VIRTUAL_HOST_BYTES {
            problems.add(&it.name, beyond_size(domain, size, with_this));
            route.clear();
            encode_route(refusing::refused(it), &mut route);
            append(ROUTES, &route, host);
            continue;
        }
        size = with_this;
        let mut rendered = routes::render(it, route_host, context, problems);
        let instructions = expressions::of_route(it);
        if rendered.is_empty() {
            rendered.extend(refusing::instead_of(it));
        } else if cost.saturating_add(instructions) > MAX_PER_VIRTUAL_HOST {
            problems.add(&it.name, beyond_cost(domain, cost, instructions, it));
            rendered = refusing::instead_of(it).into_iter().collect();
        } else {
            cost = cost.saturating_add(instructions);
        }
        for rendered in rendered {
            route.clear();
            encode_route(rendered, &mut route);
            append(ROUTES, &route, host);
        }
    }
    // Envoy runs filters only for requests that match a route. Without a catch-all route, clients
    // could find out which requests need no authorization.
    if !external_auth.is_empty() || filters.is_some() {
        route.clear();
        encode_into(&answering(domain, 404), &mut route);
        append(ROUTES, &route, host);
    }
}

fn beyond_size(domain: &str, before: u64, with_this: u64) -> String {
    format!(
        "in virtual host `{domain}`, earlier routes take {}, and {} including this route; at most {} are allowed; requests that match this route get {} there",
        in_words(before),
        in_words(with_this),
        in_words(MAX_VIRTUAL_HOST_BYTES),
        refusal::HTTP
    )
}

fn beyond_cost(domain: &str, before: u64, own: u64, route: &Route) -> String {
    let consequence = refusing::consequence(route);
    format!(
        "in virtual host `{domain}`, the regular expressions of earlier routes compile to {before} \
         instructions, and those of this route to {own}; at most {MAX_PER_VIRTUAL_HOST} are \
         allowed; {consequence} there"
    )
}

fn without_routes(domain: &str, context: &RenderContext<'_>) -> EnvoyVirtualHost {
    EnvoyVirtualHost {
        name: domain.to_owned(),
        domains: vec![domain.to_owned()],
        retry_policy: Some(retries::of_connections()),
        request_body_buffer_limit: wrappers::uint64(context.options.limits.body()),
        ..Default::default()
    }
}

fn render_refusing_host(domain: &str, context: &RenderContext<'_>, host: &mut Vec<u8>) {
    encode_into(&without_routes(domain, context), host);
    let mut route = Vec::new();
    encode_into(&answering(domain, refusal::HTTP), &mut route);
    append(ROUTES, &route, host);
}

fn encode_route(rendered: RenderedRoute, bytes: &mut Vec<u8>) {
    let RenderedRoute { route, filters } = rendered;
    encode_into(&route, bytes);
    for (filter, config) in filters {
        // Encode entries one by one, because prost writes map entries in random order.
        encode_into(
            &EnvoyRoute {
                typed_per_filter_config: HashMap::from([(filter.to_owned(), config)]),
                ..Default::default()
            },
            bytes,
        );
    }
}

fn filters_of_host(
    external_auth: &[ExternalAuth],
    filters: Option<&RequestFilters>,
    context: &RenderContext<'_>,
) -> Result<BTreeMap<String, Any>, String> {
    let default = context.filters.rendered.as_ref().map_err(Clone::clone)?;
    let mut all = listener_filters(external_auth, context)?;
    let mut add = |filters: Vec<(&str, Any)>| {
        let filters = filters.into_iter();
        all.extend(filters.map(|(place, config)| (place.to_owned(), config)));
    };
    match filters {
        Some(filters) => {
            let places = default.iter().map(|(place, _)| *place);
            let disabled = places.map(|place| (place, request_filters::idle(place)));
            add(disabled.collect());
            add(request_filters::render(filters, &context.filters.shared)?);
        }
        // The idle placeholders replace the table's default filters, so repeat the defaults here.
        None if !external_auth.is_empty() => add(default.clone()),
        None => {}
    }
    Ok(all)
}

fn listener_filters(
    external_auth: &[ExternalAuth],
    context: &RenderContext<'_>,
) -> Result<BTreeMap<String, Any>, String> {
    if external_auth.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (count, most) = (external_auth.len(), VirtualHost::MAX_EXTERNAL_AUTHS);
    if count > most {
        return Err(format!(
            "its listener has {count} authorizations; at most {most} are allowed"
        ));
    }
    let mut filters = BTreeMap::new();
    for (place, auth) in external_auth.iter().enumerate() {
        let config = external_auth::before_routes(auth, context)?;
        filters.insert(external_auth::listener_filter(place), config);
    }
    if let Some(config) = auth_headers::render(external_auth) {
        filters.insert(auth_headers::LISTENER_FILTER.to_owned(), config);
        filters.insert(auth_headers::REROUTE.to_owned(), auth_headers::reroute());
    }
    // The first selected route decides which filters run, but headers from services may select
    // another route. Enable the filters for every route; they do nothing unless the final route
    // configures them.
    let places = request_filters::ALL.into_iter();
    let places = places.chain([rate_limits::FILTER, service_limits::FILTER]);
    let places = places.chain(external_auth::FILTERS);
    filters.extend(places.map(|place| (place.to_owned(), request_filters::idle(place))));
    filters.extend(
        [
            (cors::FILTER, cors::idle()),
            (auth_headers::FILTER, auth_headers::idle()),
            (sessions::FILTER, sessions::idle()),
            (rate_limit_keys::COOKIES, rate_limit_keys::no_cookies()),
        ]
        .map(|(filter, config)| (filter.to_owned(), config)),
    );
    Ok(filters)
}

fn answering(name: &str, status: u32) -> EnvoyRoute {
    EnvoyRoute {
        name: name.to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(String::new())),
            ..Default::default()
        }),
        action: Some(answer(status)),
        ..Default::default()
    }
}

fn encode_into(message: &impl prost::Message, bytes: &mut Vec<u8>) {
    bytes.reserve(message.encoded_len());
    message.encode_raw(bytes);
}

pub(crate) fn check_domain<'a>(
    domain: &'a str,
    seen: &mut BTreeSet<&'a str>,
) -> Result<(), &'static str> {
    if domain.is_empty() {
        return Err("the domain is missing; use `*` for all domains");
    }
    headers::check_value(domain)?;
    if domain.strip_prefix('*').unwrap_or(domain).contains('*') {
        return Err("`*` is only allowed at the start");
    }
    if !seen.insert(domain) {
        return Err("another virtual host has the same domain");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_buffer_reservation_is_capped_for_long_hosts() {
        let mut rendering = TableRendering {
            name: "http/80",
            bytes: Vec::new(),
            seen: BTreeSet::new(),
            host: Vec::new(),
        };
        rendering.bytes = vec![0; 1024 * MEASURED_HOSTS];
        rendering.reserve(64);
        assert!(rendering.bytes.capacity() >= 2 * rendering.bytes.len());
        rendering.reserve(usize::MAX);
        let spare = rendering.bytes.capacity() - rendering.bytes.len();
        assert!(spare < 2 * MAX_RESERVED, "{spare}");
    }
}
