//! `spec.fleet` in a SesameConfiguration: the agents and Envoy instances that serve Gateways.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{
    FleetGateways, FleetManagement, FleetWorkload, ImagePullPolicy, TaintEffect, TolerationOperator,
};

/// Label with the name of the fleet that serves a Gateway. Sesame sets the label on published
/// objects; users set it on the Gateway or its class.
pub const FLEET_LABEL: &str = "projectsesame.io/fleet";

/// Agents and Envoy instances that serve a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FleetSettings {
    /// With `Managed`, the controller manages agents and Envoy instances for the Gateway. With
    /// `Unmanaged`, the default, you run them yourself. With `External`, they run on hosts outside
    /// the cluster.
    pub management: Option<FleetManagement>,
    /// `Isolated`, the default, serves each Gateway with dedicated Envoy instances. `Merged` serves
    /// all Gateways of a GatewayClass with the same Envoy instances. `Single` serves only the
    /// oldest Gateway of each GatewayClass. Not allowed in a Gateway's parameters.
    pub gateways: Option<FleetGateways>,
    /// Workload of a managed fleet: a `DaemonSet`, the default, runs one Pod on each node, on the
    /// node's network; a `Deployment` runs several Pods on the Pod network, behind the Gateway's
    /// Service.
    pub workload: Option<FleetWorkload>,
    /// Number of Pods in a Deployment. If unset, the Deployment starts with 2 Pods, and you or an
    /// autoscaler can scale it.
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: Option<i32>,
    /// Images for a managed fleet. Not allowed in a Gateway's parameters.
    pub images: Option<FleetImages>,
    /// The `imagePullPolicy` for all containers.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// The Pods' `nodeSelector`: labels of the nodes that run Pods; all nodes by default.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The Pods' `tolerations`. By default, Pods of a DaemonSet tolerate all taints with effect
    /// `NoSchedule`, and Pods of a Deployment tolerate none.
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Resource requests and limits for the containers; none by default.
    pub resources: Option<FleetResources>,
    /// Seconds that connections get to finish when their Envoy is replaced; `30` by default. When
    /// the Pod is deleted, connections get another 30 seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub drain_seconds: Option<i32>,
    /// Number of proxies in front of Envoy whose `X-Forwarded-For` is trusted; `0` by default. A
    /// client that can bypass these proxies can forge its address.
    #[schemars(range(min = 0, max = 16))]
    pub trusted_hops: Option<i32>,
    /// Additional port where each agent serves `/metrics`, without access control; none by default.
    /// Pods of a DaemonSet use the node's network, so Gateways on the same nodes need different
    /// ports.
    #[schemars(range(min = 1, max = 65535))]
    pub metrics_port: Option<i32>,
}

/// Images for a managed fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FleetImages {
    /// Image for the agent; the controller's `--agent-image` by default.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$")
    )]
    pub agent: Option<String>,
    /// Image for Envoy and its launcher; the controller's `--envoy-image` by default.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$")
    )]
    pub envoy: Option<String>,
}

/// Resources for the two containers in a managed fleet's Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct FleetResources {
    /// Resources for the agent container.
    pub agent: Option<ContainerResources>,
    /// Resources for the Envoy container.
    pub envoy: Option<ContainerResources>,
}

/// `ResourceRequirements` for a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerResources {
    /// Maximum resources that the container may use, such as `512Mi` of `memory`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    /// Resources reserved for the container on its node, such as `100m` of `cpu`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// `Toleration` for a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint. If unset, the toleration matches every key, and the operator must be
    /// `Exists`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// How the taint is matched; `Equal` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint, for operator `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint. If unset, the toleration matches every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// Time in seconds after which effect `NoExecute` evicts the Pod despite the toleration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// A resource quantity in Kubernetes notation: `2`, `500m`, `1.5Gi`, `1e3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantity(pub String);

impl Quantity {
    /// Returns the quantity in billionths of its unit, or `None` if the quantity is invalid.
    ///
    /// Compare these numbers rather than the strings, because the API server may rewrite a quantity
    /// in canonical form.
    pub fn billionths(&self) -> Option<i128> {
        let text = self.0.as_str();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+' && c != '-')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (negative, digits) = match number.as_bytes().first()? {
            b'-' => (true, &number[1..]),
            b'+' => (false, &number[1..]),
            _ => (false, number),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        // Kubernetes limits quantities to 2^63 and to a precision of one billionth.
        let fits = whole.len() + part.len() <= 24
            && part.len() <= 9
            && digits != "."
            && !digits.is_empty();
        if !plain(whole) || !plain(part) || !fits {
            return None;
        }
        let mut value: i128 = format!("0{whole}{part}").parse().ok()?;
        value = value.checked_mul(10_i128.pow(9 - u32::try_from(part.len()).ok()?))?;
        let value = match factor(suffix)? {
            Factor::Times(factor) => value.checked_mul(factor)?,
            Factor::Part(divisor) => value / divisor,
        };
        Some(if negative { -value } else { value })
    }
}

enum Factor {
    Times(i128),
    Part(i128),
}

fn factor(suffix: &str) -> Option<Factor> {
    let decimal = |power: u32| 10_i128.pow(power);
    Some(match suffix {
        "n" => Factor::Part(decimal(9)),
        "u" => Factor::Part(decimal(6)),
        "m" => Factor::Part(decimal(3)),
        "" => Factor::Times(1),
        "k" => Factor::Times(decimal(3)),
        "M" => Factor::Times(decimal(6)),
        "G" => Factor::Times(decimal(9)),
        "T" => Factor::Times(decimal(12)),
        "P" => Factor::Times(decimal(15)),
        "E" => Factor::Times(decimal(18)),
        "Ki" => Factor::Times(1 << 10),
        "Mi" => Factor::Times(1 << 20),
        "Gi" => Factor::Times(1 << 30),
        "Ti" => Factor::Times(1 << 40),
        "Pi" => Factor::Times(1 << 50),
        "Ei" => Factor::Times(1 << 60),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?;
            match power.parse::<i32>().ok()? {
                power @ 0..=18 => Factor::Times(decimal(power.unsigned_abs())),
                power @ -9..0 => Factor::Part(decimal(power.unsigned_abs())),
                _ => return None,
            }
        }
    })
}

/// Accepts strings and integers.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl de::Visitor<'_> for TextOrNumber {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m or 512Mi")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }

            /// The API server treats a null map value as an empty string.
            fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity(String::new()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
            "maxLength": 32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_quantities_compare_equal_in_any_notation() {
        let billionths = |text: &str| Quantity(text.to_owned()).billionths();
        for (one, other) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E", "1000P"),
            ("100n", "0.1u"),
            ("+2", "2"),
            ("15e-1", "1.5"),
        ] {
            assert!(billionths(one).is_some(), "{one}");
            assert_eq!(billionths(one), billionths(other), "{one} {other}");
        }
        for none in [
            "", ".", "m", "1x", "1 Gi", "1.2.3", "-", "--1", "1e99", "1ee3", "ü",
        ] {
            assert_eq!(billionths(none), None, "{none}");
        }
        assert!(billionths("-1") < billionths("0"));
    }
}
