//! Reads the translation of JSON to gRPC, and the definitions of its services.

use std::sync::Arc;

use sesame_proto::schema::{GrpcJsonTranscoder, SharedFilter, shared_filter};

use super::route_filter::FilterScope;
use crate::syntax::limits;
use sesame_kinds::api::{DescriptorSetRef, GrpcJsonTranscoding, JsonPrintOptions};

const DEFAULT_KEY: &str = "descriptors.pb";

/// `filter` is `RouteFilter/namespace/name`. Reads each filter once per resolution.
pub(super) fn read(
    spec: &GrpcJsonTranscoding,
    filter: &str,
    scope: &mut FilterScope<'_, '_>,
) -> Result<Arc<SharedFilter>, String> {
    let name = GrpcJsonTranscoder::name(filter);
    if let Some(known) = scope.filters.known(&name) {
        return known;
    }
    let read = read_new(spec, &name, scope);
    scope.filters.share(name, read)
}

fn read_new(
    spec: &GrpcJsonTranscoding,
    name: &str,
    scope: &mut FilterScope<'_, '_>,
) -> Result<SharedFilter, String> {
    let GrpcJsonTranscoding {
        descriptor_set: DescriptorSetRef { name: map, key },
        services,
        ignored_query_parameters,
        print_options,
    } = spec;
    let namespace = scope.namespace;
    let most = GrpcJsonTranscoder::MAX_ENTRIES;
    let services = names("services", services, 1, most)?;
    let ignored_query_parameters =
        names("ignoredQueryParameters", ignored_query_parameters, 0, most)?;
    let at = format!("descriptorSet: ConfigMap {namespace}/{map}");
    let found = scope.world.config_maps.get(namespace, map);
    let found = found.ok_or_else(|| format!("{at} does not exist"))?;
    let key = key.as_deref().unwrap_or(DEFAULT_KEY);
    let set = found.bytes(key);
    let set = set.ok_or_else(|| format!("{at} has no {key:?}"))?;
    let defined = scope.filters.services(set);
    let checked = defined.and_then(|defined| {
        let required = defined.require(services.iter().map(String::as_str));
        required.map_err(|why| why.to_string())
    });
    checked.map_err(|why| format!("{at}: {key:?} {why}"))?;
    let JsonPrintOptions {
        add_whitespace,
        always_print_primitive_fields,
        always_print_enums_as_ints,
        preserve_proto_field_names,
    } = print_options.unwrap_or_default();
    Ok(SharedFilter {
        name: name.to_owned(),
        kind: Some(shared_filter::Kind::GrpcJson(GrpcJsonTranscoder {
            descriptor_set: set.to_vec(),
            services,
            ignored_query_parameters,
            add_whitespace,
            print_default_values: always_print_primitive_fields,
            print_enums_as_ints: always_print_enums_as_ints,
            keep_field_names: preserve_proto_field_names,
        })),
    })
}

fn names(field: &str, names: &[String], least: usize, most: usize) -> Result<Vec<String>, String> {
    limits::entries(field, names.len(), least..=most)?;
    for (i, name) in names.iter().enumerate() {
        let at = format!("{field}[{i}]");
        if name.is_empty() {
            return Err(format!("{at} is empty; expected a name"));
        }
        limits::max_bytes(&at, name, GrpcJsonTranscoder::MAX_NAME)?;
    }
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
