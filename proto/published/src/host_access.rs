//! Defines names and permissions for hosts outside the cluster and for managed fleets. Does no I/O.
//!
//! The objects for the host `edge-1`, all in Sesame's namespace:
//!
//! | object | name | purpose |
//! |---|---|---|
//! | ServiceAccount, Role, RoleBinding | `sesame-host.edge-1` | the host and its permissions |
//! | Secret without data | `sesame-host.edge-1` | created by the joining host, whose tokens are bound to this Secret |
//! | ServiceAccount, Role, RoleBinding | `sesame-invitation.edge-1` | identity of the join token's bearer until the host has joined |
//! | Role, RoleBinding | `sesame-host.edge-1.gateways` | access to the keys of the host's Gateways; the controller writes the rules |
//! | RoleBinding | `sesame-host.edge-1.fleet` | the fleet's permissions, if the host belongs to a fleet |
//! | Role, RoleBinding | `sesame-managed.DIGEST` | access to one Gateway's keys for the agents in its managed fleet |
//! | RoleBinding | `sesame-managed.DIGEST.agents` | the permissions that all managed agents share |
//! | Role | `sesame-fleet.NAME` | access to the keys of the fleet's Gateways; the controller writes the rules |
//!
//! `controller/deploy/hosts.yaml` repeats the prefixes `sesame-host.` and `sesame-invitation.`, and
//! the Secret's type and annotation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sesame_kinds::api::NamespacedName;
use sesame_proto::digest::sha256;
use sesame_proto::dns_name::is_dns_subdomain;

use crate::names::{MAX_KEY_SECRETS, gateway_id, key_secret_name};

/// Label on all objects that grant access. Its value is `host`, `invitation`, `gateways` or
/// `fleet`.
pub const ACCESS_LABEL: &str = "projectsesame.io/access";
/// Value of [`ACCESS_LABEL`] for the objects of a host.
pub const ACCESS_HOST: &str = "host";
/// Value of [`ACCESS_LABEL`] for the objects of an invitation.
pub const ACCESS_INVITATION: &str = "invitation";
/// Value of [`ACCESS_LABEL`] for a Role with a [`GATEWAYS_ANNOTATION`].
pub const ACCESS_GATEWAYS: &str = "gateways";
/// Value of [`ACCESS_LABEL`] for a fleet's Role.
pub const ACCESS_FLEET: &str = "fleet";
/// Annotation that contains the host's name.
pub const HOST_ANNOTATION: &str = "projectsesame.io/host";
/// Annotation that lists the host's Gateways as comma-separated `namespace/name`.
pub const GATEWAYS_ANNOTATION: &str = "projectsesame.io/gateways";
/// Annotation that contains the host's fleet.
pub const FLEET_ANNOTATION: &str = "projectsesame.io/fleet";
/// Role in `controller/deploy/fleets.yaml` that all managed agents share.
pub const AGENTS_ROLE: &str = "sesame-managed-agents";
/// Annotation on an invitation's objects that contains the token's expiry time.
pub const EXPIRES_ANNOTATION: &str = "projectsesame.io/expires";
const CLAIMED_ANNOTATION: &str = "projectsesame.io/claimed";
const HOST_SECRET_TYPE: &str = "projectsesame.io/host";

/// Name prefix of a host's objects.
pub const HOST_PREFIX: &str = "sesame-host.";
const INVITATION_PREFIX: &str = "sesame-invitation.";
const FLEET_PREFIX: &str = "sesame-fleet.";
const MANAGED_PREFIX: &str = "sesame-managed.";
const MAX_PLAIN: usize = 200;
const MAX_KEPT: usize = 63;

const OUR_GROUP: &str = "projectsesame.io";

/// The Gateways that a host may serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostScope {
    /// The listed Gateways.
    Gateways(Vec<NamespacedName>),
    /// All Gateways of this fleet.
    Fleet(String),
}

/// Returns the name of a host's ServiceAccount, Secret, Role and RoleBinding.
pub fn host_account(host: &str) -> String {
    format!("{HOST_PREFIX}{}", stem(host))
}

/// Returns the name of the ServiceAccount, Role and RoleBinding for a host's invitation.
pub fn invitation_account(host: &str) -> String {
    format!("{INVITATION_PREFIX}{}", stem(host))
}

/// Returns the name of the RoleBinding that grants a host its fleet's permissions.
pub fn fleet_binding(host: &str) -> String {
    format!("{}.fleet", host_account(host))
}

/// Returns the name of the Role and RoleBinding that grant a host access to its Gateways' keys.
pub fn gateways_role(host: &str) -> String {
    format!("{}.gateways", host_account(host))
}

/// Returns the name of a fleet's Role.
pub fn fleet_role(fleet: &str) -> String {
    format!("{FLEET_PREFIX}{fleet}")
}

