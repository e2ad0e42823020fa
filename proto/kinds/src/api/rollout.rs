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
