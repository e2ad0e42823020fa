//! Conditions in an agent's status.

use serde_json::Value;

use crate::controller::condition;

/// Returns a listener's condition, or null if there is none.
pub fn listener_condition<'s>(status: &'s Value, listener: &str, type_: &str) -> &'s Value {
    let objects = status["objects"].as_array().into_iter().flatten();
    let gateways = objects.filter(|object| object["kind"] == "Gateway");
    let mut listeners = gateways
        .filter_map(|gateway| gateway["status"]["listeners"].as_array())
        .flatten();
    let found = listeners.find(|found| found["name"] == listener);
    found.map_or(&Value::Null, |found| condition(&found["conditions"], type_))
}
