//! Converts snapshots to JSON for display. Default values are omitted, and keys are sorted.

use std::sync::LazyLock;

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

use crate::schema::{DESCRIPTORS, Snapshot};

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).ok());

/// Returns the snapshot as a JSON object.
pub fn to_value(snapshot: &Snapshot) -> Value {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false);
    let read = || {
        let descriptor = POOL
            .as_ref()?
            .get_message_by_name("sesame.snapshot.v1alpha1.Snapshot")?;
        let message = DynamicMessage::decode(descriptor, &*snapshot.encode_to_vec()).ok()?;
        message
            .serialize_with_options(serde_json::value::Serializer, &options)
            .ok()
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Port, Transport};

    #[test]
    fn enums_print_as_names_and_defaults_are_omitted() {
        let snapshot = Snapshot {
            gateway: "Gateway/default/web".to_owned(),
            ports: vec![Port {
                transport: Transport::Udp.into(),
                port: 53,
                ..Port::default()
            }],
            ..Snapshot::default()
        };
        assert_eq!(
            to_value(&snapshot),
            serde_json::json!({
                "gateway": "Gateway/default/web",
                "ports": [{"transport": "UDP", "port": 53}],
            })
        );
    }
}
