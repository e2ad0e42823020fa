//! Defines the names, labels and data entries of the objects that contain a snapshot. Does no I/O.
//!
//! The objects for the Gateway `ns/name`, all in Sesame's namespace:
//!
//! | object | name | data |
//! |---|---|---|
//! | ConfigMap | `ns.name.manifest` | `manifest.pb` and a readable summary |
//! | ConfigMap, immutable | `ns.name.config-<digest>` | `shard.pb.zst` |
//! | ConfigMap | `ns.name.endpoints-<count>-<index>` | `shard.pb.zst`, replaced in place |
//! | Secret | `ns.name.keys-<index>` | `keys.pb`: key pairs, encoded by `sesame_proto::keys` |
//! | GatewayAgent | `ns.name.host` | the host's report |
//!
//! If the Gateway's fleet already exists without an owner, the ConfigMap `ns.name.adoption`
//! previews the objects that the controller would write.
//!
//! If snapshots are signed, manifests and endpoint shards also have a `signature` entry.
//!
//! A Gateway's key Secrets have fixed names, so that a Role can list them.

use sesame_proto::digest::sha256;

pub use sesame_kinds::api::FLEET_LABEL;
use sesame_kinds::api::NamespacedName;

/// Default namespace of all published objects.
pub const DEFAULT_NAMESPACE: &str = "sesame-system";
/// Label on every published object. Its value is the Gateway's [`gateway_id`].
pub const GATEWAY_LABEL: &str = "projectsesame.io/gateway";
/// Label on every published object. Its value names the [`Part`] of the configuration that the
/// object contains.
pub const PART_LABEL: &str = "projectsesame.io/part";
/// Fleet of unmanaged Gateways without a [`FLEET_LABEL`].
pub const DEFAULT_FLEET: &str = "default";
/// Default name of a managed fleet. Agents in other fleets ignore its Gateways.
pub const MANAGED_FLEET: &str = "managed";
/// Label on the ConfigMap that previews an adoption, with the same value as [`GATEWAY_LABEL`].
pub const ADOPTION_LABEL: &str = "projectsesame.io/adoption";
/// Annotation on a Gateway or GatewayClass that approves the adoption of its fleet.
pub const ADOPT_ANNOTATION: &str = "projectsesame.io/adopt";
/// Annotation that shows users the Gateway of a published object, as `namespace/name`.
pub const GATEWAY_ANNOTATION: &str = "projectsesame.io/gateway";
/// Field manager of published objects. Objects that this manager never wrote are foreign,
/// regardless of their names and labels, and are neither replaced nor deleted.
pub const PUBLISHER: &str = "sesame-controller";
/// Entry in a manifest's `binaryData`.
pub const MANIFEST_ENTRY: &str = "manifest.pb";
/// Entry in a manifest's `data` that contains the Gateway's published name.
pub const GATEWAY_ENTRY: &str = "gateway";
/// Entry in a manifest's `data` that lists each Gateway's ports. Present only if several Gateways
/// are served together.
pub const SERVED_TOGETHER_ENTRY: &str = "servedTogether";
/// Entry in a manifest's `data` that contains the number of key Secrets.
pub const KEY_SECRETS_ENTRY: &str = "keySecrets";
/// Entry in a shard's `binaryData`.
pub const SHARD_ENTRY: &str = "shard.pb.zst";
/// Entry in the `binaryData` of a signed manifest or endpoint shard.
pub const SIGNATURE_ENTRY: &str = "signature";
/// Entry in a key Secret's `data`.
pub const KEYS_ENTRY: &str = "keys.pb";
/// Name of the Secret from which controllers derive the salts of credentials.
pub const SALT_SECRET: &str = "sesame-credential-salts";
/// Its entry.
pub const SALT_ENTRY: &str = "key";
/// Maximum number of key Secrets per Gateway, limited because a Role lists all their names.
/// Together, the Secrets hold 10 kB for each of 2,048 listeners.
pub const MAX_KEY_SECRETS: usize = 24;

/// Suffix of host names that identify Pods on the Pod network, as in `POD.NAMESPACE.pod`.
/// `controller/deploy/reports.yaml` repeats this suffix.
pub const POD_HOST_END: &str = ".pod";

/// `controller/deploy/reports.yaml` repeats this number and `MAX_HOST`.
const MAX_STEM: usize = 177;
const MAX_HOST: usize = 63;

/// Part of a Gateway's configuration that one published object contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Manifest, which lists the shards of one revision.
    Manifest,
    /// Configuration shard, which is immutable.
    Config,
    /// Endpoint shard, which is replaced in place.
    Endpoints,
    /// Private keys.
    Keys,
}

