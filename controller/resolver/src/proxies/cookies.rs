//! Checks `cookieRewritePolicies`, which are not supported. If valid, they only cause a warning.

use std::collections::BTreeSet;

use super::details::DetailCode;
use super::rules::RouteFault;
use crate::syntax::limits::{self, MAX_PROXY_HEADERS};
use crate::syntax::{hostnames, names};
use sesame_kinds::api::{ProxyCookieRewrite, ProxyCookieValue};

const INVALID: DetailCode = ("RouteError", "CookieRewritePoliciesInvalid");

/// In bytes, as in Contour's schema.
const MAX_VALUE: usize = 4096;

/// Returns a warning if there are policies. Messages start with `at`.
pub(super) fn check(
    at: &str,
    policies: &[ProxyCookieRewrite],
) -> Result<Option<RouteFault>, RouteFault> {
    let invalid = |why: String| (INVALID, format!("{at}cookieRewritePolicies: {why}"));
    let number = limits::entries("the list", policies.len(), 0..=MAX_PROXY_HEADERS);
    number.map_err(invalid)?;
    let mut names = BTreeSet::new();
    for policy in policies {
        if !names.insert(&policy.name) {
            return Err(invalid(format!("cookie {:?} is listed twice", policy.name)));
        }
        check_one(policy).map_err(|why| invalid(format!("cookie {:?}: {why}", policy.name)))?;
    }
    let warning = || {
        let why = format!("{at}cookieRewritePolicies is not supported and has no effect");
        (("SpecError", "IgnoredField"), why)
    };
    Ok((!policies.is_empty()).then(warning))
}

fn check_one(policy: &ProxyCookieRewrite) -> Result<(), String> {
    let ProxyCookieRewrite {
        name,
        path_rewrite,
        domain_rewrite,
        secure,
        same_site,
    } = policy;
    names::check_token(format_args!("name"), name)?;
    if let Some(ProxyCookieValue { value }) = path_rewrite {
        let is_plain = !value.contains(|c: char| c == ';' || c.is_control());
        if !is_plain || !(1..=MAX_VALUE).contains(&value.len()) {
            return Err(format!(
                "pathRewrite.value: expected 1 to {MAX_VALUE} bytes without `;` and control \
                 characters"
            ));
        }
    }
    if let Some(ProxyCookieValue { value }) = domain_rewrite {
        hostnames::check_precise(value).map_err(|why| format!("domainRewrite.value: {why}"))?;
    }
    if let Some(word) = same_site
        && !["Strict", "Lax", "None"].contains(&&**word)
    {
        return Err(format!("sameSite {word:?}: expected Strict, Lax or None"));
    }
    let changes = [
        path_rewrite.is_some(),
        domain_rewrite.is_some(),
        secure.is_some(),
        same_site.is_some(),
    ];
    if !changes.contains(&true) {
        return Err(
            "no attribute is set; expected pathRewrite, domainRewrite, secure or sameSite"
                .to_owned(),
        );
    }
    Ok(())
}
