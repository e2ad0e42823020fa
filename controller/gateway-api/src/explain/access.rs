//! Explains what AccessPolicies and HTTPProxies require of a request.

use std::net::IpAddr;

use sesame_proto::schema::{
    AddressFilter, AddressRange, Authorization, ClaimHeader, CredentialPart, CredentialSet,
    RequestFilters, TokenPolicy,
};

use sesame_proto::network::Network;

use super::certificates;
use super::csrf;
use super::effects::filter;
use super::outcome::ExplainedFilter;

/// Returns the name of the first address filter that rejects the client. Assumes that the client
/// connects directly, so its address is the connection's peer address.
pub(super) fn refusing(filters: &[AddressFilter], client: Option<IpAddr>) -> Option<&str> {
    let client = client?;
    let holds = |ranges: &[AddressRange]| {
        ranges.iter().any(|range| {
            let network = range.network.parse::<Network>();
            network.is_ok_and(|network| network.holds(client))
        })
    };
    let mut filters = filters.iter();
    let refused = |AddressFilter { allow, deny, .. }: &&AddressFilter| {
        holds(deny) || !(allow.is_empty() || holds(allow))
    };
    filters.find(refused).map(|filter| filter.name.as_str())
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
        ..
    } = filters;
    let addresses = address_filters.iter();
    let addresses = addresses.map(|it| {
        let effect = format!("{} with 403", refused(it));
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
        .collect()
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
    let filters = filters.map(|it| filter("IPFilter", refused(it)));
    filters.collect()
}

fn refused(filter: &AddressFilter) -> String {
    let AddressFilter { name, allow, deny } = filter;
    let networks = |ranges: &[AddressRange]| {
        let ranges = ranges.iter().map(|AddressRange { network, peer }| {
            let end = if *peer { " (peer)" } else { "" };
            format!("{network}{end}")
        });
        ranges.collect::<Vec<_>>().join(", ")
    };
    let outside = (!allow.is_empty()).then(|| format!("outside of {}", networks(allow)));
    let inside = (!deny.is_empty()).then(|| format!("in {}", networks(deny)));
    let places: Vec<String> = outside.into_iter().chain(inside).collect();
    format!("{name} rejects clients {}", places.join(" or "))
}