impl Part {
    /// Returns the part for this value of [`PART_LABEL`], or `None` if the value is unknown.
    pub fn parse(label: &str) -> Option<Self> {
        [Self::Manifest, Self::Config, Self::Endpoints, Self::Keys]
            .into_iter()
            .find(|part| part.as_str() == label)
    }

    /// Returns the value of [`PART_LABEL`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Config => "config",
            Self::Endpoints => "endpoints",
            Self::Keys => "keys",
        }
    }
}

/// Returns the value of [`GATEWAY_LABEL`] for a Gateway: 20 hex digits of a digest, because names
/// can exceed the maximum length of a label value.
pub fn gateway_id(gateway: &NamespacedName) -> String {
    let mut id = sha256(gateway.to_string().as_bytes());
    id.truncate(20);
    id
}

/// Returns the name of a Gateway's manifest.
pub fn manifest_name(gateway: &NamespacedName) -> String {
    format!("{}.manifest", stem(gateway))
}

/// Returns the name of a shard's ConfigMap; `shard` is the shard's name in the manifest.
pub fn shard_name(gateway: &NamespacedName, shard: &str) -> String {
    format!("{}.{shard}", stem(gateway))
}

/// Returns the name of the ConfigMap that previews the adoption of the Gateway's fleet.
pub fn adoption_name(gateway: &NamespacedName) -> String {
    format!("{}.adoption", stem(gateway))
}

/// Returns the name of the Secret with this index, which is less than [`MAX_KEY_SECRETS`].
pub fn key_secret_name(gateway: &NamespacedName, index: usize) -> String {
    format!("{}.keys-{index}", stem(gateway))
}

/// Returns the name of a host's GatewayAgent for this Gateway. `controller/deploy/reports.yaml`
/// contains the same rule in CEL, without the digest.
pub fn agent_name(gateway: &NamespacedName, host: &str) -> String {
    let plain: String = host
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MAX_HOST)
        .collect();
    if plain == host && !plain.starts_with('-') && !plain.ends_with('-') && !plain.is_empty() {
        return format!("{}.{plain}", stem(gateway));
    }
    let digest = sha256(host.as_bytes());
    format!("{}.h{plain}-{}", stem(gateway), &digest[..10])
}

/// Returns true if the text is a valid host name, such as the name of a node or a DNS name.
pub fn is_host_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.len() <= 253
        && text.bytes().next().is_some_and(plain)
        && text.bytes().next_back().is_some_and(plain)
        && text
            .bytes()
            .all(|byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

/// Returns true if this host name identifies a Pod on the Pod network. Deployments never reuse such
/// names.
pub fn is_pod(host: &str) -> bool {
    host.ends_with(POD_HOST_END)
}

/// Namespaces contain no dots, so different Gateways have different prefixes.
fn stem(gateway: &NamespacedName) -> String {
    let stem = format!("{}.{}", gateway.namespace, gateway.name);
    if stem.len() <= MAX_STEM {
        return stem;
    }
    let kept: String = stem.chars().take(MAX_STEM - 21).collect();
    let kept = kept.trim_end_matches(['.', '-']);
    format!("{kept}-{}", gateway_id(gateway))
}

#[cfg(test)]
mod tests {
    use sesame_proto::dns_name::is_dns_subdomain;

    use super::*;

    #[test]
    fn names_are_legal_and_distinct_for_any_input() {
        let long =
            |end: &str| NamespacedName::new(&"n".repeat(63), &format!("{}{end}", "g".repeat(252)));
        let gateways = [
            NamespacedName::new("default", "edge"),
            NamespacedName::new("default", "edge.manifest"),
            long("a"),
            long("b"),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for gateway in &gateways {
            for name in [
                manifest_name(gateway),
                adoption_name(gateway),
                shard_name(gateway, "config-0123456789abcdef0123"),
                shard_name(gateway, "endpoints-1024-1023"),
                key_secret_name(gateway, 7),
                agent_name(gateway, "node-1"),
                agent_name(gateway, "Node_1.example.com"),
                agent_name(gateway, "node-1.example.com"),
                agent_name(gateway, &"ü".repeat(300)),
                agent_name(gateway, "-"),
                agent_name(gateway, ""),
                agent_name(gateway, &"n".repeat(63)),
                agent_name(gateway, &format!("{}.", "n".repeat(70))),
            ] {
                assert!(is_dns_subdomain(&name), "{name}");
                assert!(seen.insert(name.clone()), "{name} twice");
            }
        }
    }
}
