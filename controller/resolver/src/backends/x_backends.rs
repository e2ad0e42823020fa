//! Validates XBackends and converts them to Backends. Traffic to an XBackend with an unsupported
//! setting is rejected.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sesame_proto::digest;
use sesame_proto::schema::{AppProtocol, Backend, BackendTls, TrustBundle};

use super::references::BackendName;
use super::settings::BackendSettings;
use super::traffic::Traffic;
use super::validation::Validation;
use super::{BackendEntry, BackendTarget, Backends, Source};
use crate::context::ResolveContext;
use crate::syntax::names;
use crate::tls::ca_bundles::CaBundles;
use sesame_kinds::api::{EndpointSelector, XBackend, XBackendPort, XBackendSpec, XBackendTls};
use sesame_kinds::status::{Grounds, Reason, Verdict, unsupported};
use sesame_kinds::world::Kind;

const MAX_LABELS: usize = 64;

pub(crate) struct CheckedXBackend<'w> {
    pub(crate) object: &'w XBackend,
    pub(crate) accepted: Verdict,
    tls: Option<BackendTls>,
    bundle: Option<Arc<TrustBundle>>,
    /// 0 if the XBackend is not accepted.
    pub(super) port: u16,
}

/// Keyed by namespace and name.
#[derive(Default)]
pub(crate) struct XBackends<'w>(HashMap<(&'w str, &'w str), CheckedXBackend<'w>>);

impl<'w> XBackends<'w> {
    pub(crate) fn check_all(cx: &mut ResolveContext<'w, '_>, bundles: &mut CaBundles<'w>) -> Self {
        let mut all = HashMap::new();
        for object in &cx.world.x_backends {
            let metadata = &object.metadata;
            let name = (metadata.namespace.as_str(), metadata.name.as_str());
            all.insert(name, check(object, cx, bundles));
        }
        Self(all)
    }

    pub(crate) fn get<'n>(&'n self, name: BackendName<'n>) -> Option<&'n CheckedXBackend<'w>> {
        self.0.get(&name)
    }

    pub(super) fn bundles(&self) -> impl Iterator<Item = &TrustBundle> {
        self.0.values().filter_map(|it| it.bundle.as_deref())
    }
}

fn check<'w>(
    object: &'w XBackend,
    cx: &mut ResolveContext<'w, '_>,
    bundles: &mut CaBundles<'w>,
) -> CheckedXBackend<'w> {
    let XBackendSpec {
        type_,
        endpoint_selector,
        external_hostname,
        port: XBackendPort { number },
        protocol,
        // Validated separately for each rule.
        session_persistence: _,
        tls,
    } = &object.spec;
    let mut accepted = Verdict::default();
    let unsupported = Reason::UnsupportedValue;
    accepted.refuse_if(unsupported, object.metadata.unknown.refusal(""));
    match type_.as_str() {
        "EndpointSelector" => {
            if external_hostname.is_some() {
                let why = "spec.externalHostname must not be set with type EndpointSelector";
                accepted.refuse(Reason::Invalid, why);
            }
            let labels = endpoint_selector.as_ref().map(|it| it.match_labels.len());
            if !labels.is_some_and(|count| (1..=MAX_LABELS).contains(&count)) {
                let why = format!(
                    "spec.endpointSelector.matchLabels has {} labels; expected 1 to {MAX_LABELS}",
                    labels.unwrap_or_default()
                );
                accepted.refuse(Reason::Invalid, why);
            }
        }
        other => {
            let why =
                format!("spec.type {other:?} is not supported; expected \"EndpointSelector\"");
            accepted.refuse(unsupported, why);
        }
    }
    let number = number.unwrap_or_default();
    let port = names::port(number);
    if port.is_none() {
        let why = format!("spec.port.number {number} is out of range; expected 1 to 65535");
        accepted.refuse(Reason::Invalid, why);
    }
    let (tls, bundle) = read_tls(object, tls.as_ref(), &mut accepted, bundles, cx);
    if let Err((reason, why)) = check_protocol(protocol.as_deref(), tls.is_some()) {
        accepted.refuse(reason, why);
    }
    CheckedXBackend {
        object,
        port: port.filter(|_| accepted.good()).unwrap_or_default(),
        accepted,
        tls,
        bundle,
    }
}

fn read_tls<'w>(
    object: &'w XBackend,
    tls: Option<&'w XBackendTls>,
    accepted: &mut Verdict,
    bundles: &mut CaBundles<'w>,
    cx: &mut ResolveContext<'w, '_>,
) -> (Option<BackendTls>, Option<Arc<TrustBundle>>) {
    let Some(XBackendTls {
        mode,
        validation,
        client_certificate_ref,
    }) = tls
    else {
        return (None, None);
    };
    let expected = match (mode.as_str(), validation, client_certificate_ref) {
        ("None", None, None) => return (None, None),
        ("ServerOnly", Some(validation), None) => {
            let asked = Validation {
                of: validation,
                at: "spec.tls.validation",
                kind: Kind::XBackend,
                metadata: &object.metadata,
                patterns: None,
            };
            let mut resolved = Verdict::default();
            let (tls, bundle) = asked.read(accepted, &mut resolved, bundles, cx);
            accepted.add(&resolved);
            return (Some(tls), bundle);
        }
        ("None", ..) => "neither validation nor clientCertificateRef",
        ("ServerOnly", ..) => "validation without clientCertificateRef",
        ("ClientAndServer", ..) => {
            let why = "spec.tls.mode ClientAndServer is not supported; use ServerOnly, and name the client certificate in \
                       spec.tls.backend of the Gateway";
            accepted.refuse(Reason::UnsupportedValue, why);
            return (None, None);
        }
        (other, ..) => {
            let why = format!("spec.tls.mode {other:?} is unknown; expected None or ServerOnly");
            accepted.refuse(Reason::UnsupportedValue, why);
            return (None, None);
        }
    };
    let why = format!("spec.tls with mode {mode} is not valid; expected {expected}");
    accepted.refuse(Reason::Invalid, why);
    (None, None)
}

