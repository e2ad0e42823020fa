//! AccessPolicies that only report.

use std::collections::BTreeSet;

use sesame_proto::schema::{
    AddressFilter, Authorization, ReportedChecks, RequestFilters, TokenPolicy,
};

use super::access_policies::{conditions, filters, policy, tokens};
use super::traffic_policies::{SCOPES, first, is_refused, served};
use super::{ConditionState, holds};
use crate::Resolution;
use sesame_explain::access_of_rules;
use sesame_kinds::status::{ConditionType, Reason};

pub(super) fn named(
    addresses: &[AddressFilter],
    tokens: &[String],
    rules: &[Authorization],
) -> BTreeSet<String> {
    let addresses = addresses.iter().map(|it| it.name.as_str());
    let tokens = tokens.iter().map(|it| TokenPolicy::policy(it));
    let rules = rules.iter().map(|it| it.name.as_str());
    let all = addresses.chain(tokens).chain(rules);
    all.map(ToOwned::to_owned).collect()
}

pub(super) fn reported(resolution: &Resolution) -> BTreeSet<String> {
    let Some(ReportedChecks {
        address_filters,
        tokens,
        authorizations,
    }) = filters(resolution).reported
    else {
        return BTreeSet::new();
    };
    named(&address_filters, &tokens, &authorizations)
}

#[test]
fn reporting_policy_changes_no_header_and_no_connection() {
    let rules = ", authorization: {rules: [{action: Allow, claims: [{name: sub, values: [a]}]}]}";
    let claims = ", claimHeaders: [{claim: sub, header: x-user}]";
    let spec = format!(
        "{}{rules}, basicAuth: {{users: {{name: none}}}}",
        tokens(claims)
    );
    for target in SCOPES {
        let enforced = served(&policy("p", target, &format!("{}{rules}", tokens(claims))));
        assert_eq!(filters(&enforced).reserved_headers, ["x-user"]);
        let resolution = served(&policy("p", target, &format!("{spec}, mode: Report")));
        let RequestFilters {
            reported,
            exempt_from,
            ..
        } = filters(&resolution);
        let only_reported = RequestFilters {
            reported,
            exempt_from,
            ..RequestFilters::default()
        };
        assert_eq!(filters(&resolution), only_reported, "{target}");
        let rules = access_of_rules(&resolution.gateways[0].snapshot);
        let mut listed = rules
            .iter()
            .flat_map(|it| it.checks.iter().chain(&it.exempt_from));
        assert_eq!(listed.next(), None, "{target}");
        let conditions = conditions(&resolution, "p");
        let accepted = holds(conditions, ConditionType::Accepted);
        assert_eq!(accepted, ConditionState::False(Reason::Invalid));
        let message = &conditions[0].message;
        assert!(message.contains("spec.basicAuth: mode Report"), "{message}");
    }
    let unknown = served(&policy(
        "p",
        SCOPES[0],
        ", ipFilter: {deny: [10.0.0.0/8]}, mode: report",
    ));
    assert!(is_refused(&unknown));
}

#[test]
fn reporting_policy_names_its_login_as_unsupported() {
    let login = ", oidc: {provider: {authorizationEndpoint: 'https://id.test/auth', \
                 tokenEndpoint: 'https://id.test/token', backendRef: {name: none, port: 443}}, \
                 clientID: shop, clientSecret: {name: none}, hostnames: [a.test]}";
    let addresses = ", ipFilter: {deny: [10.0.0.0/8]}";
    for target in SCOPES {
        let spec = format!("{addresses}{login}, mode: Report");
        let resolution = served(&policy("p", target, &spec));
        assert!(first(&resolution).external_auth.is_empty(), "{target}");
        // The other parts still report.
        let expected = BTreeSet::from(["AccessPolicy/web/p".to_owned()]);
        assert_eq!(reported(&resolution), expected, "{target}");
        let conditions = conditions(&resolution, "p");
        let accepted = holds(conditions, ConditionType::Accepted);
        assert_eq!(accepted, ConditionState::False(Reason::Invalid));
        let message = &conditions[0].message;
        assert!(message.contains("spec.oidc: mode Report"), "{message}");
    }
}
