//! Form and receivers of the access log of each Gateway.
//!
//! A receiver that cannot be used is sent nothing, the others are, requests go on, and the Gateway's status says why.

use sesame_proto::schema::{LogOutput, extra_field::Source, log_sink::Protocol};

use super::collectors::{self, FoundCollector};
use crate::api::SESAME_GROUP;
use crate::resolve::backends::{Backends, PolicedBackend};
use crate::resolve::context::ResolveContext;
use crate::resolve::context::grants::Referrer;
use crate::resolve::settings::access_log::{self, ConfiguredLog, ConfiguredSinks};
use crate::world::Kind;

/// Access log of one Gateway.
#[derive(Debug, Default)]
pub(crate) struct GatewayLog<'w> {
    /// Form and receivers as the snapshot says them; none if they are as by default.
    pub(crate) output: Option<LogOutput>,
    /// The receivers, where objects have them in their statuses.
    pub(crate) policed: Vec<PolicedBackend<'w>>,
}

/// Returns the access log of a Gateway, and a message for each receiver that cannot be used.
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
        // It has been checked.
        form: format
            .as_ref()
            .and_then(|it| access_log::read_form(it).ok()),
        not_on_host: *on_host == Some(false),
        sinks: Vec::new(),
    };
    let (mut policed, mut faults) = (Vec::new(), Vec::new());
    if let Some(ConfiguredSinks { namespace, sinks }) = sinks {
        let referrer = || Referrer {
            group: SESAME_GROUP,
            kind: Kind::SesameConfiguration.as_str(),
            namespace,
        };
        for (i, sink) in sinks.iter().enumerate() {
            // They have been checked.
            let Ok(mut read) = access_log::read_sink(sink) else {
                continue;
            };
            let mut fault = |field: &str, why: &str| {
                faults.push(format!(
                    "spec.accessLog.sinks[{i}].{field} of a SesameConfiguration: {why}; no lines are sent there"
                ));
            };
            let reference = &sink.backend_ref;
            let what = "an access log over the network";
            match collectors::find(
                reference,
                referrer(),
                meshed,
                what,
                &mut policed,
                backends,
                cx,
            ) {
                Ok(FoundCollector { backend, http }) => {
                    match (read.protocol(), http) {
                        (Protocol::Otlp, true) => read.set_protocol(Protocol::OtlpHttp),
                        (Protocol::Envoy, true) => {
                            let why = "EnvoyALS is spoken over gRPC, which appProtocol of the port excludes; remove that, or use OTLP";
                            fault("protocol", why);
                            continue;
                        }
                        (_, _) => {}
                    }
                    read.backend = backend;
                    output.sinks.push(read);
                }
                Err((_, why)) => fault("backendRef", &why),
            }
        }
    }
    let by_otlp = output
        .sinks
        .iter()
        .any(|it| it.protocol() != Protocol::Envoy);
    let extra = output.form.iter().flat_map(|form| &form.extra);
    for field in extra.filter(|_| by_otlp) {
        if let Some(Source::ResponseHeader(_)) = field.source {
            faults.push(format!(
                "spec.accessLog.format.extraFields of a SesameConfiguration: {:?} is a header of the answer, which may be no text: it is \
                 not sent by OTLP",
                field.name
            ));
        }
    }
    let output = (output != LogOutput::default()).then_some(output);
    (GatewayLog { output, policed }, faults)
}
