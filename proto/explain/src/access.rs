//! Explains what AccessPolicies and HTTPProxies require of a request.

use std::net::IpAddr;

use sesame_proto::schema::shared_filter::Kind;
use sesame_proto::schema::{
    AddressFilter, AddressRange, Authorization, ClaimHeader, CredentialPart, CredentialSet,
    GrpcJsonTranscoder, InjectedCredential, Maintenance, ReportedChecks, RequestFilters,
    SharedFilter, TokenPolicy,
};

use sesame_proto::network::Network;

use super::bounds;
use super::certificates;
use super::csrf;
use super::effects::filter;
use super::outcome::ExplainedFilter;

/// Returns the name of the first address filter that rejects the client. Assumes that the client
/// connects directly, so its address is the connection's peer address.
pub(super) fn refusing(filters: &[AddressFilter], client: Option<IpAddr>) -> Option<&str> {
    let client = client?;
    let holds = |ranges: &[AddressRange]| holds(ranges, client);
    let mut filters = filters.iter();
    let refused = |AddressFilter { allow, deny, .. }: &&AddressFilter| {
        holds(deny) || !(allow.is_empty() || holds(allow))
    };
    filters.find(refused).map(|filter| filter.name.as_str())
}

fn holds(ranges: &[AddressRange], client: IpAddr) -> bool {
    ranges.iter().any(|range| {
        let network = range.network.parse::<Network>();
        network.is_ok_and(|network| network.holds(client))
    })
}

/// Returns the RouteFilter whose maintenance page the client gets, if any.
pub(super) fn maintained(maintenance: &Maintenance, client: Option<IpAddr>) -> Option<&str> {
    let is_excepted = holds(&maintenance.except, client?);
    (!is_excepted).then(|| maintenance.filter())
}

/// Returns the filters in Envoy's order.
pub(super) fn explain(filters: &RequestFilters) -> Vec<ExplainedFilter> {
    let RequestFilters {
        address_filters,
        tokens,
        reserved_headers,
        authorizations,
        claim_headers,
        token_headers,
        credentials,
        csrf,
        reported,
        injected,
        grpc_json,
        maintenance,
        ..
    } = filters;
    let reported = reported.iter().flat_map(reported_only);
    let addresses = address_filters.iter();
    let addresses = addresses.map(|it| {
        let effect = format!("{} rejects {} with 403", it.name, refused(it));
        filter("IPFilter", effect)
    });
    let origins = csrf.iter().map(|it| filter("CSRF", csrf::describe(it)));
    let removed = (!reserved_headers.is_empty()).then(|| {
        let names = reserved_headers.join(", ");
        filter(
            "ReservedHeaders",
            format!("{names} from the client are removed"),
        )
    });
    let claimed = claim_headers.iter().map(|it| {
        let ClaimHeader {
            header,
            tokens: _,
            provider,
            path,
        } = it;
        let claim = path.join(".");
        let effect = format!("{header} is set from the claim {claim} of {provider}");
        filter("ClaimHeader", effect)
    });
    let tokens = tokens.iter().map(|name| {
        let policy = TokenPolicy::policy(name);
        let effect = format!("{policy} rejects requests without a valid token with 401");
        filter("JWT", effect)
    });
    let authorizations = authorizations.iter().map(of_authorization);
    let kept = (!token_headers.is_empty()).then(|| {
        let names = token_headers.join(", ");
        filter("TokenHeaders", format!("the backend does not get {names}"))
    });
    let credentials = CredentialSet::checks(credentials);
    let credentials = credentials.map(|(policy, part)| of_credentials(policy, part));
    let all = addresses.chain(origins).chain(removed);
    let all = all.chain(credentials).chain(tokens);
    all.chain(authorizations)
        .chain(claimed)
        .chain(kept)
        .chain(reported)
        .chain(of_route_filters(injected, grpc_json, maintenance.as_ref()))
        .collect()
}

