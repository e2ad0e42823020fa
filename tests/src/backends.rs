//! Backends, each behind a Service of the same name.

use serde_json::Value;

use crate::backend::Backend;
use crate::manifests::served;

/// Starts backends, and adds their Services and endpoints to `objects`.
pub async fn start_served(names: &[&str], objects: &mut Vec<Value>) -> Vec<Backend> {
    let mut backends = Vec::new();
    for name in names {
        let backend = Backend::start(name).await;
        objects.extend(served(name, &[backend.address()]));
        backends.push(backend);
    }
    backends
}
