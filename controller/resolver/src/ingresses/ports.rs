//! Ports of the listeners that serve Ingresses and HTTPProxies.

use crate::syntax::names;
use sesame_kinds::api::IngressSettings;

/// `None` allows every port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IngressPorts {
    pub(crate) http: Option<u16>,
    pub(crate) https: Option<u16>,
}

impl IngressPorts {
    pub(crate) fn of(settings: Option<&IngressSettings>) -> Self {
        let port = |field: fn(&IngressSettings) -> Option<i32>| names::port(field(settings?)?);
        Self {
            http: port(|it| it.http),
            https: port(|it| it.https),
        }
    }

    /// Port of TLS hosts and target of redirects to HTTPS.
    pub(crate) fn of_tls_hosts(self) -> u16 {
        self.https.unwrap_or(IngressSettings::HTTPS)
    }

    /// Empty, or text that starts with a space.
    pub(crate) fn described(self) -> String {
        let fields = [("http", self.http), ("https", self.https)].into_iter();
        let set = fields.filter_map(|(field, port)| Some((field, port?)));
        let set: Vec<String> = set
            .map(|(field, port)| format!("{port} (spec.ingress.{field})"))
            .collect();
        if set.is_empty() {
            String::new()
        } else {
            format!(" on port {}", set.join(" or "))
        }
    }
}
