//! Building blocks for generated CRDs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::schema::{OptionalEnum, StructuralSchemaRewriter};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

pub(crate) fn generate<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let settings = settings
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(RecursiveTransform(remove_empty_default));
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
    }
    schema
}

/// An empty default means the same as none, but the API server would store it in every object.
fn remove_empty_default(schema: &mut Schema) {
    let empty = [json!(null), json!([]), json!({}), json!("")];
    if schema.get("default").is_some_and(|it| empty.contains(it)) {
        schema.remove("default");
    }
}

pub(crate) fn names(kind: &str, plural: &str, short: &[&str]) -> Value {
    let singular = kind.to_ascii_lowercase();
    json!({"kind": kind, "plural": plural, "shortNames": short, "singular": singular})
}

pub(crate) fn definition(
    (group, version): (&str, &str),
    names: &Value,
    scope: &str,
    columns: &Value,
    schema: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error> {
    let plural = names["plural"].as_str().unwrap_or_default();
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": names,
            "scope": scope,
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    }))
}

pub(crate) fn conditions(description: &str) -> Value {
    json!({
        "type": "array",
        "description": description,
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text("Type of the condition.", 316),
                "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."},
                "reason": text("Machine-readable reason.", 1024),
                "message": text("Human-readable message.", 32768),
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0, "description": "Generation \
                    of the object that the condition is about."},
                "lastTransitionTime": {"type": "string", "format": "date-time", "description": "Time \
                    of the last change of the condition's status."},
            },
        },
    })
}

/// Adds the rule that `name` is set if and only if `type` is not `ClientAddress`.
pub(crate) fn check_request_key(schema: &mut Value) {
    schema["x-kubernetes-validations"] = json!([{
        "rule": "has(self.name) == (self.type != 'ClientAddress')",
        "message": "name: required unless type is ClientAddress, and not allowed with ClientAddress",
    }]);
}

pub(crate) fn text(description: &str, most: u32) -> Value {
    json!({"type": "string", "description": description, "maxLength": most})
}
