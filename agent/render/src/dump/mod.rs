//! Prints Envoy's resources as JSON or YAML, for users and for golden files.
//!
//! Expands every `Any` and sorts keys, so the same resources produce the same text. Never print a
//! private key unless the caller requests it.

mod descriptors;

#[cfg(test)]
mod tests;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::filters::http::api_key_auth::v3::ApiKeyAuth;
use envoy_types::pb::envoy::extensions::filters::http::basic_auth::v3::BasicAuth;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret::Type,
};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use sesame_proto::schema::InjectedCredential;

use crate::rendered::{Rendered, Resource};

/// Whether private keys are redacted. Certificates never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redact {
    /// Prints `<redacted>` for each private key.
    PrivateKeys,
    /// Prints private keys.
    Nothing,
}

/// Error from printing resources.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// Malformed resource.
    #[error("`{name}` cannot be read as {message}: {source}")]
    Decode {
        /// Resource name.
        name: String,
        /// Message type.
        message: String,
        /// Decoding error.
        source: prost::DecodeError,
    },
    /// The descriptors lack a type that the resource contains.
    #[error(
        "`{name}` cannot be printed: {source}; add the type to tests/envoy_descriptors.rs, which writes the descriptors"
    )]
    Print {
        /// Resource name.
        name: String,
        /// Serialization error.
        source: serde_json::Error,
    },
    /// The built-in descriptors are broken.
    #[error("the Envoy descriptors of this build are broken: {0}")]
    Descriptors(String),
    /// YAML output failed.
    #[error("cannot be written as YAML: {0}")]
    Yaml(String),
}

/// Returns resources by kind, each kind sorted by name.
pub fn resources(rendered: &Rendered, redact: Redact) -> Result<Value, DumpError> {
    let Rendered {
        listeners,
        route_tables,
        clusters,
        endpoints,
        secrets,
        filters,
        shares: _,
        fleet_hosts: _,
        problems: _,
        inline: _,
        in_files: _,
        subscriptions: _,
    } = rendered;
    let secrets = secrets.iter().map(|Resource { name, bytes }| {
        let secret = readable(decode(name, bytes)?, redact);
        value::<Secret>(name, &secret.encode_to_vec())
    });
    Ok(json!({
        "listeners": without_keys(list::<Listener>(listeners)?, redact),
        "routes": list::<RouteConfiguration>(route_tables)?,
        "clusters": without_keys(list::<Cluster>(clusters)?, redact),
        "endpoints": list::<ClusterLoadAssignment>(endpoints)?,
        "filters": without_keys(list::<TypedExtensionConfig>(filters)?, redact),
        "secrets": secrets.collect::<Result<Vec<_>, DumpError>>()?,
    }))
}

/// Returns a static or dynamic bootstrap as a JSON value.
pub fn bootstrap(bytes: &[u8], redact: Redact) -> Result<Value, DumpError> {
    let mut bootstrap: Bootstrap = decode("bootstrap", bytes)?;
    if let Some(resources) = &mut bootstrap.static_resources {
        for secret in &mut resources.secrets {
            *secret = readable(std::mem::take(secret), redact);
        }
    }
    value::<Bootstrap>("bootstrap", &bootstrap.encode_to_vec())
}

/// Returns YAML that Envoy can read. Quotes strings that YAML could misinterpret.
pub fn yaml(value: &Value) -> Result<String, DumpError> {
    serde_saphyr::to_string(value).map_err(|error| DumpError::Yaml(error.to_string()))
}

fn list<M: Name>(resources: &[Resource]) -> Result<Value, DumpError> {
    resources
        .iter()
        .map(|Resource { name, bytes }| value::<M>(name, bytes))
        .collect::<Result<_, _>>()
        .map(Value::Array)
}

fn value<M: Name>(name: &str, bytes: &[u8]) -> Result<Value, DumpError> {
    let message = M::full_name();
    let descriptor = descriptors::pool()?
        .get_message_by_name(&message)
        .ok_or_else(|| DumpError::Descriptors(format!("{message} is missing")))?;
    let dynamic =
        DynamicMessage::decode(descriptor, bytes).map_err(|source| DumpError::Decode {
            name: name.to_owned(),
            message,
            source,
        })?;
    // Proto maps have a random order; the maps of `Value` are sorted.
    dynamic
        .serialize_with_options(
            serde_json::value::Serializer,
            &SerializeOptions::new().use_proto_field_name(true),
        )
        .map_err(|source| DumpError::Print {
            name: name.to_owned(),
            source,
        })
}

fn decode<M: Message + Name + Default>(name: &str, bytes: &[u8]) -> Result<M, DumpError> {
    M::decode(bytes).map_err(|source| DumpError::Decode {
        name: name.to_owned(),
        message: M::full_name(),
        source,
    })
}

fn without_keys(mut value: Value, redact: Redact) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let type_ = fields.get("@type").and_then(Value::as_str);
                let type_ = type_.and_then(|it| it.rsplit('/').next());
                let credentials = match type_ {
                    Some(type_) if type_ == BasicAuth::full_name() => Some("users"),
                    Some(type_) if type_ == ApiKeyAuth::full_name() => Some("credentials"),
                    _ => None,
                };
                for (name, value) in fields {
                    if name == "private_key" || Some(name.as_str()) == credentials {
                        *value = json!({"inline_string": "<redacted>"});
                    } else if name == "session_ticket_keys" {
                        *value = json!({"keys": [{"inline_string": "<redacted>"}]});
                    } else if InjectedCredential::filter(name).is_some() {
                        without_values(value);
                    } else {
                        walk(value);
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(walk),
            _ => {}
        }
    }
    if redact == Redact::PrivateKeys {
        walk(&mut value);
    }
    value
}

fn without_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "value" => "<redacted>".clone_into(text),
                    value => without_values(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(without_values),
        _ => {}
    }
}

fn readable(mut secret: Secret, redact: Redact) -> Secret {
    match &mut secret.r#type {
        Some(Type::TlsCertificate(TlsCertificate {
            certificate_chain,
            private_key,
            ..
        })) => {
            text(certificate_chain.as_mut());
            match redact {
                Redact::PrivateKeys => {
                    *private_key = private_key.take().map(|_| DataSource {
                        specifier: Some(Specifier::InlineString("<redacted>".to_owned())),
                        ..Default::default()
                    });
                }
                Redact::Nothing => text(private_key.as_mut()),
            }
        }
        Some(Type::ValidationContext(CertificateValidationContext { trusted_ca, .. })) => {
            text(trusted_ca.as_mut());
        }
        Some(Type::SessionTicketKeys(_) | Type::GenericSecret(_))
            if redact == Redact::PrivateKeys =>
        {
            secret.r#type = None;
        }
        Some(Type::SessionTicketKeys(_) | Type::GenericSecret(_)) | None => {}
    }
    secret
}

fn text(source: Option<&mut DataSource>) {
    let Some(source) = source else { return };
    if let Some(Specifier::InlineBytes(bytes)) = &source.specifier
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        source.specifier = Some(Specifier::InlineString(text.to_owned()));
    }
}
