//! What decides whether a request may pass, without the names of the objects that require it.
//!
//! Two configurations protect a request alike if these sets are equal.

use std::collections::BTreeSet;

use sesame_proto::schema::{
    AddressFilter, Authorization, Backend, Csrf, ExternalAuth, RateLimit, RateLimitService,
    RequestFilters, Route, SharedFilter, Snapshot, TokenPolicy, VirtualHost, credential_check,
    route::Action, shared_filter,
};

use super::routes;

/// Returns the checks and limits for requests of a route, or of a host without a route.
pub(super) fn of_route(
    snapshot: &Snapshot,
    host: &VirtualHost,
    route: Option<&Route>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Some(filters) = routes::filters(snapshot, host, route) {
        of_filters(snapshot, filters, &mut found);
    }
    let own = route.into_iter().flat_map(|route| &route.external_auth);
    found.extend(host.external_auth.iter().chain(own).map(authorization));
    let Some(route) = route else {
        return found;
    };
    for name in &route.rate_limits {
        let limit = snapshot.rate_limits.iter().find(|it| it.name == *name);
        found.extend(limit.map(rate_limit));
    }
    if let Some(Action::Forward(forward)) = &route.action {
        let names = forward.backends.iter().map(|it| &it.backend);
        let backends =
            names.filter_map(|name| snapshot.backends.iter().find(|it| it.name == *name));
        found.extend(backends.filter_map(verification));
    }
    found
}

fn of_filters(snapshot: &Snapshot, filters: &RequestFilters, found: &mut BTreeSet<String>) {
    let RequestFilters {
        max_body_bytes,
        request_headers: _,
        response_headers: _,
        grpc_web: _,
        fault: _,
        response: _,
        bandwidth,
        policies: _,
        address_filters,
        tokens,
        reserved_headers,
        authorizations,
        claim_headers: _,
        token_headers: _,
        exempt_from: _,
        credentials,
        csrf,
        injected: _,
        // Rejects no request.
        reported: _,
        grpc_json: _,
        maintenance: _,
    } = filters;
    if *max_body_bytes > 0 {
        found.insert(format!("bodies of at most {max_body_bytes} bytes"));
    }
    found.extend(address_filters.iter().map(|filter| {
        let AddressFilter {
            name: _,
            allow,
            deny,
        } = filter;
        format!("addresses: allow {allow:?}, deny {deny:?}")
    }));
    found.extend(authorizations.iter().map(|authorization| {
        let Authorization {
            name: _,
            rules,
            allow_others,
        } = authorization;
        format!("rules: {rules:?}, others {allow_others}")
    }));
    found.extend(csrf.iter().map(|csrf| {
        let Csrf {
            name: _,
            additional_origins,
        } = csrf;
        format!("origins: {additional_origins:?}")
    }));
    found.extend(
        reserved_headers
            .iter()
            .map(|name| format!("removes header {name}")),
    );
    let names = tokens.iter().chain([bandwidth, credentials]);
    for name in names.filter(|name| !name.is_empty()) {
        let filter = snapshot.shared_filters.iter().find(|it| it.name == *name);
        found.extend(filter.into_iter().flat_map(shared));
    }
}

fn shared(filter: &SharedFilter) -> Vec<String> {
    match &filter.kind {
        Some(shared_filter::Kind::Tokens(tokens)) => {
            let TokenPolicy {
                providers,
                report_only,
            } = tokens;
            let mut providers = providers.clone();
            for provider in &mut providers {
                provider.name.clear();
            }
            vec![format!(
                "tokens: {providers:?}, only reported: {report_only}"
            )]
        }
        Some(shared_filter::Kind::Credentials(set)) => {
            let kinds = set.checks.iter().map(|check| match &check.kind {
                Some(credential_check::Kind::Basic(_)) => "passwords".to_owned(),
                Some(credential_check::Kind::ApiKey(keys)) => format!("keys: {keys:?}"),
                None => "credentials".to_owned(),
            });
            kinds.collect()
        }
        Some(shared_filter::Kind::Bandwidth(limit)) => vec![format!("bandwidth: {limit:?}")],
        Some(
            shared_filter::Kind::Response(_)
            | shared_filter::Kind::TokenSet(_)
            | shared_filter::Kind::Injected(_)
            | shared_filter::Kind::GrpcJson(_)
            | shared_filter::Kind::Maintenance(_),
        )
        | None => Vec::new(),
    }
}

fn authorization(service: &ExternalAuth) -> String {
    let ExternalAuth {
        backend,
        protocol,
        max_body_bytes,
        policy: _,
        context,
        timeout_ms: _,
        fail_open,
        partial_body,
        no_response_headers: _,
        exempt_clients,
    } = service;
    let backend = backend.splitn(5, '/').take(4).collect::<Vec<_>>().join("/");
    format!(
        "authorized by {backend}: {protocol:?}, body {max_body_bytes}, partial {partial_body}, \
         context {context:?}, fails open {fail_open}, not for {exempt_clients:?}"
    )
}

/// The status and headers of rejections protect nothing.
fn rate_limit(limit: &RateLimit) -> String {
    let RateLimit {
        name: _,
        requests,
        per_ms,
        burst,
        keys,
        status: _,
        response_headers: _,
        report_only,
        draft_headers: _,
        fleet,
        service,
    } = limit;
    if let Some(RateLimitService {
        backend,
        domain,
        timeout_ms: _,
        fail_open,
        resource_exhausted: _,
    }) = service
    {
        return format!(
            "limited by {backend} in {domain:?} for each {keys:?}, fails open {fail_open}, only \
             reported: {report_only}"
        );
    }
    format!(
        "{requests} requests in {per_ms} ms, burst {burst}, for each {keys:?}, fleet {fleet}, only \
         reported: {report_only}"
    )
}

fn verification(backend: &Backend) -> Option<String> {
    let tls = backend.tls.as_ref().filter(|tls| !tls.unverified)?;
    let (sni, names) = (&tls.sni, &tls.dns_names);
    Some(format!(
        "backend verified: {sni}, {names:?}, {:?}",
        tls.uris
    ))
}
