//! Converts check results to conditions without making decisions. `sesame_kinds::status` adds
//! time-dependent conditions.

pub(crate) mod backend_policies;
pub(crate) mod gateways;
pub(crate) mod http_proxies;
pub(crate) mod ingresses;
pub(crate) mod listener_sets;
mod listeners;
pub(crate) mod mesh_policies;
pub(crate) mod ocg_policies;
pub(crate) mod policies;
pub(crate) mod routes;
pub(crate) mod telemetry_policies;
pub(crate) mod traffic_policies;
pub(crate) mod x_backends;

use sesame_kinds::status::{Condition, ConditionStatus, ConditionType, Reason};

/// Returns `Unknown` until a host reports, unless there is an error.
fn programmed(fault: Option<(Reason, &str)>, generation: i64) -> Condition {
    let waiting = (Reason::Pending, "waiting for an agent to report");
    let (status, (reason, message)) = match fault {
        Some(fault) => (ConditionStatus::False, fault),
        None => (ConditionStatus::Unknown, waiting),
    };
    let type_ = ConditionType::Programmed;
    Condition::new(type_, status, reason, message, generation)
}
