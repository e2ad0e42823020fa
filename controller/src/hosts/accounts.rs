//! Builds the objects for a host and its invitation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sesame_kinds::api::NamespacedName;
use sesame_published::host_access::{
    ACCESS_FLEET, ACCESS_GATEWAYS, ACCESS_HOST, ACCESS_INVITATION, ACCESS_LABEL,
    EXPIRES_ANNOTATION, FLEET_ANNOTATION, GATEWAYS_ANNOTATION, HOST_ANNOTATION, HostScope,
    fleet_binding, fleet_role, gateways_role, host_account, host_rules, invitation_account,
    invitation_rules,
};
use sesame_published::names::FLEET_LABEL;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The account owns all other objects of the host.
pub(super) fn host(name: &str, scope: &HostScope) -> ServiceAccount {
    let mut metadata = metadata(&host_account(name), ACCESS_HOST, name, None);
    let (annotation, value) = match scope {
        HostScope::Gateways(gateways) => (GATEWAYS_ANNOTATION, list(gateways)),
        HostScope::Fleet(fleet) => (FLEET_ANNOTATION, fleet.clone()),
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(annotation.to_owned(), value);
    account(metadata)
}

fn list(gateways: &[NamespacedName]) -> String {
    let names: Vec<String> = gateways.iter().map(ToString::to_string).collect();
    names.join(",")
}

pub(super) fn host_parts(name: &str, owner: &ServiceAccount) -> (Role, RoleBinding) {
    let account = host_account(name);
    let metadata = || metadata(&account, ACCESS_HOST, name, Some(owner));
    let binding = binding(metadata(), &account, &account, owner);
    (role(metadata(), host_rules(name)), binding)
}

/// The controller fills in the rules, so operators need no permission to read keys.
pub(super) fn gateways_parts(
    name: &str,
    gateways: &[NamespacedName],
    owner: &ServiceAccount,
) -> (Role, RoleBinding) {
    let object = gateways_role(name);
    let mut metadata = metadata(&object, ACCESS_GATEWAYS, name, Some(owner));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(GATEWAYS_ANNOTATION.to_owned(), list(gateways));
    let binding = binding(metadata.clone(), &object, &host_account(name), owner);
    (role(metadata, Vec::new()), binding)
}

pub(super) fn fleet_part(name: &str, fleet: &str, owner: &ServiceAccount) -> RoleBinding {
    let metadata = metadata(&fleet_binding(name), ACCESS_HOST, name, Some(owner));
    binding(metadata, &fleet_role(fleet), &host_account(name), owner)
}

pub(super) fn invitation(name: &str, expires: &str, owner: &ServiceAccount) -> ServiceAccount {
    let account_name = invitation_account(name);
    let mut metadata = metadata(&account_name, ACCESS_INVITATION, name, Some(owner));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(EXPIRES_ANNOTATION.to_owned(), expires.to_owned());
    account(metadata)
}

pub(super) fn invitation_parts(name: &str, owner: &ServiceAccount) -> (Role, RoleBinding) {
    let account = invitation_account(name);
    let metadata = || metadata(&account, ACCESS_INVITATION, name, Some(owner));
    (
        role(metadata(), invitation_rules(name)),
        binding(metadata(), &account, &account, owner),
    )
}

/// The controller fills in the Role's rules.
pub(super) fn fleet(name: &str) -> Role {
    let labels = labels(ACCESS_FLEET);
    role(
        ObjectMeta {
            name: Some(fleet_role(name)),
            labels: Some(
                labels
                    .into_iter()
                    .chain([(FLEET_LABEL.to_owned(), name.to_owned())])
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        Vec::new(),
    )
}

fn labels(access: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (ACCESS_LABEL.to_owned(), access.to_owned()),
        ("app.kubernetes.io/part-of".to_owned(), "sesame".to_owned()),
    ])
}

fn metadata(object: &str, access: &str, host: &str, owner: Option<&ServiceAccount>) -> ObjectMeta {
    ObjectMeta {
        name: Some(object.to_owned()),
        labels: Some(labels(access)),
        annotations: Some(BTreeMap::from([(
            HOST_ANNOTATION.to_owned(),
            host.to_owned(),
        )])),
        owner_references: owner.map(|owner| {
            vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "ServiceAccount".to_owned(),
                name: owner.metadata.name.clone().unwrap_or_default(),
                uid: owner.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]
        }),
        ..ObjectMeta::default()
    }
}

fn account(metadata: ObjectMeta) -> ServiceAccount {
    ServiceAccount {
        metadata,
        // No Pod uses this account.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

fn role(metadata: ObjectMeta, rules: Vec<PolicyRule>) -> Role {
    Role {
        metadata,
        rules: Some(rules),
    }
}

fn binding(
    metadata: ObjectMeta,
    role: &str,
    account: &str,
    in_namespace_of: &ServiceAccount,
) -> RoleBinding {
    RoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: RBAC.to_owned(),
            kind: "Role".to_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: in_namespace_of.metadata.namespace.clone(),
            ..Subject::default()
        }]),
    }
}
