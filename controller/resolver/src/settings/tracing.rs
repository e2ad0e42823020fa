//! Converts tracing settings. If Envoy does not support one of the settings, all of them are
//! rejected.

use sesame_proto::schema::{RequestFact, SpanAttribute, Tracing, span_attribute::Source};

use super::collector_headers;
use crate::syntax::{limits, names};
use sesame_kinds::api::{
    AttributeSourceType, BackendObjectRef, Fraction, ParentBasedSampling, ParentSamplingMode,
    TracingAttribute, TracingMode, TracingProvider, TracingSettings,
};
use sesame_kinds::status::{Grounds, Reason, unsupported};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredTracing {
    pub(crate) namespace: String,
    pub(crate) spec: TracingSettings,
}

#[derive(Debug)]
pub(crate) enum TracingDecision<'s> {
    /// Lower layers decide.
    Inherit,
    Off,
    /// The collector's Backend name is added later.
    To(&'s BackendObjectRef, Tracing),
}

/// Default sampling rate, low because Gateways handle many requests.
const SAMPLED_PER_MILLION: u32 = 10_000;
const MILLION: u64 = 1_000_000;

/// Returns true if the settings override lower layers.
pub(super) fn is_set(spec: &TracingSettings) -> bool {
    !matches!(spec.mode, None | Some(TracingMode::ImplementationDefault))
}

/// The error names the field.
pub(crate) fn read(spec: &TracingSettings) -> Result<TracingDecision<'_>, Grounds> {
    let TracingSettings {
        mode,
        provider,
        sampling_rate,
        parent_based_sampling,
        service_name,
        span_name,
        attributes,
    } = spec;
    if let Some(decision) = without_spans(mode.as_ref())? {
        for (field, there) in [
            ("provider", provider.is_some()),
            ("samplingRate", sampling_rate.is_some()),
            ("parentBasedSampling", parent_based_sampling.is_some()),
            ("serviceName", service_name.is_some()),
            ("spanName", span_name.is_some()),
            ("attributes", !attributes.is_empty()),
        ] {
            if there {
                return Err(invalid(format!("{field} needs mode Enabled")));
            }
        }
        return Ok(decision);
    }
    let Some(TracingProvider {
        backend_ref,
        headers,
    }) = provider
    else {
        return Err(invalid("provider is required with mode Enabled"));
    };
    let tracing = Tracing {
        backend: String::new(),
        http: false,
        headers: collector_headers::read("provider.headers", headers)?,
        sampled_per_million: match sampling_rate {
            Some(rate) => per_million("samplingRate", rate).map_err(invalid)?,
            None => SAMPLED_PER_MILLION,
        },
        ignores_parent: ignores_parent(parent_based_sampling.as_ref())?,
        service_name: name(
            "serviceName",
            service_name.as_deref(),
            "",
            limits::MAX_SERVICE_NAME,
        )?,
        span_name: name("spanName", span_name.as_deref(), " ", limits::MAX_SPAN_NAME)?,
        attributes: read_attributes(attributes)?,
    };
    Ok(TracingDecision::To(backend_ref, tracing))
}

/// Returns `None` if the mode exports spans.
fn without_spans(mode: Option<&TracingMode>) -> Result<Option<TracingDecision<'static>>, Grounds> {
    Ok(match mode {
        Some(TracingMode::Enabled) => None,
        Some(TracingMode::Disabled) => Some(TracingDecision::Off),
        None | Some(TracingMode::ImplementationDefault) => Some(TracingDecision::Inherit),
        Some(TracingMode::Other(other)) => {
            return Err(unsupported(format!(
                "mode {other:?} is not supported; expected {}",
                TracingMode::WORDS.join(", ")
            )));
        }
    })
}

fn invalid(why: impl Into<String>) -> Grounds {
    (Reason::Invalid, why.into())
}

fn per_million(field: &str, rate: &Fraction) -> Result<u32, String> {
    let Fraction {
        numerator,
        denominator,
    } = rate;
    let (of, all) = (*numerator, denominator.unwrap_or(100));
    match (u64::try_from(of), u64::try_from(all)) {
        (Ok(part), Ok(whole)) if whole > 0 && part <= whole => {
            // At most one million, so the conversion cannot fail.
            Ok(u32::try_from(part * MILLION / whole).unwrap_or(u32::MAX))
        }
        _ => Err(format!(
            "{field}: {of} of {all} is not a valid share; expected a numerator from 0 to the \
            denominator"
        )),
    }
}

