//! Filters with hostile values.

use proptest::prelude::*;
use sesame_proto::schema::{
    AddressFilter, AddressRange, Bandwidth, Compression, ErrorPage, Fault, RequestFilters,
    ResponseFilter, SharedFilter, shared_filter,
};

use super::hostile::{modifier, text};

/// Returns a name that is often the same.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("x-ok".to_owned()), text()]
}

/// Returns filters of a route or virtual host.
pub(super) fn filters() -> BoxedStrategy<RequestFilters> {
    let percent = || prop_oneof![0..102_u32, any::<u32>()];
    let fault = (any::<u64>(), percent(), any::<u32>(), percent());
    let fault = fault.prop_map(
        |(delay_ms, delay_percent, abort_status, abort_percent)| Fault {
            delay_ms,
            delay_percent,
            abort_status: abort_status % 700,
            abort_percent,
        },
    );
    (
        any::<u64>(),
        prop::option::of(modifier()),
        any::<bool>(),
        prop::option::of(fault),
        (name(), name()),
        prop::collection::vec(address_filter(), 0..3),
    )
        .prop_map(
            |(max_body_bytes, headers, grpc_web, fault, (response, bandwidth), address_filters)| {
                RequestFilters {
                    max_body_bytes,
                    request_headers: headers.clone(),
                    response_headers: headers,
                    grpc_web,
                    fault,
                    response,
                    bandwidth,
                    policies: Vec::new(),
                    address_filters,
                }
            },
        )
        .boxed()
}

fn address_filter() -> impl Strategy<Value = AddressFilter> {
    let network = || prop_oneof![Just("192.0.2.0/24".to_owned()), text()];
    let ranges = || {
        (network(), any::<bool>()).prop_map(|(network, peer)| vec![AddressRange { network, peer }])
    };
    (name(), ranges(), ranges()).prop_map(|(name, allow, deny)| AddressFilter { name, allow, deny })
}

/// Returns a filter that they may name.
pub(super) fn shared_filter() -> BoxedStrategy<SharedFilter> {
    let page = (text(), text(), any::<u32>(), any::<u32>(), any::<bool>());
    let page = page.prop_map(|(body, content_type, of, status, of_backends)| ErrorPage {
        statuses: vec![of % 700, 5],
        body,
        content_type,
        status: status % 700,
        of_backends,
    });
    let compression = (prop::collection::vec(0..5_i32, 0..4), text(), any::<u32>());
    let compression = compression.prop_map(|(algorithms, of, min_bytes)| Compression {
        algorithms,
        content_types: vec![of],
        min_bytes,
    });
    let bandwidth = (any::<u64>(), any::<u64>()).prop_map(|(request_bytes, response_bytes)| {
        shared_filter::Kind::Bandwidth(Bandwidth {
            request_bytes,
            response_bytes,
        })
    });
    let response = (
        prop::option::of(compression),
        prop::collection::vec(page, 0..3),
    );
    let response = response.prop_map(|(compression, error_pages)| {
        shared_filter::Kind::Response(ResponseFilter {
            compression,
            error_pages,
        })
    });
    let kind = prop::option::of(prop_oneof![bandwidth, response]);
    (name(), kind)
        .prop_map(|(name, kind)| SharedFilter { name, kind })
        .boxed()
}
