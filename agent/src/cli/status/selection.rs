//! Selects the objects that `status` shows, using kubectl's naming conventions.

use anyhow::bail;
use sesame_kinds::world::Kind;

use sesame_engine::report::{ObjectReport, Report};
use sesame_sources::problem::SourceProblem;

const KINDS: [Kind; 20] = [
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::TcpRoute,
    Kind::UdpRoute,
    Kind::HttpProxy,
    Kind::ExtensionService,
    Kind::Ingress,
    Kind::BackendTlsPolicy,
    Kind::BackendPolicy,
    Kind::AccessPolicy,
    Kind::TrafficPolicy,
    Kind::GatewayMeshPolicy,
    Kind::MeshOcgPolicy,
    Kind::XTelemetryPolicy,
    Kind::XBackend,
    Kind::XBackendTrafficPolicy,
];

#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    wanted: Vec<Selector>,
    namespace: Option<String>,
    gateway: Option<String>,
    pub(super) all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Selector {
    kind: Kind,
    namespace: Option<String>,
    name: Option<String>,
}

impl Selection {
    /// Parses `KIND[,KIND]`, `KIND NAME...` or `KIND/NAME...`. A namespace may precede each name.
    pub(super) fn parse(
        objects: &[String],
        namespace: Option<String>,
        gateway: Option<String>,
        all: bool,
    ) -> anyhow::Result<Self> {
        let mut wanted = Vec::new();
        match objects {
            [] => {}
            [first, ..] if first.contains('/') => {
                for object in objects {
                    let Some((kind, name)) = object.split_once('/') else {
                        bail!("{object:?}: expected KIND/NAME, like the previous object");
                    };
                    wanted.push(Selector::named(self::kind(kind)?, name)?);
                }
            }
            [first, names @ ..] => {
                let kinds: Vec<Kind> = first.split(',').map(kind).collect::<Result<_, _>>()?;
                for kind in kinds {
                    if names.is_empty() {
                        wanted.push(Selector {
                            kind,
                            namespace: None,
                            name: None,
                        });
                    }
                    for name in names {
                        wanted.push(Selector::named(kind, name)?);
                    }
                }
            }
        }
        Ok(Self {
            wanted,
            namespace,
            gateway,
            all,
        })
    }

    pub(super) fn is_everything(&self) -> bool {
        !self.names_objects() && self.gateway.is_none()
    }

    pub(super) fn names_objects(&self) -> bool {
        !self.wanted.is_empty() || self.namespace.is_some()
    }

    pub(super) fn names_kind(&self, kind: &str) -> bool {
        self.wanted
            .iter()
            .any(|wanted| wanted.kind.as_str() == kind)
    }

    pub(super) fn shows_all_of(&self, object: &ObjectReport) -> bool {
        let named = |wanted: &Selector| wanted.name.is_some() && wanted.is(object);
        self.all || self.wanted.iter().any(named)
    }

    /// Fails if the selected Gateway is unknown.
    pub(super) fn apply(&self, mut report: Report) -> anyhow::Result<Report> {
        if let Some(name) = &self.gateway {
            report.gateways.retain(|gateway| gateway.gateway == *name);
            report
                .objects
                .retain(|object| object.gateways.contains(name));
            if report.gateways.is_empty() && report.objects.is_empty() {
                bail!("no Gateway {name} is served here");
            }
        }
        report.objects.retain(|object| self.selects(object));
        Ok(report)
    }

    fn selects(&self, object: &ObjectReport) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == object.namespace)
            && (self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted.is(object)))
    }

    pub(super) fn concerns(&self, problem: &SourceProblem, report: &Report) -> bool {
        let name = |object: &ObjectReport| {
            let parts = [&object.kind, &object.namespace, &object.name];
            let parts: Vec<&str> = parts.into_iter().map(String::as_str).collect();
            parts
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("/")
        };
        self.is_everything()
            || problem
                .object
                .as_ref()
                .is_some_and(|of| report.objects.iter().any(|object| name(object) == *of))
    }

    pub(super) fn missing(&self, report: &Report) -> Vec<String> {
        self.wanted
            .iter()
            .filter(|wanted| !report.objects.iter().any(|object| wanted.is(object)))
            .filter_map(|wanted| {
                let Selector {
                    kind,
                    namespace,
                    name,
                } = wanted;
                let name = name.as_ref()?;
                Some(match namespace {
                    Some(namespace) => format!("{kind} {namespace}/{name}"),
                    None => format!("{kind} {name}"),
                })
            })
            .collect()
    }
}

impl Selector {
    fn named(kind: Kind, name: &str) -> anyhow::Result<Self> {
        let (namespace, name) = match name.split('/').collect::<Vec<_>>().as_slice() {
            [name] if !name.is_empty() => (None, *name),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                (Some((*namespace).to_owned()), *name)
            }
            _ => bail!("{name:?}: expected NAME or NAMESPACE/NAME of a {kind}"),
        };
        Ok(Self {
            kind,
            namespace,
            name: Some(name.to_owned()),
        })
    }

    fn is(&self, object: &ObjectReport) -> bool {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        let of = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        object.kind == kind.as_str() && of(namespace, &object.namespace) && of(name, &object.name)
    }
}

/// Accepts upper or lower case, and the singular, plural or short form.
fn kind(text: &str) -> anyhow::Result<Kind> {
    if let Some(kind) = Kind::parse(text).filter(|kind| KINDS.contains(kind)) {
        return Ok(kind);
    }
    let known: Vec<&str> = KINDS.iter().map(|kind| kind.as_str()).collect();
    bail!(
        "{text:?}: expected a kind with a status: {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Selection> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Selection::parse(&words, None, None, false)
    }

    fn object(kind: &str, namespace: &str, name: &str) -> ObjectReport {
        ObjectReport {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            gateways: Vec::new(),
            status: serde_json::Value::Null,
        }
    }

    #[test]
    fn kinds_and_names_are_written_as_for_kubectl() {
        let route = object("HTTPRoute", "default", "web");
        let policy = object("BackendTLSPolicy", "default", "web");
        let class = object("GatewayClass", "", "sesame");
        for (words, takes) in [
            (&[][..], [true, true, true]),
            (&["httproute"], [true, false, false]),
            (&["HTTPRoutes,gatewayclasses"], [true, false, true]),
            (&["backendtlspolicies"], [false, true, false]),
            (&["btlspolicy"], [false, true, false]),
            (&["gateways"], [false, false, false]),
            (&["httproute", "web", "api"], [true, false, false]),
            (&["httproute", "api"], [false, false, false]),
            (
                &["httproute/web", "gatewayclass/sesame"],
                [true, false, true],
            ),
            (&["httproute/default/web"], [true, false, false]),
            (&["httproute/other/web"], [false, false, false]),
        ] {
            let selection = parse(words).expect("valid arguments");
            let taken = [&route, &policy, &class].map(|object| selection.selects(object));
            assert_eq!(taken, takes, "{words:?}");
        }
        for (words, expected) in [
            (&["pod"][..], "expected a kind with a status: GatewayClass"),
            (&["httproute/web", "api"], "expected KIND/NAME"),
            (&["httproute/a/b/c"], "expected NAME or NAMESPACE/NAME"),
            (&["httproute/"], "expected NAME"),
        ] {
            let error = parse(words).expect_err("refused").to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