fn ignores_parent(spec: Option<&ParentBasedSampling>) -> Result<bool, Grounds> {
    let Some(ParentBasedSampling {
        mode,
        sampling_rate,
    }) = spec
    else {
        return Ok(false);
    };
    let at = "parentBasedSampling";
    let ignores = match mode {
        None | Some(ParentSamplingMode::Enabled | ParentSamplingMode::ImplementationDefault) => {
            false
        }
        Some(ParentSamplingMode::Disabled) => true,
        Some(ParentSamplingMode::Other(other)) => {
            return Err(unsupported(format!(
                "{at}.mode {other:?} is not supported; expected {}",
                ParentSamplingMode::WORDS.join(", ")
            )));
        }
    };
    if let Some(rate) = sampling_rate {
        if *mode != Some(ParentSamplingMode::Enabled) {
            return Err(invalid(format!("{at}.samplingRate needs mode Enabled")));
        }
        let field = format!("{at}.samplingRate");
        if u64::from(per_million(&field, rate).map_err(invalid)?) != MILLION {
            return Err(unsupported(format!(
                "{field} of less than all is not supported: Envoy follows the caller's decision \
                for every trace or ignores it; leave it out, or set {at}.mode to Disabled"
            )));
        }
    }
    Ok(ignores)
}

/// Accepts letters, digits, `_.:/-` and, except at either end, characters in `more`. Returns an
/// empty string if unset.
fn name(field: &str, value: Option<&str>, more: &str, most: usize) -> Result<String, Grounds> {
    let Some(value) = value else {
        return Ok(String::new());
    };
    check_name(field, value, more, most).map_err(invalid)?;
    Ok(value.to_owned())
}

fn check_name(field: &str, value: &str, more: &str, most: usize) -> Result<(), String> {
    limits::max_bytes(field, value, most)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c) || more.contains(c);
    if value.is_empty() || !value.chars().all(fits) || value.split(' ').any(str::is_empty) {
        let spaces = if more.is_empty() {
            ""
        } else {
            ", with single spaces between them"
        };
        return Err(format!(
            "{field} {value:?} is not valid; expected letters, digits and _.:/-{spaces}"
        ));
    }
    Ok(())
}

fn read_attributes(attributes: &[TracingAttribute]) -> Result<Vec<SpanAttribute>, Grounds> {
    limits::entries("attributes", attributes.len(), 0..=limits::MAX_ATTRIBUTES).map_err(invalid)?;
    let mut found = Vec::with_capacity(attributes.len());
    for (i, attribute) in attributes.iter().enumerate() {
        let read = read_attribute(attribute);
        found.push(read.map_err(|(reason, why)| (reason, format!("attributes[{i}].{why}")))?);
    }
    found.sort_by(|a: &SpanAttribute, b| a.name.cmp(&b.name));
    match found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(invalid(format!(
            "attributes contains duplicate name {:?}",
            pair[0].name
        ))),
        None => Ok(found),
    }
}

/// The error starts with the field path relative to `attribute`.
fn read_attribute(attribute: &TracingAttribute) -> Result<SpanAttribute, Grounds> {
    let TracingAttribute {
        name,
        source_type,
        header_name,
        literal_value,
        attribute_key,
    } = attribute;
    check_name("name", name, "", limits::MAX_ATTRIBUTE_NAME).map_err(invalid)?;
    let source = match (source_type, header_name, literal_value, attribute_key) {
        (AttributeSourceType::Header, Some(header), None, None) => {
            names::check_token(format_args!("headerName"), header).map_err(invalid)?;
            Source::Header(header.to_ascii_lowercase())
        }
        (AttributeSourceType::Literal, None, Some(value), None) => {
            limits::max_bytes("literalValue", value, limits::MAX_ATTRIBUTE_VALUE)
                .map_err(invalid)?;
            if value.is_empty() {
                return Err(invalid("literalValue must not be empty"));
            }
            Source::Literal(value.clone())
        }
        (AttributeSourceType::Attribute, None, None, Some(key)) => Source::Fact(fact(key)?.into()),
        (AttributeSourceType::Other(other), ..) => {
            return Err(unsupported(format!(
                "sourceType {other:?} is not supported; expected {}",
                AttributeSourceType::WORDS.join(", ")
            )));
        }
        (known, ..) => {
            let field = match known {
                AttributeSourceType::Header => "headerName",
                AttributeSourceType::Literal => "literalValue",
                _ => "attributeKey",
            };
            return Err(invalid(format!(
                "set {field}, and no other source, with sourceType {known}"
            )));
        }
    };
    Ok(SpanAttribute {
        name: name.clone(),
        source: Some(source),
    })
}

