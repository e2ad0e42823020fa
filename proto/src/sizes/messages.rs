//! Sizes of a route's parts.

use super::{
    CERTIFICATE_NAME, EXPRESSION, EXPRESSION_CHARACTER, HEADER, REQUEST_FILTERS, SESSION,
    SESSION_NAMES, TEXT,
};
use crate::schema::{
    AddressFilter, Authorization, AuthorizationRule, CertificateNames, ClaimHeader, ClaimValues,
    Cors, CorsOrigin, Csrf, Header, HeaderModifier, HeaderPart, HeaderValues, Maintenance,
    PathModifier, PathRule, Redirect, ReportedChecks, RequestFilters, SessionPersistence,
    UrlRewrite, cors_origin, header_part, session_persistence,
};

pub(super) fn headers_size(headers: &HeaderModifier) -> u64 {
    let HeaderModifier { set, add, remove } = headers;
    let written = set.iter().chain(add).map(|header| {
        let Header { name, value, parts } = header;
        let parts = parts.iter().map(|HeaderPart { kind }| match kind {
            Some(header_part::Kind::Literal(it) | header_part::Kind::RequestHeader(it)) => text(it),
            Some(header_part::Kind::Fact(_)) | None => TEXT,
        });
        HEADER
            .saturating_add(count(name.len()))
            .saturating_add(count(value.len()))
            .saturating_add(sum(parts))
    });
    sum(written.chain([texts(remove)]))
}

pub(super) fn filters_size(filters: &RequestFilters) -> u64 {
    let RequestFilters {
        max_body_bytes: _,
        request_headers,
        response_headers,
        grpc_web: _,
        fault: _,
        response,
        bandwidth,
        policies,
        address_filters,
        tokens,
        reserved_headers,
        authorizations,
        claim_headers,
        token_headers,
        // Not rendered.
        exempt_from: _,
        credentials,
        csrf,
        reported,
        injected,
        grpc_json,
        maintenance,
    } = filters;
    let addresses = address_filters.iter().map(address_filter_size);
    let authorizations = authorizations.iter().map(authorization_size);
    let reported = reported.as_ref().map_or(0, reported_size);
    let claim_headers = claim_headers.iter().map(|it| {
        let ClaimHeader {
            header,
            tokens,
            provider,
            path,
        } = it;
        HEADER.saturating_add(sum([
            text(header),
            text(tokens),
            text(provider),
            texts(path),
        ]))
    });
    let maintenance = maintenance.as_ref().map_or(0, |it| {
        let Maintenance { page, except } = it;
        let networks = except.iter().map(|it| text(&it.network));
        text(page).saturating_add(sum(networks))
    });
    let csrf = csrf.iter().map(|it| {
        let Csrf {
            name,
            additional_origins,
        } = it;
        text(name).saturating_add(texts(additional_origins))
    });
    let access = addresses.chain(authorizations).chain(claim_headers);
    let access = access.chain(csrf);
    sum(access.chain([
        REQUEST_FILTERS,
        texts(tokens),
        texts(reserved_headers),
        texts(token_headers),
        request_headers.as_ref().map_or(0, headers_size),
        response_headers.as_ref().map_or(0, headers_size),
        text(response),
        text(bandwidth),
        text(credentials),
        text(injected),
        text(grpc_json),
        maintenance,
        texts(policies),
        reported,
    ]))
}

fn reported_size(reported: &ReportedChecks) -> u64 {
    let ReportedChecks {
        address_filters,
        tokens,
        authorizations,
    } = reported;
    let addresses = address_filters.iter().map(address_filter_size);
    let authorizations = authorizations.iter().map(authorization_size);
    // Rendered once more, as a rule for the token.
    let tokens = tokens.iter().map(|it| HEADER.saturating_add(text(it)));
    sum(addresses.chain(authorizations).chain(tokens))
}

pub(super) fn address_filter_size(filter: &AddressFilter) -> u64 {
    let AddressFilter { name, allow, deny } = filter;
    let networks = allow.iter().chain(deny).map(|it| text(&it.network));
    text(name).saturating_add(sum(networks))
}

