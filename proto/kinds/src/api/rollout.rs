//! `spec.rollout` of a SesameConfiguration: when changes are applied.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::enums::open_enum;

open_enum! {
    /// Day of a maintenance window.
    Weekday {
        Monday = "Monday",
        Tuesday = "Tuesday",
        Wednesday = "Wednesday",
        Thursday = "Thursday",
        Friday = "Friday",
        Saturday = "Saturday",
        Sunday = "Sunday",
    }
}

open_enum! {
    /// What happens if a revision fails on its first hosts.
    RolloutFailure {
        Hold = "Hold",
        Return = "Return",
    }
}

/// When changes are applied to the hosts of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutSettings {
    /// Hold changes of listeners that drain connections until they are approved, or until a
    /// maintenance window opens; `false` by default. Endpoints, keys and CA certificates are never
    /// held.
    pub hold_draining: Option<bool>,
    /// Digest of the held change to approve, from the status of a host. The annotation
    /// `projectsesame.io/approve-draining` of a Gateway takes precedence.
    #[schemars(regex(pattern = r"^[0-9a-f]{16}$"))]
    pub approve_draining: Option<String>,
    /// Times at which nothing is held; none by default. If several configurations set this field,
    /// only the last one applies.
    #[schemars(length(max = 16))]
    pub windows: Option<Vec<MaintenanceWindow>>,
    /// Stages in which hosts get a new revision; after the last one, all other hosts get it. Without
    /// stages, all hosts get it at once. Endpoints, keys and CA certificates are never staged.
    #[schemars(length(max = 16))]
    pub stages: Option<Vec<RolloutStage>>,
    /// `Hold`, the default, releases no further host if the revision fails. `Return` also returns
    /// the hosts that have it to the previous revision.
    pub on_failure: Option<RolloutFailure>,
    /// By how many percentage points each share of failures may exceed the share on hosts without the
    /// revision: 0 to 100; 5 by default. Failures are 5xx responses, requests that backends abort or
    /// that time out, and failed TLS handshakes.
    #[schemars(range(max = 100))]
    pub max_error_increase: Option<u32>,
}

/// Hosts that get a new revision together: set either `hosts`, `percent` or `zone`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutStage {
    /// Number of hosts that have the revision in this stage: 1 to 2000.
    #[schemars(range(min = 1, max = 2000))]
    pub hosts: Option<u32>,
    /// Share of hosts that have the revision in this stage: 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub percent: Option<u32>,
    /// Zone whose hosts get the revision, as in the hosts' reports.
    #[schemars(length(min = 1, max = 253))]
    pub zone: Option<String>,
    /// How long the hosts must serve the revision before the next stage: `0s` to `168h`; `10m` by
    /// default.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub bake: Option<String>,
    /// Wait for `kubectl sesame rollout resume` after this stage; `false` by default.
    pub pause: Option<bool>,
}

/// A time of the week, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// Days on which the window opens; all by default.
    #[schemars(length(max = 7))]
    pub days: Option<Vec<Weekday>>,
    /// Time at which the window opens, such as `02:00`.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// Time at which the window closes, on the next day unless it is later than `start`.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub end: String,
}