/// Sorted by OpenTelemetry name.
const FACTS: &[(&str, RequestFact)] = &[
    ("client.address", RequestFact::ClientAddress),
    ("client.port", RequestFact::ClientPort),
    ("http.request.body.size", RequestFact::HttpRequestBodySize),
    ("http.request.method", RequestFact::HttpRequestMethod),
    ("http.response.body.size", RequestFact::HttpResponseBodySize),
    (
        "http.response.status_code",
        RequestFact::HttpResponseStatusCode,
    ),
    ("network.peer.address", RequestFact::NetworkPeerAddress),
    ("network.peer.port", RequestFact::NetworkPeerPort),
    ("rpc.grpc.status_code", RequestFact::RpcGrpcStatusCode),
    ("server.address", RequestFact::ServerAddress),
    ("tls.cipher", RequestFact::TlsCipher),
    ("tls.client.server_name", RequestFact::TlsClientServerName),
    ("tls.client.subject", RequestFact::TlsClientSubject),
    ("url.path", RequestFact::UrlPath),
    ("url.scheme", RequestFact::UrlScheme),
    ("user_agent.original", RequestFact::UserAgentOriginal),
];

fn fact(key: &str) -> Result<RequestFact, Grounds> {
    let known = FACTS.iter().find(|(name, _)| *name == key);
    known.map(|(_, fact)| *fact).ok_or_else(|| {
        let key: String = key.chars().take(limits::MAX_ATTRIBUTE_NAME).collect();
        let known: Vec<&str> = FACTS.iter().map(|(name, _)| *name).collect();
        unsupported(format!(
            "attributeKey {key:?} is not supported; expected one of {}",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled() -> TracingSettings {
        TracingSettings {
            mode: Some(TracingMode::Enabled),
            provider: Some(TracingProvider::default()),
            ..TracingSettings::default()
        }
    }

    fn tracing(spec: &TracingSettings) -> Result<Tracing, Grounds> {
        match read(spec)? {
            TracingDecision::To(_, tracing) => Ok(tracing),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sampling_rate_is_per_million_and_capped() {
        for (numerator, denominator, expected) in [
            (0, None, Some(0)),
            (5, None, Some(50_000)),
            (100, None, Some(1_000_000)),
            (1, Some(3), Some(333_333)),
            (i32::MAX, Some(i32::MAX), Some(1_000_000)),
            (101, None, None),
            (-1, None, None),
            (0, Some(0), None),
            (1, Some(-1), None),
        ] {
            let rate = Fraction {
                numerator,
                denominator,
            };
            let found = per_million("samplingRate", &rate).ok();
            assert_eq!(found, expected, "{numerator} of {denominator:?}");
        }
    }

    #[test]
    fn tracing_settings_require_enabled_mode_and_provider() {
        for mode in [
            None,
            Some(TracingMode::Disabled),
            Some(TracingMode::ImplementationDefault),
        ] {
            let spec = TracingSettings { mode, ..enabled() };
            assert_eq!(read(&spec).unwrap_err().0, Reason::Invalid);
        }
        let without = TracingSettings {
            provider: None,
            ..enabled()
        };
        assert_eq!(read(&without).unwrap_err().0, Reason::Invalid);
        assert_eq!(tracing(&enabled()).unwrap().sampled_per_million, 10_000);
    }

    #[test]
    fn names_and_attributes() {
        for (span, good) in [
            ("GET /a", true),
            ("a  b", false),
            (" a", false),
            ("%PROTOCOL%", false),
            ("", false),
        ] {
            let spec = TracingSettings {
                span_name: Some(span.to_owned()),
                ..enabled()
            };
            assert_eq!(read(&spec).is_ok(), good, "{span}");
        }
        let attribute = |key: &str| TracingAttribute {
            name: "a".to_owned(),
            source_type: AttributeSourceType::Attribute,
            header_name: None,
            literal_value: None,
            attribute_key: Some(key.to_owned()),
        };
        assert!(FACTS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(read_attribute(&attribute("url.path")).is_ok());
        let unknown = read_attribute(&attribute("gen_ai.tool.name")).unwrap_err();
        assert_eq!(unknown.0, Reason::UnsupportedValue);
        let both = TracingAttribute {
            literal_value: Some("b".to_owned()),
            ..attribute("url.path")
        };
        assert_eq!(read_attribute(&both).unwrap_err().0, Reason::Invalid);
    }
}
