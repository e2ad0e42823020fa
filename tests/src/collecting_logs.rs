//! Access logs as a collector receives them.

use bytes::{Buf as _, Bytes, BytesMut};
use envoy_types::pb::envoy::data::accesslog::v3::{AccessLogCommon, HttpAccessLogEntry};
use envoy_types::pb::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage, stream_access_logs_message::LogEntries,
};
use prost::Message;

use crate::collecting::{KeyValue, Resource, attributes, find};

/// A received log record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// `service.name` of the OTLP resource, or the ALS log name.
    pub service: String,
    /// Attributes as strings. ALS records contain only the fields that tests read.
    pub attributes: Vec<(String, String)>,
    /// Headers of the export request, with the path under `:path`.
    pub headers: Vec<(String, String)>,
}

impl Record {
    /// Returns the value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        find(&self.attributes, name)
    }

    /// Returns the value of a request header.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

pub(crate) fn read(
    body: Bytes,
    headers: &[(String, String)],
) -> Result<Vec<Record>, prost::DecodeError> {
    let mut found = Vec::new();
    for ResourceLogs { resource, scopes } in ExportLogs::decode(body)?.resources {
        let resource = attributes(resource.unwrap_or_default().attributes);
        let service = find(&resource, "service.name").unwrap_or_default();
        for record in scopes.into_iter().flat_map(|scope| scope.records) {
            found.push(Record {
                service: service.to_owned(),
                attributes: attributes(record.attributes),
                headers: headers.to_vec(),
            });
        }
    }
    Ok(found)
}

#[derive(Default)]
pub(crate) struct LogStream {
    unread: BytesMut,
    /// The log name, which only a stream's first message contains.
    log: String,
}

impl LogStream {
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        headers: &[(String, String)],
    ) -> Result<Vec<Record>, prost::DecodeError> {
        self.unread.extend_from_slice(bytes);
        let mut found = Vec::new();
        // A gRPC message starts with a flag byte and a four-byte length.
        while let Some(length) = self.unread.get(1..5) {
            let length = length
                .iter()
                .fold(0, |all, byte| all << 8 | usize::from(*byte));
            if self.unread.len() < 5 + length {
                break;
            }
            self.unread.advance(5);
            let message = StreamAccessLogsMessage::decode(self.unread.split_to(length))?;
            if let Some(identifier) = message.identifier {
                self.log = identifier.log_name;
            }
            let lines = match message.log_entries {
                Some(LogEntries::HttpLogs(logs)) => {
                    logs.log_entry.into_iter().map(request_attributes).collect()
                }
                Some(LogEntries::TcpLogs(logs)) => {
                    let lines = logs.log_entry.into_iter();
                    lines
                        .map(|line| common_attributes(line.common_properties.unwrap_or_default()))
                        .collect()
                }
                None => Vec::new(),
            };
            found.extend(lines.into_iter().map(|attributes| Record {
                service: self.log.clone(),
                attributes,
                headers: headers.to_vec(),
            }));
        }
        Ok(found)
    }
}

fn request_attributes(line: HttpAccessLogEntry) -> Vec<(String, String)> {
    let mut found = common_attributes(line.common_properties.unwrap_or_default());
    let request = line.request.unwrap_or_default();
    found.push(("path".to_owned(), request.path));
    found.push(("user_agent".to_owned(), request.user_agent));
    found.extend(request.request_headers);
    let response = line.response.unwrap_or_default();
    let status = response
        .response_code
        .map(|status| status.value.to_string());
    found.push(("status".to_owned(), status.unwrap_or_default()));
    found
}

fn common_attributes(place: AccessLogCommon) -> Vec<(String, String)> {
    let mut found: Vec<_> = place.custom_tags.into_iter().collect();
    found.push(("route".to_owned(), place.route_name));
    found.push(("backend".to_owned(), place.upstream_cluster));
    found
}

/// `opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest`, limited to the fields that
/// tests read.
#[derive(Clone, PartialEq, Message)]
struct ExportLogs {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    records: Vec<OtlpRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpRecord {
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
}
