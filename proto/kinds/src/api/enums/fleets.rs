//! Enums used in settings of fleets and Services.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

open_enum! {
    /// `spec.fleet.management` in a SesameConfiguration.
    FleetManagement {
        /// The controller manages agents and Envoy instances for the Gateway.
        Managed = "Managed",
        /// Agents and Envoy instances run in the cluster, but Sesame does not manage them.
        Unmanaged = "Unmanaged",
        /// Agents and Envoy instances run on hosts outside the cluster.
        External = "External",
    }
}

open_enum! {
    /// `spec.fleet.gateways` in a SesameConfiguration.
    FleetGateways {
        /// Each Gateway is served by its own Envoy instances.
        Isolated = "Isolated",
        /// All Gateways of a class share the same Envoy instances.
        Merged = "Merged",
        /// Only the oldest Gateway of each class is served.
        Single = "Single",
    }
}

open_enum! {
    /// `spec.fleet.workload` in a SesameConfiguration.
    FleetWorkload {
        /// One Pod on each node, on the node's network.
        DaemonSet = "DaemonSet",
        /// Several Pods on the Pod network.
        Deployment = "Deployment",
    }
}

open_enum! {
    /// `Container.imagePullPolicy`.
    ImagePullPolicy {
        Always = "Always",
        IfNotPresent = "IfNotPresent",
        Never = "Never",
    }
}

open_enum! {
    /// `Toleration.operator`.
    TolerationOperator {
        Exists = "Exists",
        Equal = "Equal",
    }
}

open_enum! {
    /// `Taint.effect`.
    TaintEffect {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
        NoExecute = "NoExecute",
    }
}

open_enum! {
    /// `ServiceSpec.externalTrafficPolicy` and `ServiceSpec.internalTrafficPolicy`.
    ServiceTraffic {
        /// Traffic may go to any endpoint.
        Cluster = "Cluster",
        /// Traffic may go only to endpoints on the node that receives it.
        Local = "Local",
    }
}

open_enum! {
    /// `ServiceSpec.sessionAffinity`.
    SessionAffinity {
        /// Connections from the same client address go to the same endpoint.
        ClientIp = "ClientIP",
        None = "None",
    }
}

open_enum! {
    /// `ServiceSpec.ipFamilyPolicy`.
    IpFamilyPolicy {
        SingleStack = "SingleStack",
        PreferDualStack = "PreferDualStack",
        RequireDualStack = "RequireDualStack",
    }
}

open_enum! {
    /// An entry in `ServiceSpec.ipFamilies`.
    IpFamily {
        Ipv4 = "IPv4",
        Ipv6 = "IPv6",
    }
}
