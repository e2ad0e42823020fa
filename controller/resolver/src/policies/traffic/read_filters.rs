//! Reads the TrafficPolicy fields that filter requests and responses.

use std::collections::HashMap;

use sesame_proto::schema::compression::Algorithm;
use sesame_proto::schema::header_part::{Fact, Kind};
use sesame_proto::schema::{
    self, Compression, ErrorPage, Fault, Header, HeaderModifier, HeaderPart, SharedFilter,
};

use super::filters::ChangedHeaders;
use crate::syntax::header_names::{check_name, claim};
use crate::syntax::{durations, limits, sizes};
use sesame_kinds::api::{
    self, BandwidthLimit, CompressionType, ErrorPageSource, FaultAbort, FaultDelay, HeaderFact,
    InjectedFault, PolicyHeaderChange, PolicyHeaders, RequestBody, ResponseCompression,
    ValuedHeader,
};

/// Highest body size limit, in bytes.
const MAX_BODY_BYTES: u64 = 1 << 30;
/// Highest bandwidth limit, in bytes per second.
const MAX_BANDWIDTH: u64 = 1 << 40;
const MAX_TYPES: usize = 32;

pub(super) fn read_body(spec: &RequestBody) -> Result<u64, String> {
    let RequestBody { max_size } = spec;
    sizes::read("requestBody.maxSize", max_size, 1..=MAX_BODY_BYTES)
}

pub(super) fn read_bandwidth(spec: &BandwidthLimit) -> Result<[Option<u64>; 2], String> {
    let BandwidthLimit { request, response } = spec;
    if request.is_none() && response.is_none() {
        return Err("bandwidth: expected request or response".to_owned());
    }
    let read = |field: &str, text: &Option<String>| {
        let read = text.as_deref();
        let read = read.map(|text| sizes::read(field, text, 1024..=MAX_BANDWIDTH));
        read.transpose()
    };
    Ok([
        read("bandwidth.request", request)?,
        read("bandwidth.response", response)?,
    ])
}

/// Returns `None` if the policy disables compression.
pub(super) fn read_compression(spec: &ResponseCompression) -> Result<Option<Compression>, String> {
    let ResponseCompression {
        types,
        content_types,
        min_size,
    } = spec;
    limits::entries("compression.types", types.len(), 0..=3)?;
    limits::entries(
        "compression.contentTypes",
        content_types.len(),
        0..=MAX_TYPES,
    )?;
    for (i, content_type) in content_types.iter().enumerate() {
        let at = format_args!("compression.contentTypes[{i}]");
        limits::field_value(at, content_type, 128)?;
    }
    let mut algorithms = Vec::with_capacity(types.len());
    for (i, type_) in types.iter().enumerate() {
        let algorithm = match type_ {
            CompressionType::Gzip => Algorithm::Gzip,
            CompressionType::Brotli => Algorithm::Brotli,
            CompressionType::Zstd => Algorithm::Zstd,
            CompressionType::Other(other) => {
                let known = CompressionType::WORDS.join(", ");
                return Err(format!(
                    "compression.types[{i}] {other:?} is unknown; expected {known}"
                ));
            }
        };
        let algorithm = i32::from(algorithm);
        if algorithms.contains(&algorithm) {
            return Err(format!("compression.types[{i}] duplicates an earlier type"));
        }
        algorithms.push(algorithm);
    }
    let min_size = min_size.as_deref();
    let min_size = min_size.map(|text| sizes::read("compression.minSize", text, 1..=1 << 30));
    let min_bytes = u32::try_from(min_size.transpose()?.unwrap_or_default()).unwrap_or(u32::MAX);
    Ok((!algorithms.is_empty()).then(|| Compression {
        algorithms,
        content_types: content_types.clone(),
        min_bytes,
    }))
}

pub(super) fn read_pages(specs: &[api::ErrorPage]) -> Result<Vec<ErrorPage>, String> {
    limits::entries("errorPages", specs.len(), 0..=SharedFilter::MAX_PAGES)?;
    let pages = specs.iter().enumerate();
    let pages =
        pages.map(|(i, spec)| read_page(spec).map_err(|why| format!("errorPages[{i}].{why}")));
    pages.collect()
}

fn read_page(spec: &api::ErrorPage) -> Result<ErrorPage, String> {
    let api::ErrorPage {
        codes,
        body,
        content_type,
        status_code,
        source,
    } = spec;
    limits::entries("codes", codes.len(), 1..=16)?;
    let mut statuses = Vec::with_capacity(codes.len());
    for (i, code) in codes.iter().enumerate() {
        statuses.push(match (code.as_str(), code.parse()) {
            ("4xx", _) => 4,
            ("5xx", _) => 5,
            (_, Ok(status @ 400..=599)) => status,
            _ => {
                return Err(format!(
                    "codes[{i}] {code:?}: expected a status from 400 to 599, 4xx or 5xx"
                ));
            }
        });
    }
    limits::max_bytes("body", body, SharedFilter::MAX_PAGE_BYTES)?;
    let content_type = content_type.as_deref().unwrap_or_default();
    if !content_type.is_empty() {
        limits::field_value(format_args!("contentType"), content_type, 256)?;
    }
    let status = status_code.map(|code| match u32::try_from(code) {
        Ok(status @ 200..=599) => Ok(status),
        _ => Err(format!("statusCode {code}: expected 200 to 599")),
    });
    Ok(ErrorPage {
        statuses,
        body: body.clone(),
        content_type: content_type.to_owned(),
        status: status.transpose()?.unwrap_or_default(),
        of_backends: match source {
            None | Some(ErrorPageSource::Gateway) => false,
            Some(ErrorPageSource::All) => true,
            Some(ErrorPageSource::Other(other)) => {
                let known = ErrorPageSource::WORDS.join(" or ");
                return Err(format!("source {other:?} is unknown; expected {known}"));
            }
        },
    })
}

