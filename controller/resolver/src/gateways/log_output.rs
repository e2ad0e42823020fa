//! Resolves the format and receivers of each Gateway's access log.
//!
//! If a receiver is unusable, the other receivers still get the log, and requests are unaffected.

use sesame_proto::schema::{LogOutput, LogSink, extra_field::Source, log_sink::Protocol};

use super::collectors::{self, FoundCollector};
use crate::backends::{Backends, PolicedBackend};
use crate::context::ResolveContext;
use crate::context::grants::Referrer;
use crate::settings::access_log::{self, ConfiguredLog, ConfiguredSinks};
use sesame_kinds::api::LogReceiver;
use sesame_kinds::world::Kind;

#[derive(Debug, Default)]
pub(crate) struct GatewayLog<'w> {
    /// `None` if the defaults apply.
    pub(crate) output: Option<LogOutput>,
    pub(crate) policed: Vec<PolicedBackend<'w>>,
}

pub(super) fn check<'w>(
    configured: &ConfiguredLog,
    meshed: bool,
    backends: &mut Backends<'w>,
    cx: &ResolveContext<'w, '_>,
) -> (GatewayLog<'w>, Vec<String>) {
    let ConfiguredLog {
        format,
        on_host,
        sinks,
    } = configured;
    let mut output = LogOutput {
        form: format
            .as_ref()
            .and_then(|it| access_log::read_form(it).ok()),
        not_on_host: *on_host == Some(false),
        sinks: Vec::new(),
    };
    let (mut policed, mut faults) = (Vec::new(), Vec::new());
    if let Some(ConfiguredSinks { namespace, sinks }) = sinks {
        for (i, sink) in sinks.iter().enumerate() {
            match find(sink, namespace, meshed, &mut policed, backends, cx) {
                Ok(found) => output.sinks.extend(found),
                Err(why) => faults.push(format!(
                    "spec.accessLog.sinks[{i}].{why}; this receiver gets no log"
                )),
            }
        }
    }
    faults.extend(unsent_fields(&output));
    let output = (output != LogOutput::default()).then_some(output);
    (GatewayLog { output, policed }, faults)
}

/// `Ok(None)` means that an error was reported earlier.
fn find<'w>(
    sink: &LogReceiver,
    namespace: &str,
    meshed: bool,
    policed: &mut Vec<PolicedBackend<'w>>,
    backends: &mut Backends<'w>,
    cx: &ResolveContext<'w, '_>,
) -> Result<Option<LogSink>, String> {
    let Ok(mut read) = access_log::read_sink(sink) else {
        return Ok(None);
    };
    let referrer = Referrer::new(Kind::SesameConfiguration, namespace);
    let (reference, what) = (&sink.backend_ref, "an access log over the network");
    let found = collectors::find(reference, referrer, meshed, what, policed, backends, cx);
    let FoundCollector { backend, http } =
        found.map_err(|(_, why)| format!("backendRef of a SesameConfiguration: {why}"))?;
    match (read.protocol(), http) {
        (Protocol::Otlp, true) => read.set_protocol(Protocol::OtlpHttp),
        (Protocol::Envoy, true) => {
            return Err(
                "protocol of a SesameConfiguration: EnvoyALS needs gRPC, which appProtocol of the \
                port rules out; remove appProtocol, or use OTLP"
                    .to_owned(),
            );
        }
        (_, _) => {}
    }
    read.backend = backend;
    Ok(Some(read))
}

/// Returns a message for each log field that is omitted for OTLP receivers.
fn unsent_fields(output: &LogOutput) -> impl Iterator<Item = String> {
    let mut sinks = output.sinks.iter();
    let by_otlp = sinks.any(|sink| sink.protocol() != Protocol::Envoy);
    let extra = output.form.iter().flat_map(|form| &form.extra);
    let unsent = extra
        .filter(move |field| by_otlp && matches!(field.source, Some(Source::ResponseHeader(_))));
    unsent.map(|field| {
        format!(
            "spec.accessLog.format.extraFields of a SesameConfiguration: {:?} is a response \
            header, which may not be text, so OTLP does not send it",
            field.name
        )
    })
}
