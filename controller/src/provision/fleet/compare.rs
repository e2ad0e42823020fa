//! Normalizes desired objects, because the API server rewrites quantities.

use serde_json::{Value, json};
use sesame_kinds::api::Quantity;

pub(crate) fn with_comparable_quantities(mut object: Value) -> Value {
    let pointer = "/spec/template/spec/containers";
    let containers = object.pointer_mut(pointer).and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        for field in ["limits", "requests"] {
            let pointer = format!("/resources/{field}");
            let quantities = container.pointer_mut(&pointer);
            for (_, quantity) in quantities
                .and_then(Value::as_object_mut)
                .into_iter()
                .flatten()
            {
                let text = quantity.as_str().unwrap_or_default().to_owned();
                if let Some(number) = Quantity(text).billionths() {
                    *quantity = json!(number.to_string());
                }
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_quantities_compare_equal() {
        let object = |cpu: &str, memory: &str| {
            let resources = json!({"limits": {"cpu": cpu}, "requests": {"memory": memory}});
            let containers = json!([{"resources": resources}, {}]);
            with_comparable_quantities(
                json!({"spec": {"template": {"spec": {"containers": containers}}}}),
            )
        };
        assert_eq!(object("1000m", "1024Mi"), object("1", "1Gi"));
        assert_ne!(object("1001m", "1024Mi"), object("1", "1Gi"));
    }
}
