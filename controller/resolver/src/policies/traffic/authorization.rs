//! Reads the authorization rules of an AccessPolicy. Errors start with the field path relative to
//! `spec`.

use std::fmt::Display;

use sesame_proto::schema::{self, Authorization, AuthorizationRule, HeaderValues, PathRule};

use super::addresses::read_networks;
use super::certificates;
use super::jwt::{TokenCheck, check_text, read_claim};
use crate::syntax::hostnames::Hostname;
use crate::syntax::{limits, names};
use sesame_kinds::api::{
    AccessAction, AccessHeader, AccessPath, AccessRule, AccessRules, ClaimValues, PathMatchType,
};

pub(super) fn read(
    policy: &str,
    spec: &AccessRules,
    own: Option<&TokenCheck>,
) -> Result<Authorization, String> {
    let AccessRules {
        rules,
        default_action,
    } = spec;
    let field = ".authorization.rules";
    limits::entries(field, rules.len(), 1..=Authorization::MAX_RULES)?;
    let rules = rules.iter().enumerate();
    let rules = rules.map(|(i, rule)| read_rule(&format!("{field}[{i}]"), rule, own));
    let default_action = default_action.as_ref();
    let allow_others = default_action.map(|it| allows(".authorization.defaultAction", it));
    Ok(Authorization {
        name: policy.to_owned(),
        rules: rules.collect::<Result<_, _>>()?,
        allow_others: allow_others.transpose()?.unwrap_or_default(),
    })
}

fn read_rule(
    at: &str,
    spec: &AccessRule,
    own: Option<&TokenCheck>,
) -> Result<AuthorizationRule, String> {
    let AccessRule {
        action,
        claims,
        hosts,
        methods,
        paths,
        headers,
        clients,
        certificates,
    } = spec;
    let list = |name: &str| format!("{at}.{name}");
    for (name, count) in [
        ("claims", claims.len()),
        ("hosts", hosts.len()),
        ("methods", methods.len()),
        ("paths", paths.len()),
        ("headers", headers.len()),
        ("clients", clients.len()),
        ("certificates", certificates.len()),
    ] {
        limits::entries(&list(name), count, 0..=Authorization::MAX_ENTRIES)?;
    }
    for (i, method) in methods.iter().enumerate() {
        names::check_token(format_args!("{at}.methods[{i}]"), method)?;
    }
    let claims = each(claims, &list("claims"), |at, it| read_claims(at, it, own))?;
    Ok(AuthorizationRule {
        allow: allows(list("action"), action)?,
        claims,
        hosts: each(hosts, &list("hosts"), |at, it| read_host(at, it))?,
        methods: methods.clone(),
        paths: each(paths, &list("paths"), read_path)?,
        headers: each(headers, &list("headers"), read_header)?,
        clients: read_networks(&list("clients"), clients, false)?,
        certificates: each(certificates, &list("certificates"), certificates::read)?,
    })
}

fn each<S, T>(
    specs: &[S],
    field: &str,
    read: impl Fn(&str, &S) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let specs = specs.iter().enumerate();
    let read = specs.map(|(i, spec)| read(&format!("{field}[{i}]"), spec));
    read.collect()
}

fn allows(field: impl Display, action: &AccessAction) -> Result<bool, String> {
    match action {
        AccessAction::Allow => Ok(true),
        AccessAction::Deny => Ok(false),
        AccessAction::Other(other) => {
            let known = AccessAction::WORDS.join(" or ");
            Err(format!("{field} {other:?} is unknown; expected {known}"))
        }
    }
}

fn read_claims(
    at: &str,
    spec: &ClaimValues,
    own: Option<&TokenCheck>,
) -> Result<schema::ClaimValues, String> {
    let ClaimValues { name, values } = spec;
    let Some(own) = own else {
        return Err(format!("{at}: allowed only with jwt in the same policy"));
    };
    check_values(at, values)?;
    Ok(schema::ClaimValues {
        tokens: own.name.clone(),
        providers: own
            .policy
            .providers
            .iter()
            .map(|it| it.name.clone())
            .collect(),
        path: read_claim(&format!("{at}.name"), name)?,
        values: values.clone(),
    })
}

fn read_host(at: &str, host: &str) -> Result<String, String> {
    let read = Hostname::parse(host).map_err(|why| format!("{at} {why}"))?;
    Ok(read.domain().to_owned())
}

fn read_path(at: &str, spec: &AccessPath) -> Result<PathRule, String> {
    let AccessPath { type_, value } = spec;
    let prefix = match type_ {
        None | Some(PathMatchType::PathPrefix) => true,
        Some(PathMatchType::Exact) => false,
        Some(type_ @ (PathMatchType::RegularExpression | PathMatchType::Other(_))) => {
            let type_ = type_.as_str();
            return Err(format!(
                "{at}.type {type_:?} is not supported; expected Exact or PathPrefix"
            ));
        }
    };
    let field = format!("{at}.value");
    if !value.starts_with('/') {
        return Err(format!(
            "{field} {value:?} is not a path; a path must begin with `/`"
        ));
    }
    limits::max_bytes(&field, value, limits::MAX_PATH)?;
    names::check_path(&field, value)?;
    let path = match value.trim_end_matches('/') {
        "" => "/",
        trimmed if prefix => trimmed,
        _ => value,
    };
    Ok(PathRule {
        path: path.to_owned(),
        prefix,
    })
}

fn read_header(at: &str, spec: &AccessHeader) -> Result<HeaderValues, String> {
    let AccessHeader { name, values } = spec;
    names::check_token(format_args!("{at}.name"), name)?;
    check_values(at, values)?;
    Ok(HeaderValues {
        name: name.to_ascii_lowercase(),
        values: values.clone(),
    })
}

fn check_values(at: &str, values: &[String]) -> Result<(), String> {
    let field = format!("{at}.values");
    limits::entries(&field, values.len(), 1..=Authorization::MAX_ENTRIES)?;
    for (i, value) in values.iter().enumerate() {
        check_text(&format!("{field}[{i}]"), value)?;
    }
    Ok(())
}
