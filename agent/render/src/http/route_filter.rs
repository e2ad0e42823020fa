//! RouteFilters that use the same placeholder: maintenance pages for all clients except some, and
//! translation of JSON to gRPC. A request that gets the page is not translated.
//!
//! They are in a separate file, because descriptor sets are long, and because Envoy 1.39 cannot
//! replace responses in route tables.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::grpc_json_transcoder::v3::{
    GrpcJsonTranscoder as Transcoder,
    grpc_json_transcoder::{DescriptorSet, PrintOptions, RequestValidationOptions},
};
use envoy_types::pb::envoy::extensions::http::custom_response::local_response_policy::v3::LocalResponsePolicy;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::descriptor_sets::Services;
use sesame_proto::schema::{GrpcJsonTranscoder, Maintenance, MaintenancePage, SharedFilter};

use super::composite::{self, filter};
use super::{credentials, error_pages, exempt_clients};
use crate::header_checks::check_value;
use crate::wrappers;

pub(crate) const FILTER: &str = "route_filter";

const STATUS: u32 = 503;

/// Returns the placeholder's configuration for a route.
pub(crate) fn named(
    maintenance: Option<&Maintenance>,
    transcoder: &str,
) -> Result<Option<Any>, String> {
    let transcoder = Some(transcoder).filter(|name| !name.is_empty());
    let Some(Maintenance { page, except }) = maintenance else {
        return Ok(transcoder.map(composite::named));
    };
    if except.is_empty() {
        return Err("a maintenance page for all clients except none".to_owned());
    }
    let others = exempt_clients::outside(except)?;
    Ok(Some(composite::named_if(others, page, transcoder)))
}

/// Returns the filter that translates JSON, or an error if Envoy would reject it.
pub(crate) fn transcoding(config: &GrpcJsonTranscoder) -> Result<TypedExtensionConfig, String> {
    let GrpcJsonTranscoder {
        descriptor_set,
        services,
        ignored_query_parameters,
        add_whitespace,
        print_default_values,
        print_enums_as_ints,
        keep_field_names,
    } = config;
    let most = GrpcJsonTranscoder::MAX_ENTRIES;
    if services.is_empty() || services.len() > most || ignored_query_parameters.len() > most {
        return Err(format!(
            "expected 1 to {most} services, and at most {most} ignored query parameters"
        ));
    }
    Services::read(descriptor_set)
        .and_then(|defined| defined.require(services.iter().map(String::as_str)))
        .map_err(|why| format!("its descriptor set {why}"))?;
    let transcoder = Transcoder {
        descriptor_set: Some(DescriptorSet::ProtoDescriptorBin(descriptor_set.clone())),
        services: services.clone(),
        print_options: Some(PrintOptions {
            add_whitespace: *add_whitespace,
            always_print_primitive_fields: *print_default_values,
            always_print_enums_as_ints: *print_enums_as_ints,
            preserve_proto_field_names: *keep_field_names,
            ..Default::default()
        }),
        // The translated path must not select another route, which may have other filters.
        match_incoming_request_route: true,
        ignored_query_parameters: ignored_query_parameters.clone(),
        auto_mapping: true,
        convert_grpc_status: true,
        request_validation_options: Some(RequestValidationOptions {
            reject_unknown_method: true,
            reject_unknown_query_parameters: true,
            ..Default::default()
        }),
        ..Default::default()
    };
    let name = "envoy.filters.http.grpc_json_transcoder";
    Ok(filter(name, pack_any(transcoder)))
}

/// Returns the filters that respond to every request with the page.
pub(crate) fn page(page: &MaintenancePage) -> Result<Vec<TypedExtensionConfig>, String> {
    let MaintenancePage {
        body,
        content_type,
        retry_after_seconds,
    } = page;
    let most = SharedFilter::MAX_PAGE_BYTES;
    if body.len() > most {
        let length = body.len();
        return Err(format!(
            "a maintenance page of {length} bytes; at most {most} are allowed"
        ));
    }
    check_value(content_type).map_err(|why| format!("media type of a maintenance page: {why}"))?;
    let content_type = wrappers::literal(content_type);
    let retry = (*retry_after_seconds > 0)
        .then(|| error_pages::overwritten("retry-after", retry_after_seconds.to_string()));
    let response = LocalResponsePolicy {
        body: Some(wrappers::text(body)),
        status_code: wrappers::uint32(STATUS),
        response_headers_to_add: [error_pages::overwritten("content-type", content_type)]
            .into_iter()
            .chain(retry)
            .collect(),
        ..Default::default()
    };
    Ok(vec![
        error_pages::of_own_responses(response),
        credentials::refusing(),
    ])
}