/// Returns the name of the Role and RoleBinding for the agents in this Gateway's managed fleet.
pub fn fleet_agents(gateway: &NamespacedName) -> String {
    format!("{MANAGED_PREFIX}{}", gateway_id(gateway))
}

/// Returns the Secret that a joining host creates, owned by the host's ServiceAccount.
pub fn host_secret(host: &str, account_uid: &str, now: &str) -> Secret {
    let account = host_account(host);
    Secret {
        metadata: ObjectMeta {
            name: Some(account.clone()),
            annotations: Some(BTreeMap::from([(
                CLAIMED_ANNOTATION.to_owned(),
                now.to_owned(),
            )])),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "ServiceAccount".to_owned(),
                name: account,
                uid: account_uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        type_: Some(HOST_SECRET_TYPE.to_owned()),
        ..Secret::default()
    }
}

/// Appends a digest if the host name is too long or not a DNS subdomain.
fn stem(host: &str) -> String {
    let looks_hashed = host.starts_with("x-");
    if host.len() <= MAX_PLAIN && is_dns_subdomain(host) && !looks_hashed {
        return host.to_owned();
    }
    let plain: String = host
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MAX_KEPT)
        .collect();
    format!("x-{plain}-{}", &sha256(host.as_bytes())[..20])
}

/// Returns the permissions that every host needs.
pub fn host_rules(host: &str) -> Vec<PolicyRule> {
    let account = host_account(host);
    vec![
        // Shard names contain digests, so a Role cannot list them. Allow all names, because shards
        // are not secret.
        rule("", "configmaps", &[], &["get", "list", "watch"]),
        rule(
            OUR_GROUP,
            "gatewayagents",
            &[],
            &["get", "list", "create", "patch", "delete"],
        ),
        rule(OUR_GROUP, "gatewayagents/status", &[], &["get", "patch"]),
        rule(OUR_GROUP, "hosts", &[host.to_owned()], &["report"]),
        rule(
            "",
            "serviceaccounts/token",
            std::slice::from_ref(&account),
            &["create"],
        ),
        rule("", "serviceaccounts", &[account], &["delete"]),
    ]
}

/// Returns the permissions to serve these Gateways, which must be in a stable order.
pub fn gateway_rules(gateways: &[NamespacedName]) -> Vec<PolicyRule> {
    // In RBAC, a rule without `resourceNames` applies to all names.
    if gateways.is_empty() {
        return Vec::new();
    }
    let keys: Vec<String> = gateways
        .iter()
        .flat_map(|gateway| (0..MAX_KEY_SECRETS).map(move |index| key_secret_name(gateway, index)))
        .collect();
    let names: Vec<String> = gateways.iter().map(ToString::to_string).collect();
    vec![
        rule("", "secrets", &keys, &["get"]),
        rule(OUR_GROUP, "gateways", &names, &["report"]),
    ]
}

/// Returns an invitation's permissions.
pub fn invitation_rules(host: &str) -> Vec<PolicyRule> {
    vec![
        // RBAC cannot restrict `create` to one name, so the admission policy does.
        rule("", "secrets", &[], &["create"]),
        rule(
            "",
            "serviceaccounts/token",
            &[host_account(host)],
            &["create"],
        ),
        rule(
            "",
            "serviceaccounts",
            &[invitation_account(host)],
            &["delete"],
        ),
    ]
}

fn rule(group: &str, resource: &str, names: &[String], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: (!names.is_empty()).then(|| names.to_vec()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        non_resource_urls: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_distinct_legal_account_names() {
        let hosts = [
            "edge-1",
            "edge-1.example.com",
            "Edge-1",
            "edge_1",
            "x-edge-1",
            &"n".repeat(253),
            &"N".repeat(253),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for host in hosts {
            for name in [host_account(host), invitation_account(host)] {
                assert!(is_dns_subdomain(&name), "{name}");
                assert!(seen.insert(name.clone()), "{name} twice");
            }
        }
        assert_eq!(host_account("edge-1"), "sesame-host.edge-1");
    }

    #[test]
    fn host_rules_name_their_objects() {
        let gateway = NamespacedName::new("default", "edge");
        let assert_named = |rules: &[PolicyRule], open: &[&str]| {
            for rule in rules {
                let resource = &rule.resources.as_ref().unwrap()[0];
                let is_open = open.contains(&resource.as_str());
                assert_eq!(rule.resource_names.is_none(), is_open, "{rule:?}");
            }
        };
        let open = ["configmaps", "gatewayagents", "gatewayagents/status"];
        assert_named(&host_rules("a"), &open);
        assert_named(&gateway_rules(&[gateway]), &[]);
        let invitation = invitation_rules("a");
        assert_named(&invitation, &["secrets"]);
        let verbs = invitation.iter().flat_map(|rule| &rule.verbs);
        assert_eq!(verbs.collect::<Vec<_>>(), ["create", "create", "delete"]);
        assert!(gateway_rules(&[]).is_empty());
    }
}