/// Checks that the protocol matches the TLS settings.
fn check_protocol(protocol: Option<&str>, tls: bool) -> Result<(), Grounds> {
    let fault = match protocol {
        None | Some("HTTP" | "HTTP11" | "GRPC" | "TCP") => return Ok(()),
        Some("H2C") if !tls => return Ok(()),
        Some("HTTP2" | "WSS") if tls => return Ok(()),
        Some("H2C") => "must not be set with TLS; use HTTP2",
        Some("HTTP2") => "requires spec.tls with mode ServerOnly; use H2C without TLS",
        Some("WSS") => "requires spec.tls with mode ServerOnly",
        Some(_) => "is not supported; expected HTTP, HTTP11, HTTP2, H2C, GRPC, WSS or TCP",
    };
    let protocol = protocol.unwrap_or_default();
    let reason = match protocol {
        "H2C" | "HTTP2" | "WSS" => Reason::Invalid,
        _ => Reason::UnsupportedValue,
    };
    Err((reason, format!("spec.protocol {protocol:?} {fault}")))
}

impl CheckedXBackend<'_> {
    /// Returns `None` if the XBackend is not accepted.
    pub(super) fn labels(&self) -> Option<&BTreeMap<String, String>> {
        let selector = self.object.spec.endpoint_selector.as_ref();
        let selector = selector.filter(|_| self.accepted.good());
        selector.map(|EndpointSelector { match_labels }| match_labels)
    }

    pub(super) fn backend(
        &self,
        traffic: Traffic,
        policy: Option<&BackendSettings>,
        unfit: &mut Vec<String>,
    ) -> Result<Backend, Grounds> {
        let key = self.object.metadata.key();
        let protocol = self.object.spec.protocol.as_deref();
        let http = match protocol {
            None | Some("HTTP" | "HTTP11") => Some(AppProtocol::Http1),
            Some("HTTP2" | "H2C" | "GRPC") => Some(AppProtocol::Http2),
            Some("WSS") => Some(AppProtocol::Websocket),
            Some(_) => None,
        };
        let (spoken, expected) = match traffic {
            Traffic::Connections | Traffic::Bytes | Traffic::Terminated => {
                (Some(AppProtocol::TcpBytes), "")
            }
            Traffic::Datagrams => (None, "a Service for datagrams"),
            Traffic::Http => (http, "HTTP, HTTP11, HTTP2, H2C, GRPC or WSS for requests"),
            // gRPC requires HTTP/2.
            Traffic::Grpc => (
                http.filter(|_| !matches!(protocol, Some("HTTP11" | "WSS")))
                    .map(|_| AppProtocol::Http2),
                "GRPC, H2C, HTTP2 or HTTP for gRPC",
            ),
        };
        let Some(spoken) = spoken else {
            let protocol = protocol.unwrap_or("of its routes");
            let message = format!("XBackend {key} has protocol {protocol}; expected {expected}");
            return Err((Reason::UnsupportedProtocol, message));
        };
        // With TLS passthrough, the client negotiates TLS with the backend.
        let tls = self.tls.clone().filter(|_| traffic.supports_tls_policies());
        let plain = format!("XBackend/{key}/{}", self.port);
        let mut backend = Backend {
            name: String::new(),
            endpoints: plain.clone(),
            protocol: spoken.into(),
            tls: tls.map(Box::new),
            ..Backend::default()
        };
        let policy = policy.cloned().unwrap_or_default();
        let is_set = policy.apply(traffic, &mut backend, unfit);
        backend.name = if spoken == AppProtocol::Http1 && backend.tls.is_none() && !is_set {
            plain
        } else {
            format!("{plain}/{}", digest::backend(&backend))
        };
        Ok(backend)
    }
}

impl Backends<'_> {
    /// The reference must not set a port.
    pub(super) fn x_backend(
        &mut self,
        name: BackendName<'_>,
        port: Option<i32>,
        traffic: Traffic,
    ) -> Result<BackendTarget, Grounds> {
        let at = format!("XBackend {}/{}", name.0, name.1);
        let Some(found) = self.checked.x_backends.get(name) else {
            return Err((Reason::BackendNotFound, format!("{at} does not exist")));
        };
        if let Some(port) = port {
            return Err(unsupported(format!(
                "port {port} must not be set; the port of {at} applies"
            )));
        }
        if !found.accepted.good() {
            let why = format!("{at} is not accepted; see its status");
            return Ok(BackendTarget::Refused(why));
        }
        let source = Source::XBackend(&found.object.metadata);
        let policies = &self.checked.backend_policies;
        let applied = policies.applied(Kind::XBackend, name, "");
        let mut unfit = Vec::new();
        let settings = applied.map(|(_, settings)| settings);
        let backend = found.backend(traffic, settings, &mut unfit)?;
        self.record_unfit(applied.map(|(policy, _)| policy), &at, unfit);
        let name = backend.name.clone();
        self.add(BackendEntry { backend, source });
        Ok(BackendTarget::Backend(name))
    }
}