fn of_route_filters(
    injected: &str,
    grpc_json: &str,
    maintenance: Option<&Maintenance>,
) -> impl Iterator<Item = ExplainedFilter> {
    let injected = InjectedCredential::filter(injected).map(|it| {
        let effect = format!("{it} adds a credential for the backend");
        filter("CredentialInjection", effect)
    });
    let maintained = maintenance.map(|it| {
        let clients = it.except.iter().map(|range| range.network.clone());
        let clients = bounds::join(clients, ", ");
        let effect = format!(
            "{} answers 503, except for clients in {clients}",
            it.filter()
        );
        filter("Maintenance", effect)
    });
    let transcoded = GrpcJsonTranscoder::filter(grpc_json).map(|it| {
        let effect = format!("{it} translates JSON to gRPC");
        filter("GRPCJSONTranscoding", effect)
    });
    maintained.into_iter().chain(transcoded).chain(injected)
}

fn of_authorization(authorization: &Authorization) -> ExplainedFilter {
    let Authorization {
        name,
        rules,
        allow_others,
    } = authorization;
    let others = if *allow_others { "allowed" } else { "rejected" };
    let count = rules.len();
    let effect = format!(
        "{name} rejects requests with 403 if the first of its {count} rules that matches \
         denies; requests that match none are {others}{}",
        certificates::describe(rules)
    );
    filter("Authorization", effect)
}

fn of_credentials(policy: &str, part: CredentialPart) -> ExplainedFilter {
    let what = part.credentials();
    let effect = format!("{policy} rejects requests without {what} with 401");
    filter(part.label(), effect)
}

/// Explains the address filters of a layer 4 route.
pub(super) fn of_connections(filters: &[AddressFilter]) -> Vec<ExplainedFilter> {
    let filters = filters.iter();
    let filters = filters.map(|it| {
        let effect = format!("{} rejects {}", it.name, refused(it));
        filter("IPFilter", effect)
    });
    filters.collect()
}

/// Explains the checks that only report.
fn reported_only(reported: &ReportedChecks) -> impl Iterator<Item = ExplainedFilter> {
    let ReportedChecks {
        address_filters,
        tokens,
        authorizations,
    } = reported;
    let addresses = address_filters.iter();
    let addresses = addresses.map(|it| (it.name.as_str(), refused(it)));
    let tokens = tokens.iter().map(|it| {
        let without = "requests without a valid token".to_owned();
        (TokenPolicy::policy(it), without)
    });
    let rules = authorizations.iter().map(|it| {
        let rejected = format!("requests by its {} rules", it.rules.len());
        (it.name.as_str(), rejected)
    });
    addresses.chain(tokens).chain(rules).map(|(policy, what)| {
        let effect = format!("{policy} would reject {what}, but only reports");
        filter("Report", effect)
    })
}

fn refused(filter: &AddressFilter) -> String {
    let AddressFilter {
        name: _,
        allow,
        deny,
    } = filter;
    let outside = (!allow.is_empty()).then(|| format!("outside of {}", networks(allow)));
    let inside = (!deny.is_empty()).then(|| format!("in {}", networks(deny)));
    let places: Vec<String> = outside.into_iter().chain(inside).collect();
    format!("clients {}", places.join(" or "))
}

/// Describes clients that a check exempts.
pub(super) fn exempt(clients: &AddressFilter) -> String {
    let AddressFilter {
        name: _,
        allow,
        deny,
    } = clients;
    let except = match deny.as_slice() {
        [] => String::new(),
        deny => format!(", except {},", networks(deny)),
    };
    format!("clients in {}{except}", networks(allow))
}

/// Explains which clients need no credentials.
pub(super) fn exemptions(
    filters: &RequestFilters,
    shared: &[SharedFilter],
) -> Vec<ExplainedFilter> {
    let set = shared.iter().find(|it| it.name == filters.credentials);
    let set = set.and_then(|it| match &it.kind {
        Some(Kind::Credentials(set)) => Some(set),
        _ => None,
    });
    let checks = set.into_iter().flat_map(|set| &set.checks);
    let exempting = checks.filter_map(|check| {
        let clients = exempt(check.exempt_clients.as_ref()?);
        let effect = format!("{clients} pass {} without credentials", check.name);
        Some(filter("ExemptClients", effect))
    });
    exempting.collect()
}

fn networks(ranges: &[AddressRange]) -> String {
    let ranges = ranges.iter().map(|AddressRange { network, peer }| {
        let end = if *peer { " (peer)" } else { "" };
        format!("{network}{end}")
    });
    ranges.collect::<Vec<_>>().join(", ")
}