pub(super) fn read_fault(spec: &InjectedFault) -> Result<Fault, String> {
    let InjectedFault { delay, abort } = spec;
    if delay.is_none() && abort.is_none() {
        return Err("fault: expected delay or abort".to_owned());
    }
    let mut fault = Fault::default();
    if let Some(FaultDelay { duration, percent }) = delay {
        fault.delay_ms = durations::read("fault.delay.duration", Some(duration))?
            .filter(|it| *it > 0)
            .ok_or("fault.delay.duration: expected more than 0s")?;
        fault.delay_percent = read_percent("fault.delay.percent", *percent)?;
    }
    if let Some(FaultAbort {
        status_code,
        percent,
    }) = abort
    {
        let Ok(status @ 200..=599) = u32::try_from(*status_code) else {
            return Err(format!(
                "fault.abort.statusCode {status_code}: expected 200 to 599"
            ));
        };
        fault.abort_status = status;
        fault.abort_percent = read_percent("fault.abort.percent", *percent)?;
    }
    Ok(fault)
}

fn read_percent(field: &str, percent: Option<i32>) -> Result<u32, String> {
    match u32::try_from(percent.unwrap_or(100)) {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err(format!(
            "{field} {}: expected 1 to 100",
            percent.unwrap_or_default()
        )),
    }
}

pub(super) fn read_headers(spec: &PolicyHeaders) -> Result<ChangedHeaders, String> {
    let PolicyHeaders { request, response } = spec;
    let read = |at: &str, spec: &Option<PolicyHeaderChange>| {
        let read = spec.as_ref().map(read_change).transpose();
        read.map_err(|why| format!("headers.{at}.{why}"))
    };
    Ok(ChangedHeaders {
        request: read("request", request)?,
        response: read("response", response)?,
    })
}

fn read_change(spec: &PolicyHeaderChange) -> Result<HeaderModifier, String> {
    let PolicyHeaderChange { set, add, remove } = spec;
    let mut actions = HashMap::new();
    let set = read_valued("set", set, &mut actions)?;
    let add = read_valued("add", add, &mut actions)?;
    limits::entries("remove", remove.len(), 0..=limits::MAX_FILTER_HEADERS)?;
    for (i, name) in remove.iter().enumerate() {
        check_name(format_args!("remove[{i}]"), name)?;
        claim(&mut actions, name, "remove")?;
    }
    Ok(HeaderModifier {
        set,
        add,
        remove: remove.clone(),
    })
}

fn read_valued(
    field: &'static str,
    list: &[ValuedHeader],
    actions: &mut HashMap<String, &'static str>,
) -> Result<Vec<Header>, String> {
    limits::entries(field, list.len(), 0..=limits::MAX_FILTER_HEADERS)?;
    let mut found = Vec::with_capacity(list.len());
    for (i, spec) in list.iter().enumerate() {
        let ValuedHeader {
            name,
            value,
            value_from,
        } = spec;
        check_name(format_args!("{field}[{i}].name"), name)?;
        if !claim(actions, name, field)? {
            continue;
        }
        let mut header = Header {
            name: name.clone(),
            ..Header::default()
        };
        match (value, value_from) {
            (Some(value), None) => {
                limits::field_value(format_args!("{field}[{i}]"), value, 4096)?;
                header.value.clone_from(value);
            }
            (None, Some(fact)) => {
                let part = part(fact).map_err(|why| format!("{field}[{i}].{why}"))?;
                header.parts.push(HeaderPart { kind: Some(part) });
            }
            _ => return Err(format!("{field}[{i}]: expected value or valueFrom")),
        }
        found.push(header);
    }
    Ok(found)
}

fn part(fact: &HeaderFact) -> Result<schema::header_part::Kind, String> {
    let fact = match fact {
        HeaderFact::ClientAddress => Fact::DownstreamRemoteAddressWithoutPort,
        HeaderFact::RequestId => return Ok(Kind::RequestHeader("x-request-id".to_owned())),
        HeaderFact::Protocol => Fact::Protocol,
        HeaderFact::TlsVersion => Fact::DownstreamTlsVersion,
        HeaderFact::TlsCipher => Fact::DownstreamTlsCipher,
        HeaderFact::ClientCertificateSubject => Fact::DownstreamPeerSubject,
        HeaderFact::ClientCertificateUri => Fact::DownstreamPeerUriSan,
        HeaderFact::ClientCertificateFingerprint => Fact::DownstreamPeerFingerprint256,
        HeaderFact::Other(other) => {
            let known = HeaderFact::WORDS.join(", ");
            return Err(format!("valueFrom {other:?} is unknown; expected {known}"));
        }
    };
    Ok(Kind::Fact(fact.into()))
}