fn authorization_size(authorization: &Authorization) -> u64 {
    let Authorization {
        name,
        rules,
        allow_others: _,
    } = authorization;
    let rules = rules.iter().map(|rule| {
        let AuthorizationRule {
            allow: _,
            claims,
            methods,
            paths,
            headers,
            clients,
            hosts,
            certificates,
        } = rule;
        // A claim's path and values are repeated for each provider.
        let claims = claims.iter().map(|claim| {
            let ClaimValues {
                tokens,
                providers,
                path,
                values,
            } = claim;
            let one = [text(tokens), texts(path), texts(values)];
            sum(one).saturating_mul(count(providers.len()))
        });
        let paths = paths.iter().map(|PathRule { path, prefix: _ }| text(path));
        let headers = headers.iter().map(|HeaderValues { name, values }| {
            let each = text(name).saturating_mul(count(values.len()));
            each.saturating_add(texts(values))
        });
        let clients = clients.iter().map(|it| text(&it.network));
        let certificates = certificates.iter().map(certificate_size);
        let parts = claims.chain(paths).chain(headers).chain(clients);
        let parts = parts.chain(certificates);
        // Each host becomes a regular expression.
        let hosts = texts(hosts).saturating_mul(2);
        sum(parts.chain([TEXT, texts(methods), hosts]))
    });
    text(name).saturating_add(sum(rules))
}

fn certificate_size(names: &CertificateNames) -> u64 {
    let CertificateNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
        subject,
    } = names;
    let others = uris.iter().chain(dns_suffixes).chain(uri_prefixes);
    let others = others.map(|it| CERTIFICATE_NAME.saturating_add(text(it)));
    // Each DNS name becomes a regular expression.
    let dns_names = dns_names.iter().map(|it| {
        let expression = text(it).saturating_mul(2);
        CERTIFICATE_NAME.saturating_add(expression)
    });
    // The subject becomes four conditions.
    let subject = CERTIFICATE_NAME.saturating_add(text(subject));
    sum(dns_names.chain(others).chain([subject.saturating_mul(4)]))
}

pub(super) fn cors_size(cors: &Cors) -> u64 {
    let Cors {
        allow_origins,
        allow_credentials: _,
        allow_methods,
        allow_headers,
        expose_headers,
        max_age_seconds: _,
        allow_private_network: _,
        ignores_matched_headers: _,
    } = cors;
    let origins = allow_origins.iter().map(|CorsOrigin { kind }| match kind {
        Some(cors_origin::Kind::Exact(origin)) => text(origin),
        Some(cors_origin::Kind::Regex(pattern)) => count(pattern.len())
            .saturating_mul(EXPRESSION_CHARACTER)
            .saturating_add(EXPRESSION),
        None => TEXT,
    });
    let lists = [allow_methods, allow_headers, expose_headers].map(|list| texts(list));
    sum(origins.chain(lists).chain([TEXT]))
}

pub(super) fn session_size(session: &SessionPersistence) -> u64 {
    let SessionPersistence {
        kind,
        cookie_max_age_seconds: _,
        cookie_path,
    } = session;
    let name = match kind {
        Some(session_persistence::Kind::Cookie(name) | session_persistence::Kind::Header(name)) => {
            text(name)
        }
        None => 0,
    };
    let texts = name.saturating_add(text(cookie_path));
    SESSION.saturating_add(texts.saturating_mul(SESSION_NAMES))
}

pub(super) fn redirect_size(redirect: &Redirect) -> u64 {
    let Redirect {
        scheme,
        host,
        port: _,
        path,
        status: _,
        implied_port: _,
    } = redirect;
    sum([text(scheme), text(host), path_size(path.as_ref())])
}

pub(super) fn rewrite_size(rewrite: &UrlRewrite) -> u64 {
    let UrlRewrite {
        host,
        path,
        host_header,
    } = rewrite;
    sum([
        TEXT,
        text(host),
        path_size(path.as_ref()),
        text(host_header),
    ])
}

/// Returns twice the path's size, because the path may need quoting.
pub(super) fn path_size(path: Option<&PathModifier>) -> u64 {
    path.map_or(0, message_size).saturating_mul(2)
}

pub(super) fn texts(list: &[String]) -> u64 {
    sum(list.iter().map(|it| text(it)))
}

pub(super) fn text(text: &str) -> u64 {
    TEXT.saturating_add(count(text.len()))
}

pub(super) fn message_size(message: &impl prost::Message) -> u64 {
    TEXT.saturating_add(count(message.encoded_len()))
}

pub(super) fn sum(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().fold(0, u64::saturating_add)
}

pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
